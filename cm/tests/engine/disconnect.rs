//! Many disconnections at once over a pipe that loses some: the complaint about Linux's CM is that each lost DREP costs the
//! whole series of repetitions, and that programs stop waiting for it.

use std::time::Duration;

use crate::common::*;
use bareverbs_cm::engine::*;

const COUNT: usize = 2_000;
/// When Linux sends DREQ for the second time. With this loss 44 % of the connections would wait for it.
const INTERVAL: Duration = Duration::from_millis(4608);

/// A world with so many connections, and both ends of each.
fn connected(seed: u64) -> (World, Vec<ConnectionId>, Vec<ConnectionId>) {
    let mut world = World::new(seed, COUNT);
    let mut ours = Vec::with_capacity(COUNT);
    for qpn in 0..COUNT as u32 {
        let params = ConnectParams {
            local_qpn: qpn,
            ..params()
        };
        ours.push(world.nodes[0].connect(world.now, &params).unwrap());
    }
    world.run(10 * MS);
    assert!(ours.iter().all(|id| world.established(0, *id)));
    let request = |(_, id, seen): &(Duration, ConnectionId, Seen)| {
        matches!(seen, Seen::Request(_)).then_some(*id)
    };
    let theirs: Vec<_> = world.seen[1].iter().filter_map(request).collect();
    assert_eq!(theirs.len(), COUNT);
    (world, ours, theirs)
}

/// One side disconnects, or both at once, and every fourth message is lost: each DREQ is answered before the application
/// polls, so that nearly all connections end after a few early repetitions, and none by a timeout.
#[test]
fn storm_of_disconnections() {
    for seed in seeds(4) {
        for both in [false, true] {
            let (mut world, ours, theirs) = connected(seed);
            let mut random = Random(!seed);
            world.judge = Box::new(move |_, _| {
                if random.percent(25) {
                    Delivery::Drop
                } else {
                    Delivery::Deliver
                }
            });
            let start = world.now;
            for id in &ours {
                world.nodes[0].disconnect(start, *id, b"").unwrap();
            }
            if both {
                for id in &theirs {
                    world.nodes[1].disconnect(start, *id, b"").unwrap();
                }
            }
            world.run(start + Duration::from_secs(60));
            let mut late = 0;
            for node in 0..2 {
                let mut ends = 0;
                for (at, _, seen) in &world.seen[node] {
                    if let Seen::Disconnected(cause) = seen {
                        assert_ne!(*cause, DisconnectCause::TimedOut, "seed {seed}");
                        ends += 1;
                        late += u32::from(*at - start > INTERVAL);
                    }
                }
                assert_eq!(ends, COUNT, "seed {seed}");
            }
            // Five exchanges fit into it: one in sixty fails every time.
            assert!(late < COUNT as u32 / 20, "seed {seed}: {late}");
            world.release_all(&ours);
        }
    }
}
