//! Connections by the RDMA CM: every message that it sends, with everything in it, when all goes well and when it does not.

mod managers;
mod messages;
mod relations;

use super::scene::{Address, Scene};
use bareverbs_cm::mad::Attribute;
use bareverbs_cm::rdma::{EventType, PortSpace};
use managers::{Ends, Learned, Managers, PORT, SECOND, Variant, text_of};
pub(super) use relations::Relations;

/// Runs all of the following, in order.
pub(super) fn run(scene: &mut Scene) -> Result<Vec<Relations>, String> {
    let mut managers = Managers::new(scene)?;
    let mut relations = Vec::new();
    for variant in variants() {
        relations.push(connect_and_disconnect(scene, &mut managers, &variant)?);
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
    relations.push(no_listener(scene, &mut managers)?);
    relations.push(refused(scene, &mut managers)?);
    relations.push(abandoned(scene, &mut managers)?);
    // tshark takes what follows this REQ for SDP, if it may guess.
    let space = Variant {
        space: PortSpace::Ib,
        ..Variant::new(Address::Ipv4)
    };
    relations.push(connect_and_disconnect(scene, &mut managers, &space)?);
    Ok(relations)
}

fn variants() -> Vec<Variant> {
    let plain = Variant::new(Address::Ipv4);
    let full = Variant {
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
        ..Variant::new(Address::Ipv4)
    };
    vec![
        plain,
        Variant {
            address: Address::Ipv6,
            ..full.clone()
        },
        full,
        Variant {
            request: b"over IPv6",
            ..Variant::new(Address::Ipv6)
        },
        Variant {
            tos: 0x20,
            ..Variant::new(Address::TaggedIpv4)
        },
    ]
}

/// Set up, used, torn down; even ones by the active side, odd ones by the passive side.
fn connect_and_disconnect(
    scene: &mut Scene,
    managers: &mut Managers,
    variant: &Variant,
) -> Result<Relations, String> {
    let what = format!(
        "{:?}, {:?}, TOS {:#x}",
        variant.space, variant.address, variant.tos
    );
    let mut ends = managers.ask(scene, variant)?;
    managers.answer(scene, variant, &mut ends)?;
    let expected = vec![
        managers.req(scene, variant, &ends, PORT),
        managers.rep(scene, variant, &ends),
        managers.rtu(scene, variant, &ends),
    ];
    scene.note(format!("{what}: REQ, REP, RTU"), ends.start, expected);
    managers.talk(scene, variant, &ends)?;
    let from = usize::from(variant.address == Address::Ipv6);
    let start = scene.frames();
    managers.part(scene, &ends, from)?;
    let expected = vec![
        managers.dreq(scene, variant, &ends, from),
        managers.drep(scene, variant, &ends, 1 - from),
    ];
    scene.note(format!("{what}: DREQ, DREP"), start, expected);
    managers.destroy_ids(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
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
    let variant = Variant::new(Address::Ipv4);
    let what = format!("{lost} lost");
    scene.lose(move |frame| carries(frame, lost));
    let mut ends = managers.ask(scene, &variant)?;
    managers.answer(scene, &variant, &mut ends)?;
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
    expected.extend((0..req).map(|_| managers.req(scene, &variant, &ends, PORT)));
    expected.extend((0..rep).map(|_| managers.rep(scene, &variant, &ends)));
    expected.extend((0..rtu).map(|_| managers.rtu(scene, &variant, &ends)));
    expected.extend((0..dreq).map(|_| managers.dreq(scene, &variant, &ends, 0)));
    expected.extend((0..drep).map(|_| managers.drep(scene, &variant, &ends, 1)));
    scene.note(what.clone(), ends.start, expected);
    managers.destroy_ids(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: ends.known[0].flow_label,
    })
}

/// The passive side takes its time: the REQ comes again and is answered by an MRA, after which there is silence.
fn slow_answer(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let variant = Variant::new(Address::Ipv4);
    let what = "a slow answer".to_owned();
    let mut ends = managers.ask(scene, &variant)?;
    let until = scene.world.now() + 3 * SECOND;
    scene.wait("three seconds", |scene| {
        managers.poll()?;
        Ok((scene.world.now() >= until).then_some(()))
    })?;
    managers.answer(scene, &variant, &mut ends)?;
    managers.part(scene, &ends, 0)?;
    let expected = vec![
        managers.req(scene, &variant, &ends, PORT),
        managers.req(scene, &variant, &ends, PORT),
        // As Linux: service timeout 24.
        managers.mra(scene, &variant, &ends, 24),
        managers.rep(scene, &variant, &ends),
        managers.rtu(scene, &variant, &ends),
        managers.dreq(scene, &variant, &ends, 0),
        managers.drep(scene, &variant, &ends, 1),
    ];
    scene.note(what.clone(), ends.start, expected);
    managers.destroy_ids(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: ends.known[0].flow_label,
    })
}

