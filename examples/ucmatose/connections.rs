//! The connections of one end, from the first event to the last.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs::cm::rdma::{
    ChannelId, CmEvent, CmId, ConnParam, EventType, IdOption, PortSpace, QpInit, SendFlags,
};
use bareverbs::verbs::mr::Buffer;
use bareverbs::verbs::qp::QpCap;
use bareverbs::verbs::{Platform, Wc, WcStatus};

use crate::Result;
use crate::node::Cm;

/// How long the other end may take for anything.
const SILENCE: Duration = Duration::from_secs(30);
const RESOLVE: Duration = Duration::from_secs(2);

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) connections: usize,
    /// Each way of each connection.
    pub(crate) messages: u32,
    /// Bytes of a message.
    pub(crate) size: usize,
    pub(crate) tos: Option<u8>,
    pub(crate) ack_timeout: Option<u8>,
    /// Change the event channel.
    pub(crate) migrate: bool,
}

/// What was done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub(crate) connections: usize,
    /// Messages, on all of them.
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// One connection.
struct Peer<'d, P: Platform> {
    id: CmId,
    connected: bool,
    /// Room for a message that is received, and after it for one that is sent; if there is a queue pair.
    memory: Option<Buffer<'d, P>>,
}

pub(crate) struct Connections<'c, 's, 'd, P: Platform> {
    cm: &'c mut Cm<'s, 'd, P>,
    plan: Plan,
    channel: ChannelId,
    /// The context of an id is its place here.
    peers: Vec<Peer<'d, P>>,
    /// Connections that are still to be made.
    connecting: usize,
    /// Connections that are still to end.
    connected: usize,
    done: Exchanged,
}

impl<'c, 's, 'd, P: Platform> Connections<'c, 's, 'd, P> {
    pub(crate) fn new(cm: &'c mut Cm<'s, 'd, P>, plan: Plan) -> Result<Self> {
        let channel = cm.create_event_channel()?;
        Ok(Self {
            cm,
            plan,
            channel,
            peers: Vec::with_capacity(plan.connections),
            connecting: plan.connections,
            connected: 0,
            done: Exchanged::default(),
        })
    }

    /// The server's part. `listening` is called once clients may come.
    pub(crate) fn serve(
        mut self,
        address: SocketAddr,
        listening: &mut dyn FnMut(),
    ) -> Result<Exchanged> {
        let listener = self
            .cm
            .create_id(Some(self.channel), u64::MAX, PortSpace::Tcp)?;
        self.cm.bind_addr(listener, address)?;
        self.cm.listen(listener, self.plan.connections as u32)?;
        listening();
        // The first client comes when it likes.
        let event = self.cm.get_cm_event(self.channel)?;
        self.handle(&event)?;
        while self.connecting > 0 {
            self.next_event()?;
        }
        for number in 0..self.peers.len() {
            if let Some(memory) = &self.peers[number].memory {
                memory.copy_in(self.plan.size, &text(number, self.plan.size))?;
            }
        }
        self.send()?;
        self.acknowledged()?;
        self.receive()?;
        self.compare()?;
        if self.plan.migrate {
            let others = self.migrate(Some(listener))?;
            self.cm.destroy_event_channel(others)?;
        }
        for peer in &self.peers {
            if peer.connected {
                self.cm.disconnect(peer.id)?;
            }
        }
        while self.connected > 0 {
            self.next_event()?;
        }
        self.cm.destroy_id(listener)?;
        self.finish()
    }

    /// The client's part.
    pub(crate) fn work(mut self, here: IpAddr, server: SocketAddr) -> Result<Exchanged> {
        for number in 0..self.plan.connections {
            let id = self
                .cm
                .create_id(Some(self.channel), number as u64, PortSpace::Tcp)?;
            self.peers.push(Peer {
                id,
                connected: false,
                memory: None,
            });
            let here = SocketAddr::new(here, 0);
            self.cm.resolve_addr(id, Some(here), server, RESOLVE)?;
        }
        while self.connecting > 0 {
            self.next_event()?;
        }
        self.receive()?;
        self.answer()?;
        // The server knows when they have arrived, and disconnects then.
        self.send()?;
        if self.plan.migrate {
            let others = self.migrate(None)?;
            self.cm.destroy_event_channel(others)?;
        }
        while self.connected > 0 {
            self.next_event()?;
        }
        self.finish()
    }

    fn next_event(&mut self) -> Result<()> {
        let deadline = self.cm.now() + SILENCE;
        let event = self.cm.get_cm_event_until(self.channel, deadline)?;
        self.handle(&event)
    }

