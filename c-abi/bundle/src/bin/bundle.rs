//! Builds `bareverbs-c` and makes a folder of the shared libraries that RDMA programs load.

use std::path::PathBuf;
use std::process::ExitCode;

use bareverbs_bundle::Kept;
use bareverbs_command_line::{EMPTY, end_at_a_closed_pipe, is_path, parse};
use bpaf::Bpaf;

/// Makes libibverbs.so.1, librdmacm.so.1 and what else RDMA programs load, of bareverbs.
#[derive(Bpaf, Debug)]
#[bpaf(options)]
struct Options {
    /// The folder to make; target/bundle if not given.
    #[bpaf(long, argument("FOLDER"), last, guard(is_path, EMPTY), optional)]
    out: Option<PathBuf>,
    /// Without optimization: quicker to build, for debugging.
    #[bpaf(switch, last)]
    debug: bool,
    /// Also make Debian packages of it and of its debug symbols, beside the folder. Their maintainer is DEBFULLNAME and DEBEMAIL of the environment.
    #[bpaf(switch, last)]
    deb: bool,
}

fn main() -> ExitCode {
    end_at_a_closed_pipe();
    let options = match parse("bundle", &options()) {
        Ok(options) => options,
        Err(code) => return code,
    };
    match make(&options) {
        Ok(made) => {
            for path in made {
                println!("{}", path.display());
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("bundle: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The folder, or the packages.
fn make(options: &Options) -> Result<Vec<PathBuf>, String> {
    let kept = match options {
        Options { debug: true, .. } => Kept::Debug,
        Options { deb: true, .. } => Kept::Lines,
        _ => Kept::Code,
    };
    let bundle = bareverbs_bundle::build(options.out.as_deref(), kept)?;
    match options.deb {
        true => Ok(bareverbs_bundle::package(&bundle)?.into()),
        false => Ok(vec![bundle.folder]),
    }
}

#[cfg(test)]
mod tests {
    use bareverbs_command_line::parse_line;

    use super::options;

    #[test]
    fn the_command_line_is_sound() {
        options().check_invariants(true);
        let parsed = parse_line(&options(), "--deb --out=folder").expect("a package");
        assert!(parsed.deb && !parsed.debug);
        assert_eq!(parsed.out, Some("folder".into()));
        for line in ["--out", "--out=", "folder"] {
            parse_line(&options(), line).expect_err(line);
        }
    }
}
