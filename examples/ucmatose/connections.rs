//! The connections of one end, from the first event to the last.

use bareverbs::cm::rdma::{
    ChannelId, CmEvent, CmId, ConnParam, EventType, IdOption, PortSpace, SendFlags, SockAddr,
};
use bareverbs::verbs::Platform;

use bareverbs_examples::Result;
use bareverbs_examples::exchange::{
    Amount, Exchanged, MessageSizes, Messages, RESOLVE, next_event, text,
};
use bareverbs_node::{Cm, Host, Unreached};

/// The work of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Messages each way of each connection.
    pub(crate) amount: Amount,
    pub(crate) tos: Option<u8>,
    pub(crate) ack_timeout: Option<u8>,
    /// Change the event channel.
    pub(crate) migrate: bool,
}

/// One connection.
struct Peer<'d, P: Platform> {
    id: CmId,
    connected: bool,
    /// If there is a queue pair.
    messages: Option<Messages<'d, P>>,
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
            peers: Vec::with_capacity(plan.amount.connections()),
            connecting: plan.amount.connections(),
            connected: 0,
            done: Exchanged::default(),
        })
    }

    /// The server's part. `listening` is called once clients may come.
    pub(crate) fn serve(
        mut self,
        address: SockAddr,
        listening: &mut dyn FnMut(),
    ) -> Result<Exchanged> {
        let listener = self
            .cm
            .create_id(Some(self.channel), u64::MAX, PortSpace::Tcp)?;
        self.cm.bind_addr(listener, address)?;
        self.cm
            .listen(listener, self.plan.amount.connections() as u32)?;
        listening();
        // The first client has no time limit.
        let event = self.cm.get_cm_event(self.channel)?;
        self.handle(&event)?;
        while self.connecting > 0 {
            self.next_event()?;
        }
        for number in 0..self.peers.len() {
            if let Some(messages) = &self.peers[number].messages {
                messages.say(&text(number, self.plan.amount.size()))?;
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
    pub(crate) fn work(mut self, here: Host, server: SockAddr) -> Result<Exchanged> {
        for number in 0..self.plan.amount.connections() {
            let id = self
                .cm
                .create_id(Some(self.channel), number as u64, PortSpace::Tcp)?;
            self.peers.push(Peer {
                id,
                connected: false,
                messages: None,
            });
            let here = here.at(PortSpace::Tcp, 0);
            self.cm.resolve_addr(id, Some(here), server, RESOLVE)?;
        }
        while self.connecting > 0 {
            self.next_event()?;
        }
        self.receive()?;
        self.answer()?;
        // The server disconnects when they have arrived.
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
        let event = next_event(self.cm, self.channel)?;
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
            EventType::ConnectRequest if self.peers.len() == self.plan.amount.connections() => {
                self.cm.reject(id, &[])?;
                self.cm.destroy_id(id)?;
            }
            EventType::ConnectRequest => {
                let number = self.peers.len();
                self.peers.push(Peer {
                    id,
                    connected: false,
                    messages: None,
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
            _ => {
                let why = Unreached::from_event(self.cm, event);
                return Err(format!("connection {}: {why}", event.context).into());
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

    /// Creates the queue pair of a connection, and the memory for all its messages.
    fn prepare(&mut self, number: usize) -> Result<()> {
        let amount = self.plan.amount;
        let sizes = MessageSizes {
            size: amount.size(),
            header: 0,
            sends: amount.messages(),
            receives: amount.messages(),
            // They are all the same.
            places: 1,
        };
        let peer = &mut self.peers[number];
        peer.messages = Some(Messages::new(self.cm, peer.id, sizes)?);
        Ok(())
    }

    /// The client returns what it received.
    fn answer(&self) -> Result<()> {
        for messages in self.peers.iter().filter_map(|peer| peer.messages.as_ref()) {
            messages.say(&messages.received(0)?.1)?;
        }
        Ok(())
    }

    /// The server received what it had sent: rdma-core's client has one buffer for receiving and sending.
    fn compare(&self) -> Result<()> {
        let amount = self.plan.amount;
        for (number, peer) in self.peers.iter().enumerate() {
            if let Some(messages) = &peer.messages
                && amount.messages() > 0
                && messages.received(0)?.1 != text(number, amount.size())
            {
                return Err(format!("connection {number}: another message came back").into());
            }
        }
        Ok(())
    }

    /// Sends everything at once.
    fn send(&mut self) -> Result<()> {
        for messages in self.peers.iter().filter_map(|peer| peer.messages.as_ref()) {
            for _ in 0..messages.sends() {
                let sge = messages.sge()?;
                self.cm
                    .post_sendv(messages.id(), 0, &[sge], SendFlags::empty())?;
                self.done.sent += 1;
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self) -> Result<()> {
        for messages in self.peers.iter().filter_map(|peer| peer.messages.as_ref()) {
            messages.sent(self.cm)?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        for messages in self.peers.iter().filter_map(|peer| peer.messages.as_ref()) {
            for _ in 0..self.plan.amount.messages() {
                let _ = messages.receive(self.cm)?;
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
        for Peer { id, messages, .. } in self.peers.drain(..) {
            drop(messages);
            self.cm.destroy_id(id)?;
        }
        self.cm.destroy_event_channel(self.channel)?;
        Ok(self.done)
    }
}
