//! Time stamps of completions, as nanoseconds: against the world's own clock.

use std::time::Duration;

use bareverbs_core::clock::real_time;
use bareverbs_core::{Inline, Rc};
use connectx_model::Config as Card;

use crate::lab::{Lab, MS, SIGNALED, lab, lab_with};

/// The caller's clock at the mark.
const NOW: u64 = 7_000_000_000;

/// Stamps of completions, each with the world's time before and after it.
fn stamps(lab: &Lab<'_>) -> Vec<(Duration, u64, Duration)> {
    let [mut a, mut b] = lab.pair::<Rc>();
    let mut found = Vec::new();
    for id in 0..40 {
        lab.pause(Duration::from_micros(id * id * id * 37 + 11));
        b.receive(id, 0, 64);
        let before = lab.world.now();
        a.qp.send_queue()
            .batch()
            .send(id, SIGNALED, Inline(b"t"))
            .unwrap();
        lab.pause(MS);
        let after = lab.world.now();
        let completion = a.cq.poll().unwrap().unwrap();
        assert_eq!(completion.wr_id(), id);
        found.push((before, completion.timestamp(), after));
        let _ = lab.wait(&mut b.cq);
    }
    found
}

#[test]
fn free_running_stamps_become_nanoseconds() {
    lab(|lab| {
        let device = lab.sides[0].device;
        assert!(!device.has_real_time_stamps());
        let mut clock = device.start_clock(NOW).unwrap().unwrap();
        let start = lab.world.now();
        let stamps = stamps(lab);
        assert!(stamps.len() >= 40);
        for (before, stamp, after) in stamps {
            let [before, after] = [before, after].map(|at| NOW + (at - start).as_nanos() as u64);
            let ns = clock.to_ns(stamp);
            assert!((before..=after).contains(&ns), "{before} {ns} {after}");
            clock.advance(stamp);
            assert_eq!(clock.to_ns(stamp), ns);
        }
        let now = clock.to_ns(device.clock().unwrap());
        assert_eq!(now, NOW + (lab.world.now() - start).as_nanos() as u64);
        assert_eq!(device.real_time_clock(), Ok(None));
    });
}

#[test]
fn stamps_of_the_real_time_clock_are_times() {
    let epoch = Duration::new(1_800_000_000, 999_999_000);
    let card = |mut card: Card| {
        card.real_time = epoch;
        card.roce.set_qp_ts_format(1);
        card.roce_max.set_qp_ts_format(1);
        card
    };
    lab_with(card, |lab| {
        let device = lab.sides[0].device;
        assert!(device.has_real_time_stamps());
        let mark = device.real_time_clock().unwrap().unwrap();
        assert!(mark > epoch);
        let start = lab.world.now();
        for (before, stamp, after) in stamps(lab) {
            let time = real_time(stamp).expect("less than a second of nanoseconds");
            let [before, after] = [before, after].map(|at| mark + (at - start));
            assert!((before..=after).contains(&time), "{before:?} {time:?}");
        }
        for _ in 0..50 {
            let before = device.real_time_clock().unwrap().unwrap();
            lab.pause(Duration::from_millis(77));
            let after = device.real_time_clock().unwrap().unwrap();
            // Reading registers takes no time here.
            assert_eq!(after - before, Duration::from_millis(77));
        }
    });
}
