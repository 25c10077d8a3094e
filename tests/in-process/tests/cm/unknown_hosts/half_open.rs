//! Hosts that ask for connections and never complete them: they do not keep others out.

use std::time::Duration;

use bareverbs_cm::mad::*;
use bareverbs_cm::rdma::*;

use super::bench::*;

/// Answers the application's events: accepts each request, and gives up each connection that failed.
fn serve(bench: &mut Bench, established: &mut Vec<CmId>) {
    while let Some(event) = bench.event() {
        match event.event {
            EventType::ConnectRequest => bench.accept(event.id).expect("a QP"),
            EventType::Established => established.push(event.id),
            _ => bench.cm.destroy_id(event.id).unwrap(),
        }
    }
}

/// One host that does what it should, with repetitions as Linux makes them here: its REQ, and its RTU to the REP.
struct Newcomer {
    host: Host,
    comm_id: u32,
    began: Duration,
    tries: u32,
}

impl Newcomer {
    /// When the next of its tries is due: after 256 ms, and then each time after twice as long.
    fn due(&self) -> Duration {
        self.began + 256 * MS * ((1 << self.tries) - 1)
    }
}

struct Outcome {
    served: usize,
    newcomers: usize,
    worst: Duration,
    tries: u32,
}

/// A flood of REQs, and among it eight hosts that request one connection each, one after the other.
fn flood(sources: u32, response: u8) -> Outcome {
    let mut bench = Bench::new(Capacity {
        ids: 101,
        neighbours: 128,
        gsi_depth: 512,
    });
    for number in 0..sources.min(64) + 1 {
        bench.say(Host::v4(number).asks());
    }
    for number in 0..10 {
        bench.say(Host::v6(number).asks());
    }
    let mut established = Vec::new();
    let mut outcome = Outcome {
        served: 0,
        newcomers: 0,
        worst: Duration::ZERO,
        tries: 0,
    };
    let mut waiting: Vec<Newcomer> = Vec::new();
    let start = bench.world.now();
    // 500 a second for four seconds; a newcomer each third of a second, once the server was full.
    for nth in 0..2000u32 {
        let host = Host::v4(nth % sources);
        let header = host.header();
        let req = Req {
            local_cm_response_timeout: response,
            local_ca_guid: u64::from(nth) << 32 | 0x99,
            ..host.req(nth + 1, nth + 0x100, &header)
        };
        let mut mad = [0; MAD_LEN];
        req.emit(5, &mut mad).unwrap();
        bench.put(host.datagram(&mad));
        let now = bench.world.now();
        if nth >= 300 && nth % 150 == 0 && outcome.newcomers < 8 {
            waiting.push(Newcomer {
                host: Host::v6(outcome.newcomers as u32),
                comm_id: 0x8000_0000 | nth,
                began: now,
                tries: 0,
            });
            outcome.newcomers += 1;
        }
        for newcomer in &mut waiting {
            if now >= newcomer.due() {
                newcomer.tries += 1;
                outcome.tries += 1;
                let mad = newcomer.host.request(newcomer.comm_id, 7);
                bench.put(newcomer.host.datagram(&mad));
            }
        }
        while bench.world.now() < start + 2 * MS * (nth + 1) {
            bench.world.advance(MS / 2);
            bench.cm.poll(bench.cm.now()).unwrap();
            serve(&mut bench, &mut established);
            bench.cm.poll(bench.cm.now()).unwrap();
            for (to, mad) in bench.mads() {
                let view = Mad::new(&mad[..]).unwrap();
                let Ok(Message::Rep(rep)) = view.message() else {
                    continue;
                };
                let is = |newcomer: &Newcomer| {
                    newcomer.comm_id == rep.remote_comm_id && newcomer.host.ip == to
                };
                let Some(at) = waiting.iter().position(is) else {
                    continue;
                };
                let newcomer = waiting.remove(at);
                let rtu = Rtu {
                    local_comm_id: newcomer.comm_id,
                    remote_comm_id: rep.local_comm_id,
                    ..Rtu::ZERO
                };
                let mut mad = [0; MAD_LEN];
                rtu.emit(6, &mut mad).unwrap();
                bench.put(newcomer.host.datagram(&mad));
                outcome.served += 1;
                outcome.worst = outcome.worst.max(bench.world.now() - newcomer.began);
            }
        }
    }
    assert_eq!(established.len(), outcome.served);
    println!(
        "{sources} sources: {} of {} newcomers served with {} REQs, the slowest after {:?}; {} evicted",
        outcome.served,
        outcome.newcomers,
        outcome.tries,
        outcome.worst,
        bench.cm.stats().evicted
    );
    outcome
}

/// 100 REQs filled a server of 100 for 70 s, and for 18 minutes if they said so.
#[test]
fn half_open_connections_keep_no_newcomer_out() {
    for (sources, response) in [(1, 31), (64, 31)] {
        let outcome = flood(sources, response);
        assert_eq!(outcome.served, outcome.newcomers);
        assert!(outcome.worst < SECOND, "{:?}", outcome.worst);
    }
}

/// Without a flood: a request that no RTU follows is over after ten seconds, however long its peer said it would take.
#[test]
fn an_rtu_is_not_waited_for_for_minutes() {
    let mut bench = Bench::new(Capacity::default());
    let host = Host::v4(0);
    bench.say(host.asks());
    let header = host.header();
    let req = Req {
        local_cm_response_timeout: 31,
        ..host.req(1, 0x100, &header)
    };
    let mut mad = [0; MAD_LEN];
    req.emit(5, &mut mad).unwrap();
    bench.say(host.datagram(&mad));
    let id = bench.event().expect("a request").id;
    bench.accept(id).unwrap();
    let start = bench.world.now();
    let event = loop {
        bench.run(50 * MS);
        if let Some(event) = bench.event() {
            break event;
        }
        assert!(bench.world.now() < start + 20 * SECOND);
    };
    assert_eq!((event.event, event.id), (EventType::Unreachable, id));
    assert!(bench.world.now() - start <= 10 * SECOND + 100 * MS);
}
