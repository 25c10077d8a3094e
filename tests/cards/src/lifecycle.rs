//! Two drawn cards, from reset to the return of the last page.

use bareverbs_core::{
    CqSlot, Device, DeviceSlot, Gid, GidEntry, PageChunk, QpSlot, RoceVersion, SrqSlot, Storage,
};
use connectx_model::Objects;

use crate::card::{Card, ip};
use crate::draw::{CardDraw, PairDraw};
use crate::refusal::{Refusal, StepError};
use crate::report::Report;
use crate::{commands, connection, selftest};
use bareverbs_in_process::subnet::{Port, Subnet};
use bareverbs_in_process::{Accounting, Builder, World};

/// Slots of a device for queue pairs, and for completion queues.
const QUEUES: usize = 12;

/// The memory behind the storage of a device.
struct DeviceMemory {
    device: DeviceSlot,
    qps: Vec<QpSlot>,
    cqs: Vec<CqSlot>,
    srqs: Vec<SrqSlot>,
    chunks: Vec<PageChunk>,
}

impl DeviceMemory {
    fn new(card: &CardDraw) -> Box<Self> {
        let mut memory = Self {
            device: DeviceSlot::new(),
            qps: Vec::new(),
            cqs: Vec::new(),
            srqs: vec![SrqSlot::new()],
            chunks: Vec::new(),
        };
        memory.qps.resize_with(QUEUES, QpSlot::new);
        memory.cqs.resize_with(QUEUES, CqSlot::new);
        memory.chunks.resize_with(card.page_chunks, PageChunk::new);
        Box::new(memory)
    }

    fn storage(&mut self) -> Storage<'_> {
        Storage::new(
            &mut self.device,
            &mut self.qps,
            &mut self.cqs,
            &mut self.srqs,
            &mut self.chunks,
        )
    }
}

/// How steps ended.
struct Record<'p> {
    pair: &'p PairDraw,
    report: Report,
}

impl Record<'_> {
    /// The step's result; `None` if it was refused for a reason that one of these cards names.
    fn judge<T>(
        &mut self,
        step: &str,
        cards: &[usize],
        result: Result<T, StepError>,
    ) -> Result<Option<T>, String> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        let named = cards
            .iter()
            .flat_map(|&card| &self.pair.cards[card].refusals)
            .find(|refusal| refusal.explains(&error));
        if let Some(named) = named {
            let place = Refusal::ALL.iter().position(|refusal| refusal == named);
            if let Some(count) = place.and_then(|at| self.report.refused.get_mut(at)) {
                *count += 1;
            }
            return Ok(None);
        }
        Err(format!("{step} of card {cards:?}: {error} ({error:?})"))
    }
}

/// From reset to the end.
pub(super) fn run(pair: &PairDraw) -> Result<Report, String> {
    let world = link(pair)
        .function(pair.cards[0].model.clone())
        .function(pair.cards[1].model.clone())
        .interrupts(pair.vectors)
        .stepped();
    let before = [0, 1].map(|card| world.accounting(card));
    let mut record = Record {
        pair,
        report: Report::default(),
    };
    let outcome = between(&world, &mut record);
    outcome?;
    for card in [0, 1] {
        nothing_left(&world, card, before[card])?;
    }
    Ok(record.report)
}

/// A cable, or an InfiniBand subnet with both ports.
fn link(pair: &PairDraw) -> Builder {
    let Some(fabric) = &pair.subnet else {
        return Builder::new();
    };
    let subnet = Subnet::default();
    subnet.with(|state| {
        state.administration.path = fabric.path;
        state.faults = fabric.faults.iter().copied().collect();
        state.administration.ports = pair
            .cards
            .iter()
            .map(|card| Port {
                gid: port_gid(card).0,
                lid: card.model.lid,
            })
            .collect();
    });
    Builder::with_link(subnet.link(pair.cards.len()), pair.seed)
}

/// The GID of an InfiniBand port.
fn port_gid(card: &CardDraw) -> Gid {
    let guid = card.model.port_guid;
    Gid((0xfe80_u128 << 112 | u128::from(guid)).to_be_bytes())
}

