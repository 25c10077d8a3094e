//! The troubles of a connection, and the way in which it goes on.

use super::pair::{Link, Pair, completion, succeeded, text};
use crate::wireshark::packets::{Operation, Target};
use crate::wireshark::scene::{Address, Scene};
use bareverbs_core::{Access, Mtu, Rc, SendFlags, SendOp, WcStatus};

/// Offset of the BTH in an untagged RoCE v2 frame over IPv4.
pub(super) const BTH: usize = 14 + 20 + 8;

/// A lost packet in the middle: one NAK, and everything from there on again.
pub(super) fn lost_packet(scene: &mut Scene) -> Result<(), String> {
    let mut pair = Pair::<Rc>::new(scene, Link::new(Address::Ipv4, Mtu::B256))?;
    pair.run(scene, Operation::Send, 10)?;
    let data = pair.pattern(4 * 256);
    pair.ends[0]
        .buffer
        .copy_in(0, &data)
        .map_err(|e| text("buffer")(&e))?;
    pair.ends[1].receive(data.len())?;
    let lost = pair.flow.psn + 1;
    scene.lose(move |frame| frame.get(BTH + 9..BTH + 12) == Some(&lost.to_be_bytes()[1..]));
    let start = scene.frames();
    pair.ends[0].post(SendOp::Send, 0, data.len(), SendFlags::empty())?;
    let what = "a SEND whose second packet is lost";
    let _ = succeeded(what, completion(scene, what, &mut pair.ends[0].send_cq)?)?;
    let _ = succeeded(what, completion(scene, what, &mut pair.ends[1].recv_cq)?)?;
    scene.settle();
    let requests = pair
        .flow
        .requests(Operation::Send, &data, Target::default());
    let mut expected = requests.clone();
    expected.extend_from_slice(&requests[1..]);
    // NAK, PSN sequence error: it names the packet that is missing.
    expected.push(pair.flow.answer(lost, 0x60));
    pair.flow.msn += 1;
    expected.push(pair.flow.acknowledge(pair.flow.psn + 3));
    pair.flow.psn += 4;
    scene.note(what, start, expected);
    // And it goes on.
    pair.run(scene, Operation::Write, 700)
}

/// A lost acknowledgement: after the timeout the packet again, and again an acknowledgement.
pub(super) fn lost_acknowledgement(scene: &mut Scene) -> Result<(), String> {
    let mut pair = Pair::<Rc>::new(scene, Link::new(Address::Ipv4, Mtu::B1024))?;
    scene.lose(|frame| frame.get(BTH) == Some(&0x11));
    let data = pair.pattern(33);
    pair.ends[0]
        .buffer
        .copy_in(0, &data)
        .map_err(|e| text("buffer")(&e))?;
    pair.ends[1].receive(data.len())?;
    let start = scene.frames();
    pair.ends[0].post(SendOp::SendImm(5), 0, data.len(), SendFlags::empty())?;
    let what = "a SEND whose acknowledgement is lost";
    let _ = succeeded(what, completion(scene, what, &mut pair.ends[0].send_cq)?)?;
    let _ = succeeded(what, completion(scene, what, &mut pair.ends[1].recv_cq)?)?;
    let mut expected = pair
        .flow
        .requests(Operation::SendImm(5), &data, Target::default());
    expected.extend(expected.clone());
    pair.flow.msn += 1;
    let acknowledgement = pair.flow.acknowledge(pair.flow.psn);
    expected.extend([acknowledgement.clone(), acknowledgement]);
    pair.flow.psn += 1;
    scene.note(what, start, expected);
    pair.run(scene, Operation::Read, 1025)
}

/// A lost response in the middle of a READ: what is missing is asked for again, from there on, and no more than that.
pub(super) fn lost_response(scene: &mut Scene) -> Result<(), String> {
    let mut pair = Pair::<Rc>::new(scene, Link::new(Address::Ipv4, Mtu::B256))?;
    pair.run(scene, Operation::Send, 10)?;
    let data = pair.pattern(4 * 256 - 3);
    pair.ends[1]
        .buffer
        .copy_in(0, &data)
        .map_err(|e| text("buffer")(&e))?;
    let target = pair.target();
    let lost = pair.flow.psn + 1;
    scene.lose(move |frame| frame.get(BTH + 9..BTH + 12) == Some(&lost.to_be_bytes()[1..]));
    let start = scene.frames();
    pair.ends[0].post(
        Pair::<Rc>::op(Operation::Read, target),
        0,
        data.len(),
        SendFlags::empty(),
    )?;
    let what = "a READ whose second response is lost";
    let _ = succeeded(what, completion(scene, what, &mut pair.ends[0].send_cq)?)?;
    scene.settle();
    if pair.ends[0].bytes(0, data.len())? != data {
        return Err(format!("{what}: other bytes arrived"));
    }
    let mut rest = pair.flow.clone();
    let mut expected = pair.flow.whole(Operation::Read, &data, target, 0);
    rest.psn = lost;
    let later = Target {
        addr: target.addr + 256,
        ..target
    };
    expected.extend(rest.whole(Operation::Read, &data[256..], later, 0));
    scene.note(what, start, expected);
    pair.run(scene, Operation::Read, 300)
}

