//! Rings that go round, fill up, and are waited for.

use bareverbs_core::{Config, Cqs, EthernetSendError, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;

use crate::lab::{MS, lab};
use crate::support::{INIT, NONE, Queue, Random, frame, padded, send, take};

/// Frames of random lengths in random bursts, beyond where 16-bit counters go round.
#[test]
fn rings_go_round() {
    const SEED: u64 = 0x5eed;
    println!("seed {SEED:#x}");
    lab(|lab| {
        let mut random = Random(SEED);
        let [mut a, mut b] = lab.queues();
        let mut sent = 0_u64;
        while sent < 70_000 {
            let burst = 1 + random.below(8);
            let frames: Vec<_> = (0..burst as u64)
                .map(|at| lab.frame(0, 14 + random.below(120), sent + at))
                .collect();
            for frame in &frames {
                send(&mut a, frame);
            }
            while lab.world.step() {}
            for frame in frames {
                assert_eq!(take(&mut b), Some(padded(frame)));
            }
            assert_eq!(take(&mut b), None);
            sent += burst as u64;
        }
        let counters = b.receive_half().counters();
        assert_eq!(counters.received, sent);
        assert_eq!(
            (
                counters.too_long,
                counters.malformed,
                counters.garbage_completions
            ),
            (0, 0, 0)
        );
        assert_eq!(a.send_half().garbage_completions(), 0);
    });
}

/// Frames that do not fit are lost and counted, and frames that come later are not.
#[test]
fn a_full_receive_queue_drops() {
    lab(|lab| {
        let set = lab.sides[1].device.count_queues().unwrap();
        let set = set.expect("a card with counters");
        let [mut a, mut b] = lab.queues();
        for round in 0..5 {
            for seed in 0..12 {
                send(&mut a, &lab.frame(0, 60, round * 100 + seed));
                lab.pause(MS);
            }
            for seed in 0..8 {
                assert_eq!(take(&mut b), Some(lab.frame(0, 60, round * 100 + seed)));
            }
            lab.nothing(&mut b);
            assert_eq!(set.out_of_buffer(), Ok(4 * (round as u32 + 1)));
        }
        assert_eq!(b.receive_half().capacity(), 8);
    });
}

/// A frame that is still looked at keeps its buffer, and only that.
#[test]
fn a_frame_in_hand_holds_one_buffer() {
    lab(|lab| {
        let [mut a, mut b] = lab.queues();
        send(&mut a, &lab.frame(0, 60, 0));
        lab.pause(MS);
        let held = b.receive_half().receive().unwrap().expect("a frame");
        for seed in 1..=8 {
            send(&mut a, &lab.frame(0, 60, seed));
        }
        lab.pause(MS);
        let mut bytes = [0; 60];
        held.copy_to(&mut bytes);
        assert_eq!(bytes[..], lab.frame(0, 60, 0));
        drop(held);
        for seed in 1..=7 {
            assert_eq!(take(&mut b), Some(lab.frame(0, 60, seed)));
        }
        lab.nothing(&mut b);
        // A leaked one costs its buffer.
        send(&mut a, &lab.frame(0, 60, 9));
        lab.pause(MS);
        core::mem::forget(b.receive_half().receive().unwrap().expect("a frame"));
        for seed in 10..30 {
            send(&mut a, &lab.frame(0, 60, seed));
            assert_eq!(lab.receive(&mut b), lab.frame(0, 60, seed));
        }
    });
}

/// Time stands still without polling, so the device never catches up.
#[test]
fn a_full_send_queue_says_so() {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped();
    let mut resources = Box::new(Resources::<Qps<1>, Cqs<4>, Srqs<1>, PageChunks<256>>::new());
    let device = world.open(0, Config::DEFAULT, resources.storage(), &[]);
    let pd = device.alloc_pd().unwrap();
    let mut queue: Queue<'_> = pd.create_ethernet_queue(&INIT).unwrap();
    world.with_model(0, connectx_model::Model::vanish);
    let frame = frame([2; 6], queue.mac(), 60, 1);
    let mut first = None;
    for _ in 0..8 {
        let sent = queue.send_half().send(&frame, NONE).unwrap();
        first.get_or_insert(sent);
    }
    assert_eq!(
        queue.send_half().send(&frame, NONE),
        Err(EthernetSendError::Full { limit: 8 })
    );
    assert_eq!(
        (queue.send_half().free(), queue.send_half().outstanding()),
        (0, 8)
    );
    assert!(!queue.send_half().is_complete(first.unwrap()));
    assert!(take(&mut queue).is_none());
    assert!(queue.wait(world.now() + 100 * MS).is_err());
    assert!(queue.join([1, 0, 0x5e, 0, 0, 1]).is_err());
    assert!(queue.send_half().recover().is_err());
    let before = world.now();
    drop(queue);
    drop(pd);
    assert!(device.close().is_err());
    assert!(
        world.now() - before < 100 * MS,
        "waited for a device that is gone"
    );
    assert_eq!(world.take_faults(0), []);
}

#[test]
fn frames_are_waited_for() {
    for vectors in [0, 2] {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .interrupts(vectors)
            .stepped();
        let mut config = Config::DEFAULT;
        config.interrupts = vectors != 0;
        config.completion_event_queues = vectors / 2;
        let mut resources = [
            Box::new(Resources::<Qps<1>, Cqs<4>, Srqs<1>, PageChunks<256>>::new()),
            Box::new(Resources::<Qps<1>, Cqs<4>, Srqs<1>, PageChunks<256>>::new()),
        ];
        let [first, second] = &mut resources;
        let devices = [
            world.open(0, config, first.storage(), &[]),
            world.open(1, config, second.storage(), &[]),
        ];
        let pds = [0, 1].map(|node: usize| devices[node].alloc_pd().unwrap());
        let [mut a, mut b] =
            [0, 1].map(|node: usize| pds[node].create_ethernet_queue(&INIT).unwrap());
        for seed in 0..20 {
            assert_eq!(b.wait(world.now() + 10 * MS), Ok(false));
            let sent = frame(b.mac(), a.mac(), 60, seed);
            send(&mut a, &sent);
            assert_eq!(a.send_half().wait(world.now() + 10 * MS), Ok(true));
            assert_eq!(b.wait(world.now() + 1000 * MS), Ok(true));
            assert!(b.receive_half().is_ready());
            assert_eq!(take(&mut b), Some(sent));
        }
        drop((a, b));
        drop(pds);
        for device in devices {
            device.close().expect("closed");
        }
    }
}
