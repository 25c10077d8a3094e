//! An InfiniBand port that a subnet manager brings up: this test's, at the other end of the cable. It knows the datagrams'
//! offsets from the specification, and nothing of the library's.

use std::time::Duration;

use bareverbs_core::{AsyncEvent, Device, LinkStatus, Platform, PortState};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::Config as Card;
use connectx_model::link::fault::Rates;
use connectx_model::link::{Cable, Link};
use connectx_model::roce::packet::reseal;

use crate::support::{Memory, assert_nothing_held, quick};

const MS: Duration = Duration::from_millis(1);
/// Subnets with faults.
const SEEDS: u64 = 2000;
/// The cable's end that is the manager's.
const END: usize = 1;
/// Where the datagram is in a frame.
const PAYLOAD: usize = 74;
const SET: u8 = 2;
const GET_RESPONSE: u8 = 0x81;
const PORT_INFO: u16 = 0x15;
const P_KEY_TABLE: u16 = 0x16;
const NO_CHANGE: u8 = 0;
const ARMED: u8 = 3;
const ACTIVE: u8 = 4;
const REREGISTER: u8 = 0x80;
const LID: u16 = 7;
const SM_LID: u16 = 3;
const PARTITION: u16 = 0x8001;
/// In datagrams that take a directed route.
const PERMISSIVE: [u8; 6] = [0x02, 0x1b, 0, 0, 0xff, 0xff];

fn world() -> World {
    let mut card = Card::new(1).infiniband();
    card.subnet_managed = true;
    Builder::new().function(card).stepped()
}

/// PortInfo with these identifiers and state, and nothing else changed.
fn port_info(lid: u16, manager: u16, state: u8, flags: u8) -> [u8; 64] {
    let mut info = [0; 64];
    info[8..16].copy_from_slice(&0xfe80_0000_0000_0000_u64.to_be_bytes());
    info[16..18].copy_from_slice(&lid.to_be_bytes());
    info[18..20].copy_from_slice(&manager.to_be_bytes());
    info[32] = state;
    info[51] = flags | 18;
    info
}

fn partitions() -> [u8; 64] {
    let mut keys = [0; 64];
    keys[..2].fill(0xff);
    keys[2..4].copy_from_slice(&PARTITION.to_be_bytes());
    keys
}

/// The MADs that bring a port up, in this order.
fn steps() -> [(u16, [u8; 64]); 4] {
    [
        (PORT_INFO, port_info(LID, SM_LID, NO_CHANGE, 0)),
        (P_KEY_TABLE, partitions()),
        (PORT_INFO, port_info(LID, SM_LID, ARMED, 0)),
        (PORT_INFO, port_info(LID, SM_LID, ACTIVE, 0)),
    ]
}

#[derive(Default)]
struct Manager {
    transaction: u64,
}

impl Manager {
    /// Sets an attribute of the port on the cable; the status, or `None` if no answer came.
    fn set(&mut self, world: &World, attribute: u16, data: &[u8; 64]) -> Option<u16> {
        let frame = self.request(attribute, data);
        world.with_wire(|wire| wire.send(END, &frame, world.now()));
        while world.step() {}
        self.answer(world)
    }

    /// The same over a cable that loses frames: sent again until there is an answer, at most so often.
    fn insist(
        &mut self,
        world: &World,
        attribute: u16,
        data: &[u8; 64],
        times: usize,
    ) -> Option<u16> {
        let frame = self.request(attribute, data);
        (0..times).find_map(|_| {
            world.with_wire(|wire| wire.send(END, &frame, world.now()));
            world.advance(200 * MS);
            self.answer(world)
        })
    }

