//! The GID table: what reaches the firmware, and the driver's copy.

mod support;

use bareverbs_core::{
    Config, Cqs, Device, Gid, GidEntry, GidError, PageChunks, Qps, Resources, RoceVersion, Srqs,
};
use bareverbs_firmware_cmds::status::Status;
use support::Fake;
use support::firmware::Action;

type Memory = Resources<Qps<4>, Cqs<4>, Srqs<4>, PageChunks<3>>;

fn open<'a>(fake: &'a Fake, memory: &'a mut Memory) -> Device<'a, &'a Fake> {
    let device = Device::open(fake, Config::DEFAULT, memory.storage()).expect("bring-up");
    fake.lock().history.clear();
    device
}

fn ipv4(last: u8) -> GidEntry {
    GidEntry {
        gid: Gid::from_ipv4([10, 0, 0, last].into()),
        version: RoceVersion::V2,
        vlan: None,
        mac: [2, 0, 0, 0, 0, last],
    }
}

#[test]
fn the_gid_table_is_written_and_found() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let plain = ipv4(1);
    let tagged = GidEntry {
        vlan: Some(100),
        ..plain
    };
    let old = GidEntry {
        version: RoceVersion::V1,
        ..plain
    };
    let six = GidEntry {
        gid: Gid::link_local([2, 0, 0, 0, 0, 1]),
        ..plain
    };
    for (index, entry) in [plain, tagged, old, six].into_iter().enumerate() {
        device.set_gid(index as u16, entry).expect("set");
    }
    let image = |index: usize| fake.lock().history[index].input[16..].to_vec();
    // ::ffff:10.0.0.1, no VLAN, MAC, IPv4 and version 2.
    assert_eq!(
        image(0),
        [
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0,
            2, 0, 0, 0, 0
        ]
    );
    assert_eq!(image(1)[16..20], [0x10, 100, 2, 0]);
    assert_eq!(image(2)[27], 0);
    assert_eq!(image(3)[26..28], [1, 2]);
    assert_eq!(
        image(3)[..16],
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1]
    );
    assert_eq!(device.find_gid(&plain.gid, RoceVersion::V2, None), Some(0));
    assert_eq!(
        device.find_gid(&plain.gid, RoceVersion::V2, Some(100)),
        Some(1)
    );
    assert_eq!(device.find_gid(&plain.gid, RoceVersion::V1, None), Some(2));
    assert_eq!(
        device.find_gid(&plain.gid, RoceVersion::V1, Some(100)),
        None
    );
    assert_eq!(device.free_gid_index(), Some(4));
    assert_eq!(device.gid_table().count(), 4);
    device.del_gid(0).expect("deleted");
    assert!(image(4).iter().all(|&byte| byte == 0));
    assert_eq!(device.port_gid(0), None);
    assert_eq!(device.find_gid(&plain.gid, RoceVersion::V2, None), None);
    assert_eq!(device.free_gid_index(), Some(0));
}

#[test]
fn impossible_gids_are_refused() {
    let fake = Fake::new();
    fake.lock().roce.set_roce_version(4);
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let entry = ipv4(1);
    assert_eq!(
        device.set_gid(16, entry),
        Err(GidError::Index { index: 16, len: 16 })
    );
    let zero = GidEntry {
        gid: Gid::ZERO,
        ..entry
    };
    assert_eq!(device.set_gid(0, zero), Err(GidError::Entry(zero)));
    let vlan = GidEntry {
        vlan: Some(0x1000),
        ..entry
    };
    assert_eq!(device.set_gid(0, vlan), Err(GidError::Entry(vlan)));
    let v1 = GidEntry {
        version: RoceVersion::V1,
        ..entry
    };
    assert_eq!(
        device.set_gid(0, v1),
        Err(GidError::Version(RoceVersion::V1))
    );
    assert!(
        fake.lock().history.is_empty(),
        "nothing of that reached the firmware"
    );
    // What the firmware refuses does not get into the copy.
    fake.script(|_| Action::Fail(Status::BadParameter, 1));
    assert!(matches!(
        device.set_gid(0, entry),
        Err(GidError::Command(_))
    ));
    assert_eq!(device.port_gid(0), None);
}

#[test]
fn an_address_needs_a_mac() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let entry = GidEntry {
        mac: [0; 6],
        ..ipv4(1)
    };
    assert_eq!(device.set_gid(0, entry), Err(GidError::NoMac));
    assert!(GidError::NoMac.to_string().contains("vf NUMBER mac"));
    assert!(fake.lock().history.is_empty(), "the firmware was asked");
    assert_eq!(device.port_gid(0), None);
}
