//! A virtual function: less to do at bring-up, addresses that are given, and a port that is not its own.

use bareverbs_core::firmware_cmds::vport::QueryNicVportContextIn;
use bareverbs_core::{
    Device, EthernetError, EthernetInit, FunctionKind, Gid, GidEntry, GidError, PortState, TailIn,
};
use connectx_model::Config as Card;

use crate::support::{Memory, alloc_pd, assert_nothing_held, quick, world};

#[test]
fn it_comes_up_on_either_kind_of_port() {
    for infiniband in [false, true] {
        let card = match Card::new(1) {
            card if infiniband => card.infiniband(),
            card => card,
        };
        let world = world(card.virtual_function());
        let mut memory = Memory::new();
        let mut commands = 0;
        for round in 0..3 {
            let device =
                Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
            assert_eq!(device.function_kind(), FunctionKind::Virtual);
            assert_eq!(device.pages_given(), 0);
            assert!(round == 0 || device.commands_executed() == commands);
            commands = device.commands_executed();
            // Pages, and the host's byte order.
            assert!(commands <= 20 - 3, "{commands} commands");
            let port = device.query_port().expect("port");
            assert_eq!(port.state, PortState::Active);
            assert_ne!((port.port_guid, port.node_guid), (0, 0));
            assert_eq!(
                device.query_adapter().expect("adapter").board_id(),
                "BRV0000000001"
            );
            for _ in 0..40 {
                alloc_pd(&device).expect("objects without pages of this host");
            }
            assert_eq!(device.pages_given(), 0);
            assert_eq!(world.with_model(0, |model| model.pages_held()), 0);
            device.close().expect("orderly");
        }
    }
}

#[test]
fn the_link_is_not_its_own() {
    let world = world(Card::new(1).virtual_function());
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    device.set_link(false).expect("allowed");
    assert_eq!(device.query_port().expect("port").state, PortState::Active);
    world.set_link(0, false);
    assert_eq!(device.query_port().expect("port").state, PortState::Down);
    device.close().expect("orderly");
    assert_nothing_held(&world, "after close");
}

#[test]
fn without_a_mac_it_has_no_address() {
    let world = world(Card::new(1).virtual_function().without_addresses());
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    assert_eq!(device.mac().expect("mac"), [0; 6]);
    let entry = |mac| GidEntry::roce_v2(Gid::link_local(mac), mac);
    assert_eq!(device.set_gid(0, entry([0; 6])), Err(GidError::NoMac));
    let pd = device.alloc_pd().expect("PD");
    let queue = pd.create_ethernet_queue(&EthernetInit::default());
    assert_eq!(queue.err(), Some(EthernetError::NoMac));
    drop(pd);

    let chosen = [2, 0x11, 0x22, 0x33, 0x44, 0x55];
    for mac in [[6; 6], chosen] {
        device.set_mac(mac).expect("allowed");
        assert_eq!(device.mac().expect("mac"), mac);
        assert_eq!(device.query_port().expect("port").mac, mac);
    }
    device.set_gid(0, entry(chosen)).expect("an address");
    drop(device);

    // The next one starts with nothing again.
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    assert_eq!(device.mac().expect("mac"), [0; 6]);
    device.close().expect("orderly");
    assert_nothing_held(&world, "after close");
}

#[test]
fn a_chosen_mac_comes_before_a_given_one_and_survives_a_queue() {
    let world = world(Card::new(1).virtual_function());
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    assert_eq!(device.mac().expect("mac"), [2, 0xc9, 0, 0, 0, 1]);
    let chosen = [2, 0x11, 0x22, 0x33, 0x44, 0x55];
    device.set_mac(chosen).expect("allowed");
    assert_eq!(device.mac().expect("mac"), chosen);
    let allowed = || {
        let mut entry = [0; 8];
        let query = QueryNicVportContextIn::new();
        let answer = device.execute_with(&query, TailIn::None, &mut entry);
        let context = *answer.expect("asked").nic_vport_context();
        (context.allowed_list_size(), u64::from_be_bytes(entry))
    };
    let expected = (1, 0x0211_2233_4455);
    assert_eq!(allowed(), expected);
    let pd = device.alloc_pd().expect("PD");
    let queue = pd
        .create_ethernet_queue(&EthernetInit::default())
        .expect("queue");
    assert_eq!(queue.mac(), chosen);
    queue.destroy().expect("destroyed");
    assert_eq!(allowed(), expected);
    drop(pd);
    device.close().expect("orderly");
    assert_nothing_held(&world, "after close");
}
