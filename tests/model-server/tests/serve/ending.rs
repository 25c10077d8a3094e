//! Start and end of a server, and the files that it leaves behind.

use crate::lab::{Side, bring_up, connect, memory, ping};
use crate::support::{Directory, Server, exists};
use connectx_model::pcap::Reader;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::Arc;

#[test]
fn signals_end_it_cleanly() {
    for signal in ["TERM", "INT"] {
        let mut server =
            Server::start_with(&[&["--link", "unix:{dir}/local,{dir}/remote"], &[]], &[]);
        let paths = ["0", "1", "local"].map(|name| server.directory.path(name));
        // In the middle of a client's session.
        let card = crate::card::Card::open(&server.socket(0));
        assert!(paths.iter().all(|path| exists(path)));
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0), "{signal}");
        for path in paths {
            assert!(!exists(&path), "{signal}: {} is left", path.display());
        }
        assert!(card.register(0).is_err());
    }
}

#[test]
fn the_end_of_standard_input_is_none() {
    let mut server = Server::start(1, &[]);
    server.assert_serves();
    server.hush();
    server.assert_serves();
    server.signal("TERM");
    assert!(server.wait().success());
}

#[test]
fn what_was_left_is_removed_and_what_is_no_socket_is_not() {
    let directory = Arc::new(Directory::new());
    drop(UnixListener::bind(directory.path("0")).unwrap());
    let mut first = Server::start_in(directory.clone(), &[&[]], &[]);
    first.assert_serves();
    // A second server does not take the socket of a first one that lives.
    let output = Command::new(env!("CARGO_BIN_EXE_connectx-model"))
        .args(["serve", "--socket"])
        .arg(directory.path("0"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let path = directory.path("0").display().to_string();
    assert!(
        said.contains(&path) && said.contains("address in use"),
        "{said}"
    );
    first.assert_serves();
    first.signal("KILL");
    assert!(!first.wait().success());
    let second = Server::start_in(directory.clone(), &[&[]], &[]);
    second.assert_serves();

    std::fs::write(directory.path("precious"), "data").unwrap();
    let precious = directory.path("precious");
    let output = Command::new(env!("CARGO_BIN_EXE_connectx-model"))
        .args(["serve", "--socket"])
        .arg(&precious)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no socket"));
    assert_eq!(std::fs::read(&precious).unwrap(), b"data");
}

#[test]
fn a_capture_is_whole_when_the_server_is_killed() {
    let mut server = Server::start(2, &["--pcap", "{dir}/cable.pcap"]);
    {
        let (mut first, mut second) = (memory(), memory());
        let devices = [
            bring_up(&server.socket(0), 0, first.storage()),
            bring_up(&server.socket(1), 1, second.storage()),
        ];
        let sides = [Side::new(&devices[0], 0), Side::new(&devices[1], 1)];
        let mut ends = connect([&sides[0], &sides[1]]);
        ping(&mut ends, 1, 50_000);
        server.signal("KILL");
        assert!(!server.wait().success());
    }
    let file = std::fs::read(server.directory.path("cable.pcap")).unwrap();
    let mut frames = [0; 2];
    let mut last = std::time::Duration::ZERO;
    for record in Reader::new(&file).unwrap() {
        let record = record.unwrap();
        assert!(record.at >= last);
        last = record.at;
        // Sent by card 1 or card 2.
        frames[usize::from(record.data[11]) - 1] += 1;
    }
    // Two messages and a write of 50,000 bytes from one card, a message and a read's answer from the other, in packets of
    // 1 KiB, and their acknowledgements.
    assert!(frames.iter().all(|&count| count > 2 * 49), "{frames:?}");
}

#[test]
fn the_log_has_every_command() {
    for (level, fields) in [("debug", false), ("trace", true)] {
        let server = Server::start(1, &["--log", level]);
        let mut memory = memory();
        let device = bring_up(&server.socket(0), 0, memory.storage());
        let commands = device.commands_executed();
        device.close().unwrap();
        server.expect_log(&["DEBUG", "ENABLE_HCA(0x104)", "OK"]);
        server.expect_log(&["DEBUG", "CREATE_EQ(0x301)", "OK"]);
        server.expect_log(&["DEBUG", "DISABLE_HCA(0x105)", "OK"]);
        let log = server.log();
        let count = |word: &str| log.iter().filter(|line| line.contains(word)).count() as u64;
        assert!(count("command ") >= commands, "{commands} commands");
        assert_eq!(count("log_eq_size = 0x9") > 0, fields);
        assert_eq!(count("source_mac_31_0 = 0x1") > 0, fields);
    }
}
