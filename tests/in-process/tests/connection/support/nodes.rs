//! Two nodes, driven by one thread.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::engine::Timers;
use bareverbs_cm::rdma::*;
use bareverbs_core::WcStatus;
use bareverbs_in_process::World;

use super::end::{End, SENDS};
use super::{Cm, Failure, PORT, SECOND, TIMEOUT, init, ip};

const SHORTEST: Duration = Duration::from_micros(10);
const LONGEST: Duration = Duration::from_millis(20);

fn ends_connection(event: EventType) -> bool {
    matches!(
        event,
        EventType::AddrError
            | EventType::RouteError
            | EventType::ConnectError
            | EventType::Unreachable
            | EventType::Rejected
            | EventType::Disconnected
    )
}

/// An event in the world at some time.
type Strike = Box<dyn FnOnce(&World)>;

/// Two nodes, driven by one thread in virtual time.
pub(crate) struct Nodes<'w, 's, 'd> {
    pub(crate) world: &'w World,
    pub(crate) cms: [Cm<'s, 'd>; 2],
    pub(crate) channels: [ChannelId; 2],
    /// A node whose device is lost is not driven any more.
    pub(crate) dead: [Option<RdmaError>; 2],
    /// Events that were not taken yet.
    pub(crate) events: Vec<(usize, CmEvent)>,
    /// Ids of connections, those of unanswered requests included.
    pub(crate) open: [Vec<CmId>; 2],
    /// Timers of the connections to come, if not the usual ones.
    pub(crate) timers: Option<Timers>,
    /// The fault.
    pub(crate) strike: Option<(Duration, Strike)>,
    /// Ids that got an event about their end.
    pub(crate) notified: Vec<(usize, CmId)>,
    pause: Duration,
}

impl<'w, 's, 'd> Nodes<'w, 's, 'd> {
    pub(super) fn new(world: &'w World, cms: [Cm<'s, 'd>; 2], channels: [ChannelId; 2]) -> Self {
        Self {
            world,
            cms,
            channels,
            dead: [None; 2],
            events: Vec::new(),
            notified: Vec::new(),
            timers: None,
            strike: None,
            open: [const { Vec::new() }; 2],
            pause: SHORTEST,
        }
    }

    /// Lets everything go on a little, and time pass: more and more of it while nothing happens.
    pub(crate) fn turn(&mut self) {
        if let Some((_, strike)) = self.strike.take_if(|(at, _)| self.world.now() >= *at) {
            strike(self.world);
        }
        let before = self.events.len();
        for node in 0..2 {
            if self.dead[node].is_some() {
                continue;
            }
            let now = self.cms[node].now();
            if let Err(error) = self.cms[node].poll(now) {
                self.dead[node] = Some(error);
            }
            while let Some(event) = self.cms[node]
                .try_get_cm_event(self.channels[node])
                .expect("the channel exists")
            {
                if event.event == EventType::ConnectRequest {
                    self.open[node].push(event.id);
                }
                if ends_connection(event.event) {
                    self.notified.push((node, event.id));
                }
                self.events.push((node, event));
            }
        }
        if self.world.step() || self.events.len() != before {
            self.pause = SHORTEST;
        }
        if let Some((at, _)) = self.strike {
            let left = at.saturating_sub(self.world.now());
            self.pause = self.pause.min(left.max(SHORTEST / 10));
        }
        self.world.advance(self.pause);
        self.pause = (self.pause * 2).min(LONGEST);
    }

    /// Goes on until `done` has something.
    pub(crate) fn until<T>(
        &mut self,
        waiting_for: &'static str,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let end = self.world.now() + limit;
        self.pause = SHORTEST;
        loop {
            if let Some(outcome) = done(self)? {
                return Ok(outcome);
            }
            if self.world.now() > end {
                return Err(Failure::Stuck { waiting_for });
            }
            self.turn();
        }
    }

    /// Takes an event out of those that came.
    pub(crate) fn take(&mut self, node: usize, kind: EventType) -> Option<CmEvent> {
        let wanted = |(at, event): &(usize, CmEvent)| *at == node && event.event == kind;
        let index = self.events.iter().position(wanted)?;
        Some(self.events.remove(index).1)
    }

    /// The first event, or dead device, that means the end of what is under way.
    pub(crate) fn first_error(&self) -> Option<Failure> {
        for node in 0..2 {
            if let Some(error) = self.dead[node] {
                return Some(Failure::Call { node, error });
            }
        }
        self.events.iter().find_map(|&(node, event)| {
            let fatal = ends_connection(event.event);
            fatal.then_some(Failure::Event {
                node,
                event: event.event,
                status: event.status,
            })
        })
    }

