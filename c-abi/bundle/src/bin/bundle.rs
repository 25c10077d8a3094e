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
}

fn main() -> ExitCode {
    let options = Options::parse();
    match bareverbs_bundle::build(options.out.as_deref(), options.debug) {
        Ok(bundle) => {
            println!("{}", bundle.folder.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("bundle: {why}");
            ExitCode::FAILURE
        }
    }
}
