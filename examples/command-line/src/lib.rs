//! The command lines of programs, which `bpaf` parses: help and errors with the exit codes of other programs,
//! and what values are checked with.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use bpaf::{Args, OptionParser, ParseFailure};

/// The exit code of a program whose command line is wrong, as `getopt`'s programs have it.
const USAGE: u8 = 2;

/// Lets the process end by SIGPIPE, without a word, when it prints into a pipe that no process reads any more, as programs
/// that are not in Rust do. It is for programs without streams to other processes: those report a peer that has gone.
pub fn end_at_a_closed_pipe() {
    sigpipe::reset();
}

/// Parses the command line of the program with this name.
///
/// # Errors
///
/// The program has to end with this code: what it has to say (help on standard output, what is wrong on standard error) is
/// printed.
pub fn parse<T>(name: &str, parser: &OptionParser<T>) -> Result<T, ExitCode> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    parse_words(name, parser, &words)
}

/// The same of words that were looked through before.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_words<T>(
    name: &str,
    parser: &OptionParser<T>,
    words: &[OsString],
) -> Result<T, ExitCode> {
    let parsed = parser.run_inner(Args::from(words).set_name(name));
    parsed.map_err(|failure| match failure {
        ParseFailure::Stdout(text, _) => {
            end_at_a_closed_pipe();
            print!("{}", text.monochrome(true));
            ExitCode::SUCCESS
        }
        ParseFailure::Completion(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        ParseFailure::Stderr(why) => {
            eprintln!("{name}: {}", why.monochrome(true));
            eprintln!("{name} --help shows what there is");
            ExitCode::from(USAGE)
        }
    })
}

/// Parses words with spaces between them, for tests. Help is an error as well.
///
/// # Errors
///
/// What would be printed.
pub fn parse_line<T>(parser: &OptionParser<T>, line: &str) -> Result<T, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let parsed = parser.run_inner(words.as_slice());
    parsed.map_err(|failure| match failure {
        ParseFailure::Stdout(text, _) | ParseFailure::Stderr(text) => text.monochrome(true),
        ParseFailure::Completion(text) => text,
    })
}

/// A value with commas between its parts: `argument::<List<T>>` with `last` and `map(List::parts)`; or with `many` and
/// `map(concat)`, if all that are given add up.
#[derive(Debug, Clone)]
pub struct List<T>(Vec<T>);

impl<T: FromStr<Err: Display>> FromStr for List<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(|part| {
            part.parse()
                .map_err(|error: T::Err| format!("{part:?}: {error}"))
        });
        parts.collect::<Result<_, _>>().map(Self)
    }
}

impl<T> List<T> {
    /// The parts.
    pub fn parts(self) -> Vec<T> {
        self.0
    }
}

/// The parts of all lists that were given.
pub fn concat<T>(lists: Vec<List<T>>) -> Vec<T> {
    lists.into_iter().flat_map(|List(parts)| parts).collect()
}

/// Shows a list as it is given, for `format_fallback`.
///
/// # Errors
///
/// Those of the formatter.
#[expect(clippy::ptr_arg, reason = "called with a reference to what was parsed")]
pub fn listed<T: Display>(parts: &Vec<T>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let parts: Vec<String> = parts.iter().map(T::to_string).collect();
    f.write_str(&parts.join(","))
}

/// That a number is in a range, for `guard`.
pub fn within<T: PartialOrd>(range: impl RangeBounds<T>) -> impl Fn(&T) -> bool {
    move |number| range.contains(number)
}

/// That all of a list are.
pub fn all_within<T: PartialOrd>(range: impl RangeBounds<T>) -> impl Fn(&Vec<T>) -> bool {
    move |numbers| numbers.iter().all(|number| range.contains(number))
}

/// The numbers of ports that can be asked for, for `guard` with [`PORTS`].
pub fn is_port(port: &u16) -> bool {
    *port != 0
}

/// The error of a number that is not for [`is_port`].
pub const PORTS: &str = "not 1 to 65535";

/// That a path is one, for `guard` with [`EMPTY`].
#[expect(clippy::ptr_arg, reason = "called with a reference to what was parsed")]
pub fn is_path(path: &PathBuf) -> bool {
    !path.as_os_str().is_empty()
}

/// The error of a path that is not for [`is_path`].
pub const EMPTY: &str = "an empty path";

/// Values that have names.
pub trait Named: Copy + Eq + 'static {
    /// Each, with its name.
    const ALL: &'static [(&'static str, Self)];

    /// This one's.
    fn name(self) -> &'static str {
        let own = Self::ALL.iter().find(|(_, value)| *value == self);
        own.map_or("", |(name, _)| name)
    }

    /// The one with this name.
    ///
    /// # Errors
    ///
    /// There is none: the names that there are.
    fn named(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use bpaf::{Parser, short};

    use super::*;

    #[test]
    fn lists_are_as_they_were_given() {
        let parser = || {
            let list = short('n')
                .argument::<List<u8>>("N")
                .some("none")
                .map(concat);
            let checked = list.guard(all_within(1..=9), "1 to 9");
            checked.fallback(vec![4, 5]).format_fallback(listed)
        };
        let parser = parser().to_options();
        for (line, numbers) in [
            ("", vec![4, 5]),
            ("-n 1", vec![1]),
            ("-n1,2 -n=3", vec![1, 2, 3]),
        ] {
            assert_eq!(parse_line(&parser, line), Ok(numbers), "{line}");
        }
        for line in ["-n", "-n 1,", "-n ,1", "-n 0", "-n 1,10", "-n 256", "1"] {
            parse_line(&parser, line).expect_err(line);
        }
        let help = parse_line(&parser, "--help").unwrap_err();
        assert!(help.contains("[default: 4,5]"), "{help}");
    }

    impl Named for bool {
        const ALL: &'static [(&'static str, Self)] = &[("no", false), ("yes", true)];
    }

    #[test]
    fn names_are_found_both_ways() {
        assert_eq!(bool::named("yes"), Ok(true));
        assert_eq!(false.name(), "no");
        assert_eq!(bool::named("Yes"), Err("one of no, yes".into()));
    }

    #[test]
    fn empty_paths_and_port_0_are_refused() {
        assert!(is_port(&1) && !is_port(&0));
        assert!(is_path(&"a".into()) && !is_path(&"".into()));
    }
}
