//! The driver through the sockets: bring-up, traffic between functions, and what happens to cards and cables meanwhile.

use crate::lab::{Side, bring_up, connect, connect_with, memory, ping};
use crate::support::{LONG, Server, in_time};
use bareverbs_core::{AsyncEvent, Device, DeviceError, Platform, WcStatus};
use std::sync::mpsc;

/// Waits until the device says that it is no more.
fn death<P: Platform>(device: &Device<'_, P>) -> DeviceError {
    let limit = device.platform().now() + LONG;
    loop {
        match device.wait(limit) {
            Ok(true) => {}
            Ok(false) => panic!("the device still works"),
            Err(error) => return error,
        }
    }
}

#[test]
fn two_functions_are_cabled_together() {
    let server = Server::start(2, &[]);
    let (mut first, mut second) = (memory(), memory());
    let devices = [
        bring_up(&server.socket(0), 0, first.storage()),
        bring_up(&server.socket(1), 1, second.storage()),
    ];
    {
        let sides = [Side::new(&devices[0], 0), Side::new(&devices[1], 1)];
        let mut ends = connect([&sides[0], &sides[1]]);
        for (seed, len) in (0..).zip([1, 64, 1024, 1025, 5000, 100_000]) {
            ping(&mut ends, seed, len);
        }
    }
    for device in devices {
        // One file for all of a driver's memory, however often it mapped a piece of it.
        assert_eq!(server.mappings(&device.platform().memory_name()), 1);
        device.close().unwrap();
    }
}

#[test]
fn three_functions_are_on_a_switch() {
    let server = Server::start(3, &[]);
    let mut memories = [memory(), memory(), memory()];
    let [a, b, c] = &mut memories;
    let devices = [
        bring_up(&server.socket(0), 0, a.storage()),
        bring_up(&server.socket(1), 1, b.storage()),
        bring_up(&server.socket(2), 2, c.storage()),
    ];
    let sides = [0, 1, 2].map(|n| Side::new(&devices[n], n as u8));
    let pairs = [[0, 1], [1, 2], [2, 0]];
    let mut connections = pairs.map(|[from, to]| connect([&sides[from], &sides[to]]));
    for seed in 0..3 {
        for ends in &mut connections {
            ping(ends, seed, 3000);
        }
    }
}

#[test]
fn a_client_that_left_leaves_nothing() {
    let server = Server::start(1, &[]);
    let idle = server.descriptors();
    for round in 0..3 {
        let mut memory = memory();
        let device = bring_up(&server.socket(0), round, memory.storage());
        let name = device.platform().memory_name();
        assert_ne!(device.platform().read_be32(0x10), 0);
        // The driver ends without notice, in the middle of everything.
        device.platform().client().shutdown().unwrap();
        drop(device);
        // The next one finds the function switched off and reset.
        let mut client = vfio_user::Client::new(&server.socket(0)).unwrap();
        assert_eq!(server.mappings(&name), 0);
        assert_eq!(server.descriptors(), idle + 1);
        let mut data = [0; 4];
        client.region_read(7, 4, &mut data).unwrap();
        assert_eq!(data[..2], [0, 0]);
        client.region_read(0, 0, &mut data).unwrap();
        assert_eq!(data, [0xff; 4]);
        client.region_write(7, 4, &[6, 0]).unwrap();
        client.region_read(0, 0x10, &mut data).unwrap();
        assert_eq!(data, [0; 4]);
    }
}

#[test]
fn a_killed_server_is_an_error_and_no_hang() {
    let mut server = Server::start(2, &[]);
    let sockets = [server.socket(0), server.socket(1)];
    let (started, ready) = mpsc::channel();
    in_time("a server that was killed", move || {
        std::thread::scope(|scope| {
            let driver = scope.spawn(|| {
                let (mut first, mut second) = (memory(), memory());
                let devices = [
                    bring_up(&sockets[0], 0, first.storage()),
                    bring_up(&sockets[1], 1, second.storage()),
                ];
                let sides = [Side::new(&devices[0], 0), Side::new(&devices[1], 1)];
                let [mut a, b] = connect([&sides[0], &sides[1]]);
                for seed in 0.. {
                    match a.write(&b, 100_000, seed) {
                        Ok(status) => assert_eq!(status, WcStatus::Success),
                        Err(error) => return error,
                    }
                    if seed == 2 {
                        started.send(()).unwrap();
                    }
                }
                unreachable!("it went on for ever");
            });
            ready.recv().unwrap();
            server.signal("KILL");
            assert!(!server.wait().success());
            // Registers read all ones from now on.
            assert_eq!(driver.join().unwrap(), DeviceError::Gone);
        });
    });
}

