//! Tries a card out, alone: two queue pairs whose packets the device hands from one to the other (force loopback), so that
//! neither a cable nor an address is needed. On a RoCE device without that capability (ConnectX-4 and ConnectX-4 Lx) the queue
//! pairs are connected to the port's own GID and MAC address, which loops back inside the device too, but only while the link
//! is up.

mod pair;
#[cfg(test)]
mod tests;
mod wrong;

use std::time::Duration;

use bareverbs::verbs::{
    AhAttr, Config, CqSlot, Device, DeviceSlot, Gid, GidEntry, LinkLayer, Mtu, PageChunk, Platform,
    PortAttr, PortState, QpSlot, Storage,
};

use super::chunks::with_page_chunks;
use bareverbs_examples::Result;
use bareverbs_node::wait_for_link;
use pair::{End, LARGEST, Loopback, Op, Pair};
use wrong::{TIMEOUT, Wrong};

/// Around the edges of cache lines, pages and packets (path MTU 4096 at most).
const SIZES: [usize; 14] = [
    0, 1, 3, 63, 64, 255, 256, 257, 4095, 4096, 4097, 65_535, 1_000_000, LARGEST,
];

/// The function that prints the test's lines.
pub(crate) type Print<'a> = &'a dyn Fn(&str);

/// Executes one step and prints its result; the following steps need it.
fn step<T>(print: Print<'_>, name: &str, work: impl FnOnce() -> Result<(T, String)>) -> Result<T> {
    match work() {
        Ok((value, note)) => {
            print(&format!("PASS  {name:<12}{note}\n"));
            Ok(value)
        }
        Err(error) => {
            print(&format!("FAIL  {name:<12}{error}\n"));
            Err(format!("the self test failed at \"{name}\"").into())
        }
    }
}

/// A part of the test that this device, or its place in the machine, does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) step: &'static str,
    pub(crate) reason: String,
}

impl Skipped {
    pub(crate) fn new(print: Print<'_>, step: &'static str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        print(&format!("SKIP  {step:<12}{reason}\n"));
        Self { step, reason }
    }
}

/// Runs the whole test, step by step. Returns what had to be left out, if no step failed.
pub(crate) fn run<P: Platform>(
    print: Print<'_>,
    open: impl FnOnce() -> Result<P>,
) -> Result<Vec<Skipped>> {
    let mut opened = Some(open);
    let mut platform = None;
    with_page_chunks(|chunks| {
        let platform = match &platform {
            Some(platform) => platform,
            None => {
                let opened = opened.take().map(|open| open());
                let failed = |error| step(print, "open", || Err(error));
                let opened = opened.ok_or("opened before")?.or_else(failed)?;
                platform.insert(opened)
            }
        };
        attempt(print, platform, chunks)
    })
}

/// The same with so many chunks for the firmware's pages. If they were too few, nothing is printed yet.
fn attempt<P: Platform>(
    print: Print<'_>,
    platform: &P,
    mut chunks: Vec<PageChunk>,
) -> Result<Vec<Skipped>> {
    let mut slot = DeviceSlot::new();
    let mut qps = [const { QpSlot::new() }; 2];
    let mut cqs = [const { CqSlot::new() }; 2];
    let storage = Storage::new(&mut slot, &mut qps, &mut cqs, &mut [], &mut chunks);
    let mut config = Config::DEFAULT;
    config.interrupts = platform.interrupt_vectors() > 0;
    let opened = match Device::open(platform, config, storage) {
        Err(error) if error.page_chunks().is_some() => return Err(error.into()),
        opened => opened,
    };
    let device = step(print, "open", || {
        let device = opened?;
        let note = format!(
            "firmware {}, {} commands, {} pages given",
            device.capabilities().firmware,
            device.commands_executed(),
            device.pages_given()
        );
        Ok((device, note))
    })?;
    let skipped = operations(print, &device)?;
    step(print, "close", || {
        let (events, unknown) = device.lost_and_unknown_events();
        let bytes = device.bytes_quarantined();
        if events + unknown + bytes != 0 {
            let wrong = Wrong::Lost {
                events,
                unknown,
                bytes,
            };
            return Err(wrong.into());
        }
        let (pages, commands) = (device.pages_given(), device.commands_executed());
        device.close()?;
        let note = format!("all {pages} pages returned, after {commands} commands");
        Ok(((), note))
    })?;
    Ok(skipped)
}

/// The loopback that the device has, or why it has none.
fn loopback<P: Platform>(
    device: &Device<'_, P>,
    port: &PortAttr,
) -> Result<std::result::Result<Loopback, String>> {
    if device.capabilities().has_force_loopback() {
        let path = AhAttr {
            force_loopback: true,
            ..AhAttr::default()
        };
        // Force loopback asks nothing of an Ethernet port.
        let mtu = match port.link_layer {
            LinkLayer::Ethernet => Mtu::B4096,
            LinkLayer::InfiniBand => port.active_mtu,
        };
        return Ok(Ok(Loopback { mtu, path }));
    }
    let without = "the device has no force loopback (fl_rc_qp_when_roce_enabled, _disabled)";
    if port.state != PortState::Active {
        return Ok(Err(format!(
            "{without}, and loopback by address needs the link, which is {}",
            device.query_link()?
        )));
    }
    let mac = device.mac()?;
    if mac == [0; 6] {
        return Ok(Err(format!(
            "{without}, and loopback by address needs a MAC address, which this function was not given"
        )));
    }
    let Some(sgid_index) = device.free_gid_index() else {
        return Ok(Err(format!(
            "{without}, and loopback by address needs a GID, for which the table has no free entry"
        )));
    };
    let dgid = Gid::link_local(mac);
    device.set_gid(sgid_index, GidEntry::roce_v2(dgid, mac))?;
    let path = AhAttr {
        dgid,
        sgid_index,
        hop_limit: 1,
        dmac: mac,
        ..AhAttr::default()
    };
    let mtu = port.active_mtu;
    Ok(Ok(Loopback { mtu, path }))
}

