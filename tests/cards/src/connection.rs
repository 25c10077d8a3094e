//! A connection between the two cards, made by the connection manager, with every byte verified.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::rdma::{
    self, ChannelId, Channels, CmEvent, CmId, ConnParam, EventType, Ids, Members, Paths, PortSpace,
    QpInit, Questions, RdmaCm, RdmaError, Resolver, SendFlags, SockAddr, SockaddrIb,
    StaticNeighbours, SubnetAdministration, SubnetResources,
};
use bareverbs_cm::sa;
use bareverbs_core::qp::{QpCap, Remote, SendData, SendOp, SendWr};
use bareverbs_core::{Access, Buffer, Gid, RKey, WcStatus};

use crate::card::{Card, ip};
use crate::draw::PairDraw;
use crate::pattern::pattern;
use crate::refusal::{StepError, wrong};
use bareverbs_in_process::{ModelPlatform, World};

const SECOND: Duration = Duration::from_secs(1);
/// Nothing that the manager or a queue pair repeats goes on for longer.
const TIMEOUT: Duration = Duration::from_secs(300);
const SHORTEST: Duration = Duration::from_micros(10);
const LONGEST: Duration = Duration::from_millis(20);
const PORT: u16 = 7174;

const BULK: usize = 3001;
const MESSAGE: usize = 300;
const SOURCE: usize = 0;
const TARGET: usize = BULK;
const BACK: usize = 2 * BULK;
const OUTBOX: usize = 3 * BULK;
const INBOX: usize = OUTBOX + MESSAGE;
const LEN: usize = INBOX + MESSAGE;
const SENDS: u64 = 3;
const RECEIVE: u64 = 100;

type Cm<'s, 'd, R> = RdmaCm<'s, 'd, ModelPlatform, R>;

struct End<'d> {
    card: usize,
    id: CmId,
    memory: Buffer<'d, ModelPlatform>,
    remote: (u64, RKey),
}

struct Session<'w, 's, 'd, R> {
    world: &'w World,
    cms: [Cm<'s, 'd, R>; 2],
    channels: [ChannelId; 2],
    events: Vec<(usize, CmEvent)>,
    pause: Duration,
}

