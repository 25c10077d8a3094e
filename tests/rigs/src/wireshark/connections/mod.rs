//! Connections by the RDMA CM: every message that it sends, with everything in it, when all goes well and when it does not.

mod managers;
mod messages;
mod relations;

use super::scene::{Address, Scene};
use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::EventType;
use managers::{Ends, Known, Managers, PORT, SECOND, Wishes, say};
pub(super) use relations::Relations;

/// Everything below, one after the other.
pub(super) fn run(scene: &mut Scene) -> Result<Vec<Relations>, String> {
    let mut managers = Managers::new(scene)?;
    let mut relations = Vec::new();
    for wishes in variants() {
        relations.push(whole_life(scene, &mut managers, &wishes)?);
    }
    for lost in [
        Attribute::Req,
        Attribute::Rep,
        Attribute::Rtu,
        Attribute::Dreq,
        Attribute::Drep,
    ] {
        relations.push(message_lost(scene, &mut managers, lost)?);
    }
    relations.push(slow_answer(scene, &mut managers)?);
    relations.push(nobody_listens(scene, &mut managers)?);
    relations.push(refused(scene, &mut managers)?);
    relations.push(abandoned(scene, &mut managers)?);
    Ok(relations)
}

fn variants() -> Vec<Wishes> {
    let plain = Wishes::new(Address::Ipv4);
    let full = Wishes {
        tos: 0x68,
        ack_timeout: Some(13),
        request: b"private data of the asking side: fifty-six bytes of it..",
        reply: &[0xa7; 196],
        depths: [(1, 16), (16, 1)],
        retry_count: 3,
        rnr_retry_count: [5, 2],
        flow_control: true,
        srq: true,
        timers: Some(bareverbs_cm::engine::Timers {
            remote_response: 18,
            local_response: 17,
            max_retries: 9,
            ..Default::default()
        }),
        ..Wishes::new(Address::Ipv4)
    };
    vec![
        plain,
        Wishes {
            address: Address::Ipv6,
            ..full.clone()
        },
        full,
        Wishes {
            request: b"over IPv6",
            ..Wishes::new(Address::Ipv6)
        },
        Wishes {
            tos: 0x20,
            ..Wishes::new(Address::TaggedIpv4)
        },
    ]
}

/// Set up, used, torn down; even ones by the active side, odd ones by the passive side.
fn whole_life(
    scene: &mut Scene,
    managers: &mut Managers,
    wishes: &Wishes,
) -> Result<Relations, String> {
    let what = format!("{:?}, TOS {:#x}", wishes.address, wishes.tos);
    let mut ends = managers.ask(scene, wishes)?;
    managers.answer(scene, wishes, &mut ends)?;
    let expected = vec![
        managers.req(scene, wishes, &ends, PORT),
        managers.rep(scene, wishes, &ends),
        managers.rtu(scene, wishes, &ends),
    ];
    scene.note(format!("{what}: REQ, REP, RTU"), ends.start, expected);
    managers.talk(scene, wishes, &ends)?;
    let from = usize::from(wishes.address == Address::Ipv6);
    let start = scene.frames();
    managers.part(scene, &ends, from)?;
    let expected = vec![
        managers.dreq(scene, wishes, &ends, from),
        managers.drep(scene, wishes, &ends, 1 - from),
    ];
    scene.note(format!("{what}: DREQ, DREP"), start, expected);
    managers.forget(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: ends.known[0].flow_label,
    })
}

/// Offset of the BTH in an untagged RoCE v2 frame over IPv4.
const BTH: usize = 14 + 20 + 8;

fn carries(frame: &[u8], message: Attribute) -> bool {
    frame.get(BTH) == Some(&0x64)
        && frame.get(BTH + 36..BTH + 38) == Some(&(message as u16).to_be_bytes()[..])
}

/// One message of the handshake is lost: which ones come again.
fn message_lost(
    scene: &mut Scene,
    managers: &mut Managers,
    lost: Attribute,
) -> Result<Relations, String> {
    let wishes = Wishes::new(Address::Ipv4);
    let what = format!("{lost} lost");
    scene.lose(move |frame| carries(frame, lost));
    let mut ends = managers.ask(scene, &wishes)?;
    managers.answer(scene, &wishes, &mut ends)?;
    managers.part(scene, &ends, 0)?;
    // A repeated message has everything that the first one had, and the next PSN. How often each one goes out:
    let [req, rep, rtu, dreq, drep] = match lost {
        Attribute::Req => [2, 1, 1, 1, 1],
        // Either end may be the first to repeat, as their waiting times are spread. With these seeds it is the one that
        // asks; the other answers that, and its RTU comes before the other would repeat by itself.
        Attribute::Rep => [2, 2, 1, 1, 1],
        // The REP comes again because the RTU did not.
        Attribute::Rtu => [1, 2, 2, 1, 1],
        Attribute::Dreq => [1, 1, 1, 2, 1],
        Attribute::Drep => [1, 1, 1, 2, 2],
        _ => [1; 5],
    };
    let mut expected = Vec::new();
    expected.extend((0..req).map(|_| managers.req(scene, &wishes, &ends, PORT)));
    expected.extend((0..rep).map(|_| managers.rep(scene, &wishes, &ends)));
    expected.extend((0..rtu).map(|_| managers.rtu(scene, &wishes, &ends)));
    expected.extend((0..dreq).map(|_| managers.dreq(scene, &wishes, &ends, 0)));
    expected.extend((0..drep).map(|_| managers.drep(scene, &wishes, &ends, 1)));
    scene.note(what.clone(), ends.start, expected);
    managers.forget(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: ends.known[0].flow_label,
    })
}

