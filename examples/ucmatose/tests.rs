//! Both ends on two device models.

use clap::{CommandFactory, Parser};

use super::Options;
use super::connections::Connections;
use bareverbs_examples::dead_address;
use bareverbs_examples::exchange::Exchanged;

fn run(line: &str) -> Exchanged {
    let words = ["ucmatose"].into_iter().chain(line.split_whitespace());
    let options = Options::parse_from(words);
    options.addresses.run(&options).unwrap().unwrap()
}

#[test]
fn the_command_line_is_sound() {
    Options::command().debug_assert();
}

#[test]
fn every_message_goes_both_ways() {
    for (line, connections, messages) in [
        ("-c 5", 5, 50),
        ("-c 3 -C 40 -S 5000 -t 96 -a 12 -m", 3, 120),
        ("-c 2 -S 0", 2, 0),
    ] {
        let exchanged = Exchanged {
            connections,
            sent: messages,
            received: messages,
        };
        assert_eq!(run(line), exchanged, "{line}");
    }
}

#[test]
fn a_dead_address_is_named_with_the_step() {
    let options = Options::parse_from(["ucmatose"]);
    let reported = dead_address::message(|cm, [here, server]| {
        Connections::new(cm, options.plan())?.work(here, (server, options.port).into())
    });
    let address = format!("10.0.0.99:{}", options.port);
    assert!(
        reported.contains(&format!(" 0: resolving {address}: ")),
        "{reported}"
    );
}
