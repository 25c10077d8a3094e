//! Reads texts that people write: topologies of subnets, addresses of links, faults, cards, and reports of cards.

use std::time::Duration;

use connectx_model::link::Link;
use connectx_model::link::datagram::Address;
use connectx_model::link::setting::{Fault, time};
use connectx_model::link::subnet::{Subnet, Topology};
use connectx_model::{Card, Config, Model, Profile, Report};

use crate::input::Input;

/// Runs an input.
///
/// # Panics
/// If anything comes of it that may not.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.byte();
    let text = String::from_utf8_lossy(input.bytes(usize::MAX)).into_owned();
    match kind % 4 {
        _ if kind >= 0xf0 => card(&text),
        0 => {
            if let Ok(fault) = text.parse::<Fault>() {
                fault.apply(&mut connectx_model::link::setting::none());
            }
            let _ = time(&text);
        }
        1 => {
            if let Ok(address) = text.parse::<Address>() {
                let again = address.to_string().parse::<Address>();
                assert_eq!(
                    again.map(|again| again.to_string()),
                    Ok(address.to_string())
                );
            }
        }
        _ => subnet(&text, &text.as_bytes()[..text.len().min(300)]),
    }
}

/// Starts a card that can be read, and plays the commands of a report.
fn card(text: &str) {
    if let Ok(profile) = Profile::parse("fuzzed", text) {
        let _ = Model::new(profile.config(1));
    }
    if let Ok(report) = Report::new("fuzzed", [("log.txt", text)]) {
        let _ = report.card(Some(Card::ConnectX5));
        let _ = report.recording().play(Config::new(1));
    }
}

/// A subnet that can be read works: frames pass, or are lost.
fn subnet(text: &str, frame: &[u8]) {
    let Ok(topology) = text.parse::<Topology>() else {
        return;
    };
    // Numbers may be large, and each adapter has its queue.
    let adapters = topology.adapters();
    if adapters > 64 {
        return;
    }
    let mut subnet = Subnet::new(&topology);
    let mut out = Vec::new();
    for from in 0..adapters {
        subnet.send(from, frame, Duration::ZERO);
        for to in 0..adapters {
            while subnet.receive(to, Duration::from_secs(1), &mut out) {}
        }
    }
    subnet.set_cable(0, 1, false);
    subnet.set_cable(usize::MAX, u8::MAX, true);
}
