//! Cards whose capabilities ask for something that others do without.

use bareverbs_core::{Device, Gid, GidEntry, RoceVersion};
use connectx_model::Config as Card;

use crate::support::{Memory, alloc_pd, assert_nothing_held, dealloc_pd, quick, world};

/// Function 0 of the card's own processors is distinguished from the host's by a bit, in commands and in page requests.
#[test]
fn a_function_of_the_embedded_processors_is_not_taken_for_the_hosts() {
    for embedded_cpu in [false, true] {
        let mut card = Card::new(1);
        card.embedded_cpu = embedded_cpu;
        let world = world(card);
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        assert_eq!(device.is_embedded_cpu_function(), embedded_cpu);
        // The firmware does not answer before it has them.
        world.with_model(0, |model| model.set_page_appetite(100));
        let pd = alloc_pd(&device).expect("the pages came");
        dealloc_pd(&device, pd);
        device.close().expect("orderly");
        assert_nothing_held(&world, "after close");
    }
}

/// Where a function can have several ports, the entry's table is named by the port.
#[test]
fn gids_are_set_where_the_port_has_to_be_named() {
    for ports in [0, 1, 2] {
        let mut card = Card::new(1);
        for caps in [&mut card.general, &mut card.general_max] {
            caps.set_num_vhca_ports(ports);
        }
        let world = world(card);
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        let mac = device.mac().expect("mac");
        let gid = Gid::from_ipv4([192, 0, 2, 1].into());
        let entry = GidEntry::roce_v2(gid, mac);
        device.set_gid(0, entry).expect("set");
        assert_eq!(device.query_gid(0).expect("asked"), Some(entry));
        device.del_gid(0).expect("deleted");
        assert_eq!(device.query_gid(0).expect("asked"), None);
    }
}

/// RoCE v1 has no IP header, for any form of GID.
#[test]
fn gids_of_roce_v1_have_no_type_of_address() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let mac = device.mac().expect("mac");
    let gids = [Gid::link_local(mac), Gid::from_ipv4([192, 0, 2, 1].into())];
    for (index, gid) in (0..).zip(gids) {
        let entry = GidEntry {
            gid,
            version: RoceVersion::V1,
            vlan: None,
            mac,
        };
        device.set_gid(index, entry).expect("set");
        assert_eq!(device.query_gid(index).expect("asked"), Some(entry));
    }
}

#[test]
fn page_requests_are_not_subscribed_to_where_there_are_none() {
    let mut card = Card::new(1);
    for caps in [&mut card.general, &mut card.general_max] {
        caps.set_page_request_disable(true);
    }
    let world = world(card);
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let pd = alloc_pd(&device).expect("pd");
    dealloc_pd(&device, pd);
    device.close().expect("orderly");
    assert_nothing_held(&world, "after close");
}

/// `max_num_eqs` says how many there are, and where it is 0 `log_max_eq` does. The first is for everything but
/// completions.
#[test]
fn no_more_event_queues_are_made_than_the_card_has() {
    for (number, log, completions) in [(0, 2, 3), (0, 0, 0), (3, 5, 2), (1, 5, 0), (32, 0, 8)] {
        let mut card = Card::new(1);
        for caps in [&mut card.general, &mut card.general_max] {
            caps.set_max_num_eqs(number).set_log_max_eq(log);
        }
        let world = world(card);
        let mut memory = Memory::new();
        let mut config = quick();
        config.completion_event_queues = 8;
        let device = Device::open(world.platform(0), config, memory.storage())
            .unwrap_or_else(|error| panic!("{number} {log}: {error}"));
        assert_eq!(device.config().completion_event_queues, completions);
        device.close().expect("orderly");
        assert_nothing_held(&world, "after close");
    }
}
