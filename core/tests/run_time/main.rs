//! A device in use: page requests, events, health, nonsense.

#[path = "../support/mod.rs"]
mod support;

mod events;
mod health;
mod pages;

use std::time::Duration;

use bareverbs_core::error::{CommandFailure, Millis};
use bareverbs_core::{
    AsyncEvent, CommandError, Config, Cqs, Device, DeviceError, Gid, GidEntry, PageChunks,
    Platform, Qps, Resources, RoceVersion, Srqs,
};
use bareverbs_firmware_cmds::eq::Eqe;
use bareverbs_firmware_cmds::event::{Event, EventType, PortChange, Queue};
use bareverbs_firmware_cmds::hca::NopIn;
use bareverbs_firmware_cmds::init_segment as registers;
use bareverbs_firmware_cmds::numbers::{Cqn, Qpn, Srqn};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::Status;
use support::Fake;
use support::firmware::Action;
use support::random::Random;

type Memory = Resources<Qps<4>, Cqs<4>, Srqs<4>, PageChunks<3>>;

fn open<'a>(fake: &'a Fake, memory: &'a mut Memory) -> Device<'a, &'a Fake> {
    fake.lock().boot_pages = 10;
    fake.lock().init_pages = 10;
    let mut config = Config::DEFAULT;
    config.health_interval = Duration::from_millis(1);
    config.health_stall = Duration::from_millis(10);
    config.command_timeout = Duration::from_millis(5);
    config.teardown_timeout = Duration::from_millis(5);
    let device = Device::open(fake, config, memory.storage()).expect("bring-up");
    fake.lock().history.clear();
    device
}

/// Lets firmware and driver run.
fn run(fake: &Fake, device: &Device<'_, &Fake>) {
    for _ in 0..20 {
        fake.relax();
        device.poll().expect("healthy");
    }
}

/// Executes all queries, for the results of invalid answers.
fn ask_everything(device: &Device<'_, &Fake>) {
    let caps = device.capabilities();
    let _ = (
        caps.max_qp(),
        caps.max_qp_wr(),
        caps.max_cq(),
        caps.max_cqe(),
        caps.max_srq(),
    );
    let _ = (
        caps.max_srq_wr(),
        caps.max_mr(),
        caps.max_pd(),
        caps.pkey_table_len(),
    );
    let _ = (
        caps.max_initiator_depth(),
        caps.max_responder_resources(),
        caps.roce_versions(),
    );
    let _ = device.query_port();
    let _ = device.query_gid(0);
    let _ = device.query_pkey(0);
    let _ = device.query_infiniband_gid(0);
    let _ = device
        .query_adapter()
        .map(|adapter| adapter.board_id().len());
    let _ = device.query_special_contexts();
    let _ = device.set_gid(
        0,
        GidEntry {
            gid: Gid::link_local([2, 0, 0, 0, 0, 1]),
            version: RoceVersion::V2,
            vlan: None,
            mac: [2, 0, 0, 0, 0, 1],
        },
    );
    while device.next_async_event().is_some() {}
}

#[test]
fn the_device_may_write_anything() {
    for seed in 0..300 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let fake = Fake::with(|inner| inner.lies = true);
        let mut memory = Memory::new();
        // Even seeds get through bring-up and meet garbage then; odd ones meet it on the way.
        let garbage = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(seed % 2 == 1));
        let on = garbage.clone();
        let mut answers = Random(seed ^ 0xabcd);
        fake.script(move |posted| {
            if !on.load(std::sync::atomic::Ordering::Relaxed) || answers.next().is_multiple_of(3) {
                return Action::Normal;
            }
            let mut output = vec![0; posted.output_len];
            answers.fill(&mut output);
            if !answers.next().is_multiple_of(8) {
                output[0] = 0;
            }
            Action::Answer(output)
        });
        let mut config = Config::DEFAULT;
        config.command_timeout = Duration::from_micros(200);
        config.teardown_timeout = Duration::from_micros(200);
        config.initialize_timeout = Duration::from_micros(200);
        let Ok(device) = Device::open(&fake, config, memory.storage()) else {
            continue;
        };
        garbage.store(true, std::sync::atomic::Ordering::Relaxed);
        for _ in 0..50 {
            let mut entry = Eqe::ZERO;
            random.fill(&mut entry.0);
            if random.next().is_multiple_of(2) {
                // Types that mean something.
                entry.set_event_type((random.next() % 0x28) as u8);
            }
            fake.lock().raw_event(entry);
            let _ = device.poll();
            fake.relax();
        }
        ask_everything(&device);
        let _ = device.close();
    }
}
