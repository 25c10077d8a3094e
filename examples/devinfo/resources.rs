//! QPs and CQs that are alive, as `rdma resource show` has them: as text, or a line of JSON each.
//!
//! A device that was just opened has none. So two QPs are connected inside it, as the self test does, and move messages; any
//! program that has a device can list its own in the same way ([`Device::live_qps`]).

use std::fmt::Write;

use bareverbs::verbs::{
    Config, CqResource, CqSlot, Device, DeviceSlot, PageChunk, Platform, QpResource, QpSlot,
    Storage,
};

use super::{Result, selftest};

/// All objects of a device that are alive: QPs, then CQs.
pub(crate) fn list<P: Platform>(device: &Device<'_, P>, link: &str, json: bool) -> Result<String> {
    let mut text = String::new();
    for qp in device.live_qps() {
        let qp = qp?;
        match json {
            true => json_of_qp(&mut text, link, &qp)?,
            false => writeln!(text, "link {link} {qp}")?,
        }
    }
    for cq in device.live_cqs() {
        let cq = cq?;
        match json {
            true => json_of_cq(&mut text, link, &cq)?,
            false => writeln!(text, "link {link} {cq}")?,
        }
    }
    Ok(text)
}

/// The names are those of `rdma -j resource show qp`, where that has them.
fn json_of_qp(line: &mut String, link: &str, qp: &QpResource) -> std::fmt::Result {
    let (lqpn, kind, state) = (qp.qpn.number(), qp.type_name(), qp.state);
    write!(
        line,
        "{{\"link\":\"{link}\",\"lqpn\":{lqpn},\"type\":\"{kind}\",\"state\":\"{state}\""
    )?;
    if let Some(pdn) = qp.pdn {
        write!(line, ",\"pdn\":{}", pdn.number())?;
    }
    if let Some(srqn) = qp.srqn {
        write!(line, ",\"srqn\":{}", srqn.number())?;
    }
    if let Some(violations) = qp.key_violations {
        write!(line, ",\"key-violations\":{violations}")?;
    }
    if let Some(transport) = &qp.transport {
        write!(line, ",\"sq-psn\":{}", transport.sq_psn)?;
        let (send, recv) = (transport.send_cqn.number(), transport.recv_cqn.number());
        write!(line, ",\"scqn\":{send},\"rcqn\":{recv}")?;
        let (sq, rq) = (transport.sq, transport.rq);
        write!(line, ",\"sq-posted\":{},\"sq-done\":{}", sq.0, sq.1)?;
        write!(line, ",\"rq-posted\":{},\"rq-done\":{}", rq.0, rq.1)?;
        if let Some(peer) = &transport.peer {
            let (rqpn, psn, acked) = (peer.qpn.number(), peer.rq_psn, peer.acked_psn);
            write!(
                line,
                ",\"rqpn\":{rqpn},\"rq-psn\":{psn},\"acked-psn\":{acked}"
            )?;
            let ((retry, cur), (rnr, cur_rnr)) = (peer.retries, peer.rnr_retries);
            write!(line, ",\"retry\":{retry},\"cur-retry\":{cur}")?;
            write!(line, ",\"rnr-retry\":{rnr},\"cur-rnr-retry\":{cur_rnr}")?;
            if let Some(mtu) = peer.path_mtu {
                write!(line, ",\"mtu\":{}", mtu.bytes())?;
            }
            write!(line, ",\"dgid\":\"{}\",\"dlid\":{}", peer.dgid, peer.dlid)?;
        }
    }
    line.write_str("}\n")
}

fn json_of_cq(line: &mut String, link: &str, cq: &CqResource) -> std::fmt::Result {
    writeln!(
        line,
        "{{\"link\":\"{link}\",\"cqn\":{},\"cqe\":{},\"users\":{},\"consumer\":{},\"producer\":{},\
         \"eqn\":{},\"failed\":{}}}",
        cq.cqn.number(),
        cq.entries.saturating_sub(1),
        cq.users,
        cq.consumer,
        cq.producer,
        cq.eqn,
        cq.failed
    )
}

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
    let text = selftest::with_pair(&device, || list(&device, link, json))?;
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
        let text = crate::with_page_chunks(|chunks| show(world.platform(0), chunks, "m/1", json));
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