    /// Waits for an event; any other that ends a connection is a failure.
    pub(crate) fn expect(
        &mut self,
        node: usize,
        kind: EventType,
        limit: Duration,
    ) -> Result<CmEvent, Failure> {
        self.until(kind.as_str(), limit, |nodes| {
            if let Some(event) = nodes.take(node, kind) {
                return Ok(Some(event));
            }
            nodes.first_error().map_or(Ok(None), Err)
        })
    }

    /// Makes a node listen.
    pub(crate) fn listener(&mut self, node: usize, backlog: u32) -> CmId {
        let cm = &mut self.cms[node];
        let id = cm
            .create_id(Some(self.channels[node]), 0, PortSpace::Tcp)
            .expect("an id");
        let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
        cm.bind_addr(id, any).expect("the port is free");
        cm.listen(id, backlog).expect("listening");
        id
    }

    /// An id with a resolved route to the other node, without a QP yet.
    pub(crate) fn resolved(&mut self, node: usize) -> Result<CmId, Failure> {
        let failed = |error| Failure::Call { node, error };
        let channel = self.channels[node];
        let cm = &mut self.cms[node];
        let id = cm
            .create_id(Some(channel), 0, PortSpace::Tcp)
            .map_err(failed)?;
        self.open[node].push(id);
        cm.resolve_addr(id, None, SocketAddr::new(ip(1 - node), PORT), SECOND)
            .map_err(failed)?;
        cm.resolve_route(id, SECOND).map_err(failed)?;
        if let Some(timers) = self.timers {
            cm.set_option(id, IdOption::CmTimers(timers))
                .map_err(failed)?;
        }
        self.expect(node, EventType::AddrResolved, SECOND)?;
        self.expect(node, EventType::RouteResolved, SECOND)?;
        Ok(id)
    }

    /// Ends what is left of both nodes' ids, the failing side first, and waits until the managers have freed all
    /// connections. Checks that the other side is notified.
    pub(crate) fn wind_down(&mut self, first: Option<usize>, what: &str) {
        let ids = self.open.each_mut().map(std::mem::take);
        let order = match first {
            Some(node) => [node, 1 - node],
            None => [0, 1],
        };
        for (turn, node) in order.into_iter().enumerate() {
            for &id in &ids[node] {
                let state = match self.cms[node].state(id) {
                    Err(RdmaError::NoSuchId) => continue,
                    state => state.expect("a state"),
                };
                // The other end of one that was connecting or connected has to learn that it is over.
                let involved = matches!(state, IdState::Connect);
                if turn == 1 && involved && self.dead[node].is_none() {
                    let notified = self.until("the other side's end", TIMEOUT / 2, |nodes| {
                        let event = nodes.notified.contains(&(node, id));
                        Ok((event || nodes.work_failed(node, id)).then_some(()))
                    });
                    // A REJ is not repeated, a lost device sends nothing, and an established connection has no
                    // keep-alive: then a message detects it.
                    if notified.is_err() {
                        self.find_out(node, id, what);
                    }
                }
                if let Err(error) = self.cms[node].destroy_id(id) {
                    self.note_dead(node, error, what);
                }
            }
        }
        let freed = self.until("the managers to free the connections", TIMEOUT, |nodes| {
            let busy = (0..2)
                .any(|node| nodes.dead[node].is_none() && nodes.cms[node].connections_in_use() > 0);
            Ok((!busy).then_some(()))
        });
        assert_eq!(
            freed,
            Ok(()),
            "{what}: connections are left: {:?}",
            self.cms
        );
    }

    /// Returns `true` if work on a connection has failed since this was asked last.
    fn work_failed(&mut self, node: usize, id: CmId) -> bool {
        let Ok(endpoint) = self.cms[node].endpoint(id) else {
            return false;
        };
        let mut failed = false;
        for cq in [endpoint.send_cq, endpoint.recv_cq].into_iter().flatten() {
            while let Some(wc) = cq.poll().expect("a good CQ") {
                failed |= wc.status() != WcStatus::Success;
            }
        }
        failed
    }

    /// That a connection whose other end is gone does not stay for ever once something is sent on it.
    fn find_out(&mut self, node: usize, id: CmId, what: &str) {
        self.cms[node]
            .post_send_inline(id, 200, &[1; 4], SendFlags::SIGNALED)
            .unwrap_or_else(|error| panic!("{what}: node {node}: {error}"));
        let found = self.until("the end of a retry", TIMEOUT, |nodes| {
            Ok(nodes.work_failed(node, id).then_some(()))
        });
        assert_eq!(found, Ok(()), "{what}: node {node}");
    }

