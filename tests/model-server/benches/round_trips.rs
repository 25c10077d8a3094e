//! The time that a client waits for the server: `cargo bench -p connectx-model-server`.
//!
//! Per operation: the time that the client waits (which needs idle cores to mean something), the server's processor time,
//! and how often one of its threads went to sleep. Once is as it should be, for the one that serves the client; beyond, a
//! thread was woken.

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/serve/card.rs"]
mod card;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/serve/lab.rs"]
mod lab;
#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/serve/support.rs"]
mod support;

use bareverbs_core::WcStatus;
use bareverbs_core::firmware_cmds::hca::NopIn;
use card::IOVA;
use lab::{Side, bring_up, connect, memory};
use std::os::fd::AsRawFd;
use std::time::Instant;
use support::Server;

/// Runs `f` so many times, and says what one cost.
fn measure(server: &Server, name: &str, times: u64, mut f: impl FnMut(u64)) {
    let before = server.cost();
    let start = Instant::now();
    for n in 0..times {
        f(n);
    }
    let each = |sum: u64| sum as f64 / times as f64;
    let waited = each(start.elapsed().as_nanos() as u64) / 1000.0;
    let after = server.cost();
    let (busy, sleeps) = (each(after.0 - before.0) / 1000.0, each(after.1 - before.1));
    println!("{name:<30} {waited:>8.2} µs, server {busy:>8.2} µs, {sleeps:>5.2} sleeps");
}

fn main() {
    let server = Server::start(2, &["--log", "warn"]);
    let (mut first, mut second) = (memory(), memory());
    let devices = [
        bring_up(&server.socket(0), 0, first.storage()),
        bring_up(&server.socket(1), 1, second.storage()),
    ];
    let card = devices[0].platform();
    measure(&server, "register read", 100_000, |_| {
        card.register(0).expect("a register");
    });
    measure(&server, "command doorbell for no slot", 100_000, |_| {
        let none = card.client().region_write(card::BAR0, 0x18, &[0; 4]);
        none.expect("a register");
    });
    let arena = card::Arena::new();
    measure(&server, "map and unmap of a page", 50_000, |n| {
        let (at, fd) = (n % 16_000 * 4096, arena.file.as_raw_fd());
        let mut client = card.client();
        client.dma_map(at, IOVA / 2 + at, 4096, fd).expect("mapped");
        client.dma_unmap(IOVA / 2 + at, 4096).expect("unmapped");
    });
    measure(&server, "NOP command, by interrupt", 20_000, |_| {
        devices[0].execute(&NopIn::new()).expect("a command");
    });
    let sides = [Side::new(&devices[0], 0), Side::new(&devices[1], 1)];
    let [mut a, b] = connect([&sides[0], &sides[1]]);
    for (len, times) in [(64, 20_000), (4096, 20_000), (1 << 20, 1000)] {
        let name = format!("RDMA WRITE of {len} bytes");
        measure(&server, &name, times, |_| {
            assert_eq!(a.write_again(&b, len), Ok(WcStatus::Success));
        });
    }
}
