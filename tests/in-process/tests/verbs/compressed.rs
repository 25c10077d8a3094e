//! CQs that compress, and those with entries of 128 bytes: for the same traffic they have what a plain CQ has.

use bareverbs_core::cq::{CqEntries, CqeSize, MiniFormat};
use bareverbs_core::{
    Completion, Cq, CqError, CqInit, Inline, QpAttr, QpAttrMask, QpInitAttr, QpState, Rc,
    SendFlags, Wc, WcOpcode, WcStatus,
};
use connectx_model::Config as Card;

use crate::lab::{CAP, End, Lab, MS, SIGNALED, SILENT, lab, lab_with};
use crate::seam::Seam;

const PLAIN: CqInit = CqInit::new(127);

fn plans() -> impl Iterator<Item = CqInit> {
    let sizes = [CqeSize::Bytes64, CqeSize::Bytes128, CqeSize::Bytes128Padded];
    let formats = [None]
        .into_iter()
        .chain(MiniFormat::ALL.iter().map(|&format| Some(format)));
    formats.flat_map(move |compression| {
        sizes.map(|size| CqInit {
            entries: CqEntries::new(compression, size),
            ..PLAIN
        })
    })
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn end<'d>(lab: &Lab<'d>, node: usize, init: CqInit) -> End<'d, Rc> {
    let side = &lab.sides[node];
    let cq = side.device.create_cq(init).expect("CQ");
    let mut attr = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: CAP,
        sq_sig_all: false,
    };
    let qp = side.pd.create_qp::<Rc>(&mut attr).expect("QP");
    let buffer = side
        .pd
        .alloc_buffer(1 << 16, lab.access(node))
        .expect("buffer");
    End { qp, cq, buffer }
}

fn pair<'d>(lab: &Lab<'d>, init: CqInit) -> [End<'d, Rc>; 2] {
    let mut ends = [end(lab, 0, init), end(lab, 1, init)];
    lab.connect(&mut ends, &|_| {});
    ends
}

/// Takes at most `most` completions, in one of the ways that there are. A session that is taken as it is may be longer.
fn take(dice: &mut Dice, cq: &mut Cq<'_, Seam>, most: usize, to: &mut Vec<Wc>) {
    let wc = |completion: Completion<'_>| completion.to_wc();
    let until = to.len() + most;
    match dice.below(5) {
        0 => {
            while to.len() < until
                && let Some(completion) = cq.poll().unwrap()
            {
                to.push(wc(completion));
            }
        }
        1 => {
            let mut batch = cq.batch().unwrap();
            while to.len() < until
                && let Some(completion) = batch.next()
            {
                to.push(wc(completion));
            }
        }
        2 => {
            let mut batch = cq.batch().unwrap();
            while to.len() < until
                && let Some(completion) = batch.next_with(wc)
            {
                to.push(completion);
            }
        }
        3 => {
            let mut wcs = vec![Wc::EMPTY; most];
            let taken = cq.poll_wcs(&mut wcs).unwrap();
            to.extend(&wcs[..taken]);
        }
        _ => {
            let mut batch = cq.batch().unwrap();
            while to.len() < until {
                let before = to.len();
                let count = batch.next_compressed(|completion| {
                    let imm = completion.imm_data();
                    to.push(Wc {
                        wr_id: completion.wr_id(),
                        opcode: completion.opcode(),
                        byte_len: completion.byte_len(),
                        qp_num: completion.qp_num(),
                        src_qp: completion.src_qp(),
                        imm_data: imm.unwrap_or(0),
                        flags: completion.flags(),
                        pkey_index: imm.unwrap_or(0) as u16,
                        ..Wc::EMPTY
                    });
                });
                assert_eq!(to.len() - before, count as usize);
                if count == 0 {
                    let Some(completion) = batch.next() else {
                        break;
                    };
                    to.push(wc(completion));
                }
            }
        }
    }
}