/// A lost answer to an atomic operation: the same request again, and the same answer, without doing it twice.
pub(super) fn lost_atomic(scene: &mut Scene) -> Result<(), String> {
    let mut pair = Pair::<Rc>::new(scene, Link::new(Address::Ipv6, Mtu::B1024))?;
    let before = 0x0102_0304_0506_0708_u64;
    pair.ends[1]
        .buffer
        .copy_in(0, &before.to_le_bytes())
        .map_err(|e| text("buffer")(&e))?;
    // Over IPv6 the BTH is 20 bytes further in.
    scene.lose(|frame| frame.get(BTH + 20) == Some(&0x12));
    let (operation, target) = (Operation::FetchAdd(0x10), pair.target());
    let start = scene.frames();
    let op = Pair::<Rc>::op(operation, target);
    pair.ends[0].post(op, 0, 8, SendFlags::empty())?;
    let what = "an atomic whose answer is lost";
    let _ = succeeded(what, completion(scene, what, &mut pair.ends[0].send_cq)?)?;
    if pair.ends[1].bytes(0, 8)? != (before + 0x10).to_le_bytes()
        || pair.ends[0].bytes(0, 8)? != before.to_le_bytes()
    {
        return Err(format!("{what}: done otherwise"));
    }
    let once = pair.flow.whole(operation, &[0; 8], target, before);
    let twice = once.iter().chain(&once).cloned().collect();
    scene.note(what, start, twice);
    pair.run(scene, Operation::FetchAdd(1), 8)
}

/// Nothing posted: RNR NAK with the receiver's timer, and the same again when that is over.
pub(super) fn receiver_not_ready(scene: &mut Scene) -> Result<(), String> {
    const TIMER: u8 = 16;
    let mut link = Link::new(Address::Ipv6, Mtu::B1024);
    link.min_rnr_timer = TIMER;
    let mut pair = Pair::<Rc>::new(scene, link)?;
    let data = pair.pattern(100);
    pair.ends[0]
        .buffer
        .copy_in(0, &data)
        .map_err(|e| text("buffer")(&e))?;
    let start = scene.frames();
    pair.ends[0].post(SendOp::Send, 0, data.len(), SendFlags::empty())?;
    let what = "a SEND without a receive";
    scene.wait(
        what,
        |scene| Ok((scene.frames() >= start + 2).then_some(())),
    )?;
    pair.ends[1].receive(data.len())?;
    let _ = succeeded(what, completion(scene, what, &mut pair.ends[0].send_cq)?)?;
    let _ = succeeded(what, completion(scene, what, &mut pair.ends[1].recv_cq)?)?;
    let mut expected = pair
        .flow
        .requests(Operation::Send, &data, Target::default());
    expected.extend(expected.clone());
    expected.push(pair.flow.answer(pair.flow.psn, 0x20 | TIMER));
    pair.flow.msn += 1;
    expected.push(pair.flow.acknowledge(pair.flow.psn));
    pair.flow.psn += 1;
    scene.note(what, start, expected);
    pair.run(scene, Operation::Send, 3)
}

/// The requests that the responder refuses, and the NAK of each.
pub(super) fn refused(scene: &mut Scene) -> Result<(), String> {
    let nothing = Access::empty();
    let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let cases: [(&str, Operation, Access, u32, u8, WcStatus); 5] = [
        (
            "an rkey that is not there",
            Operation::Write,
            all,
            0xff00,
            0x62,
            WcStatus::RemAccessErr,
        ),
        (
            "a READ with such a key",
            Operation::Read,
            all,
            0xff00,
            0x62,
            WcStatus::RemAccessErr,
        ),
        (
            "a WRITE that the QP does not allow",
            Operation::Write,
            nothing,
            0,
            0x61,
            WcStatus::RemInvReqErr,
        ),
        (
            "a READ that the QP does not allow",
            Operation::Read,
            nothing,
            0,
            0x61,
            WcStatus::RemInvReqErr,
        ),
        (
            "an atomic that the QP does not allow",
            Operation::FetchAdd(1),
            nothing,
            0,
            0x61,
            WcStatus::RemInvReqErr,
        ),
    ];
    for (what, operation, access, twist, syndrome, status) in cases {
        let mut link = Link::new(Address::Ipv4, Mtu::B1024);
        link.access = access;
        let mut pair = Pair::<Rc>::new(scene, link)?;
        let data = pair.pattern(8);
        pair.ends[0]
            .buffer
            .copy_in(0, &data)
            .map_err(|e| text("buffer")(&e))?;
        let mut target = pair.target();
        target.rkey ^= twist << 8;
        let start = scene.frames();
        pair.ends[0].post(
            Pair::<Rc>::op(operation, target),
            0,
            data.len(),
            SendFlags::empty(),
        )?;
        let wc = completion(scene, what, &mut pair.ends[0].send_cq)?;
        if wc.status != status {
            return Err(format!("{what}: {}, not {status}", wc.status));
        }
        let mut expected = pair.flow.requests(operation, &data, target);
        expected.push(pair.flow.answer(pair.flow.psn, syndrome));
        scene.note(what, start, expected);
    }
    Ok(())
}
