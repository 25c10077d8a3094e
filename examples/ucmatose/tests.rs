//! Both ends on two device models.

use bareverbs::cm::rdma::PortSpace;
use bareverbs_command_line::parse_line;

use super::connections::Connections;
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
        "-C 8193",
        "-S 16777217",
        "-a 32",
        "-t 256",
        "-p 0",
        "-m 256",
    ] {
        parse_line(&options(), line).expect_err(line);
    }
}

#[test]
fn every_message_goes_both_ways() {
    for (line, connections, messages) in [
        ("-c 5", 5, 50),
        ("-c 3 -C 40 -S 5000 -t 96 -a 12 -m", 3, 120),
        ("-c 2 -S 0", 2, 0),
        ("-c 4 -m --model-port infiniband", 4, 40),
        ("-c 4 -s fd00::1 --model-port infiniband", 4, 40),
        ("-c 4 -S 5000 -s gid --model-port infiniband", 4, 40),
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
    let options = parse_line(&options(), "").expect("defaults");
    let reported = dead_address::message(|cm, [here, server]| {
        Connections::new(cm, options.plan())?.work(here, server.at(PortSpace::Tcp, options.port))
    });
    let address = format!("10.0.0.99:{}", options.port);
    assert!(
        reported.contains(&format!(" 0: resolving {address}: ")),
        "{reported}"
    );
}