    fn handle(&mut self, event: &CmEvent) -> Result<()> {
        let id = event.id;
        match event.event {
            EventType::AddrResolved => {
                self.set_options(id)?;
                self.cm.resolve_route(id, RESOLVE)?;
            }
            EventType::RouteResolved => {
                self.prepare(event.context as usize)?;
                self.cm.connect(
                    id,
                    Some(&ConnParam {
                        responder_resources: 1,
                        initiator_depth: 1,
                        retry_count: 5,
                        ..ConnParam::default()
                    }),
                )?;
            }
            EventType::ConnectRequest if self.peers.len() == self.plan.connections => {
                self.cm.reject(id, &[])?;
                self.cm.destroy_id(id)?;
            }
            EventType::ConnectRequest => {
                let number = self.peers.len();
                self.peers.push(Peer {
                    id,
                    connected: false,
                    memory: None,
                });
                self.cm.set_context(id, number as u64)?;
                if let Some(exponent) = self.plan.ack_timeout {
                    self.cm.set_option(id, IdOption::AckTimeout(exponent))?;
                }
                self.prepare(number)?;
                self.cm.accept(id, None)?;
            }
            EventType::Established => {
                self.peers[event.context as usize].connected = true;
                self.connecting -= 1;
                self.connected += 1;
                self.done.connections += 1;
            }
            EventType::Disconnected if self.peers[event.context as usize].connected => {
                self.cm.disconnect(id)?;
                self.peers[event.context as usize].connected = false;
                self.connected -= 1;
            }
            EventType::TimewaitExit => {}
            failure => {
                let (context, status) = (event.context, event.status);
                return Err(format!("connection {context}: {failure}, {status}").into());
            }
        }
        Ok(())
    }

    fn set_options(&mut self, id: CmId) -> Result<()> {
        let tos = self.plan.tos.map(IdOption::Tos);
        let ack_timeout = self.plan.ack_timeout.map(IdOption::AckTimeout);
        for option in tos.into_iter().chain(ack_timeout) {
            self.cm.set_option(id, option)?;
        }
        Ok(())
    }

    /// Makes the queue pair of a connection and room for all the messages.
    fn prepare(&mut self, number: usize) -> Result<()> {
        let Plan { messages, size, .. } = self.plan;
        let id = self.peers[number].id;
        let mut init = QpInit {
            cap: QpCap {
                max_send_wr: messages.max(1),
                max_recv_wr: messages.max(1),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: true,
            ..QpInit::default()
        };
        self.cm.create_qp(id, None, &mut init)?;
        if messages > 0 {
            let memory = self.cm.reg_msgs(id, 2 * size)?;
            for _ in 0..messages {
                // All into one place: they are all the same.
                self.cm.post_recv(id, 0, &memory, 0, size)?;
            }
            self.peers[number].memory = Some(memory);
        }
        Ok(())
    }

    /// The client says what it was told.
    fn answer(&self) -> Result<()> {
        let mut message = vec![0; self.plan.size];
        for memory in self.peers.iter().filter_map(|peer| peer.memory.as_ref()) {
            memory.copy_out(0, &mut message)?;
            memory.copy_in(self.plan.size, &message)?;
        }
        Ok(())
    }

    /// The server was told what it had said: rdma-core's client has one place for what it hears and what it says.
    fn compare(&self) -> Result<()> {
        let mut message = vec![0; self.plan.size];
        for (number, peer) in self.peers.iter().enumerate() {
            if let Some(memory) = &peer.memory {
                memory.copy_out(0, &mut message)?;
                if message != text(number, self.plan.size) {
                    return Err(format!("connection {number}: another message came back").into());
                }
            }
        }
        Ok(())
    }

    /// Sends everything at once.
    fn send(&mut self) -> Result<()> {
        let Plan { messages, size, .. } = self.plan;
        for Peer { id, memory, .. } in &self.peers {
            if let Some(memory) = memory {
                for _ in 0..messages {
                    self.cm
                        .post_send(*id, 0, memory, size, size, SendFlags::empty())?;
                    self.done.sent += 1;
                }
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self) -> Result<()> {
        for peer in &self.peers {
            for _ in 0..self.plan.messages {
                let deadline = self.cm.now() + SILENCE;
                check(&self.cm.get_send_comp_until(peer.id, deadline)?, "send")?;
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        for peer in &self.peers {
            for _ in 0..self.plan.messages {
                let deadline = self.cm.now() + SILENCE;
                let wc = self.cm.get_recv_comp_until(peer.id, deadline)?;
                check(&wc, "receive")?;
                if wc.byte_len as usize != self.plan.size {
                    return Err(format!("a message of {} bytes came", wc.byte_len).into());
                }
                self.done.received += 1;
            }
        }
        Ok(())
    }

    /// Moves everything to a new event channel. The old one.
    fn migrate(&mut self, listener: Option<CmId>) -> Result<ChannelId> {
        let channel = self.cm.create_event_channel()?;
        for id in listener
            .into_iter()
            .chain(self.peers.iter().map(|peer| peer.id))
        {
            self.cm.migrate_id(id, Some(channel))?;
        }
        Ok(std::mem::replace(&mut self.channel, channel))
    }

    fn finish(mut self) -> Result<Exchanged> {
        for Peer { id, memory, .. } in self.peers.drain(..) {
            drop(memory);
            self.cm.destroy_id(id)?;
        }
        self.cm.destroy_event_channel(self.channel)?;
        Ok(self.done)
    }
}

/// The server's message on a connection.
fn text(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at + 7 * number + 1) as u8).collect()
}

fn check(wc: &Wc, what: &str) -> Result<()> {
    if wc.status == WcStatus::Success {
        return Ok(());
    }
    Err(format!("{what} failed: {}", wc.status).into())
}