/// The passive side takes its time: the REQ comes again and is answered by an MRA, after which there is silence.
fn slow_answer(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let wishes = Wishes::new(Address::Ipv4);
    let what = "a slow answer".to_owned();
    let mut ends = managers.ask(scene, &wishes)?;
    let until = scene.world.now() + 3 * SECOND;
    scene.wait("three seconds", |scene| {
        managers.poll()?;
        Ok((scene.world.now() >= until).then_some(()))
    })?;
    managers.answer(scene, &wishes, &mut ends)?;
    managers.part(scene, &ends, 0)?;
    let expected = vec![
        managers.req(scene, &wishes, &ends, PORT),
        managers.req(scene, &wishes, &ends, PORT),
        // As Linux: service timeout 24.
        managers.mra(scene, &wishes, &ends, 24),
        managers.rep(scene, &wishes, &ends),
        managers.rtu(scene, &wishes, &ends),
        managers.dreq(scene, &wishes, &ends, 0),
        managers.drep(scene, &wishes, &ends, 1),
    ];
    scene.note(what.clone(), ends.start, expected);
    managers.forget(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: ends.known[0].flow_label,
    })
}

fn nobody_listens(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let wishes = Wishes::new(Address::Ipv6);
    let what = "nobody listens".to_owned();
    let ours = managers.client(scene, &wishes, PORT + 1)?;
    let mut known = managers.known(0, ours)?;
    let start = scene.frames();
    managers.cms[0]
        .connect(ours, Some(&wishes.param(0)))
        .map_err(say)?;
    let event = managers.event(scene, 0, EventType::Rejected)?;
    if event.status != 8 {
        return Err(format!("{what}: {event:?}"));
    }
    known.comm_id = managers.traced(0, Attribute::Req)?.local_comm_id;
    let ends = Ends {
        ids: [ours, ours],
        known: [known, Known::default()],
        port: managers.cms[0].get_src_port(ours).map_err(say)?,
        start,
    };
    let expected = vec![
        managers.req(scene, &wishes, &ends, PORT + 1),
        managers.rej(scene, &wishes, [known.comm_id, 0], 8, &[]),
    ];
    scene.note(what.clone(), start, expected);
    managers.forget(&[(0, ours)])?;
    Ok(Relations {
        what,
        frames: start..scene.frames(),
        flow_label: 0,
    })
}

fn refused(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let wishes = Wishes::new(Address::Ipv4);
    let what = "the application refuses".to_owned();
    let ends = managers.ask(scene, &wishes)?;
    let reason = [0x5c; 148];
    managers.cms[1].reject(ends.ids[1], &reason).map_err(say)?;
    let event = managers.event(scene, 0, EventType::Rejected)?;
    if event.status != 28 || event.private_data() != reason {
        return Err(format!("{what}: {event:?}"));
    }
    let theirs = managers.traced(1, Attribute::Rej)?.local_comm_id;
    let ours = ends.known[0].comm_id;
    let expected = vec![
        managers.req(scene, &wishes, &ends, PORT),
        managers.rej(scene, &wishes, [ours, theirs], 28, &reason),
    ];
    scene.note(what.clone(), ends.start, expected);
    managers.forget(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: 0,
    })
}

/// The active side goes away before it is answered.
fn abandoned(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let wishes = Wishes::new(Address::Ipv4);
    let what = "the active side gives up".to_owned();
    let ends = managers.ask(scene, &wishes)?;
    managers.forget(&[(0, ends.ids[0])])?;
    let event = managers.event(scene, 1, EventType::Rejected)?;
    if event.id != ends.ids[1] || event.status != 4 {
        return Err(format!("{what}: {event:?}"));
    }
    let expected = vec![
        managers.req(scene, &wishes, &ends, PORT),
        managers.abandon(scene, &wishes, ends.known[0].comm_id),
    ];
    scene.note(what.clone(), ends.start, expected);
    managers.forget(&[(1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: 0,
    })
}
