//! Streams of an initiator of dynamic connections: which requests fail, which are flushed, which go on.

use std::collections::BTreeSet;

use bareverbs_core::qp::OpenBatch;
use bareverbs_core::{
    CqInit, DcTarget, Dci, DciError, DciStreams, Inline, ModifyError, QpAttr, QpAttrMask,
    QpInitAttr, QpState, Qpn, Remote, SendFlags, Sge, Wc, WcStatus,
};

use crate::dc::{Draw, handle, receiver, target, to};
use crate::lab::{CAP, End, Lab, SIGNALED, bad_cable, lab, lab_with};
use crate::seam::Seam;

/// Bytes of each write, and how many places there are for them.
const PIECE: usize = 16;
const PLACES: usize = 64;
/// Requests of a round.
const ROUND: usize = 8;

fn initiator<'d>(lab: &Lab<'d>, streams: DciStreams) -> End<'d, Dci> {
    let mut end = lab.end_by(0, CAP, 127, None, |pd, init| {
        pd.create_dci_with_streams(init, streams).unwrap()
    });
    end.qp
        .activate(&lab.attr(0, Qpn::from_low_bits(0)))
        .unwrap();
    end
}

/// The fault that a request is to meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Sound,
    WrongKey,
    WrongMemory,
}

/// A write of [`PIECE`] bytes: of this data, or of what lies in memory that is not the own.
struct Request<'a> {
    id: u64,
    flags: SendFlags,
    stream: u16,
    dct: DcTarget<'a>,
    remote: Remote,
    data: [u8; PIECE],
    wrong: Option<Sge>,
}

/// Posts a request to a batch, whose type has no name outside of the driver.
macro_rules! post {
    ($request:expr, $batch:expr) => {{
        let (request, batch) = ($request, $batch);
        let Request {
            id,
            flags,
            dct,
            remote,
            ..
        } = *request;
        match request.wrong {
            Some(wrong) => batch.write(id, flags, dct, remote, wrong),
            None => batch.write(id, flags, dct, remote, Inline(&request.data)),
        }
        .unwrap();
    }};
}

impl Request<'_> {
    fn begin(&self, open: &mut OpenBatch<'_, '_, Seam, Dci>) {
        open.write(self.id, self.flags, self.remote);
        open.set_dc_addr(self.dct);
        match self.wrong {
            Some(wrong) => open.set_sge(wrong),
            None => open.set_inline_data(&self.data),
        }
    }
}

