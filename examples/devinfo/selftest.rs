//! Tries a card out, alone: two queue pairs whose packets the device hands from one to the other (force loopback), so that
//! neither a cable nor an address is needed.

mod pair;
#[cfg(test)]
mod tests;
mod wrong;

use std::time::Duration;

use bareverbs::verbs::{Config, Device, LinkLayer, Mtu, Platform, PortState, Resources};

use super::Result;
use pair::{End, LARGEST, Op, Pair};
use wrong::Wrong;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Around the edges of cache lines, pages and packets (path MTU 4096 at most).
const SIZES: [usize; 14] = [
    0, 1, 3, 63, 64, 255, 256, 257, 4095, 4096, 4097, 65_535, 1_000_000, LARGEST,
];

/// Does one thing and says how it went; what follows needs it.
fn step<T>(name: &str, work: impl FnOnce() -> Result<(T, String)>) -> Result<T> {
    match work() {
        Ok((value, note)) => {
            println!("PASS  {name:<12}{note}");
            Ok(value)
        }
        Err(error) => {
            println!("FAIL  {name:<12}{error}");
            Err(format!("the self test failed at \"{name}\"").into())
        }
    }
}

fn skip(name: &str, why: &str) {
    println!("SKIP  {name:<12}{why}");
}

/// The whole test, step by step on standard output.
pub(crate) fn run<P: Platform>(open: impl FnOnce() -> Result<P>) -> Result<()> {
    let mut resources = Box::new(Resources::<2, 2, 1, 64>::new());
    let storage = resources.storage();
    let device = step("open", || {
        let mut config = Config::DEFAULT;
        let platform = open()?;
        config.interrupts = platform.interrupt_vectors() > 0;
        let device = Device::open(platform, config, storage)?;
        let note = format!(
            "firmware {}, {} commands, {} pages given",
            device.capabilities().firmware,
            device.commands_executed(),
            device.pages_given()
        );
        Ok((device, note))
    })?;
    operations(&device)?;
    step("close", || {
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
    })
}

/// Everything between open and close.
fn operations<'d, P: Platform>(device: &'d Device<'d, P>) -> Result<()> {
    let mtu = step("port", || {
        let port = device.query_port()?;
        // Force loopback asks nothing of an Ethernet port.
        let (kind, mtu) = match port.link_layer {
            LinkLayer::Ethernet => ("Ethernet", Mtu::B4096),
            LinkLayer::InfiniBand => ("InfiniBand", port.active_mtu),
        };
        let state = match port.state {
            PortState::Active => "up",
            PortState::Down => "down, which does not matter here",
            _ => "not up yet, which does not matter here",
        };
        Ok((mtu, format!("{kind}, {state}")))
    })?;
    let pd = device.alloc_pd()?;
    let mut pair = step("memory", || {
        let pair = Pair([End::new(device, &pd)?, End::new(device, &pd)?]);
        let [a, b] = pair.0.each_ref().map(|end| end.buffer.rkey().0);
        let note = format!("2 regions of {LARGEST} bytes, rkeys {a:#x} and {b:#x}");
        Ok((pair, note))
    })?;
    step("connect", || {
        pair.connect(mtu)?;
        let [a, b] = pair.qpns();
        let note = format!(
            "{a} and {b} by force loopback, path MTU {} bytes",
            mtu.bytes()
        );
        Ok(((), note))
    })?;
    for op in [Op::Send, Op::Write, Op::Read] {
        step(op.name(), || {
            for size in SIZES {
                pair.transfer(op, size)?;
            }
            let note = format!("{} messages of 0 to {LARGEST} bytes", SIZES.len());
            Ok(((), note))
        })?;
    }
    if device.capabilities().has_atomics() {
        step("atomics", || Ok(((), pair.atomics()?)))?;
    } else {
        skip("atomics", "the device has none");
    }
    if device.platform().interrupt_vectors() > 0 {
        step("interrupt", || {
            let took = pair.interrupt()?;
            Ok(((), format!("a completion within {took:?}")))
        })?;
    } else {
        skip("interrupt", "the platform has none");
    }
    step("protection", || {
        let status = pair.wrong_key()?;
        let note = format!("wrong rkey: \"{status}\", told to both ends");
        Ok(((), note))
    })?;
    step("recovery", || {
        pair.connect(mtu)?;
        pair.transfer(Op::Write, 4097)?;
        Ok(((), "the same queue pairs, connected anew".into()))
    })
}
