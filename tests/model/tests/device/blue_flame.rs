//! BlueFlame: what the card does with WQEs that come through a doorbell register, whole and in pieces.
//!
//! The WQE in memory differs from the one in the register each time, so that the peer's memory shows which of the two
//! was executed.

use crate::common::queues::*;
use connectx_model::Config;
use core::time::Duration;

const WRITE: u8 = 0x08;
/// The second register's two buffers.
const BUFFER: u64 = 0xa00;
const OTHER_BUFFER: u64 = 0xb00;

const MEMORY: u8 = 0xee;
const REGISTER: u8 = 0x11;

struct Lab {
    pair: Pair,
    qp: Qp,
    cq: Cq,
    target: u64,
    key: u32,
}

/// Numbers of WQEs that were taken from registers, and of those that had to be fetched although they came through one.
fn counts(lab: &Lab) -> (u64, u64) {
    let stats = lab.pair.a.model.stats();
    (stats.blue_flame, stats.blue_flame_missed)
}

impl Lab {
    fn of(config: impl Fn(Config) -> Config) -> Self {
        let mut pair = Pair::of([1, 2].map(|unit| config(Config::new(unit))));
        let [(qp, cq), _] = pair.connect(RC);
        let target = pair.b.host.alloc(4096, 4096);
        let key = pair.b.register(pair.pd[1], target, 0, 4096, ALL);
        Self {
            pair,
            qp,
            cq,
            target,
            key,
        }
    }

    fn new() -> Self {
        Self::of(Config::with_blue_flame)
    }

    /// Posts a write of `len` bytes inline, in memory with one filling; returns the same WQE with the other, in whole
    /// blocks. The doorbell record is written, and nothing rung.
    fn post(&mut self, len: usize) -> Vec<u8> {
        let at = self.qp.sq;
        let segments = |fill: u8| {
            let inline = inline_segment(&vec![fill; len]);
            [remote_segment(0, self.key), inline].concat()
        };
        let (memory, register) = (segments(MEMORY), segments(REGISTER));
        let octowords = 1 + register.len() / 16;
        let mut wqe = (u32::from(at) << 8 | u32::from(WRITE))
            .to_be_bytes()
            .to_vec();
        wqe.extend((self.qp.number << 8 | octowords as u32).to_be_bytes());
        wqe.extend([0, 0, 0, SIGNALED, 0, 0, 0, 0]);
        wqe.extend(register);
        wqe.resize(wqe.len().next_multiple_of(64), 0);
        let a = &mut self.pair.a;
        a.post_send(&mut self.qp, WRITE, SIGNALED, 0, &memory);
        a.host.put32(self.qp.record + 4, u32::from(self.qp.sq));
        wqe
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let a = &mut self.pair.a;
        let offset = u64::from(self.qp.uar) * 4096 + at;
        a.model.bar_write(&mut a.host, offset, data);
        a.advance();
    }

    /// Waits for the completion, and returns the byte that fills the data at the other end.
    fn arrived(&mut self, len: usize) -> u8 {
        self.pair.run();
        let done = self.pair.a.poll(&mut self.cq).expect("a completion");
        assert_eq!((done.opcode, done.wqe_opcode), (0, WRITE));
        assert_eq!(self.pair.a.poll(&mut self.cq), None);
        let found = self.pair.b.host.bytes(self.target, len).to_vec();
        self.pair.b.host.put(self.target, &[0; 1024]);
        assert!(found.iter().all(|&byte| byte == found[0]), "{found:x?}");
        found[0]
    }
}

#[test]
fn a_burst_is_executed_as_it_came() {
    let mut lab = Lab::new();
    let mut at = BUFFER;
    for n in 1..=5 {
        let wqe = lab.post(20);
        lab.write(at, &wqe);
        assert_eq!(lab.arrived(20), REGISTER);
        assert_eq!(counts(&lab), (n, 0));
        at ^= BUFFER ^ OTHER_BUFFER;
    }
    assert_eq!(lab.pair.a.model.stats().doorbells, 5);
}

