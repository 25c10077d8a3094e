//! Receives that several QPs share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bareverbs_core::{AsyncEvent, Inline, Rc, SrqAttr, Uc, WcOpcode, WcStatus};
use connectx_model::link::fault::Action;

use crate::lab::{ALL, CAP, MS, SIGNALED, got, lab, lab_with, ok, pattern};

#[test]
fn shared_receive_queue() {
    for issi in [0b01, 0b10] {
        lab_with(
            |mut card| {
                card.supported_issi = issi;
                card
            },
            |lab| {
                let mut attr = SrqAttr {
                    max_wr: 7,
                    max_sge: 1,
                    srq_limit: 0,
                };
                let mut srq = lab.sides[1].pd.create_srq(&mut attr).unwrap();
                let mut first = [
                    lab.end::<Rc>(0, CAP),
                    lab.end_with::<Rc>(1, CAP, 63, Some(&srq)),
                ];
                let mut second = [
                    lab.end::<Rc>(0, CAP),
                    lab.end_with::<Rc>(1, CAP, 63, Some(&srq)),
                ];
                lab.connect(&mut first, &|_| {});
                lab.connect(&mut second, &|_| {});
                let pool = lab.sides[1].pd.alloc_buffer(7 * 64, ALL).unwrap();
                let mut posted = 0u64;
                let mut refill = |srq: &mut bareverbs_core::Srq<'_, _>, slot: usize| {
                    let sge = pool.sge(slot * 64, 64).unwrap();
                    srq.post(posted << 8 | slot as u64, &[sge]).unwrap();
                    posted += 1;
                };
                for slot in 0..7 {
                    refill(&mut srq, slot);
                }
                for round in 0..60u64 {
                    let ends = if round % 3 == 0 {
                        &mut second
                    } else {
                        &mut first
                    };
                    ends[0].fill(0, 64, round);
                    let sge = ends[0].sge(0, 64);
                    ends[0]
                        .qp
                        .send_queue()
                        .batch()
                        .send(round, SIGNALED, sge)
                        .unwrap();
                    let wc = lab.wait(&mut ends[1].cq);
                    assert_eq!(
                        (wc.status, wc.byte_len, wc.qp_num),
                        (WcStatus::Success, 64, ends[1].qp.qpn())
                    );
                    ok(lab.wait(&mut ends[0].cq), round, WcOpcode::Send);
                    let slot = (wc.wr_id & 0xff) as usize;
                    let mut data = [0; 64];
                    pool.copy_out(slot * 64, &mut data).unwrap();
                    assert_eq!(data[..], pattern(64, round));
                    refill(&mut srq, slot);
                }
                // The limit: an event when fewer are left.
                srq.arm_limit(6).unwrap();
                assert_eq!(srq.query().unwrap().srq_limit, 6);
                for id in 0..2 {
                    first[0]
                        .qp
                        .send_queue()
                        .batch()
                        .send(id, SIGNALED, Inline(b"x"))
                        .unwrap();
                    ok(lab.wait(&mut first[0].cq), id, WcOpcode::Send);
                }
                lab.pause(MS);
                assert!(srq.take_limit_event());
                let events: Vec<_> =
                    std::iter::from_fn(|| lab.sides[1].device.next_async_event()).collect();
                let expected = AsyncEvent::SrqLimitReached { srqn: srq.srqn() };
                assert!(events.contains(&expected), "{events:?}");
                drop((first, second));
                srq.destroy().map_err(|(_, error)| error).unwrap();
            },
        );
    }
}

