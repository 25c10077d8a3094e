//! QPs that are used again: connections come and go in drawn orders, with messages that are not received, at both ends of a
//! cable.
//! What comes out of a QP and its CQs is always its connection's own, every message arrives whole, and at the end nothing is
//! left.

use std::collections::BTreeMap;
use std::time::Duration;

use bareverbs_cm::rdma::*;
use bareverbs_core::{Access, Buffer, Cq, CqInit, Mtu, Wc, WcError, WcStatus};
use bareverbs_in_process::ModelPlatform;

use crate::keep::keep;
use crate::pair::{MS, Pair, SECOND, objects, qp};
use crate::support::Random;

const US: Duration = Duration::from_micros(1);
/// Connections at once, and bytes of the buffer for each.
const MOST: usize = 6;
const SHARE: usize = 1024;
/// Receives of each end of a connection, and so messages that it gets at most.
const RECEIVES: usize = 8;
const LEN: usize = 64;
/// Twice the life time of a packet that the manager reckons with, 4.096 µs × 2^16.
const TIMEWAIT: Duration = Duration::from_nanos(2 * (4096 << 16));

/// One end of a connection.
struct End {
    id: CmId,
    qpn: u32,
    /// Messages that were sent to it, and that it has taken.
    due: usize,
    taken: usize,
}

struct Live {
    tag: u64,
    place: usize,
    own_cqs: bool,
    ends: [End; 2],
    /// It was disconnected: what is outstanding is flushed.
    over: bool,
}

struct Bench {
    pair: Pair,
    buffers: [&'static Buffer<'static, ModelPlatform>; 2],
    shared: [&'static mut Cq<'static, ModelPlatform>; 2],
    live: Vec<Live>,
    tags: u64,
    /// When the QP of a number had its last connection.
    gone: [BTreeMap<u32, Duration>; 2],
    made: usize,
    reused: usize,
}

impl Bench {
    fn new(command: Duration, pool: usize) -> Self {
        let mut pair = Pair::on_cards(Mtu::B4096, |card| connectx_model::Config {
            command_time: command,
            ..card
        });
        for cm in &mut pair.cms {
            let slots: Vec<_> = (0..pool).map(|_| PooledQp::EMPTY).collect();
            cm.recycle_qps(keep(slots));
        }
        let buffers = [0, 1].map(|node| {
            let pd = keep(pair.cms[node].device().default_pd().unwrap());
            &*keep(pd.alloc_buffer(MOST * SHARE, Access::LOCAL_WRITE).unwrap())
        });
        let shared = [0, 1].map(|node| {
            let device = pair.cms[node].device();
            keep(device.create_cq(CqInit::new(1000)).unwrap())
        });
        Self {
            pair,
            buffers,
            shared,
            live: Vec::new(),
            tags: 0,
            gone: Default::default(),
            made: 0,
            reused: 0,
        }
    }

    /// The next event of this kind; those of connections that are over come in between.
    fn expect(&mut self, node: usize, kind: EventType) -> CmId {
        loop {
            let event = self.pair.event(node);
            if event.event == kind {
                assert_eq!(event.status, 0);
                return event.id;
            }
            let late = matches!(
                event.event,
                EventType::Disconnected | EventType::TimewaitExit
            );
            assert!(late, "{event:?} instead of {kind}");
        }
    }

    /// Makes the QP of one end, and gives it its receives.
    fn prepare(&mut self, node: usize, id: CmId, tag: u64, place: usize, own_cqs: bool) -> End {
        let shared: &Cq<'_, _> = self.shared[node];
        let given = (!own_cqs).then_some(shared);
        let mut init = QpInit {
            send_cq: given,
            recv_cq: given,
            ..qp()
        };
        let cm = &mut self.pair.cms[node];
        let commands = cm.device().commands_executed();
        cm.create_qp(id, None, &mut init).unwrap();
        let reused = cm.device().commands_executed() == commands;
        assert!(init.cap.max_send_wr >= 8 && init.cap.max_recv_wr >= 8);
        let qpn = cm.endpoint(id).unwrap().qp.qpn().number();
        self.made += 1;
        if reused {
            self.reused += 1;
            let gone = self.gone[node].get(&qpn).expect("it is not a new one");
            let waited = self.pair.world.now() - *gone;
            assert!(waited >= TIMEWAIT, "again after {waited:?}");
        }
        for other in &self.live {
            assert_ne!(other.ends[node].qpn, qpn, "two connections have one QP");
        }
        for n in 0..RECEIVES {
            let at = place * SHARE + n * LEN;
            let wr_id = tag << 8 | n as u64;
            cm.post_recv(id, wr_id, self.buffers[node].slice(at..at + LEN).unwrap())
                .unwrap();
        }
        End {
            id,
            qpn,
            due: 0,
            taken: 0,
        }
    }

