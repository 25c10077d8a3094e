//! Frames through the forwarder on models, both ways: each exactly once, spread over the lanes, and those that do not fit counted.

use std::time::Duration;

use bareverbs_in_process::Builder;
use connectx_model::{Card, Config};

use crate::generator::{Bed, Passed, Stream};
use crate::ports::{Forwarding, Lane, Rates};

const STREAM: Stream = Stream {
    frames: 3000,
    size: 64,
    flows: 256,
    seed: 7,
    foreign: true,
};

const LANES: Forwarding = Forwarding {
    lanes: 2,
    keep_addresses: false,
    compress: false,
    strides: false,
    change: None,
    count: false,
    frame_len: 1522,
};

fn bed() -> Bed {
    Bed::with(Config::new)
}

fn run(bed: &Bed, forwarding: Forwarding, stream: Stream) -> Passed {
    let passed = bed.run(&forwarding, stream, |_| {}).expect("forwarded");
    assert_eq!(passed.frames, [stream.frames; 2]);
    let all = |side: usize| -> u64 { passed.rates.lanes.iter().map(|lane| lane.sent[side]).sum() };
    assert_eq!([all(0), all(1)], [u64::from(stream.frames); 2]);
    for lane in &passed.rates.lanes {
        assert_eq!((lane.dropped, lane.garbage), ([0, 0], 0));
    }
    passed
}

#[test]
fn each_frame_exactly_once() {
    let passed = run(&bed(), LANES, STREAM);
    // 256 flows over two queues: neither is idle.
    for lane in &passed.rates.lanes {
        assert!(lane.sent.iter().all(|&sent| sent > 300), "{passed:?}");
    }
}

#[test]
fn addresses_kept_one_lane_long_frames() {
    let one = Forwarding {
        lanes: 1,
        keep_addresses: true,
        ..LANES
    };
    let long = Stream {
        size: 1514,
        frames: 1000,
        ..STREAM
    };
    run(&bed(), one, long);
}

#[test]
fn compressed_completions() {
    for keep_addresses in [false, true] {
        let forwarding = Forwarding {
            keep_addresses,
            compress: true,
            ..LANES
        };
        run(&bed(), forwarding, STREAM);
    }
}

#[test]
fn strides_and_many_frames_in_a_request() {
    for (keep_addresses, size) in [(false, 64), (true, 1000)] {
        let forwarding = Forwarding {
            keep_addresses,
            strides: true,
            ..LANES
        };
        let passed = run(&bed(), forwarding, Stream { size, ..STREAM });
        let lanes = passed.rates.lanes.iter();
        let bursts: u64 = lanes.clone().map(|lane| lane.together.bursts).sum();
        let unused: u64 = lanes.map(|lane| lane.together.unused).sum();
        assert!(
            bursts > 0 && bursts < 2 * u64::from(STREAM.frames),
            "{passed}"
        );
        // Frames of one stride fill requests; of four, too.
        assert_eq!(unused, 0, "{passed}");
    }
}

#[test]
fn tables_that_change_lose_nothing_and_rules_count_all() {
    let forwarding = Forwarding {
        lanes: 4,
        change: Some(Duration::from_millis(1)),
        count: true,
        ..LANES
    };
    let passed = run(&bed(), forwarding, STREAM);
    for counted in passed.rates.counted {
        let counted = counted.expect("counters");
        assert_eq!(counted.frames.iter().sum::<u64>(), u64::from(STREAM.frames));
        assert_eq!(counted.bytes, u64::from(STREAM.frames) * STREAM.size as u64);
        assert!(counted.changes > 3, "{passed:?}");
    }
    for counters in &passed.rates.ports {
        let counters = counters.as_ref().expect("counters of the ports");
        for name in [
            "rx_vport_unicast_packets",
            "tx_vport_unicast_packets",
            "rx_packets_phy",
            "tx_packets_phy",
        ] {
            assert_eq!(
                counters.get(name),
                Some(STREAM.frames.into()),
                "{name}: {counters}"
            );
        }
    }
    for lane in &passed.rates.lanes {
        assert!(lane.sent.iter().all(|&sent| sent > 0), "{passed:?}");
    }
    let alone = Forwarding {
        lanes: 1,
        ..forwarding
    };
    let refused = bed().run(&alone, STREAM, |_| {}).map(drop);
    let refused = refused.unwrap_err().to_string();
    assert_eq!(refused, "a table that changes needs two queues at least");
}

#[test]
fn infiniband_ports_are_refused() {
    let world = Builder::new()
        .function(Config::new(1))
        .function(Config::new(2).infiniband())
        .threaded();
    let refused = LANES.run([0, 1].map(|at| world.platform(at)), &mut |_| true);
    let refused = refused.map(drop).unwrap_err().to_string();
    assert_eq!(
        refused,
        "frames need Ethernet ports, and the second is an InfiniBand port"
    );
}

/// Cards that require the Ethernet header inline, with new addresses and with the old ones.
#[test]
fn cards_with_inline_headers() {
    let bed = || Bed::with(|unit| Config::card(Card::ConnectX4Lx, unit));
    for keep_addresses in [false, true] {
        let forwarding = Forwarding {
            keep_addresses,
            ..LANES
        };
        let few = Stream {
            frames: 500,
            size: 100,
            // Of a port with several functions, each gets only what is for it.
            foreign: false,
            ..STREAM
        };
        run(&bed(), forwarding, few);
    }
}

/// A burst of 40,000 frames that two lanes forwarded in 16 ms, in a second without other frames.
#[test]
fn rates_are_of_the_time_at_work() {
    let lane = |sent, busy| Lane {
        sent,
        busy: Duration::from_millis(busy),
        ..Lane::default()
    };
    let rates = Rates {
        lanes: vec![
            lane([20_000, 10_000], 10),
            lane([4_000, 6_000], 6),
            lane([0, 0], 0),
        ],
        time: Duration::from_secs(1),
        ..Rates::default()
    };
    let text = rates.to_string();
    for line in [
        "lane 0: 3000000 packets/s while at work, 1.0% of the time; 20000 + 10000 packets, 0 dropped; 0 + 0 in all",
        "lane 2: 0 packets/s while at work, 0.0% of the time; 0 + 0 packets, 0 dropped; 0 + 0 in all",
        "all: 2500000 packets/s of time at work on a lane; 40000 packets in 1.00 s",
    ] {
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}