/// Rounds of drawn requests on drawn streams, posted in each of the ways that name a stream, of which some have a wrong key of the target or of the own memory, against what
/// has to become of each. Streams are revived and the initiator is started over at drawn times.
fn traffic(lab: &Lab<'_>, seed: u64, rounds: usize, streams: DciStreams) {
    let all = receiver(lab);
    let targets = [target(lab, &all), target(lab, &all)];
    let ah = handle(lab);
    let mut end = initiator(lab, streams);
    let limit = 1 << streams.log_errored;
    all.clear(0, PLACES * PIECE);
    let mut expected = vec![0; PLACES * PIECE];
    let (mut errored, mut dead) = (BTreeSet::new(), false);
    let mut draw = Draw(seed);
    // More than the channels, and the ends of the number's range.
    let names = [0, 1, 2, 3, 7, 8, 40, 0x100, 0xfffe, 0xffff];
    let mut seen = [0; 3];
    let mut deaths = 0;
    for round in 0..rounds {
        let context = format!("seed {seed:#x}, round {round}");
        let count = 1 + draw.below(ROUND);
        let mut due = Vec::new();
        let mut requests = Vec::new();
        for nth in 0..count {
            let id = (round * ROUND + nth) as u64;
            let stream = names[draw.below(names.len())];
            let fate = match draw.below(12) {
                0 => Fate::WrongKey,
                1 => Fate::WrongMemory,
                _ => Fate::Sound,
            };
            let signaled = nth + 1 == count || draw.below(3) == 0;
            let flags = if signaled {
                SIGNALED
            } else {
                SendFlags::empty()
            };
            let place = draw.below(PLACES) * PIECE;
            let data = [id as u8; PIECE];
            let mut dct: DcTarget<'_> = to(&ah, &targets[draw.below(2)]);
            if fate == Fate::WrongKey {
                dct.access_key += 1;
            }
            let wrong = (fate == Fate::WrongMemory).then(|| {
                let sge = end.buffer.sge(0, PIECE).unwrap();
                Sge::new(sge.addr + (1 << 40), PIECE as u32, sge.lkey)
            });
            requests.push(Request {
                id,
                flags,
                stream,
                dct,
                remote: all.remote(place),
                data,
                wrong,
            });
            let status = match fate {
                _ if dead || errored.contains(&stream) => WcStatus::WrFlushErr,
                Fate::Sound => WcStatus::Success,
                Fate::WrongKey => WcStatus::RemAccessErr,
                Fate::WrongMemory => WcStatus::LocProtErr,
            };
            match status {
                WcStatus::Success => expected[place..][..PIECE].copy_from_slice(&data),
                WcStatus::WrFlushErr => {}
                _ => {
                    errored.insert(stream);
                    dead |= errored.len() == limit;
                }
            }
            if signaled || status != WcStatus::Success {
                due.push((id, status));
            }
        }
        match draw.below(3) {
            0 => {
                let mut batch = end.qp.send_queue().batch();
                for request in &requests {
                    batch.set_stream(request.stream);
                    post!(request, &mut batch);
                }
            }
            1 => {
                for request in &requests {
                    let queue = end.qp.send_queue();
                    queue.set_stream(request.stream);
                    post!(request, &mut queue.batch());
                }
            }
            _ => {
                let mut open = end.qp.send_queue().open();
                for request in &requests {
                    open.set_stream(request.stream);
                    request.begin(&mut open);
                }
                open.complete().unwrap();
            }
        }
        for &(id, status) in &due {
            let wc: Wc = lab.wait(&mut end.cq);
            assert_eq!((wc.wr_id, wc.status), (id, status), "{context}");
            seen[match status {
                WcStatus::Success => 0,
                WcStatus::WrFlushErr => 1,
                _ => 2,
            }] += 1;
        }
        assert!(all.bytes(0, PLACES * PIECE) == expected, "{context}");
        let state = end.qp.query().unwrap().attr.qp_state;
        let alive = if dead { QpState::Err } else { QpState::Rts };
        assert_eq!(state, alive, "{context}");
        if dead && draw.below(2) == 0 {
            deaths += 1;
            let attr = QpAttr {
                qp_state: QpState::Reset,
                ..lab.attr(0, Qpn::from_low_bits(0))
            };
            end.qp.modify(&attr, QpAttrMask::STATE).unwrap();
            let attr = lab.attr(0, Qpn::from_low_bits(0));
            end.qp.activate(&attr).unwrap();
            errored.clear();
            dead = false;
        } else if draw.below(3) == 0 {
            let stream = names[draw.below(names.len())];
            let revived = end.qp.reset_stream(stream);
            let was = !dead && errored.remove(&stream);
            let refused = matches!(revived, Err(ModifyError::Command(_)));
            assert!(
                revived.is_ok() == was && refused != was,
                "{context}: {revived:?}"
            );
        }
    }
    // Each kind of ending came often.
    assert!(seen.iter().all(|&count| count > rounds / 4), "{seen:?}");
    assert!(deaths > rounds / 100, "{deaths}");
}

#[test]
fn drawn_failures() {
    for (log_errored, seed) in [(0, 0x51), (1, 0x52), (2, 0x53), (3, 0x54)] {
        let streams = DciStreams {
            log_concurrent: 3,
            log_errored,
        };
        lab(|lab| traffic(lab, seed * 0x9e37_79b9, 200, streams));
    }
}

#[test]
fn drawn_failures_over_a_bad_cable() {
    let streams = DciStreams {
        log_concurrent: 2,
        log_errored: 2,
    };
    bad_cable(11, |lab| traffic(lab, 0xfeed_beef, 60, streams));
}

#[test]
fn more_than_a_card_has() {
    let check = |lab: &Lab<'_>, streams: DciStreams| {
        let side = &lab.sides[0];
        let cq = side.device.create_cq(CqInit::new(7)).unwrap();
        let mut init = QpInitAttr::new(&cq, 4);
        let made = side.pd.create_dci_with_streams(&mut init, streams);
        let most = side.device.capabilities().dci_streams();
        assert_eq!(made.err(), Some(DciError::Streams { most }), "{streams:?}");
    };
    let few = |mut card: connectx_model::Config| {
        for caps in [&mut card.general, &mut card.general_max] {
            caps.set_log_max_dci_stream_channels(2)
                .set_log_max_dci_errored_streams(1);
        }
        card
    };
    lab_with(few, |lab| {
        for (log_concurrent, log_errored) in [(3, 0), (0, 2), (u8::MAX, 1), (2, u8::MAX)] {
            check(
                lab,
                DciStreams {
                    log_concurrent,
                    log_errored,
                },
            );
        }
        let streams = lab.sides[0].device.capabilities().dci_streams().unwrap();
        assert_eq!((streams.log_concurrent, streams.log_errored), (2, 1));
        drop(initiator(lab, streams));
    });
    let none = |mut card: connectx_model::Config| {
        for caps in [&mut card.general, &mut card.general_max] {
            caps.set_log_max_dci_stream_channels(0)
                .set_log_max_dci_errored_streams(0);
        }
        card
    };
    lab_with(none, |lab| {
        assert_eq!(lab.sides[0].device.capabilities().dci_streams(), None);
        check(
            lab,
            DciStreams {
                log_concurrent: 0,
                log_errored: 0,
            },
        );
    });
}
