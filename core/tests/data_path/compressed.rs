//! Compressed sessions that a broken device writes: whatever their titles and arrays say, nothing is reported that was not
//! posted, nothing is indexed out of bounds, every call ends, and correct sessions are taken afterwards.

use bareverbs_core::cq::{CqEntries, MiniFormat};
use bareverbs_core::{Cq, CqInit, Qp, QpInitAttr, Rc, Wc};

use crate::SGE;
use crate::rig::{Rig, cap, cqe, to_rts};
use crate::support::Fake;

const ENTRIES: u32 = 63;

pub(crate) fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Writes raw bytes at an index of the ring, as they are.
pub(crate) fn put(rig: &Rig, fake: &Fake, cqn: u32, index: u32, bytes: &[u8; 64]) {
    let at = {
        let objects = rig.lock();
        let cq = &objects.cqs[&cqn];
        cq.ring + u64::from(index & ((1 << cq.log_size) - 1)) * 64
    };
    fake.lock().dma_write(at, bytes);
}

/// A title, at the producer's place, of as many completions as it says; the places of the others are passed over.
fn title(rig: &Rig, fake: &Fake, cqn: u32, mut bytes: [u8; 64], count: u32, places: u32) -> u32 {
    bytes[0x2c..0x30].copy_from_slice(&count.to_be_bytes());
    bytes[0x3f] |= 3 << 2;
    let first = rig.lock().cqs[&cqn].producer;
    rig.cqe(fake, cqn, bytes);
    rig.lock().cqs.get_mut(&cqn).unwrap().producer = first + places;
    first
}

/// A whole session: lengths are 100 and the number in the session.
fn session(rig: &Rig, fake: &Fake, cqn: u32, bytes: [u8; 64], count: u32) {
    let first = rig.lock().cqs[&cqn].producer;
    for from in (0..count).step_by(8) {
        let mut array = [0x5a; 64];
        for (nth, mini) in (from..count).zip(array.as_chunks_mut::<8>().0) {
            mini[4..].copy_from_slice(&(100 + nth).to_be_bytes());
        }
        let at = first + if from == 0 { 1 } else { from };
        put(rig, fake, cqn, at, &array);
    }
    title(rig, fake, cqn, bytes, count, count);
}

/// Takes all that is there, in one of four ways.
fn drain(cq: &mut Cq<'_, &Fake>, way: u64) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    // More turns than there can be entries: each takes one, or there is nothing.
    for _ in 0..4 * (ENTRIES + 1) {
        let before = found.len();
        match way % 4 {
            0 => found.extend(cq.poll().unwrap().map(|c| (c.wr_id(), c.byte_len()))),
            1 => {
                let mut batch = cq.batch().unwrap();
                let each = batch.next_with(|c| (c.wr_id(), c.byte_len()));
                found.extend(each);
            }
            2 => {
                let mut wcs = [Wc::EMPTY; 5];
                let taken = cq.poll_wcs(&mut wcs).unwrap();
                found.extend(wcs[..taken].iter().map(|wc| (wc.wr_id, wc.byte_len)));
            }
            _ => {
                let mut batch = cq.batch().unwrap();
                if batch.next_compressed(|c| found.push((c.wr_id(), c.byte_len()))) == 0 {
                    found.extend(batch.next().map(|c| (c.wr_id(), c.byte_len())));
                }
            }
        }
        if found.len() == before {
            let empty = cq.poll().unwrap().map(|c| (c.wr_id(), c.byte_len()));
            match empty {
                Some(other) => found.push(other),
                None => return found,
            }
        }
    }
    panic!("there is no end to it");
}

fn post(qp: &mut Qp<'_, &Fake, Rc>, ids: core::ops::Range<u64>) {
    for id in ids {
        qp.recv_queue().post(id, &[SGE]).unwrap();
    }
}