fn no_listener(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let variant = Variant::new(Address::Ipv6);
    let what = "no listener".to_owned();
    let ours = managers.client(scene, &variant, PORT + 1)?;
    let mut known = managers.known(0, ours)?;
    let start = scene.frames();
    managers.cms[0]
        .connect(ours, Some(&variant.param(0)))
        .map_err(text_of)?;
    let event = managers.event(scene, 0, EventType::Rejected)?;
    if event.status != 8 {
        return Err(format!("{what}: {event:?}"));
    }
    known.comm_id = managers.traced(0, Attribute::Req)?.local_comm_id;
    let ends = Ends {
        ids: [ours, ours],
        known: [known, Learned::default()],
        port: managers.cms[0].get_src_port(ours).map_err(text_of)?,
        start,
    };
    let expected = vec![
        managers.req(scene, &variant, &ends, PORT + 1),
        managers.rej(scene, &variant, [known.comm_id, 0], 8, &[]),
    ];
    scene.note(what.clone(), start, expected);
    managers.destroy_ids(&[(0, ours)])?;
    Ok(Relations {
        what,
        frames: start..scene.frames(),
        flow_label: 0,
    })
}

fn refused(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let variant = Variant::new(Address::Ipv4);
    let what = "the application refuses".to_owned();
    let ends = managers.ask(scene, &variant)?;
    let reason = [0x5c; 148];
    managers.cms[1]
        .reject(ends.ids[1], &reason)
        .map_err(text_of)?;
    let event = managers.event(scene, 0, EventType::Rejected)?;
    if event.status != 28 || event.private_data() != reason {
        return Err(format!("{what}: {event:?}"));
    }
    let theirs = managers.traced(1, Attribute::Rej)?.local_comm_id;
    let ours = ends.known[0].comm_id;
    let expected = vec![
        managers.req(scene, &variant, &ends, PORT),
        managers.rej(scene, &variant, [ours, theirs], 28, &reason),
    ];
    scene.note(what.clone(), ends.start, expected);
    managers.destroy_ids(&[(0, ends.ids[0]), (1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: 0,
    })
}

/// The active side goes away before it is answered.
fn abandoned(scene: &mut Scene, managers: &mut Managers) -> Result<Relations, String> {
    let variant = Variant::new(Address::Ipv4);
    let what = "the active side gives up".to_owned();
    let ends = managers.ask(scene, &variant)?;
    managers.destroy_ids(&[(0, ends.ids[0])])?;
    let event = managers.event(scene, 1, EventType::Rejected)?;
    if event.id != ends.ids[1] || event.status != 4 {
        return Err(format!("{what}: {event:?}"));
    }
    let expected = vec![
        managers.req(scene, &variant, &ends, PORT),
        managers.abandon(scene, &variant, ends.known[0].comm_id),
    ];
    scene.note(what.clone(), ends.start, expected);
    managers.destroy_ids(&[(1, ends.ids[1])])?;
    Ok(Relations {
        what,
        frames: ends.start..scene.frames(),
        flow_label: 0,
    })
}
