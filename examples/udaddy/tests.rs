//! Both ends on two device models.

use clap::{CommandFactory, Parser};

use super::Options;
use super::nodes::Nodes;
use bareverbs_examples::dead_address;
use bareverbs_examples::exchange::Exchanged;

fn run(line: &str) -> Exchanged {
    let words = ["udaddy"].into_iter().chain(line.split_whitespace());
    let options = Options::parse_from(words);
    options.addresses.run(&options).unwrap().unwrap()
}

#[test]
fn the_command_line_is_sound() {
    Options::command().debug_assert();
}

#[test]
fn every_datagram_goes_both_ways() {
    for (line, connections, messages) in [
        ("-c 5", 5, 50),
        ("-c 3 -C 40 -S 2048 -t 96 -p 0x0002", 3, 120),
        ("-c 2 -C 0", 2, 0),
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
fn what_no_packet_holds_is_refused() {
    let options = Options::parse_from(["udaddy", "-S", "4096"]);
    let outcome = options.addresses.run(&options);
    assert!(outcome.is_ok(), "the model's port carries it: {outcome:?}");
    assert!(Options::try_parse_from(["udaddy", "-p", "tcp"]).is_err());
}

#[test]
fn a_dead_address_is_named_with_the_step() {
    let options = Options::parse_from(["udaddy"]);
    let reported = dead_address::message(|cm, [here, server]| {
        Nodes::new(cm, options.plan())?.work(here, (server, options.port).into(), false)
    });
    let address = format!("10.0.0.99:{}", options.port);
    assert!(
        reported.contains(&format!(" 0: resolving {address}: ")),
        "{reported}"
    );
}
