//! Requests of vfio-user clients, and the answers to them.

use crate::card::{Arena, BAR0, BY_EVENT, CONFIG, Card, IOVA, MSIX, NO_DATA, VECTORS};
use crate::raw::{self, Raw};
use crate::support::Server;
use std::os::fd::AsRawFd;
use std::process::Command;
use vfio_user::Client;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const PAGE: u64 = 4096;

#[test]
fn regions_and_interrupts_are_reported() {
    let server = Server::start(1, &[]);
    let mut client = Client::new(&server.socket(0)).unwrap();
    for index in 0..9 {
        let region = client.region(index).unwrap();
        let size = match index {
            BAR0 => 32 << 20,
            CONFIG => 4096,
            _ => 0,
        };
        assert_eq!(region.size, size, "region {index}");
        // Readable and writable, and not mappable: doorbells have to come as messages.
        assert_eq!(region.flags, if size == 0 { 0 } else { 3 });
        assert!(region.file_offset.is_none() && region.sparse_areas.is_empty());
    }
    for index in 0..5 {
        let about = client.get_irq_info(index).unwrap();
        let wanted = if index == MSIX { VECTORS.into() } else { 0 };
        assert_eq!((about.index, about.count), (index, wanted));
    }
}

#[test]
fn each_function_is_of_its_own_kind() {
    let server = Server::start(3, &["--vf", "1", "--vf-without-mac", "2"]);
    for (index, id, size, vectors) in [
        (0, 0x17, 32 << 20, u32::from(VECTORS)),
        (1, 0x18, 1 << 20, 12),
        (2, 0x18, 1 << 20, 12),
    ] {
        let mut client = Client::new(&server.socket(index)).unwrap();
        assert_eq!(client.region(BAR0).unwrap().size, size);
        assert_eq!(client.get_irq_info(MSIX).unwrap().count, vectors);
        let mut ids = [0; 4];
        client.region_read(CONFIG, 0, &mut ids).unwrap();
        assert_eq!(ids, [0xb3, 0x15, id, 0x10]);
    }
    let beyond = Command::new(env!("CARGO_BIN_EXE_connectx-model"))
        .args(["serve", "--vf", "1", "--socket"])
        .arg(server.socket(0).with_extension("other"))
        .output()
        .unwrap();
    assert_eq!(beyond.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&beyond.stderr).contains("no function 1"));
}

#[test]
fn configuration_space_is_a_connectx_5() {
    let server = Server::start(1, &[]);
    let mut client = Client::new(&server.socket(0)).unwrap();
    let mut space = [0; 256];
    client.region_read(CONFIG, 0, &mut space).unwrap();
    assert_eq!(space[..4], [0xb3, 0x15, 0x17, 0x10]);
    assert_eq!(space[4..6], [0, 0]);
    // Byte by byte it is the same.
    for (at, &wanted) in (0..).zip(&space) {
        let mut byte = [0xee];
        client.region_read(CONFIG, at, &mut byte).unwrap();
        assert_eq!(byte[0], wanted, "byte {at:#x}");
    }
    // The BAR's size, as a bus driver finds it out.
    client.region_write(CONFIG, 0x10, &[0xff; 8]).unwrap();
    let mut bar = [0; 8];
    client.region_read(CONFIG, 0x10, &mut bar).unwrap();
    assert_eq!(u64::from_le_bytes(bar) & !0xf, !((32 << 20) - 1));
    // There are no extended capabilities.
    let mut rest = [0xee; 4096 - 256];
    client.region_read(CONFIG, 256, &mut rest).unwrap();
    assert!(rest.iter().all(|&byte| byte == 0));
}

#[test]
fn registers_need_memory_space() {
    let server = Server::start(1, &[]);
    let mut client = Client::new(&server.socket(0)).unwrap();
    let mut revision = [0; 4];
    client.region_read(BAR0, 0, &mut revision).unwrap();
    assert_eq!(revision, [0xff; 4]);
    client.region_write(CONFIG, 4, &[2, 0]).unwrap();
    client.region_read(BAR0, 0, &mut revision).unwrap();
    // Minor 35, major 16.
    assert_eq!(revision, [0, 35, 0, 16]);
    // What is beyond the end, or in no region, reads all ones, and the client is served on.
    for (region, offset) in [(BAR0, 32 << 20), (BAR0, (32 << 20) - 2), (BAR0, !0), (3, 0)] {
        let mut data = [0; 4];
        client.region_read(region, offset, &mut data).unwrap();
        assert_eq!(data, [0xff; 4], "region {region} at {offset:#x}");
        client.region_write(region, offset, &data).unwrap();
    }
    client.region_read(BAR0, 0, &mut revision).unwrap();
    assert_eq!(revision, [0, 35, 0, 16]);
}

#[test]
fn one_file_is_mapped_once_for_all_its_regions() {
    let server = Server::start(1, &[]);
    let card = Card::open(&server.socket(0));
    let arena = Arena::new();
    let mut client = card.client();
    let fd = arena.file.as_raw_fd();
    client.dma_map(0, IOVA, PAGE, fd).unwrap();
    assert_eq!(server.mappings(&arena.name), 1);
    let descriptors = server.descriptors();
    // Page by page, each at another offset, with a window of them mapped at a time, as a guest's IOMMU does it.
    const PAGES: u64 = 16_000;
    const WINDOW: u64 = 600;
    for n in 1..PAGES {
        let offset = n * 7 % PAGES * PAGE;
        client.dma_map(offset, IOVA + n * PAGE, PAGE, fd).unwrap();
        if let Some(old) = n.checked_sub(WINDOW) {
            client.dma_unmap(IOVA + old * PAGE, PAGE).unwrap();
        }
    }
    assert_eq!(server.mappings(&arena.name), 1);
    assert_eq!(server.descriptors(), descriptors);
    // Larger and larger, and smaller pieces taken out of them.
    for n in 1..1000 {
        client.dma_map(0, IOVA, n * PAGE, fd).unwrap();
        client.dma_unmap(IOVA + n / 2 * PAGE, PAGE).unwrap();
    }
    assert_eq!(server.mappings(&arena.name), 1);
    drop(client);
    drop(card);
    // The next client finds nothing of it.
    server.assert_serves();
    assert_eq!(server.mappings(&arena.name), 0);
}