#[test]
fn a_long_wqe_comes_in_several_bursts() {
    let mut lab = Lab::new();
    // 16 for control, 16 for the address, 4 before the data: four blocks.
    for (len, bursts) in [(40, 2), (150, 3), (220, 4)] {
        let wqe = lab.post(len);
        assert_eq!(wqe.len(), bursts * 64);
        for (n, burst) in wqe.chunks(64).enumerate() {
            assert_eq!(lab.pair.a.poll(&mut lab.cq), None);
            lab.write(BUFFER + n as u64 * 64, burst);
        }
        assert_eq!(lab.arrived(len), REGISTER);
    }
    assert_eq!(counts(&lab), (3, 0));
    // One more block than the buffer has: a doorbell, and what follows is nothing.
    let wqe = lab.post(230);
    for (n, burst) in wqe.chunks(64).take(4).enumerate() {
        lab.write(BUFFER + n as u64 * 64, burst);
    }
    assert_eq!(lab.arrived(230), MEMORY);
    assert_eq!(counts(&lab), (3, 0));
}

#[test]
fn pieces_of_a_burst_are_a_doorbell() {
    for order in [[0, 1, 2, 3, 4, 5, 6, 7], [4, 2, 7, 0, 1, 6, 5, 3]] {
        let mut lab = Lab::new();
        let wqe = lab.post(20);
        for n in order {
            lab.write(BUFFER + n * 8, &wqe[n as usize * 8..][..8]);
        }
        assert_eq!(lab.arrived(20), MEMORY);
        assert_eq!(counts(&lab), (0, 0));
    }
    // Half a burst, as it comes when the buffer was emptied too early.
    for half in [32, 56] {
        let mut lab = Lab::new();
        let wqe = lab.post(20);
        lab.write(BUFFER, &wqe[..half]);
        lab.write(BUFFER + half as u64, &wqe[half..64]);
        assert_eq!(lab.arrived(20), MEMORY);
        assert_eq!(counts(&lab), (0, 0));
    }
}

#[test]
fn a_wqe_whose_rest_stays_out_or_comes_late_is_fetched() {
    // Nothing more comes.
    let mut lab = Lab::new();
    let wqe = lab.post(40);
    lab.write(BUFFER, &wqe[..64]);
    assert_eq!(lab.pair.a.poll(&mut lab.cq), None);
    let due = lab.pair.a.model.next_deadline().expect("it waits");
    lab.pair.a.now = due;
    lab.pair.a.advance();
    assert_eq!(lab.arrived(40), MEMORY);
    assert_eq!(counts(&lab), (0, 1));

    // In the wrong order: the second burst means nothing before the first, and the first waits for another.
    let wqe = lab.post(40);
    lab.write(BUFFER + 64, &wqe[64..]);
    lab.write(BUFFER, &wqe[..64]);
    lab.pair.a.sleep(Duration::from_micros(10));
    assert_eq!(lab.arrived(40), MEMORY);
    assert_eq!(counts(&lab), (0, 2));

    // Something else comes between: the arming of a completion queue.
    let wqe = lab.post(40);
    lab.write(BUFFER, &wqe[..64]);
    lab.pair.a.arm(&mut lab.cq, false);
    lab.write(BUFFER + 64, &wqe[64..]);
    assert_eq!(lab.arrived(40), MEMORY);
    assert_eq!(counts(&lab), (0, 3));
}

#[test]
fn a_wqe_that_is_not_the_next_one_is_fetched() {
    let mut lab = Lab::new();
    let _ = lab.post(20);
    let second = lab.post(20);
    // Two were posted, and only the second went to the register.
    lab.write(BUFFER, &second);
    lab.pair.run();
    let done = lab.pair.a.poll_all(&mut lab.cq);
    assert_eq!(done.len(), 2);
    assert_eq!(*lab.pair.b.host.bytes(lab.target, 20), [MEMORY; 20]);
    assert_eq!(counts(&lab), (0, 1));
}