    fn connect(&mut self, own_cqs: bool) {
        self.tags += 1;
        let tag = self.tags;
        let place = (0..MOST)
            .find(|place| self.live.iter().all(|live| live.place != *place))
            .unwrap();
        let cm = &mut self.pair.cms[0];
        let id = cm
            .create_id(Some(self.pair.channels[0]), 0, PortSpace::Tcp)
            .unwrap();
        let to = crate::pair::address(1, crate::pair::PORT);
        cm.resolve_addr(id, None, to, SECOND).unwrap();
        self.expect(0, EventType::AddrResolved);
        self.pair.cms[0].resolve_route(id, SECOND).unwrap();
        self.expect(0, EventType::RouteResolved);
        let ours = self.prepare(0, id, tag, place, own_cqs);
        self.pair.cms[0].connect(id, None).unwrap();
        let peer = self.expect(1, EventType::ConnectRequest);
        let theirs = self.prepare(1, peer, tag, place, own_cqs);
        self.pair.cms[1].accept(peer, None).unwrap();
        assert_eq!(self.expect(0, EventType::Established), id);
        assert_eq!(self.expect(1, EventType::Established), peer);
        self.live.push(Live {
            tag,
            place,
            own_cqs,
            ends: [ours, theirs],
            over: false,
        });
    }

    fn text(tag: u64, from: usize, n: usize) -> [u8; LEN] {
        let mut text = [from as u8 * 16 + n as u8; LEN];
        text[..8].copy_from_slice(&tag.to_be_bytes());
        text
    }

    /// Sends one message from one end of a connection, if the other one has a receive left.
    fn send(&mut self, which: usize, from: usize) {
        let live = &mut self.live[which];
        let n = live.ends[1 - from].due;
        if n == RECEIVES {
            return;
        }
        live.ends[1 - from].due += 1;
        let at = live.place * SHARE + (RECEIVES + n) * LEN;
        let text = Self::text(live.tag, from, n);
        self.buffers[from].copy_in(at, &text).unwrap();
        let wr_id = live.tag << 8 | 0x80 | n as u64;
        let id = live.ends[from].id;
        self.pair.cms[from]
            .post_send(
                id,
                wr_id,
                self.buffers[from].slice(at..at + LEN).unwrap(),
                SendFlags::SIGNALED,
            )
            .unwrap();
    }

    /// A completion of a CQ of this node; in one of the manager's, only of this connection.
    fn check(&mut self, node: usize, which: Option<usize>, wc: Result<Wc, WcError>) {
        let (wr_id, qpn) =
            wc.map_or_else(|bad| (bad.wr_id, bad.qp_num), |wc| (wc.wr_id, wc.qp_num));
        let tag = wr_id >> 8;
        let found = self.live.iter().position(|live| live.tag == tag);
        let at = found.unwrap_or_else(|| panic!("of a connection that is gone: {wc:?}"));
        assert!(which.is_none_or(|which| which == at), "another's: {wc:?}");
        let live = &mut self.live[at];
        assert_eq!(qpn.number(), live.ends[node].qpn);
        if live.over && wc.is_err_and(|failed| failed.status == WcStatus::WrFlushErr) {
            return;
        }
        let wc = wc.unwrap();
        if wc.wr_id & 0x80 != 0 {
            return;
        }
        let n = (wc.wr_id & 0x7f) as usize;
        assert_eq!((n, wc.byte_len as usize), (live.ends[node].taken, LEN));
        assert!(n < live.ends[node].due, "nobody has sent it");
        live.ends[node].taken += 1;
        let mut got = [0; LEN];
        let place = live.place * SHARE + n * LEN;
        self.buffers[node].copy_out(place, &mut got).unwrap();
        assert_eq!(got, Self::text(tag, 1 - node, n));
    }