    /// A call may only fail in wind-down because the device is lost.
    pub(super) fn note_dead(&mut self, node: usize, error: RdmaError, what: &str) {
        let lost = self.dead[node].is_some()
            || self.world.with_model(node, |model| {
                model.vanished() || model.health_syndrome() != 0
            });
        assert!(lost, "{what}: node {node}: {error}");
        self.dead[node].get_or_insert(error);
    }

    /// A connection with memory at both ends, `client` asking.
    pub(crate) fn connect(&mut self, client: usize) -> Result<[End<'d>; 2], Failure> {
        let server = 1 - client;
        let id = self.resolved(client)?;
        let mut ours = End::new(self, client, id)?;
        let param = ConnParam {
            private_data: &ours.card(),
            ..ConnParam::default()
        };
        self.cms[client]
            .connect(id, Some(&param))
            .map_err(|error| Failure::Call {
                node: client,
                error,
            })?;
        let theirs = self.accept(server)?;
        let event = self.expect(client, EventType::Established, TIMEOUT)?;
        ours.learn(event.private_data());
        // Data may flow now: the other end has been ready since it sent its REP, whether or not RTU has arrived.
        Ok(if client == 0 {
            [ours, theirs]
        } else {
            [theirs, ours]
        })
    }

    /// Answers the next request with a QP, memory and a receive.
    pub(crate) fn accept(&mut self, server: usize) -> Result<End<'d>, Failure> {
        let request = self.expect(server, EventType::ConnectRequest, TIMEOUT)?;
        let accepted = End::new(self, server, request.id).and_then(|mut theirs| {
            theirs.learn(request.private_data());
            theirs.passive = true;
            let param = ConnParam {
                private_data: &theirs.card(),
                ..ConnParam::default()
            };
            self.cms[server]
                .accept(request.id, Some(&param))
                .map_err(|error| Failure::Call {
                    node: server,
                    error,
                })?;
            Ok(theirs)
        });
        if accepted.is_err() && self.dead[server].is_none() {
            // As an application would. If the device is lost it cannot, and the asking side's timers have to do.
            let _ = self.cms[server].reject(request.id, b"sorry");
        }
        accepted
    }

    /// Answers the next request with a QP and nothing else.
    pub(crate) fn accept_bare(&mut self, server: usize) -> Result<CmId, Failure> {
        let request = self.expect(server, EventType::ConnectRequest, TIMEOUT)?;
        let cm = &mut self.cms[server];
        cm.create_qp(request.id, None, &mut init())
            .and_then(|()| cm.accept(request.id, None))
            .map_err(|error| Failure::Call {
                node: server,
                error,
            })?;
        Ok(request.id)
    }

    /// Every kind of operation in both directions at once, every byte checked.
    pub(crate) fn exchange(&mut self, ends: &[End<'d>; 2], salt: u64) -> Result<(), Failure> {
        for end in ends {
            end.post_receive(self)?;
        }
        for end in ends {
            end.post_all(self, salt)?;
        }
        let mut left = [SENDS + 1; 2];
        self.until("completions", TIMEOUT, |nodes| {
            for end in ends {
                left[end.node] -= end.reap(nodes)?;
            }
            if left == [0; 2] {
                return Ok(Some(()));
            }
            nodes.first_error().map_or(Ok(None), Err)
        })?;
        for end in ends {
            end.check(&ends[1 - end.node], salt);
        }
        Ok(())
    }

    /// `closer` disconnects; both ends are notified and destroyed.
    pub(crate) fn disconnect(&mut self, ends: [End<'d>; 2], closer: usize) -> Result<(), Failure> {
        let failed = |node| move |error| Failure::Call { node, error };
        let ids = ends.each_ref().map(|end| end.id);
        // An RTU may still be on its way. The passive side needs it before it may end the connection in order.
        if ends[closer].passive {
            self.expect(closer, EventType::Established, TIMEOUT)?;
        }
        self.events
            .retain(|(_, event)| event.event != EventType::Established);
        self.cms[closer]
            .disconnect(ids[closer])
            .map_err(failed(closer))?;
        let mut over = [false; 2];
        self.until("both to be disconnected", TIMEOUT, |nodes| {
            for (node, over) in over.iter_mut().enumerate() {
                *over |= nodes.take(node, EventType::Disconnected).is_some();
            }
            if over == [true; 2] {
                return Ok(Some(()));
            }
            nodes.first_error().map_or(Ok(None), Err)
        })?;
        let other = 1 - closer;
        self.cms[other]
            .disconnect(ids[other])
            .map_err(failed(other))?;
        drop(ends);
        for (node, id) in ids.into_iter().enumerate() {
            self.cms[node].destroy_id(id).map_err(failed(node))?;
        }
        Ok(())
    }
}