/// Drawn traffic from the first to the second end, with resets of the second while completions lie in its CQ. What the
/// two CQs say, but for numbers of queue pairs.
fn traffic(seed: u64, init: CqInit) -> ([Vec<Wc>; 2], u64) {
    let mut found = [Vec::new(), Vec::new()];
    let mut compressed = 0;
    lab(|lab| {
        let mut dice = Dice(seed * 2 + 1);
        // How it is polled differs from CQ to CQ.
        let mut ways = Dice(seed ^ 0xabcd_0000 | u64::from(init.entries.compression().is_some()));
        let [mut a, mut b] = pair(lab, init);
        let mut id = 0;
        for round in 0..30 {
            for _ in 0..dice.below(28) {
                id += 1;
                let len = dice.below(33) as usize;
                let flags = match dice.below(12) {
                    0 => SIGNALED | SendFlags::SOLICITED,
                    1..4 => SILENT,
                    _ => SIGNALED,
                };
                let data = [id as u8; 32];
                let data = Inline(&data[..len.min(32)]);
                b.receive(id, 0, 64);
                let mut batch = a.qp.send_queue().batch();
                match dice.below(8) {
                    0 => batch.send_imm(id, flags, dice.0 as u32 & 1, data),
                    _ => batch.send(id, flags, data),
                }
                .unwrap();
            }
            // Silent requests are over with the signalled one behind them.
            id += 1;
            b.receive(id, 0, 64);
            a.qp.send_queue()
                .batch()
                .send(id, SIGNALED, Inline(b"x"))
                .unwrap();
            lab.pause(MS);
            if dice.below(8) == 0 {
                // What lies there goes with the state.
                for end in [&mut a, &mut b] {
                    let reset = QpAttr {
                        qp_state: QpState::Reset,
                        ..QpAttr::DEFAULT
                    };
                    end.qp.modify(&reset, QpAttrMask::STATE).unwrap();
                }
                let mut ends = [a, b];
                lab.connect(&mut ends, &|_| {});
                [a, b] = ends;
            }
            for (end, cq) in [&mut a.cq, &mut b.cq].into_iter().enumerate() {
                if dice.below(3) == 0 {
                    cq.arm(round % 2 == 0);
                }
                for _ in 0..ways.below(4) {
                    let most = 1 + ways.below(9) as usize;
                    take(&mut ways, cq, most, &mut found[end]);
                }
                loop {
                    let before = found[end].len();
                    take(&mut ways, cq, 127, &mut found[end]);
                    if found[end].len() == before {
                        break;
                    }
                }
            }
        }
        // A queue pair is destroyed while completions lie in its CQ, and another one uses the CQ after it.
        b.receive(0, 0, 64);
        b.receive(0, 0, 64);
        for _ in 0..2 {
            a.qp.send_queue()
                .batch()
                .send(0, SIGNALED, Inline(b"y"))
                .unwrap();
        }
        lab.pause(MS);
        let End { qp, mut cq, buffer } = b;
        qp.destroy().map_err(|(_, error)| error).unwrap();
        assert!(cq.poll().unwrap().is_none());
        assert_eq!(cq.garbage_completions() + a.cq.garbage_completions(), 0);
        drop(buffer);
        for node in [0, 1] {
            compressed += lab.world.with_model(node, |model| model.stats().compressed);
        }
    });
    (found, compressed)
}

#[test]
fn the_same_traffic_completes_the_same() {
    for seed in 0..6 {
        let (expected, none) = traffic(seed, PLAIN);
        assert_eq!(none, 0);
        assert!(expected[1].len() > 100);
        for init in plans() {
            let (found, compressed) = traffic(seed, init);
            assert_eq!(found, expected, "seed {seed}, {init:?}");
            assert_eq!(
                compressed > 50,
                init.entries.compression().is_some(),
                "{init:?}"
            );
        }
    }
}

#[test]
fn errors_come_behind_what_was_compressed() {
    for init in plans() {
        lab(|lab| {
            let [mut a, mut b] = pair(lab, init);
            for id in 0..12 {
                b.receive(id, 0, 64);
            }
            for id in 0..9 {
                a.qp.send_queue()
                    .batch()
                    .send(id, SIGNALED, Inline(b"abc"))
                    .unwrap();
            }
            lab.pause(MS);
            let error = QpAttr {
                qp_state: QpState::Err,
                ..QpAttr::DEFAULT
            };
            b.qp.modify(&error, QpAttrMask::STATE).unwrap();
            for id in 0..12 {
                let wc = lab.wait(&mut b.cq);
                let status = match id {
                    0..9 => WcStatus::Success,
                    _ => WcStatus::WrFlushErr,
                };
                assert_eq!((wc.wr_id, wc.status), (id, status));
            }
            for id in 0..9 {
                let wc = lab.wait(&mut a.cq);
                assert_eq!((wc.wr_id, wc.opcode), (id, WcOpcode::Send));
            }
        });
    }
}

#[test]
fn what_a_card_does_not_offer_is_refused_by_name() {
    let format = Some(MiniFormat::ChecksumStride);
    let asked = [
        (
            "cqe_compression",
            CqInit {
                entries: CqEntries::new(format, CqeSize::Bytes64),
                ..PLAIN
            },
        ),
        (
            "cqe_compression_128",
            CqInit {
                entries: CqEntries::new(format, CqeSize::Bytes128),
                ..PLAIN
            },
        ),
        (
            "mini_cqe_resp_stride_index",
            CqInit {
                entries: CqEntries::new(format, CqeSize::Bytes64),
                ..PLAIN
            },
        ),
        (
            "cqe_128_always",
            CqInit {
                entries: CqEntries::new(None, CqeSize::Bytes128Padded),
                ..PLAIN
            },
        ),
    ];
    for (capability, init) in asked {
        let without = |mut card: Card| {
            for caps in [&mut card.general, &mut card.general_max] {
                match capability {
                    "cqe_compression" => caps.set_cqe_compression(false),
                    "cqe_compression_128" => caps.set_cqe_compression_128(false),
                    "cqe_128_always" => caps.set_cqe_128_always(false),
                    _ => caps.set_mini_cqe_resp_stride_index(false),
                };
            }
            card
        };
        lab_with(without, |lab| {
            let made = lab.sides[0].device.create_cq(init);
            assert_eq!(made.err(), Some(CqError::NotOffered { capability }));
        });
        lab(|lab| {
            let mut cq = lab.sides[0].device.create_cq(init).unwrap();
            assert_eq!(cq.resize(300), Err(CqError::Unsupported));
        });
    }
}
