//! The GID table, which the firmware keeps.

use bareverbs_core::{Device, Gid, GidEntry, GidError, RoceVersion};
use connectx_model::Config as Card;

use crate::support::{Memory, quick, world};

#[test]
fn the_gid_table_is_the_firmwares() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let mac = device.mac().expect("mac");
    let entries = [
        GidEntry {
            gid: Gid::link_local(mac),
            version: RoceVersion::V1,
            vlan: None,
            mac,
        },
        GidEntry {
            gid: Gid::link_local(mac),
            version: RoceVersion::V2,
            vlan: None,
            mac,
        },
        GidEntry {
            gid: Gid::from_ipv4([192, 0, 2, 1].into()),
            version: RoceVersion::V2,
            vlan: None,
            mac,
        },
        GidEntry {
            gid: Gid::from_ipv4([192, 0, 2, 1].into()),
            version: RoceVersion::V2,
            vlan: Some(42),
            mac,
        },
    ];
    for (index, &entry) in entries.iter().enumerate() {
        device.set_gid(index as u16, entry).expect("set");
        assert_eq!(
            device.query_gid(index as u16).expect("asked"),
            Some(entry),
            "what the firmware has"
        );
        assert_eq!(
            device.port_gid(index as u16),
            Some(entry),
            "the driver's copy"
        );
        assert_eq!(
            device.find_gid(&entry.gid, entry.version, entry.vlan),
            Some(index as u16)
        );
    }
    device.del_gid(1).expect("deleted");
    assert_eq!(device.query_gid(1).expect("asked"), None);
    assert_eq!(device.gid_table().count(), 3);
}

/// Asked for RoCE v2, every such port said that version 2 was missing.
#[test]
fn a_port_without_a_gid_table_lacks_roce_v2() {
    let with = |change: &dyn Fn(&mut Card)| {
        let mut card = Card::new(1);
        change(&mut card);
        card
    };
    let cards = [
        (
            Card::new(1).infiniband(),
            GidError::NotRoce,
            "the GIDs of an InfiniBand port are not the driver's",
        ),
        (
            with(&|card| {
                for caps in [&mut card.general, &mut card.general_max] {
                    caps.set_roce(false);
                }
            }),
            GidError::NoRoce,
            "the device has no RoCE on this port",
        ),
        (
            with(&|card| {
                for caps in [&mut card.roce, &mut card.roce_max] {
                    caps.set_roce_address_table_size(0);
                }
            }),
            GidError::Index { index: 0, len: 0 },
            "GID index 0 of a table of 0",
        ),
        (
            with(&|card| {
                for caps in [&mut card.roce, &mut card.roce_max] {
                    caps.set_roce_version(0b001);
                }
            }),
            GidError::Version(RoceVersion::V2),
            "the device does not have RoCE V2",
        ),
    ];
    for (card, wanted, text) in cards {
        let world = world(card);
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        let entry = GidEntry {
            gid: Gid::from_ipv4([192, 0, 2, 1].into()),
            version: RoceVersion::V2,
            vlan: None,
            mac: [2, 0, 0, 0, 0, 1],
        };
        assert_eq!(device.set_gid(0, entry), Err(wanted));
        assert_eq!(wanted.to_string(), text);
        if wanted != GidError::Version(RoceVersion::V2) {
            assert_eq!(device.del_gid(0), Err(wanted));
            assert_eq!(device.query_gid(0), Err(wanted));
        }
    }
}
