//! Clients that break the protocol: they may lose their connection, but the server and later clients work as before.

use crate::card::{Arena, BAR0, BY_EVENT, CONFIG, Card, IOVA, MSIX};
use crate::raw::{self, NO_REPLY, Raw, message, words};
use crate::support::{Server, in_time};
use bareverbs_core::platform::Platform;
use connectx_model::link::rng::Rng;
use std::fs::File;
use std::io::Read;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use vmm_sys_util::eventfd::EventFd;

/// Version 0.1, with what is said about it.
fn version(about: &[u8]) -> Vec<u8> {
    let body = [&[0, 0, 1, 0], about].concat();
    message(raw::VERSION, 0, 16 + body.len() as u32, &body)
}

#[test]
fn a_file_that_gets_shorter_harms_its_client_only() {
    let server = Server::start(2, &[]);
    let cards = [0, 1].map(|index| Card::open(&server.socket(index)));
    let arenas = [Arena::new(), Arena::new()];
    // The command queue's address, and a doorbell, at which the device reads its first slot.
    let ring = |card: &Card| {
        for (offset, value) in [(0x10, (IOVA >> 32) as u32), (0x14, IOVA as u32), (0x18, 1)] {
            card.write_be32(offset, value);
        }
    };
    for (card, arena) in cards.iter().zip(&arenas) {
        let len = arena.file.metadata().unwrap().len();
        let fd = arena.file.as_raw_fd();
        card.client().dma_map(0, IOVA, len, fd).unwrap();
    }
    arenas[0].file.set_len(0).unwrap();
    ring(&cards[0]);
    server.expect_log(&["shorter than what it has mapped"]);
    // Its client is served on, and so is the other one.
    assert_eq!(cards[0].identity(), (0x15b3, 0x1017));
    ring(&cards[1]);
    assert_eq!(cards[1].identity(), (0x15b3, 0x1017));
    drop(cards);
    server.assert_serves();
}

#[test]
fn what_is_no_message_ends_with_its_sender() {
    let server = Server::start(1, &[]);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", vec![]),
        ("half a header", vec![1, 2, 3, 4, 5, 6, 7]),
        (
            "a version shorter than its header",
            message(raw::VERSION, 0, 3, &[0; 4]),
        ),
        ("a version of size 0", message(raw::VERSION, 0, 0, &[0; 4])),
        (
            "a version without data",
            message(raw::VERSION, 0, 20, &[0; 4]),
        ),
        (
            "a version that never comes",
            message(raw::VERSION, 0, u32::MAX, &[0; 4]),
        ),
        ("data without an end", version(b"{}")),
        ("data with two ends", version(b"{\0}\0")),
        ("no data", version(b"\0")),
        ("data that are no JSON", version(b"\xff\xfe{{{\0")),
        (
            "capabilities that are none",
            version(b"{\"capabilities\":7}\0"),
        ),
        ("half a map", raw::dma_map(0, 0, 4096)[..30].to_vec()),
        (
            "half a read",
            raw::access(raw::REGION_READ, 0, BAR0, 4)[..20].to_vec(),
        ),
        (
            "a write whose data never come",
            raw::access(raw::REGION_WRITE, 0, BAR0, u32::MAX),
        ),
    ];
    for (name, bytes) in cases {
        in_time(name, || {
            let mut raw = Raw::connect(&server.socket(0));
            raw.send(&bytes);
            // Whether it answers or not, it closes the connection in the end.
            let _ = raw.drain();
        });
        in_time(name, || server.assert_serves());
    }
}