#[test]
fn titles_that_cannot_be_are_counted_and_dropped() {
    for way in 0..4 {
        with_device!(|fake, rig, device, pd| {
            let init = CqInit {
                entries: CqEntries::compressed(MiniFormat::Hash),
                ..CqInit::new(ENTRIES)
            };
            let mut cq = device.create_cq(init).unwrap();
            let mut attr = QpInitAttr {
                send_cq: &cq,
                recv_cq: &cq,
                srq: None,
                cap: cap(4, 64, 1, 0),
                sq_sig_all: false,
            };
            let mut qp = pd.create_qp::<Rc>(&mut attr).unwrap();
            to_rts(&mut qp);
            let cqn = cq.cqn().number();
            let user = rig.lock().qps[&0x100].user_index;
            let ours = |counter: u16| cqe(user, 0x100, 2, counter, 0);
            let next = 0_u16;
            // Counts that no session has.
            for count in [0, 1, 65, 66, 0x1_0000, 0x8000_0000, u32::MAX] {
                title(&rig, &fake, cqn, ours(next), count, 1);
                let garbage = cq.garbage_completions();
                assert_eq!(drain(&mut cq, way), []);
                assert_eq!(cq.garbage_completions(), garbage + 1, "{count}");
            }
            // Of QPs that are not there, with another one's number, of other kinds, out of order.
            post(&mut qp, 0..3);
            for bytes in [
                cqe(user + 1, 0x100, 2, 0, 0),
                cqe(0xff_ffff, 0x100, 2, 0, 0),
                cqe(user, 0x101, 2, 0, 0),
                cqe(user, 0x100, 9, 0, 0),
                cqe(user, 0x100, 0, 0, 0),
                ours(1),
            ] {
                let garbage = cq.garbage_completions();
                session(&rig, &fake, cqn, bytes, 11);
                assert_eq!(drain(&mut cq, way), []);
                assert_eq!(cq.garbage_completions(), garbage + 11);
            }
            // More completions than were posted.
            let garbage = cq.garbage_completions();
            session(&rig, &fake, cqn, ours(0), 11);
            assert_eq!(drain(&mut cq, way), [(0, 100), (1, 101), (2, 102)]);
            assert_eq!(cq.garbage_completions(), garbage + 8);
            let mut next = 3_u16;
            // Across the end of the ring, many times, each completion with its own length.
            let mut id = 1000;
            let mut seed = 77 + way;
            let garbage = cq.garbage_completions();
            for _ in 0..60 {
                let count = 2 + (random(&mut seed) % 50) as u32;
                post(&mut qp, id..id + u64::from(count));
                let expected: Vec<u64> = (id..id + u64::from(count)).collect();
                id += u64::from(count);
                session(&rig, &fake, cqn, ours(next), count);
                next = next.wrapping_add(count as u16);
                let found = drain(&mut cq, random(&mut seed));
                let ids: Vec<u64> = found.iter().map(|&(id, _)| id).collect();
                assert_eq!(ids, expected);
                let lengths: Vec<u32> = found.iter().map(|&(_, len)| len).collect();
                assert_eq!(lengths, (100..100 + count).collect::<Vec<_>>());
                let producer = rig.lock().cqs[&cqn].producer;
                assert_eq!(cq.garbage_completions(), garbage);
                let consumer = rig.cq_records(&fake, cqn).0;
                assert!(producer - consumer <= 1, "{producer} {consumer}");
            }
            // Noise, in titles and arrays.
            for _ in 0..3000 {
                let mut bytes = [0; 64];
                for byte in &mut bytes {
                    *byte = random(&mut seed) as u8;
                }
                bytes[0x3f] = bytes[0x3f] & 0x0f | ((random(&mut seed) % 15) << 4) as u8;
                let count = match random(&mut seed) % 3 {
                    0 => random(&mut seed) as u32,
                    _ => random(&mut seed) as u32 % 70,
                };
                let places = if (2..=64).contains(&count) { count } else { 1 };
                if random(&mut seed).is_multiple_of(2) {
                    bytes[0x20..0x24].copy_from_slice(&user.to_be_bytes());
                    bytes[0x38..0x3c].copy_from_slice(&0x100_u32.to_be_bytes());
                }
                title(&rig, &fake, cqn, bytes, count, places);
                assert_eq!(drain(&mut cq, random(&mut seed)), []);
            }
        });
    }
}

/// Each completion frees its own place and no other one: a full queue takes one receive for each that is handed out, whose
/// identifier does not replace one that is still to come.
#[test]
fn receives_are_posted_while_a_session_is_handed_out() {
    with_device!(|fake, rig, device, pd| {
        let init = CqInit {
            entries: CqEntries::compressed(MiniFormat::Hash),
            ..CqInit::new(ENTRIES)
        };
        let mut cq = device.create_cq(init).unwrap();
        let mut attr = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: cap(4, 64, 1, 0),
            sq_sig_all: false,
        };
        let mut qp = pd.create_qp::<Rc>(&mut attr).unwrap();
        to_rts(&mut qp);
        let cqn = cq.cqn().number();
        let user = rig.lock().qps[&0x100].user_index;
        post(&mut qp, 0..64);
        qp.recv_queue().post(64, &[SGE]).unwrap_err();
        let (mut next, mut posted) = (0_u64, 64);
        for count in [8, 11, 64, 7, 40, 9, 33] {
            session(&rig, &fake, cqn, cqe(user, 0x100, 2, next as u16, 0), count);
            let mut batch = cq.batch().unwrap();
            let taken = batch.next_compressed(|completion| {
                assert_eq!(completion.wr_id(), next);
                next += 1;
                qp.recv_queue().post(posted, &[SGE]).unwrap();
                qp.recv_queue().post(u64::MAX, &[SGE]).unwrap_err();
                posted += 1;
            });
            assert_eq!(taken, count);
        }
        assert_eq!(cq.garbage_completions(), 0);
    });
}
