//! Both ends on two device models.

use bareverbs_command_line::parse_line;

use super::nodes::Nodes;
use super::options;
use bareverbs_examples::dead_address;
use bareverbs_examples::exchange::Exchanged;

fn run(line: &str) -> Exchanged {
    let options = parse_line(&options(), line).expect(line);
    options.addresses.run(&options).unwrap().unwrap()
}

#[test]
fn the_command_line_is_sound() {
    options().check_invariants(true);
}

#[test]
fn what_is_out_of_range_is_refused() {
    for line in [
        "-c 0",
        "-c 10001",
        "-C 8193",
        "-S 16777217",
        "-t 256",
        "-p tcp",
        "-p 273",
        "--port 0",
        "-s x",
    ] {
        parse_line(&options(), line).expect_err(line);
    }
}

#[test]
fn every_datagram_goes_both_ways() {
    for (line, connections, messages) in [
        ("-c 5", 5, 50),
        ("-c 3 -C 40 -S 2048 -t 96 -p 0x0002", 3, 120),
        ("-c 2 -C 0", 2, 0),
        ("-c 3 --model-port infiniband", 3, 30),
        ("-c 3 -S 4096 -s gid --model-port infiniband", 3, 30),
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
    let options = parse_line(&options(), "-S 4096").expect("a size");
    let outcome = options.addresses.run(&options);
    assert!(outcome.is_ok(), "the model's port carries it: {outcome:?}");
}

#[test]
fn a_dead_address_is_named_with_the_step() {
    let options = parse_line(&options(), "").expect("defaults");
    let reported = dead_address::message(|cm, [here, server]| {
        Nodes::new(cm, options.plan())?.work(
            here,
            server.at(options.port_space, options.port),
            false,
        )
    });
    let address = format!("10.0.0.99:{}", options.port);
    assert!(
        reported.contains(&format!(" 0: resolving {address}: ")),
        "{reported}"
    );
}