/// Everything between open and close.
fn operations<'d, P: Platform>(
    print: Print<'_>,
    device: &'d Device<'d, P>,
) -> Result<Vec<Skipped>> {
    let forced = device.capabilities().has_force_loopback();
    let port = step(print, "port", || {
        // Force loopback needs no link.
        let timeout = if forced { Duration::ZERO } else { TIMEOUT };
        let port = wait_for_link(device, timeout)?;
        let kind = match port.link_layer {
            LinkLayer::Ethernet => "Ethernet",
            LinkLayer::InfiniBand => "InfiniBand",
        };
        let state = match port.state {
            PortState::Active => "up",
            PortState::Down => "down",
            _ => "not up yet",
        };
        let matters = if forced && port.state != PortState::Active {
            ", which does not matter here"
        } else {
            ""
        };
        Ok((port, format!("{kind}, {state}{matters}")))
    })?;
    let pd = device.alloc_pd()?;
    let mut pair = step(print, "memory", || {
        let pair = Pair([End::new(device, &pd)?, End::new(device, &pd)?]);
        let [a, b] = pair.0.each_ref().map(|end| end.buffer.rkey().0);
        let note = format!("2 regions of {LARGEST} bytes, rkeys {a:#x} and {b:#x}");
        Ok((pair, note))
    })?;
    let loopback = match loopback(device, &port)? {
        Ok(loopback) => loopback,
        Err(reason) => {
            let without = "nothing is connected";
            let mut skipped = vec![Skipped::new(print, "connect", reason)];
            for step in [
                "send",
                "write",
                "read",
                "atomics",
                "interrupt",
                "protection",
                "recovery",
            ] {
                skipped.push(Skipped::new(print, step, without));
            }
            return Ok(skipped);
        }
    };
    let skipped = exchange(print, device, &mut pair, &loopback)?;
    if !forced {
        device.del_gid(loopback.path.sgid_index)?;
    }
    Ok(skipped)
}

/// Calls `work` while two queue pairs are there that have exchanged messages; without a loopback they are not connected.
pub(crate) fn with_pair<'d, P: Platform, T>(
    device: &'d Device<'d, P>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let forced = device.capabilities().has_force_loopback();
    let timeout = if forced { Duration::ZERO } else { TIMEOUT };
    let port = wait_for_link(device, timeout)?;
    let pd = device.alloc_pd()?;
    let mut pair = Pair([End::new(device, &pd)?, End::new(device, &pd)?]);
    let Ok(loopback) = loopback(device, &port)? else {
        return work();
    };
    pair.connect(&loopback)?;
    for op in [Op::Send, Op::Write, Op::Read] {
        pair.transfer(op, 4097)?;
    }
    let done = work();
    if !forced {
        device.del_gid(loopback.path.sgid_index)?;
    }
    done
}

/// The exchange of two queue pairs.
fn exchange<P: Platform>(
    print: Print<'_>,
    device: &Device<'_, P>,
    pair: &mut Pair<'_, P>,
    loopback: &Loopback,
) -> Result<Vec<Skipped>> {
    let mut skipped = Vec::new();
    step(print, "connect", || {
        pair.connect(loopback)?;
        let [a, b] = pair.qpns();
        let way = if loopback.path.force_loopback {
            "force loopback".to_owned()
        } else {
            format!("loopback to the own address {}", loopback.path.dgid)
        };
        let note = format!(
            "{a} and {b} by {way}, path MTU {} bytes",
            loopback.mtu.bytes()
        );
        Ok(((), note))
    })?;
    for op in [Op::Send, Op::Write, Op::Read] {
        step(print, op.name(), || {
            for size in SIZES {
                pair.transfer(op, size)?;
            }
            let note = format!("{} messages of 0 to {LARGEST} bytes", SIZES.len());
            Ok(((), note))
        })?;
    }
    if device.capabilities().has_atomics() {
        step(print, "atomics", || Ok(((), pair.atomics()?)))?;
    } else {
        skipped.push(Skipped::new(
            print,
            "atomics",
            "the device has no 8-byte atomics in the host's byte order",
        ));
    }
    if device.platform().interrupt_vectors() > 0 {
        step(print, "interrupt", || {
            let took = pair.interrupt()?;
            Ok(((), format!("a completion within {took:?}")))
        })?;
    } else {
        skipped.push(Skipped::new(print, "interrupt", "the platform has none"));
    }
    step(print, "protection", || {
        let status = pair.wrong_key()?;
        let note = format!("wrong rkey: \"{status}\", reported to both ends");
        Ok(((), note))
    })?;
    step(print, "recovery", || {
        pair.connect(loopback)?;
        pair.transfer(Op::Write, 4097)?;
        Ok(((), "the same queue pairs, connected again".into()))
    })?;
    Ok(skipped)
}