    /// Takes what has completed: of one connection's CQs, or the shared ones.
    fn take(&mut self, which: usize) {
        for node in 0..2 {
            let (id, own_cqs) = {
                let live = &self.live[which];
                (live.ends[node].id, live.own_cqs)
            };
            if own_cqs {
                while let Some(wc) = taken(self.pair.cms[node].try_get_send_comp(id)) {
                    self.check(node, Some(which), wc);
                }
                while let Some(wc) = taken(self.pair.cms[node].try_get_recv_comp(id)) {
                    self.check(node, Some(which), wc);
                }
            } else {
                let mut wcs = [Wc::default(); 8];
                loop {
                    let count = self.shared[node].poll_wcs(&mut wcs).unwrap();
                    for wc in wcs.iter().take(count) {
                        self.check(node, None, wc.ok());
                    }
                    if count == 0 {
                        break;
                    }
                }
            }
            let live = &self.live[which];
            let end = &live.ends[node];
            assert!(live.over || end.taken == end.due, "a message is lost");
        }
    }

    /// Ends a connection in one of several ways, and destroys both ids.
    fn end(&mut self, which: usize, random: &mut Random) {
        self.live[which].over = true;
        for (gone, end) in self.gone.iter_mut().zip(&self.live[which].ends) {
            gone.insert(end.qpn, self.pair.world.now());
        }
        let ids = [0, 1].map(|node| self.live[which].ends[node].id);
        let first = random.below(2);
        match random.below(3) {
            // In order.
            0 | 1 => {
                self.pair.cms[first].disconnect(ids[first]).unwrap();
                while self.expect(1 - first, EventType::Disconnected) != ids[1 - first] {}
                if random.below(2) == 0 {
                    self.pair.cms[1 - first].disconnect(ids[1 - first]).unwrap();
                }
                self.pass(MS * random.below(20) as u32);
            }
            // The id goes at once.
            _ => {
                self.pair.cms[first].destroy_id(ids[first]).unwrap();
                while self.expect(1 - first, EventType::Disconnected) != ids[1 - first] {}
                self.pair.cms[1 - first].destroy_id(ids[1 - first]).unwrap();
                self.live.swap_remove(which);
                return;
            }
        }
        if random.below(2) == 0 {
            // What was flushed lies in the CQs otherwise.
            self.take(which);
        }
        for node in [first, 1 - first] {
            self.pair.cms[node].destroy_id(ids[node]).unwrap();
        }
        self.live.swap_remove(which);
    }

    fn pass(&mut self, time: Duration) {
        let end = self.pair.world.now() + time;
        let step = (time / 50).max(50 * US);
        while self.pair.world.now() < end {
            self.pair.poll();
            self.pair.world.advance(step);
        }
    }
}

#[test]
fn any_order_of_connections() {
    let (mut made, mut reused) = (0, 0);
    for seed in 0..60 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let command = US * [0, 20, 300][random.below(3)];
        let mut bench = Bench::new(command, [2, 4, 8][random.below(3)]);
        let listener = bench.pair.listener_of(PortSpace::Tcp, 8);
        let held = [objects(&bench.pair, 0), objects(&bench.pair, 1)];
        for _ in 0..60 {
            let count = bench.live.len();
            match random.below(8) {
                0..3 if count < MOST => bench.connect(random.below(2) == 0),
                3..5 if count > 0 => {
                    let which = random.below(count);
                    for _ in 0..random.below(16) {
                        bench.send(which, random.below(2));
                    }
                    bench.pass(5 * MS);
                    if random.below(2) == 0 {
                        bench.take(which);
                    }
                }
                5..7 if count > 0 => {
                    let which = random.below(count);
                    bench.end(which, &mut random);
                }
                7 => bench.pass([MS, SECOND, 2 * SECOND][random.below(3)]),
                _ => {}
            }
        }
        while let Some(last) = bench.live.len().checked_sub(1) {
            bench.end(last, &mut random);
        }
        bench.pass(5 * SECOND);
        for cm in &mut bench.pair.cms {
            cm.destroy_kept_qps();
        }
        let left = [objects(&bench.pair, 0), objects(&bench.pair, 1)];
        assert_eq!(left, held);
        bench.pair.cms[1].destroy_id(listener).unwrap();
        made += bench.made;
        reused += bench.reused;
    }
    println!("{reused} of {made} QPs were used again");
    assert!(reused * 5 > made, "{reused} of {made}");
}

/// A completion, be it of a success or not.
fn taken(found: Result<Option<Wc>, RdmaError>) -> Option<Result<Wc, WcError>> {
    match found {
        Ok(wc) => wc.map(Ok),
        Err(RdmaError::Completion(failed)) => Some(Err(failed)),
        Err(error) => panic!("{error}"),
    }
}
