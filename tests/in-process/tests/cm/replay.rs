//! Frames of an earlier session come again, from a recording or a queue in the network: both ends were restarted, so that ports,
//! LIDs and numbers of QPs are those of then.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bareverbs_cm::mad::{Attribute, Mad};
use bareverbs_cm::rdma::*;
use bareverbs_in_process::World;
use connectx_model::link::{Link, Switch, Timing};
use connectx_model::roce::packet::Packet;
use connectx_model::roce::transport::GSI_QPN;

use crate::infiniband::support::Nodes;
use crate::pair::{MS, Pair, SECOND};

/// All frames, and the ports that they came from.
type Recording = Arc<Mutex<Vec<(usize, Vec<u8>)>>>;

/// A link that is recorded.
struct Recorder {
    link: Box<dyn Link>,
    recording: Recording,
}

impl Link for Recorder {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        self.recording.lock().unwrap().push((from, frame.to_vec()));
        self.link.send(from, frame, now);
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.link.receive(to, now, frame)
    }

    fn next_arrival(&self) -> Option<Duration> {
        self.link.next_arrival()
    }
}

/// Two ends that were just started.
trait Ends {
    fn start(recording: &Recording, seed: u64) -> Self;
    fn connect(&mut self) -> (CmId, CmId);
    fn say(&mut self, from: (usize, CmId), to: (usize, CmId), text: &[u8]);
    fn event(&mut self, node: usize, limit: Duration) -> Option<CmEvent>;
    fn end(&mut self, ids: (CmId, CmId));
    fn world(&self) -> &World;
}

fn recorder(recording: &Recording) -> impl FnOnce(Box<dyn Link>) -> Box<dyn Link> {
    let recording = recording.clone();
    |link| Box::new(Recorder { link, recording })
}

impl Ends for Nodes {
    fn start(recording: &Recording, seed: u64) -> Self {
        let seeds = |node| seed << 8 | node as u64;
        Self::on_link::<8>(3, 1, recorder(recording), seeds)
    }

    fn connect(&mut self) -> (CmId, CmId) {
        self.listener(1, PortSpace::Tcp);
        self.connected()
    }

    fn say(&mut self, from: (usize, CmId), to: (usize, CmId), text: &[u8]) {
        self.say(from, to, text);
    }

    fn event(&mut self, node: usize, limit: Duration) -> Option<CmEvent> {
        self.event_within(node, limit)
    }

    fn end(&mut self, (ours, theirs): (CmId, CmId)) {
        self.cms[0].destroy_id(ours).unwrap();
        self.expect(1, EventType::Disconnected);
        self.cms[1].destroy_id(theirs).unwrap();
    }

    fn world(&self) -> &World {
        &self.world
    }
}

impl Ends for Pair {
    fn start(recording: &Recording, seed: u64) -> Self {
        let switch = Switch::keeping(3, Timing::default());
        let link = recorder(recording)(Box::new(switch));
        Self::on_link(link, |node| seed << 8 | node as u64)
    }

    fn connect(&mut self) -> (CmId, CmId) {
        self.listener();
        self.connected()
    }

    fn say(&mut self, from: (usize, CmId), to: (usize, CmId), text: &[u8]) {
        self.say(from, to, text);
    }

    fn event(&mut self, node: usize, limit: Duration) -> Option<CmEvent> {
        self.event_within(node, limit)
    }

    fn end(&mut self, (ours, theirs): (CmId, CmId)) {
        self.cms[0].destroy_id(ours).unwrap();
        self.expect(1, EventType::Disconnected);
        self.cms[1].destroy_id(theirs).unwrap();
    }

    fn world(&self) -> &World {
        &self.world
    }
}

/// The CM's message in a frame.
fn message(frame: &[u8]) -> Option<Attribute> {
    let packet = Packet::parse(frame).ok()?;
    let mad = packet.payload.first_chunk::<256>()?;
    let to_manager = packet.repr.bth.destination_qpn == GSI_QPN;
    to_manager.then(|| Mad::new(mad).ok().map(|mad| mad.attribute()))?
}

/// Messages both ways.
fn talk<E: Ends>(ends: &mut E, (ours, theirs): (CmId, CmId)) {
    for round in 0..5u8 {
        ends.say((0, ours), (1, theirs), &[round; 9]);
        ends.say((1, theirs), (0, ours), &[round; 7]);
    }
}

/// Returns the frames that a session consists of.
fn session<E: Ends>(seed: u64) -> Vec<(usize, Vec<u8>)> {
    let recording = Recording::default();
    let mut ends = E::start(&recording, seed);
    let ids = ends.connect();
    talk(&mut ends, ids);
    ends.end(ids);
    std::mem::take(&mut *recording.lock().unwrap())
}

/// A connection survives all of it but the request. That one names a QP of this connection's peer, which a connection has already:
/// no node can tell it from the first message of a peer that was restarted, and IBTA (vol. 1, 12.9.8.3.1) has it end the old
/// connection as stale. Both ends are told.
fn replayed<E: Ends>() {
    for seed in 1..=5 {
        let frames = session::<E>(seed);
        assert!(frames.len() > 20, "{}", frames.len());
        let mut ends = E::start(&Recording::default(), seed + 1000);
        let ids = ends.connect();
        talk(&mut ends, ids);
        for (at, (from, frame)) in frames.iter().enumerate() {
            if message(frame) == Some(Attribute::Req) {
                continue;
            }
            // From where it came then, as one that was held up in the network, and from another port.
            for port in [*from, 2] {
                let now = ends.world().now();
                ends.world().with_wire(|wire| wire.send(port, frame, now));
                for node in 0..2 {
                    let event = ends.event(node, MS);
                    assert!(event.is_none(), "seed {seed}, frame {at}: {event:?}");
                }
                talk(&mut ends, ids);
            }
        }
        assert!(ends.event(1, SECOND).is_none());
        let request = frames
            .iter()
            .find(|(_, frame)| message(frame) == Some(Attribute::Req));
        let (from, frame) = request.expect("a request");
        let now = ends.world().now();
        ends.world().with_wire(|wire| wire.send(*from, frame, now));
        for node in [1, 0] {
            let event = ends.event(node, SECOND).map(|event| event.event);
            assert_eq!(event, Some(EventType::Disconnected), "seed {seed}");
        }
    }
}

#[test]
fn frames_of_an_earlier_session_on_infiniband() {
    replayed::<Nodes>();
}

#[test]
fn frames_of_an_earlier_session_on_ethernet() {
    replayed::<Pair>();
}