#[test]
fn ranges_without_a_file_are_taken_and_given_back() {
    let server = Server::start(1, &["--log", "debug"]);
    let mut raw = Raw::connect(&server.socket(0));
    // A ROM or another device's registers: announced, and not reachable.
    for n in 0..100 {
        let address = 0xfee0_0000 + n * PAGE;
        assert!(raw.send(&raw::dma_map(0, address, PAGE)).reply().is_some());
    }
    for n in 0..50 {
        let address = 0xfee0_0000 + n * PAGE;
        assert!(
            raw.send(&raw::dma_unmap(0, address, PAGE))
                .reply()
                .is_some()
        );
        // Twice is no error either.
        assert!(
            raw.send(&raw::dma_unmap(0, address, PAGE))
                .reply()
                .is_some()
        );
    }
    // All of the address space in two pieces, as when an IOMMU is switched on.
    for half in [0, 1 << 63] {
        assert!(
            raw.send(&raw::dma_unmap(0, half, 1 << 63))
                .reply()
                .is_some()
        );
    }
    // And all at once.
    let arena = Arena::new();
    let map = raw::dma_map(0, 0, 4 * PAGE);
    let fd = arena.file.as_raw_fd();
    assert!(raw.send_with(&map, &[fd]).reply().is_some());
    assert_eq!(server.mappings(&arena.name), 1);
    assert!(raw.send(&raw::dma_unmap(4, 0, 0)).reply().is_some());
    assert_eq!(server.mappings(&arena.name), 0);
    // Every refusal has an answer.
    for bad in [raw::dma_map(0, 0, 0), raw::dma_map(0, u64::MAX, 2)] {
        assert_eq!(raw.send(&bad).reply(), None);
    }
    for (offset, size) in [(u64::MAX, 2), (64 << 20, PAGE), (0, (64 << 20) + 1)] {
        let map = raw::dma_map(offset, 0, size);
        assert_eq!(raw.send_with(&map, &[fd]).reply(), None);
    }
}

/// Asks the server to raise a vector, which reaches the client the way the model's interrupts do.
fn raise(client: &mut Client, vector: u32) {
    client.set_irqs(MSIX, NO_DATA, vector, 1, &[]).unwrap();
}

#[test]
fn every_vector_comes_and_goes_on_its_own() {
    let server = Server::start(1, &[]);
    let card = Card::open(&server.socket(0));
    let mut client = card.client();
    let count = |vector: u32| card.event(vector as usize).read().ok();
    let vectors = u32::from(VECTORS);
    for vector in 0..vectors {
        raise(&mut client, vector);
        for other in 0..vectors {
            let wanted = (other == vector).then_some(1);
            assert_eq!(count(other), wanted, "vector {vector}");
        }
    }
    // One is taken away: what it would have brought waits until it is there again.
    client.set_irqs(MSIX, BY_EVENT, 5, 1, &[]).unwrap();
    for vector in 0..vectors {
        raise(&mut client, vector);
        assert_eq!(count(vector), (vector != 5).then_some(1));
    }
    let other = EventFd::new(EFD_NONBLOCK).unwrap();
    client
        .set_irqs(MSIX, BY_EVENT, 5, 1, &[other.as_raw_fd()])
        .unwrap();
    assert_eq!(other.read().ok(), Some(1));
    assert_eq!(count(5), None);
    // All at once, as many as a message carries, and none any more.
    let all: Vec<_> = (0..16).map(|v| card.event(v).as_raw_fd()).collect();
    client.set_irqs(MSIX, BY_EVENT, 0, 16, &all).unwrap();
    raise(&mut client, 15);
    assert_eq!(count(15), Some(1));
    client.set_irqs(MSIX, NO_DATA, 0, 0, &[]).unwrap();
    for vector in 0..vectors {
        raise(&mut client, vector);
        assert_eq!(count(vector), None);
    }
}

#[test]
fn a_device_reset_clears_what_was_written() {
    let server = Server::start(1, &[]);
    let card = Card::open(&server.socket(0));
    let queue = [[0, 0, 0, 0x12], [0x34, 0x56, 0x70, 0]];
    for (offset, value) in [(0x10, queue[0]), (0x14, queue[1])] {
        card.client().region_write(BAR0, offset, &value).unwrap();
    }
    assert_eq!(card.register(0x10).unwrap(), 0x12);
    assert_eq!(card.register(0x14).unwrap() & !0xfff, 0x3456_7000);
    card.client().reset().unwrap();
    assert_eq!(card.register(0x10).unwrap(), 0);
    assert_eq!(card.register(0x14).unwrap() & !0xfff, 0);
    // Registers still answer, as behind vfio-pci, which restores the command register.
    assert_eq!(card.register(0).unwrap(), 35 << 16 | 16);
}