#[test]
fn lines_on_standard_input_strike() {
    let mut server = Server::start(3, &[]);
    let mut memories = [memory(), memory(), memory()];
    let [a, b, c] = &mut memories;
    let devices = [
        bring_up(&server.socket(0), 0, a.storage()),
        bring_up(&server.socket(1), 1, b.storage()),
        bring_up(&server.socket(2), 2, c.storage()),
    ];
    let event = |device: &Device<'_, _>| {
        let limit = Platform::now(device.platform()) + LONG;
        loop {
            if let Some(event) = device.next_async_event() {
                return event;
            }
            assert!(device.wait(limit).unwrap(), "no event");
        }
    };
    server.send_line("link 1 down");
    assert_eq!(event(&devices[1]), AsyncEvent::PortError { port: 1 });
    server.send_line("link 1 up");
    assert_eq!(event(&devices[1]), AsyncEvent::PortActive { port: 1 });
    server.send_line("health 0 8");
    assert!(matches!(
        death(&devices[0]),
        DeviceError::Fatal { syndrome: 8, .. }
    ));
    server.send_line("vanish 2");
    assert_eq!(death(&devices[2]), DeviceError::Gone);
    // Invalid lines are reported, and have no effect.
    for nonsense in ["vanish 3", "explode 0", "loss 7"] {
        server.send_line(nonsense);
        server.expect_log(&["ERROR", nonsense]);
    }
    devices[1].poll().unwrap();
    server.hush();
    devices[1].poll().unwrap();
    assert!(devices[1].query_port().is_ok());
}

#[test]
fn links_lose_the_configured_share() {
    let arguments = [
        "--seed",
        "7",
        "--fault",
        "loss=0.02,duplicate=0.02,reorder=0.02,delay=0.02",
        "--fault=corrupt=0.02,max-delay=200us",
    ];
    let mut server = Server::start(2, &arguments);
    let line = server.greeting.last().unwrap();
    assert_eq!(
        line,
        "faults loss 0.02 duplicate 0.02 reorder 0.02 delay 0.02 corrupt 0.02 max-delay 200µs, seed 7"
    );
    let (mut first, mut second) = (memory(), memory());
    let devices = [
        bring_up(&server.socket(0), 0, first.storage()),
        bring_up(&server.socket(1), 1, second.storage()),
    ];
    let sides = [Side::new(&devices[0], 0), Side::new(&devices[1], 1)];
    // A message whose last packet was lost waits for so long: 134 ms.
    let mut ends = connect_with([&sides[0], &sides[1]], 15);
    for seed in 0..4 {
        ping(&mut ends, seed, 100_000);
    }
    server.send_line("faults");
    // 400 KB in packets of 1 KiB, four times over; about 2 % of them each.
    let report = server.expect_log(&["faults loss 0.02", " frames: "]);
    for kind in ["dropped", "duplicated", "reordered", "delayed", "corrupted"] {
        assert!(!report.contains(&format!(" 0 {kind}")), "{report}");
    }
    // Everything lost: the connection breaks at its timeout.
    server.send_line("loss 1");
    server.expect_log(&["faults loss 1 "]);
    let [a, b] = &mut ends;
    assert_eq!(a.write(b, 100, 5), Ok(WcStatus::RetryExcErr));
    // Nothing lost: another one works.
    server.send_line("faults off");
    server.expect_log(&["faults off"]);
    let mut ends = connect([&sides[0], &sides[1]]);
    ping(&mut ends, 9, 100_000);
}