fn between(world: &World, record: &mut Record<'_>) -> Result<(), String> {
    let pair = record.pair;
    let mut memories = [0, 1].map(|card: usize| DeviceMemory::new(&pair.cards[card]));
    let [first, second] = &mut memories;
    let mut devices = [None, None];
    for (card, memory) in [first, second].into_iter().enumerate() {
        let opened = Device::open(
            world.platform(card),
            pair.cards[card].driver,
            memory.storage(),
        );
        devices[card] = record.judge("bring-up", &[card], opened.map_err(StepError::from))?;
        record.report.up += usize::from(devices[card].is_some());
    }
    let mut ready = [None; 2];
    for (card, device) in devices.iter().enumerate() {
        let Some(device) = device else {
            continue;
        };
        capabilities(device, &pair.cards[card])?;
        let raced = commands::run(device);
        record.judge("commands", &[card], raced)?;
        // An InfiniBand port has its address from the subnet's manager.
        ready[card] = match pair.subnet {
            Some(_) => Some(()),
            None => record.judge("address", &[card], address(device, card))?,
        };
        if !pair.cards[card].force_loopback {
            world.set_link(card, true);
        }
        let roce = pair.subnet.is_none() && ready[card].is_some();
        let tested = selftest::run(device, &pair.cards[card], roce);
        if let Some(true) = record.judge("self test", &[card], tested)? {
            record.report.self_tests += 1;
        }
        world.set_link(card, true);
    }
    if let ([Some(first), Some(second)], [Some(()), Some(())]) = (&devices, ready) {
        let devices = [first, second];
        let talked = if pair.subnet.is_some() {
            let gids = pair.cards.each_ref().map(port_gid);
            connection::infiniband(world, pair, devices, gids)
        } else {
            let macs = devices.map(|device| device.mac().map_err(StepError::from));
            let [Ok(first), Ok(second)] = macs else {
                return Err(format!("MAC addresses: {macs:?}"));
            };
            connection::roce(world, pair, devices, [first, second])
        };
        let talked = record.judge("connection", &[0, 1], talked)?;
        record.report.connections += usize::from(talked.is_some());
        let infiniband = pair.subnet.is_some() && talked.is_some();
        record.report.infiniband_connections += usize::from(infiniband);
    }
    for (card, device) in devices.into_iter().enumerate() {
        let Some(device) = device else {
            continue;
        };
        let quarantined = device.bytes_quarantined();
        if quarantined != 0 {
            return Err(format!("card {card}: {quarantined} bytes in quarantine"));
        }
        if let (_, wrong @ 1..) = device.page_faults() {
            return Err(format!(
                "card {card}: {wrong} pages returned that were not given"
            ));
        }
        record.judge("teardown", &[], device.close().map_err(StepError::from))?;
    }
    Ok(())
}

/// That the driver says of the card what was drawn.
fn capabilities(device: &Card<'_>, card: &CardDraw) -> Result<(), String> {
    let caps = device.capabilities();
    for (what, is, drawn) in [
        ("atomics", caps.has_atomics(), card.atomics),
        (
            "force loopback",
            caps.has_force_loopback(),
            card.force_loopback,
        ),
    ] {
        if is != drawn {
            return Err(format!("{what}: the driver says {is}, drawn was {drawn}"));
        }
    }
    Ok(())
}

/// Gives a card its address.
fn address(device: &Card<'_>, card: usize) -> Result<(), StepError> {
    let mut mac = device.mac()?;
    if mac == [0; 6] {
        mac = [0x06, 0, 0, 0, 0, card as u8];
        device.set_mac(mac)?;
    }
    let entry = GidEntry {
        gid: ip(card).into(),
        version: RoceVersion::V2,
        vlan: None,
        mac,
    };
    Ok(device.set_gid(0, entry)?)
}

/// That nothing of the driver is left in or for a card.
fn nothing_left(world: &World, card: usize, before: Accounting) -> Result<(), String> {
    // What was late comes now, and must find nothing to touch.
    world.advance(std::time::Duration::from_millis(100));
    let faults = world.take_faults(card);
    if !faults.is_empty() {
        return Err(format!(
            "card {card}: DMA outside of what is mapped: {faults:?}"
        ));
    }
    let after = world.accounting(card);
    if after != before {
        return Err(format!(
            "card {card}: memory: {before:?} before, {after:?} after"
        ));
    }
    world.with_model(card, |model| {
        let (leaks, pages) = (model.leaks().to_vec(), model.pages_held());
        let objects = model.objects();
        if !leaks.is_empty() || pages != 0 || objects != Objects::default() {
            return Err(format!(
                "card {card}: {leaks:?}, {pages} pages held, {objects:?}"
            ));
        }
        Ok(())
    })
}
