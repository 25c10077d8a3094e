//! The GID table, which the firmware keeps.

use bareverbs_core::{Device, Gid, GidEntry, RoceVersion};
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
            "what the driver remembers"
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
