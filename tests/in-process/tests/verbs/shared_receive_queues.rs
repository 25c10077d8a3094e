//! Receives that several QPs share.

use bareverbs_core::{AsyncEvent, Inline, Rc, SrqAttr, WcOpcode, WcStatus};

use crate::lab::{ALL, CAP, MS, SIGNALED, lab_with, ok, pattern};

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
