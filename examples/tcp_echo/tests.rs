//! Both ends on two device models.

use bareverbs_command_line::parse_line;

use crate::{Echoed, options};

fn run(line: &str) -> Option<Echoed> {
    let options = parse_line(&options(), line).expect(line);
    options.addresses.run(&options).expect("an echo")
}

#[test]
fn the_command_line_is_sound() {
    options().check_invariants(true);
}

#[test]
fn what_is_out_of_range_is_refused() {
    for line in ["-p 0", "-t 0", "-S -1", "-C 4294967296"] {
        parse_line(&options(), line).expect_err(line);
    }
}

#[test]
fn both_come_back() {
    for (line, bytes, messages) in [
        ("-S 100000 -C 3", 100_000, 3),
        ("-S 1 -C 1 -s fd00::1 --interrupts", 1, 1),
        ("-S 50000 -C 0", 50_000, 0),
        ("-S 100000 -C 3 --model-port infiniband", 100_000, 3),
        (
            "-S 1000 -C 1 -s fd00::1 --model-port infiniband --interrupts",
            1000,
            1,
        ),
    ] {
        assert_eq!(run(line), Some(Echoed { bytes, messages }), "{line}");
    }
}