#[test]
fn what_cannot_be_is_refused_and_the_client_served_on() {
    let server = Server::start(1, &[]);
    let mut client = Raw::connect(&server.socket(0));
    let refused: Vec<(&str, Vec<u8>)> = vec![
        ("command 0", words(0, 0, &[])),
        ("command 6", words(6, 0, &[])),
        ("command 11", words(11, 0, &[])),
        ("command 15", words(15, 0, &[])),
        ("command 65535", words(65535, 0, &[])),
        (
            "region 9",
            words(raw::GET_REGION_INFO, 0, &[32, 0, 9, 0, 0, 0, 0, 0]),
        ),
        ("interrupt 5", words(raw::GET_IRQ_INFO, 0, &[16, 0, 5, 0])),
        ("a read of region 9", raw::access(raw::REGION_READ, 0, 9, 4)),
        (
            "a read of region 4294967295",
            raw::access(raw::REGION_READ, 0, !0, 4),
        ),
        (
            "a read of 4 GiB",
            raw::access(raw::REGION_READ, 0, BAR0, !0),
        ),
        (
            "a read of 1 MiB and a byte",
            raw::access(raw::REGION_READ, 0, BAR0, (1 << 20) + 1),
        ),
        (
            "vectors of interrupt 77",
            words(raw::SET_IRQS, 0, &[20, BY_EVENT, 77, 0, 1]),
        ),
        (
            "vectors of INTx",
            words(raw::SET_IRQS, 0, &[20, BY_EVENT, 0, 0, 1]),
        ),
        (
            "vector 16",
            words(raw::SET_IRQS, 0, &[20, BY_EVENT, MSIX, 16, 1]),
        ),
        (
            "17 vectors",
            words(raw::SET_IRQS, 0, &[20, BY_EVENT, MSIX, 0, 17]),
        ),
        (
            "vectors beyond all numbers",
            words(raw::SET_IRQS, 0, &[20, BY_EVENT, MSIX, !0, !0]),
        ),
        (
            "vectors by byte",
            words(raw::SET_IRQS, 0, &[20, 1 << 1 | 1 << 5, MSIX, 0, 1]),
        ),
        (
            "masked vectors",
            words(raw::SET_IRQS, 0, &[20, 1 | 1 << 3, MSIX, 0, 1]),
        ),
        (
            "vectors without a kind",
            words(raw::SET_IRQS, 0, &[20, 1 << 5, MSIX, 0, 1]),
        ),
        ("a map of nothing", raw::dma_map(0, 0x1000, 0)),
        ("a map beyond the end", raw::dma_map(0, !0, 2)),
        (
            "a read without a reply",
            words(raw::GET_INFO, NO_REPLY, &[]),
        ),
    ];
    for (name, bytes) in refused {
        let reply = in_time(name, || client.send(&bytes).reply());
        assert_eq!(reply, None, "{name}");
    }
    // `argsz` too small or too large: the server answers with the real size.
    for argsz in [0, 1, 0x7fff_ffff, !0] {
        let info = words(raw::GET_INFO, 0, &[argsz, 0, 0, 0]);
        assert_eq!(client.send(&info).reply().unwrap().len(), 16);
        let region = words(raw::GET_REGION_INFO, 0, &[argsz, 0, 7, 0, 0, 0, 0, 0]);
        assert_eq!(client.send(&region).reply().unwrap().len(), 32);
        let irq = words(raw::GET_IRQ_INFO, 0, &[argsz, 0, MSIX, 0]);
        assert_eq!(client.send(&irq).reply().unwrap().len(), 16);
    }
    // Accesses of odd lengths at odd places are answered with nothing useful.
    let (all_ones, mut asked) = (|data: &[u8]| data.iter().all(|&byte| byte == 0xff), 0);
    for region in 0..9 {
        for offset in [0, 1, 0x2fff, 0x3ffd, (32 << 20) - 1, 32 << 20, 1 << 63, !0] {
            for count in [0, 1, 3, 5, 64, 4096, 4097, 1 << 20] {
                let read = raw::access(raw::REGION_READ, offset, region, count);
                let reply = client.send(&read).reply().expect("an answer");
                assert_eq!(reply.len(), 16 + count as usize);
                assert!(
                    region == CONFIG || all_ones(&reply[16..]),
                    "{region} {offset:#x} {count}"
                );
                let mut write = raw::access(raw::REGION_WRITE, offset, region, count);
                write.resize(32 + count as usize, 0);
                assert_eq!(client.send(&write).reply().expect("an answer").len(), 16);
                asked += 1;
            }
        }
    }
    assert_eq!(asked, 9 * 8 * 8);
    drop(client);
    in_time("the next client", || server.assert_serves());
}

