//! Both ends on two device models.

use bareverbs::cm::rdma::{AddrInfo, PortSpace};
use bareverbs_command_line::parse_line;

use bareverbs_examples::dead_address;

use crate::hello::{REPLY, options};
use crate::{ENDS, client};

fn run(line: &str) -> Result<Option<[u8; 16]>, String> {
    parse_line(&options(), line)
        .expect(line)
        .run(&ENDS)
        .map_err(|error| error.to_string())
}

#[test]
fn the_command_line_is_sound() {
    options().check_invariants(true);
}

#[test]
fn each_end_receives_the_others_message() {
    assert_eq!(run(""), Ok(Some(*REPLY)));
    assert_eq!(run("-s fd00::1 -p 5"), Ok(Some(*REPLY)));
    for line in ["", "-s fd00::1", "-s gid", "-s gid -b gid --interrupts"] {
        let line = format!("--model-port infiniband {line}");
        assert_eq!(run(&line), Ok(Some(*REPLY)), "{line}");
    }
}

#[test]
fn gids_are_without_networks_and_a_servers_is_to_be_named() {
    for (line, why) in [
        (
            "--model-port infiniband -s gid --prefix 8",
            "--prefix, --gateway and --vlan are for IP addresses",
        ),
        (
            "--link udp:127.0.0.1:1,127.0.0.1:2 -s gid -b gid",
            "which GID has the server?",
        ),
    ] {
        let error = run(line).unwrap_err();
        assert!(error.contains(why), "{line}: {error}");
    }
}

#[test]
fn one_end_has_to_know_where_the_ends_are() {
    let link = "--link udp:127.0.0.1:1,127.0.0.1:2";
    for (line, missing) in [("", "-s"), ("-s 10.0.0.1", "-b")] {
        let error = run(&format!("{link} {line}")).unwrap_err();
        assert!(error.starts_with(missing), "{error}");
    }
}

#[test]
fn a_dead_address_is_named_with_the_step() {
    let reported = dead_address::message(|cm, [_, server]| {
        let address = AddrInfo {
            dst_addr: Some(server.at(PortSpace::Tcp, 7471)),
            ..AddrInfo::hints(false)
        };
        client(cm, &address)
    });
    assert!(
        reported.starts_with("resolving 10.0.0.99:7471: "),
        "{reported}"
    );
}

/// A model that is another card than the default.
#[test]
fn the_model_is_the_card_that_is_asked_for() {
    assert_eq!(run("--card connectx-4-lx"), Ok(Some(*REPLY)));
    let error = parse_line(&options(), "--card connectx-3").unwrap_err();
    assert!(error.contains("connectx-4-lx, connectx-4,"), "{error}");
}