/// A WQE that is written to a register, whole or in part, is executed once, if its first eight bytes arrive.
#[test]
fn no_wqe_is_lost_or_doubled_by_what_the_bus_makes_of_it() {
    let mut state = 0x5eed_u64;
    let mut random = move |limit: u64| {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    };
    let mut lab = Lab::new();
    let mut found = [0, 0];
    for round in 0..600 {
        let len = 1 + random(220) as usize;
        let wqe = lab.post(len);
        // Cut at multiples of eight, mostly where bursts end; then some are swapped, and some stay out.
        let mut pieces: Vec<(usize, &[u8])> = Vec::new();
        let torn = random(3) == 0;
        for (burst, bytes) in wqe.chunks(64).enumerate() {
            let size = if torn { 8 << random(4) } else { 64 };
            let parts = bytes.chunks(size).enumerate();
            pieces.extend(parts.map(|(n, part)| (burst * 64 + n * size, part)));
        }
        if random(4) == 0 {
            let (one, other) = (random(pieces.len() as u64), random(pieces.len() as u64));
            pieces.swap(one as usize, other as usize);
        }
        if random(4) == 0 {
            let out = random(pieces.len() as u64) as usize;
            pieces.retain({
                let mut n = 0;
                move |&(at, _)| {
                    n += 1;
                    n - 1 != out || at == 0
                }
            });
        }
        let buffer = [BUFFER, OTHER_BUFFER][round % 2];
        for (at, part) in pieces {
            if random(20) == 0 {
                // Something else is written: the consumer index of an event queue.
                let eq = lab.pair.a.events[1].number << 24;
                let uar = u64::from(lab.qp.uar) * 4096;
                lab.pair.a.write32(uar + 0x48, eq);
            }
            lab.write(buffer + at as u64, part);
        }
        lab.pair.a.sleep(Duration::from_micros(10));
        let which = lab.arrived(len);
        assert!(which == MEMORY || which == REGISTER, "{which:#x}");
        found[usize::from(which == REGISTER)] += 1;
    }
    let (taken, _) = counts(&lab);
    assert_eq!(found[1], taken);
    assert!(found[0] > 100 && found[1] > 100, "{found:?}");
    assert_eq!(lab.pair.a.model.stats().bad_doorbells, 0);
}

#[test]
fn a_wqe_in_a_register_is_checked_as_any_other() {
    let mut lab = Lab::new();
    // Through a page that is not the queue's.
    let wqe = lab.post(20);
    let other = lab
        .pair
        .a
        .command(&bareverbs_firmware_cmds::uar::AllocUarIn::new())
        .unwrap()
        .uar();
    let own = std::mem::replace(&mut lab.qp.uar, other);
    lab.write(BUFFER, &wqe);
    lab.qp.uar = own;
    lab.pair.run();
    assert_eq!(lab.pair.a.poll(&mut lab.cq), None);
    let stats = lab.pair.a.model.stats();
    assert_eq!((stats.bad_doorbells, stats.blue_flame), (1, 0));
    // Of an unknown opcode, which the one in memory has not.
    let mut wqe = wqe;
    wqe[3] = 0x3f;
    lab.write(BUFFER, &wqe);
    lab.pair.run();
    let done = lab.pair.a.poll(&mut lab.cq).expect("an error");
    assert_eq!((done.opcode, done.wqe_opcode), (0xd, 0x3f));
}

#[test]
fn a_card_without_blue_flame_takes_a_doorbell() {
    let mut lab = Lab::of(|config| config);
    let wqe = lab.post(20);
    lab.write(BUFFER, &wqe);
    assert_eq!(lab.arrived(20), MEMORY);
    assert_eq!(counts(&lab), (0, 0));
}

/// Emulated machines do not combine; then it is done in front of the card.
#[test]
fn eight_stores_are_combined_where_that_was_asked_for() {
    let patience = Duration::from_micros(50);
    let mut lab = Lab::of(|config| Config {
        combining: Some(patience),
        ..config.with_blue_flame()
    });
    for order in [[0, 1, 2, 3, 4, 5, 6, 7], [4, 2, 7, 0, 1, 6, 5, 3]] {
        let wqe = lab.post(20);
        for n in order {
            lab.write(BUFFER + n * 8, &wqe[n as usize * 8..][..8]);
        }
        assert_eq!(lab.arrived(20), REGISTER);
    }
    // A doorbell leaves after a while, or with the next access.
    let wqe = lab.post(20);
    lab.write(0x800, &wqe[..8]);
    lab.pair.run();
    assert_eq!(lab.pair.a.poll(&mut lab.cq), None);
    lab.pair.a.sleep(patience);
    assert_eq!(lab.arrived(20), MEMORY);
    let wqe = lab.post(20);
    lab.write(0x800, &wqe[..8]);
    lab.pair.a.read32(0);
    lab.pair.a.advance();
    assert_eq!(lab.arrived(20), MEMORY);
    assert_eq!(counts(&lab), (2, 0));
}
