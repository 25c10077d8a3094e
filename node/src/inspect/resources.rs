//! QPs and CQs that are alive, as `rdma resource show` has them: as text, or a line of JSON each.

use std::fmt::Write;

use bareverbs_core::{CommandError, CqResource, Device, Platform, QpResource};

/// All objects of a device that are alive: QPs, then CQs, a line for each, as `rdma resource show` has them, or of JSON.
/// `link` names the device and its port.
///
/// # Errors
///
/// A command of the query failed.
pub fn list<P: Platform>(
    device: &Device<'_, P>,
    link: &str,
    json: bool,
) -> Result<String, CommandError> {
    let mut text = String::new();
    for qp in device.live_qps() {
        let qp = qp?;
        // Writing to a String does not fail.
        let _ = match json {
            true => json_of_qp(&mut text, link, &qp),
            false => writeln!(text, "link {link} {qp}"),
        };
    }
    for cq in device.live_cqs() {
        let cq = cq?;
        let _ = match json {
            true => json_of_cq(&mut text, link, &cq),
            false => writeln!(text, "link {link} {cq}"),
        };
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
