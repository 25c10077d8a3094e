//! Builds `bareverbs-c` and makes a folder of the shared libraries that RDMA programs load.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Makes libibverbs.so.1, librdmacm.so.1 and what else RDMA programs load, of bareverbs.
#[derive(Parser)]
struct Options {
    /// The folder to make; target/bundle if not given.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Without optimization: quicker to build, for debugging.
    #[arg(long)]
    debug: bool,
    /// Also make a Debian package of it, beside the folder. Its maintainer is DEBFULLNAME and DEBEMAIL of the environment.
    #[arg(long)]
    deb: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match make(&options) {
        Ok(made) => {
            println!("{}", made.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("bundle: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The folder, or the package.
fn make(options: &Options) -> Result<PathBuf, String> {
    let bundle = bareverbs_bundle::build(options.out.as_deref(), options.debug)?;
    match options.deb {
        true => bareverbs_bundle::package(&bundle),
        false => Ok(bundle.folder),
    }
}