/// The ring of a receive memory pool lies anywhere in the memory; its context has 5 bits for the start in the first page,
/// and all others have 6.
#[test]
fn receives_of_large_queues_are_read_where_they_are() {
    lab_with(
        |card| card,
        |lab| {
            let pool = lab.sides[1].pd.alloc_buffer(64, ALL).unwrap();
            let mut ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(1, CAP)];
            for place in 0..64u64 {
                // Shifts what comes after it.
                let space = lab.sides[1].pd.alloc_buffer(64, ALL).unwrap();
                let mut attr = SrqAttr {
                    max_wr: 16_383,
                    max_sge: 1,
                    srq_limit: 0,
                };
                let mut srq = lab.sides[1].pd.create_srq(&mut attr).unwrap();
                ends[1] = lab.end_with::<Rc>(1, CAP, 63, Some(&srq));
                ends[0] = lab.end::<Rc>(0, CAP);
                lab.connect(&mut ends, &|_| {});
                srq.post(place, &[pool.sge(0, 64).unwrap()]).unwrap();
                ends[0].fill(0, 64, place);
                let sge = ends[0].sge(0, 64);
                let sender = &mut ends[0].qp;
                let mut batch = sender.send_queue().batch();
                batch.send(place, SIGNALED, sge).unwrap();
                drop(batch);
                ok(lab.wait(&mut ends[0].cq), place, WcOpcode::Send);
                let wc = lab.wait(&mut ends[1].cq);
                assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, place));
                let mut data = [0; 64];
                pool.copy_out(0, &mut data).unwrap();
                assert_eq!(data[..], pattern(64, place));
                ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(1, CAP)];
                srq.destroy().map_err(|(_, error)| error).unwrap();
                drop(space);
            }
        },
    );
}

/// Unreliable connections that share receives, on a wire that loses frames: a message comes if and only if all of its frames
/// do, with its own data and on its own connection; what is lost neither fails nor takes receives from others for good.
#[test]
fn unreliable_connections_share_receives() {
    const SEED: u64 = 0x0c5e_ed01;
    const SLOTS: u64 = 4;
    println!("seed {SEED:#x}");
    let draw = |state: &mut u64, below: u64| {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (*state >> 33) % below
    };
    let mut random = SEED;
    let (mut came, mut lost) = (0, 0);
    lab(|lab| {
        let mut attr = SrqAttr {
            max_wr: SLOTS as u32,
            max_sge: 1,
            srq_limit: 0,
        };
        let mut srq = lab.sides[1].pd.create_srq(&mut attr).unwrap();
        let mut pairs = [(); 3].map(|()| {
            let mut ends = [
                lab.end::<Uc>(0, CAP),
                lab.end_with::<Uc>(1, CAP, 63, Some(&srq)),
            ];
            assert!(ends[1].qp.has_srq());
            lab.connect(&mut ends, &|_| {});
            ends
        });
        let dropped = Arc::new(AtomicU32::new(0));
        let (count, mut state) = (dropped.clone(), draw(&mut random, u64::MAX));
        lab.world.with_wire(|wire| {
            wire.rule(0, u32::MAX, Action::Drop, move |port, _| {
                let drops = port == 0 && draw(&mut state, 6) == 0;
                count.fetch_add(drops.into(), Ordering::Relaxed);
                drops
            });
        });
        let pool = lab.sides[1].pd.alloc_buffer(4 * 4096, ALL).unwrap();
        for slot in 0..SLOTS {
            let sge = pool.sge(slot as usize * 4096, 4096).unwrap();
            srq.post(slot, &[sge]).unwrap();
        }
        for round in 0..400u64 {
            let [a, b] = &mut pairs[draw(&mut random, 3) as usize];
            let len = draw(&mut random, 4097) as usize;
            a.fill(0, len, round);
            let sge = a.sge(0, len);
            dropped.store(0, Ordering::Relaxed);
            let mut batch = a.qp.send_queue().batch();
            batch.send_imm(round, SIGNALED, round as u32, sge).unwrap();
            drop(batch);
            ok(lab.wait(&mut a.cq), round, WcOpcode::Send);
            lab.pause(MS);
            let found = lab.try_wait(&mut b.cq, MS);
            let whole = dropped.load(Ordering::Relaxed) == 0;
            let what = format!("round {round}, {len} bytes, whole: {whole}");
            assert_eq!(found.is_some(), whole, "{what}");
            let Some(wc) = found else {
                lost += 1;
                continue;
            };
            came += 1;
            let slot = wc.wr_id as usize;
            let wc = got(wc, wc.wr_id, WcOpcode::Recv);
            assert_eq!(
                (wc.byte_len as usize, wc.qp_num, wc.imm_data),
                (len, b.qp.qpn(), round as u32),
                "{what}"
            );
            let mut data = vec![0; len];
            pool.copy_out(slot * 4096, &mut data).unwrap();
            assert!(data == pattern(len, round), "{what}");
            let sge = pool.sge(slot * 4096, 4096).unwrap();
            srq.post(slot as u64, &[sge]).unwrap();
        }
        drop(pairs);
        srq.destroy().map_err(|(_, error)| error).unwrap();
    });
    assert!(came > 100 && lost > 100, "{came} {lost}");
}
