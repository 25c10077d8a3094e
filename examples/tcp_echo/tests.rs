//! Both ends on two device models.

use clap::{CommandFactory, Parser};

use crate::{Echoed, Options};

fn run(line: &str) -> Option<Echoed> {
    let options = Options::parse_from(["tcp_echo"].into_iter().chain(line.split_whitespace()));
    options.addresses.run(&options).expect("an echo")
}

#[test]
fn the_command_line_is_sound() {
    Options::command().debug_assert();
}

#[test]
fn both_come_back() {
    for (line, bytes, messages) in [
        ("-S 100000 -C 3", 100_000, 3),
        ("-S 1 -C 1 -s fd00::1 --interrupts", 1, 1),
        ("-S 50000 -C 0", 50_000, 0),
    ] {
        assert_eq!(run(line), Some(Echoed { bytes, messages }), "{line}");
    }
}