/// By IP addresses, between two RoCE ports.
pub(super) fn roce(
    world: &World,
    pair: &PairDraw,
    devices: [&Card<'_>; 2],
    macs: [[u8; 6]; 2],
) -> Result<(), StepError> {
    let neighbours = [0, 1].map(|card| (ip(card), macs[card]));
    let resolvers = [0, 1].map(|_| StaticNeighbours(&neighbours));
    let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
    let there = SocketAddr::new(ip(1 - pair.client), PORT);
    run(world, pair, devices, resolvers, [any.into(), there.into()])
}

/// By GIDs, between two InfiniBand ports, with the path from subnet administration.
pub(super) fn infiniband(
    world: &World,
    pair: &PairDraw,
    devices: [&Card<'_>; 2],
    gids: [Gid; 2],
) -> Result<(), StepError> {
    let mut storages = [0, 1].map(|_| SubnetResources::<Questions<2>, Paths<2>, Members<2>>::new());
    let [first, second] = &mut storages;
    let resolver = |card: u64, storage| {
        let config = sa::Config::new((pair.seed.wrapping_mul(2) + card) << 32);
        SubnetAdministration::new(config, storage)
    };
    let resolvers = [resolver(0, first.storage()), resolver(1, second.storage())];
    let names = [Gid::ZERO, gids[1 - pair.client]];
    let names = names.map(|gid| SockaddrIb::new(gid, PortSpace::Tcp, PORT).into());
    run(world, pair, devices, resolvers, names)
}

/// Listen, connect, exchange, disconnect, free. The names are those to listen at and to connect to.
fn run<R: Resolver>(
    world: &World,
    pair: &PairDraw,
    devices: [&Card<'_>; 2],
    resolvers: [R; 2],
    names: [SockAddr; 2],
) -> Result<(), StepError> {
    let mut storages =
        [0, 1].map(|_| Box::new(rdma::Resources::<Ids<ModelPlatform, 4>, Channels<1>>::new()));
    let [first, second] = &mut storages;
    let manager = |card: usize, resolver, storage| {
        let config = rdma::Config {
            gsi_depth: 16,
            ..rdma::Config::new(pair.seed.wrapping_mul(2) + card as u64)
        };
        RdmaCm::new(devices[card], resolver, config, storage)
    };
    let [here, there] = resolvers;
    let mut cms = [
        manager(0, here, first.storage())?,
        manager(1, there, second.storage())?,
    ];
    let [first, second] = &mut cms;
    let channels = [
        first.create_event_channel()?,
        second.create_event_channel()?,
    ];
    let mut session = Session {
        world,
        cms,
        channels,
        events: Vec::new(),
        pause: SHORTEST,
    };
    let atomics = pair.cards.each_ref().map(|card| card.atomics);
    session.conversation(pair.client, names, atomics, pair.seed)
}

impl<'d, R: Resolver> Session<'_, '_, 'd, R> {
    fn turn(&mut self) -> Result<(), StepError> {
        let before = self.events.len();
        for card in 0..2 {
            let cm = &mut self.cms[card];
            let now = cm.now();
            cm.poll(now)?;
            while let Some(event) = cm.try_get_cm_event(self.channels[card])? {
                self.events.push((card, event));
            }
        }
        if self.world.step() || self.events.len() != before {
            self.pause = SHORTEST;
        }
        self.world.advance(self.pause);
        self.pause = (self.pause * 2).min(LONGEST);
        Ok(())
    }

    fn until<T>(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Result<Option<T>, StepError>,
    ) -> Result<T, StepError> {
        let end = self.world.now() + TIMEOUT;
        self.pause = SHORTEST;
        loop {
            if let Some(result) = done(self)? {
                return Ok(result);
            }
            if self.world.now() > end {
                return wrong(format!("timeout waiting for {what}: {:?}", self.events));
            }
            self.turn()?;
        }
    }

    /// The next event of a card, which has to be this one.
    fn expect(&mut self, card: usize, kind: EventType) -> Result<CmEvent, StepError> {
        self.until(kind.as_str(), |session| {
            let Some(at) = session.events.iter().position(|(at, _)| *at == card) else {
                return Ok(None);
            };
            let (_, event) = session.events.remove(at);
            if event.event != kind || event.status != 0 {
                return wrong(format!("card {card}: {event:?} instead of {kind:?}"));
            }
            Ok(Some(event))
        })
    }

    fn end(&mut self, card: usize, id: CmId, atomics: bool) -> Result<End<'d>, StepError> {
        let mut init = QpInit {
            cap: QpCap {
                max_send_wr: 4,
                max_recv_wr: 4,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..QpInit::default()
        };
        let cm = &mut self.cms[card];
        cm.create_qp(id, None, &mut init)?;
        let mut access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        access.set(Access::REMOTE_ATOMIC, atomics);
        let memory = cm.pd(id)?.alloc_buffer(LEN, access)?;
        Ok(End {
            card,
            id,
            memory,
            remote: (0, RKey(0)),
        })
    }

    fn conversation(
        &mut self,
        client: usize,
        [any, address]: [SockAddr; 2],
        atomics: [bool; 2],
        seed: u64,
    ) -> Result<(), StepError> {
        let server = 1 - client;
        let listener =
            self.cms[server].create_id(Some(self.channels[server]), 0, PortSpace::Tcp)?;
        self.cms[server].bind_addr(listener, any)?;
        self.cms[server].listen(listener, 2)?;

        let id = self.cms[client].create_id(Some(self.channels[client]), 0, PortSpace::Tcp)?;
        self.cms[client].resolve_addr(id, None, address, SECOND)?;
        self.expect(client, EventType::AddrResolved)?;
        self.cms[client].resolve_route(id, SECOND)?;
        self.expect(client, EventType::RouteResolved)?;
        let mut ours = self.end(client, id, atomics[client])?;
        let said = ours.card();
        let param = ConnParam {
            private_data: &said,
            ..ConnParam::default()
        };
        self.cms[client].connect(id, Some(&param))?;

        let request = self.expect(server, EventType::ConnectRequest)?;
        let mut theirs = self.end(server, request.id, atomics[server])?;
        theirs.learn(request.private_data())?;
        let said = theirs.card();
        let param = ConnParam {
            private_data: &said,
            ..ConnParam::default()
        };
        self.cms[server].accept(request.id, Some(&param))?;
        let event = self.expect(client, EventType::Established)?;
        ours.learn(event.private_data())?;
        self.expect(server, EventType::Established)?;

        self.exchange([&ours, &theirs], seed)?;

        self.cms[client].disconnect(id)?;
        self.expect(server, EventType::Disconnected)?;
        self.expect(client, EventType::Disconnected)?;
        self.cms[server].disconnect(theirs.id)?;
        for end in [ours, theirs] {
            let End {
                card, id, memory, ..
            } = end;
            drop(memory);
            self.cms[card].destroy_id(id)?;
        }
        self.cms[server].destroy_id(listener)?;
        self.until("the managers to free the connections", |session| {
            let busy = session.cms.iter().any(|cm| cm.connections_in_use() > 0);
            Ok((!busy).then_some(()))
        })
    }

    /// A WRITE, a READ and a SEND in both directions at once.
    fn exchange(&mut self, ends: [&End<'d>; 2], seed: u64) -> Result<(), StepError> {
        let salt = |card: usize, what: u64| seed << 4 ^ (card as u64) << 2 ^ what;
        for end in ends {
            let cm = &mut self.cms[end.card];
            cm.post_recv(
                end.id,
                RECEIVE,
                end.memory
                    .slice(INBOX..INBOX + MESSAGE)
                    .map_err(RdmaError::OutOfRange)?,
            )?;
            end.put(SOURCE, &pattern(BULK, salt(end.card, 0)))?;
            end.put(OUTBOX, &pattern(MESSAGE, salt(end.card, 1)))?;
        }
        for end in ends {
            self.post(end, 0, SendOp::Write(end.there(TARGET)), SOURCE, BULK)?;
            self.post(end, 1, SendOp::Read(end.there(SOURCE)), BACK, BULK)?;
            self.post(end, 2, SendOp::Send, OUTBOX, MESSAGE)?;
        }
        let mut found = [0, 0];
        self.until("completions", |session| {
            for end in ends {
                found[end.card] += session.reap(end)?;
            }
            if let Some((card, event)) = session.events.first() {
                return wrong(format!("card {card}: {event:?}"));
            }
            Ok((found == [SENDS + 1; 2]).then_some(()))
        })?;
        for (end, other) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            let (us, them) = (end.card, other.card);
            end.holds("WRITE", TARGET, &pattern(BULK, salt(them, 0)))?;
            end.holds("READ", BACK, &pattern(BULK, salt(them, 0)))?;
            end.holds("SEND", INBOX, &pattern(MESSAGE, salt(them, 1)))?;
            end.holds("source", SOURCE, &pattern(BULK, salt(us, 0)))?;
        }
        Ok(())
    }

    fn post(
        &mut self,
        end: &End<'d>,
        wr_id: u64,
        op: SendOp<'_>,
        at: usize,
        len: usize,
    ) -> Result<(), StepError> {
        let Some(sge) = end.memory.sge(at, len) else {
            return wrong("beyond the buffer");
        };
        let endpoint = self.cms[end.card].endpoint(end.id)?;
        endpoint.qp.send_queue().post(&SendWr {
            wr_id,
            op,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[sge]),
        })?;
        Ok(())
    }

    fn reap(&mut self, end: &End<'d>) -> Result<u64, StepError> {
        let endpoint = self.cms[end.card].endpoint(end.id)?;
        let mut count = 0;
        for cq in [endpoint.send_cq, endpoint.recv_cq].into_iter().flatten() {
            while let Some(completion) = cq.poll()? {
                let wc = completion.to_wc();
                if wc.status != WcStatus::Success {
                    return wrong(format!("card {}: completion {wc:?}", end.card));
                }
                count += 1;
            }
        }
        Ok(count)
    }
}

impl End<'_> {
    /// Where this end's memory is, for the peer.
    fn card(&self) -> [u8; 12] {
        let mut card = [0; 12];
        card[..8].copy_from_slice(&self.memory.addr().to_be_bytes());
        card[8..].copy_from_slice(&self.memory.rkey().0.to_be_bytes());
        card
    }

    fn learn(&mut self, said: &[u8]) -> Result<(), StepError> {
        let address = said.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let key = said.get(8..).and_then(<[u8]>::first_chunk);
        let (Some(address), Some(key)) = (address, key) else {
            return wrong(format!("private data {said:02x?}"));
        };
        self.remote = (address, RKey(u32::from_be_bytes(*key)));
        Ok(())
    }

    fn there(&self, offset: usize) -> Remote {
        Remote {
            addr: self.remote.0 + offset as u64,
            rkey: self.remote.1,
        }
    }

    fn put(&self, offset: usize, bytes: &[u8]) -> Result<(), StepError> {
        let put = self.memory.copy_in(offset, bytes);
        put.or_else(|error| wrong(format!("beyond the buffer: {error:?}")))
    }

    fn holds(&self, what: &str, offset: usize, expected: &[u8]) -> Result<(), StepError> {
        let mut bytes = vec![0; expected.len()];
        let got = self.memory.copy_out(offset, &mut bytes);
        if got.is_err() || bytes != expected {
            return wrong(format!(
                "card {}: {what} is not what it has to be",
                self.card
            ));
        }
        Ok(())
    }
}
