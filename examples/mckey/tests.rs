//! Both ends on two device models.

use bareverbs_command_line::parse_line;

use super::Options;
use bareverbs_examples::exchange::Exchanged;
use bareverbs_examples::program::Roles;

fn options(line: &str) -> Options {
    parse_line(&super::options(), line).expect(line)
}

#[test]
fn the_command_line_is_sound() {
    super::options().check_invariants(true);
}

#[test]
fn all_receivers_get_all_messages() {
    for (line, connections, sent) in [
        ("", 1, 10),
        ("-c 5 -o", 5, 50),
        (
            "-c 3 -C 40 -S 2048 -p 0x0002 -m 239.1.2.3 -b 10.0.0.7",
            3,
            120,
        ),
        ("-c 2 -m ff15::7:8901:203 --vlan 7", 2, 20),
        ("-M ::ffff:239.1.2.3", 1, 10),
        ("-M ff05::9 -c 2 -C 3 -S 4096", 2, 6),
        ("-c 2 -C 0", 2, 0),
        ("-c 2 --model-port infiniband", 2, 20),
        ("-c 2 -m ff15::7:1 -o --model-port infiniband", 2, 20),
        (
            "-c 2 -b gid -M ff12:a01b:fe80::7:1 --model-port infiniband",
            2,
            20,
        ),
    ] {
        let exchanged = Exchanged {
            connections,
            sent,
            received: 0,
        };
        // The receiver's count is compared with it.
        assert_eq!(options(line).run().unwrap(), Some(exchanged), "{line}");
    }
}

#[test]
fn what_cannot_be_joined_is_refused() {
    for (line, why) in [
        ("-m 10.0.0.9", "10.0.0.9 is no multicast address"),
        ("-M fd00::9", "fd00::9 is no multicast address"),
        ("-s", "leave -s away"),
        ("--device vfio:0000:3b:00.0", "-b: which address"),
    ] {
        let error = options(line).run().unwrap_err().to_string();
        assert!(error.contains(why), "{line}: {error}");
    }
    parse_line(&super::options(), "-m 239.1.2.3 -M ff05::9").expect_err("two groups");
}

#[test]
fn one_card_is_one_end() {
    let sender = options("--device vfio:0000:3b:00.0 -b 10.0.0.1 -s");
    assert!(matches!(sender.roles(), Ok(Roles::Client { .. })));
    let receiver = options("--device vfio:0000:3b:00.0 -b 10.0.0.1");
    assert!(matches!(receiver.roles(), Ok(Roles::Server(_))));
}
