//! The messages of programs about their command lines, the stream that they go to, and the exit codes.

use std::io;
use std::process::Command;

/// The exit code, and whether something was printed on standard output and on standard error.
fn run(words: &[&str]) -> io::Result<(Option<i32>, [bool; 2])> {
    let done = Command::new(env!("CARGO_BIN_EXE_bareverbs-run"))
        .args(words)
        .output()?;
    let printed = [done.stdout, done.stderr].map(|text| !text.is_empty());
    Ok((done.status.code(), printed))
}

#[test]
fn help_and_errors_have_the_codes_of_other_programs() -> io::Result<()> {
    for (words, code, printed) in [
        (&["--help"][..], 0, [true, false]),
        (&["-h"], 0, [true, false]),
        (&[], 2, [false, true]),
        (&["--bogus", "prog"], 2, [false, true]),
        (&["--unit", "x", "prog"], 2, [false, true]),
        (&["--wire", "w", "--unit", "3", "prog"], 127, [false, true]),
    ] {
        assert_eq!(run(words)?, (Some(code), printed), "{words:?}");
    }
    Ok(())
}