#[test]
fn descriptors_that_are_no_memory_are_refused() {
    let server = Server::start(1, &[]);
    let mut client = Raw::connect(&server.socket(0));
    let map = raw::dma_map(0, 0, 4096);
    let (directory, zero) = (File::open("/").unwrap(), File::open("/dev/null").unwrap());
    let event = EventFd::new(0).unwrap();
    for fd in [directory.as_raw_fd(), zero.as_raw_fd(), event.as_raw_fd()] {
        assert_eq!(client.send_with(&map, &[fd]).reply(), None);
    }
    // Two descriptors are one too many.
    let arena = Arena::new();
    let fd = arena.file.as_raw_fd();
    assert_eq!(client.send_with(&map, &[fd, fd]).reply(), None);
    // A file may be shorter than it was when it is announced again.
    assert!(client.send_with(&map, &[fd]).reply().is_some());
    // Twice as many vectors as descriptors, and descriptors where none belong.
    let irqs = |start, count| words(raw::SET_IRQS, 0, &[20, BY_EVENT, MSIX, start, count]);
    let event = event.as_raw_fd();
    assert_eq!(client.send_with(&irqs(0, 2), &[event]).reply(), None);
    let info = words(raw::GET_INFO, 0, &[16, 0, 0, 0]);
    assert!(client.send_with(&info, &[event, event]).reply().is_some());
    // They are closed after the reply, so only another message shows that they were.
    assert!(client.send(&info).reply().is_some());
    let before = server.descriptors();
    for _ in 0..200 {
        assert!(client.send_with(&info, &[event, event]).reply().is_some());
    }
    assert!(client.send(&info).reply().is_some());
    assert_eq!(server.descriptors(), before);
    // More descriptors than a message may have cost the client its connection.
    client.send_with(&irqs(0, 16), &[event; 17]);
    in_time("17 descriptors", || client.drain().ok());
    in_time("the next client", || server.assert_serves());
}

#[test]
fn a_client_that_was_killed_is_no_warning() {
    let server = Server::start(1, &[]);
    let request = words(raw::GET_INFO, 0, &[16, 0, 0, 0]);
    // One that took a part of the answer only, and one that takes none.
    let mut client = Raw::connect(&server.socket(0));
    client.send(&request).0.read_exact(&mut [0]).unwrap();
    drop(client);
    server.expect_log(&["INFO", "left at once", "Connection reset"]);
    let mut client = Raw::connect(&server.socket(0));
    client.0.shutdown(Shutdown::Read).unwrap();
    client.send(&request);
    server.expect_log(&["INFO", "left at once", "Broken pipe"]);
    drop(client);
    in_time("the next client", || server.assert_serves());
    let log = server.log();
    assert!(!log.iter().any(|line| line.contains("WARN")), "{log:#?}");
}

#[test]
fn noise_does_no_harm() {
    let server = Server::start(1, &["--log", "error"]);
    const SEED: u64 = 0x5eed;
    let mut rng = Rng::new(SEED);
    for round in 0..300 {
        let mut bytes = Vec::new();
        for _ in 0..=rng.below(20) {
            // Mostly messages of which only some words are wrong: anything else ends at the first one.
            let command = [
                rng.below(16) as u16,
                raw::REGION_READ,
                raw::REGION_WRITE,
                raw::SET_IRQS,
                raw::DMA_MAP,
                raw::DMA_UNMAP,
                raw::RESET,
                rng.next_u32() as u16,
            ][rng.below(8) as usize];
            let flags = if rng.chance(100) { NO_REPLY } else { 0 };
            let word = |rng: &mut Rng| match rng.below(4) {
                0 => rng.next_u32(),
                1 => !0 - rng.below(16),
                _ => rng.below(64),
            };
            let body: Vec<u32> = (0..rng.below(10)).map(|_| word(&mut rng)).collect();
            bytes.extend_from_slice(&words(command, flags, &body));
            if rng.chance(200) {
                bytes.truncate(rng.below(bytes.len() as u32) as usize);
            }
        }
        in_time(&format!("seed {SEED:#x}, round {round}"), || {
            use std::io::Write;
            let mut raw = Raw::connect(&server.socket(0));
            // It may hang up before it has read everything.
            let _ = raw.0.write_all(&bytes);
            let _ = raw.drain();
        });
    }
    in_time("the next client", || server.assert_serves());
}