    /// The next question.
    fn request(&mut self, attribute: u16, data: &[u8; 64]) -> Vec<u8> {
        self.transaction += 1;
        let mut frame = vec![0; PAYLOAD + 256 + 4];
        frame[..6].copy_from_slice(&PERMISSIVE);
        frame[6..12].copy_from_slice(&PERMISSIVE);
        frame[12..15].copy_from_slice(&[0x89, 0x15, 0x60]);
        let length = (frame.len() - 54) as u16;
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        frame[20..22].copy_from_slice(&[0x1b, 1]);
        frame[36..38].fill(0xff);
        frame[52..54].fill(0xff);
        frame[54..58].copy_from_slice(&[0x64, 0x40, 0xff, 0xff]);
        let mad = &mut frame[PAYLOAD..PAYLOAD + 256];
        // One hop of a directed route, which is at its end.
        mad[..8].copy_from_slice(&[1, 0x81, 1, SET, 0, 0, 1, 1]);
        mad[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        mad[32..36].fill(0xff);
        mad[64..128].copy_from_slice(data);
        mad[129] = 1;
        assert!(reseal(&mut frame));
        frame
    }

    /// The answer to the last question.
    fn answer(&self, world: &World) -> Option<u16> {
        let mut frame = Vec::new();
        while world.with_wire(|wire| wire.receive(END, world.now(), &mut frame)) {
            let mad = &frame[PAYLOAD..];
            assert_eq!((mad[1], mad[3]), (0x81, GET_RESPONSE));
            if mad[8..16] == self.transaction.to_be_bytes() {
                return Some(u16::from_be_bytes([mad[4] & 0x7f, mad[5]]));
            }
        }
        None
    }

    #[track_caller]
    fn bring_up(&mut self, world: &World, steps: &[(u16, [u8; 64])]) {
        for (attribute, data) in steps {
            let status = self.set(world, *attribute, data);
            assert_eq!(status, Some(0), "attribute {attribute:#x}");
        }
    }
}

fn events(device: &Device<'_, ModelPlatform>) -> Vec<AsyncEvent> {
    let soon = device.platform().now() + 10 * MS;
    std::iter::from_fn(|| device.get_async_event(soon).expect("healthy")).collect()
}

#[test]
fn a_port_waits_for_its_manager_and_says_so() {
    let port = 1;
    let world = world();
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let mut manager = Manager::default();
    for (done, (attribute, data)) in steps().into_iter().enumerate() {
        let attr = device.query_port().expect("port");
        let state = [PortState::Init, PortState::Armed][usize::from(done == 3)];
        assert_eq!(attr.state, state, "{done} steps");
        let lids = if done == 0 { (0, 0) } else { (LID, SM_LID) };
        assert_eq!((attr.lid, attr.sm_lid), lids, "{done} steps");
        let link = device.query_link().expect("link");
        assert_eq!(link, LinkStatus::AwaitsManager, "{done} steps");
        assert_eq!(manager.set(&world, attribute, &data), Some(0));
    }
    assert_eq!(device.query_link().expect("link"), LinkStatus::Up);
    assert_eq!(
        events(&device),
        [
            AsyncEvent::LidChange { port },
            AsyncEvent::PkeyChange { port },
            AsyncEvent::PortActive { port },
        ]
    );
    assert_eq!(device.query_port().expect("port").state, PortState::Active);
    assert_eq!(device.query_pkey(1).expect("P_Key"), PARTITION);

    // Another manager, with other identifiers, asks for what clients had registered with the first.
    let data = port_info(LID + 1, SM_LID + 1, NO_CHANGE, REREGISTER);
    assert_eq!(manager.set(&world, PORT_INFO, &data), Some(0));
    let attr = device.query_port().expect("port");
    assert_eq!((attr.lid, attr.sm_lid), (LID + 1, SM_LID + 1));
    assert_eq!(
        events(&device),
        [
            AsyncEvent::LidChange { port },
            AsyncEvent::ClientReregister { port },
        ]
    );
    device.close().expect("orderly");
    assert_nothing_held(&world, "after close");
}

/// A manager ends after any step; the port says that it still waits, and the next manager goes on.
#[test]
fn managers_may_end_at_every_step() {
    for done in 0..steps().len() {
        let world = world();
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        Manager::default().bring_up(&world, &steps()[..done]);
        let link = device.query_link().expect("link");
        assert_eq!(link, LinkStatus::AwaitsManager, "{done} steps");
        let mut next = Manager { transaction: 100 };
        next.bring_up(&world, &steps());
        assert_eq!(device.query_port().expect("port").state, PortState::Active);
        device.close().expect("orderly");
        assert_nothing_held(&world, "after close");
    }
}

/// Datagrams of both directions are lost, doubled and overtaken. Either the port comes up, with what the manager set and each
/// event once, or the manager gives up, and the driver says that the port waits for one.
#[test]
fn datagrams_of_managers_are_lost_doubled_and_overtaken() {
    let port = 1;
    let rates = Rates {
        loss: 100,
        duplicate: 100,
        reorder: 100,
        // Longer than the manager waits for an answer: what was overtaken comes behind later questions.
        max_delay: 300 * MS,
        ..Rates::default()
    };
    let (mut came_up, mut given_up) = (0, 0);
    for seed in 0..SEEDS {
        let mut card = Card::new(1).infiniband();
        card.subnet_managed = true;
        let builder = Builder::with_link(Box::new(Cable::new()), seed);
        let world = builder.function(card).stepped();
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        world.with_wire(|wire| wire.set_rates(rates));
        let mut manager = Manager::default();
        let set = |(attribute, data): &(u16, [u8; 64])| {
            let status = manager.insist(&world, *attribute, data, 2);
            assert!(matches!(status, None | Some(0)), "seed {seed}: {status:?}");
            status.is_some()
        };
        let done = steps().iter().all(set);
        // What was overtaken arrives.
        world.with_wire(|wire| wire.set_rates(Rates::default()));
        world.advance(1000 * MS);
        let link = device.query_link().expect("link");
        let active = device.query_port().expect("port").state == PortState::Active;
        assert_eq!(active, link == LinkStatus::Up, "seed {seed}");
        if done {
            came_up += 1;
            assert!(active, "seed {seed}");
            assert_eq!(
                events(&device),
                [
                    AsyncEvent::LidChange { port },
                    AsyncEvent::PkeyChange { port },
                    AsyncEvent::PortActive { port },
                ],
                "seed {seed}"
            );
        } else if !active {
            // It may have become active with the answer lost.
            given_up += 1;
            assert_eq!(link, LinkStatus::AwaitsManager, "seed {seed}");
        }
        device.close().expect("orderly");
        assert_nothing_held(&world, "after close");
    }
    println!("{SEEDS} subnets: {came_up} came up, {given_up} were given up");
    assert!(came_up > SEEDS / 2 && given_up > 0, "{came_up} {given_up}");
}
