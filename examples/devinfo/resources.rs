//! QPs and CQs that are alive, as `rdma resource show` has them: as text, or a line of JSON each.
//!
//! A device that was just opened has none. So two QPs are connected inside it, as the self test does, and move messages; any
//! program that has a device can list its own in the same way ([`Device::live_qps`]).

use bareverbs::verbs::{Config, CqSlot, Device, DeviceSlot, PageChunk, Platform, QpSlot, Storage};
use bareverbs_examples::Result;
use bareverbs_node::inspect;

use super::selftest;

/// Connects two QPs inside the device, and lists what is alive then.
pub(crate) fn show<P: Platform>(
    platform: P,
    mut chunks: Vec<PageChunk>,
    link: &str,
    json: bool,
) -> Result<String> {
    let mut slot = DeviceSlot::new();
    let mut qps = [const { QpSlot::new() }; 2];
    let mut cqs = [const { CqSlot::new() }; 2];
    let storage = Storage::new(&mut slot, &mut qps, &mut cqs, &mut [], &mut chunks);
    let device = Device::open(platform, Config::DEFAULT, storage)?;
    let text = selftest::with_pair(&device, || Ok(inspect::list(&device, link, json)?))?;
    device.close()?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_in_process::Builder;
    use connectx_model::{Config as Card, Objects};

    fn shown(card: Card, json: bool) -> Vec<String> {
        let world = Builder::new().function(card).threaded();
        let text =
            crate::chunks::with_page_chunks(|chunks| show(world.platform(0), chunks, "m/1", json));
        world.with_model(0, |model| assert_eq!(model.objects(), Objects::default()));
        text.unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn two_qps_name_each_other() {
        for card in [Card::new(1), Card::new(1).infiniband()] {
            let lines = shown(card.clone(), false);
            assert_eq!(lines.len(), 4, "{lines:#?}");
            let word = |line: &str, name: &str| {
                let mut words = line.split(' ').skip_while(|word| *word != name);
                words.nth(1).unwrap_or_default().to_owned()
            };
            for (one, other) in [(0, 1), (1, 0)] {
                let (line, peer) = (&lines[one], &lines[other]);
                assert!(line.starts_with("link m/1 lqpn "), "{line}");
                assert_eq!(word(line, "lqpn"), word(peer, "rqpn"));
                assert_eq!(word(line, "sq-psn"), word(peer, "rq-psn"), "{lines:#?}");
                assert_eq!((&*word(line, "type"), &*word(line, "state")), ("RC", "RTS"));
                assert!(
                    lines[2..]
                        .iter()
                        .any(|cq| word(cq, "cqn") == word(line, "scqn"))
                );
            }
            let json = shown(card, true);
            assert_eq!(json.len(), 4);
            for (line, object) in lines.iter().zip(&json) {
                // Each name and number of the text is in the object.
                for name in ["lqpn", "rqpn", "sq-psn", "rq-psn", "cqn", "cqe"] {
                    if line.contains(&format!(" {name} ")) {
                        let member = format!("\"{name}\":{}", word(line, name));
                        assert!(object.contains(&member), "{member} in {object}");
                    }
                }
                assert!(object.starts_with("{\"link\":\"m/1\",") && object.ends_with('}'));
            }
        }
    }
}
