//! The queue pairs of one end, from the first event to the last datagram.

use std::time::Duration;

use bareverbs::cm::rdma::{
    ChannelId, CmEvent, CmId, EventType, IdOption, PortSpace, RdmaError, SockAddr, UDP_QKEY,
};
use bareverbs::verbs::{Platform, Qpn, Wc, WcFlags};

use bareverbs_examples::Result;
use bareverbs_examples::datagrams::{self, GRH, RemoteQp};
use bareverbs_examples::exchange::{
    Amount, Exchanged, MessageSizes, Messages, RESOLVE, next_event, text,
};
use bareverbs_node::{Cm, Host, Unreached};

/// The interval at which a resolver is asked again.
const AGAIN: Duration = Duration::from_millis(10);

/// The work of the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Messages each way of each pair of queue pairs.
    pub(crate) amount: Amount,
    pub(crate) tos: Option<u8>,
    pub(crate) port_space: PortSpace,
}

/// One queue pair.
struct Node<'d, P: Platform> {
    id: CmId,
    there: Option<RemoteQp>,
    messages: Option<Messages<'d, P>>,
}

pub(crate) struct Nodes<'c, 's, 'd, P: Platform> {
    cm: &'c mut Cm<'s, 'd, P>,
    plan: Plan,
    channel: ChannelId,
    /// The context of an id is its place here.
    nodes: Vec<Node<'d, P>>,
    /// Those that are not ready yet.
    waiting: usize,
    done: Exchanged,
}

impl<'c, 's, 'd, P: Platform> Nodes<'c, 's, 'd, P> {
    pub(crate) fn new(cm: &'c mut Cm<'s, 'd, P>, plan: Plan) -> Result<Self> {
        datagrams::check_size(cm, plan.amount)?;
        let channel = cm.create_event_channel()?;
        Ok(Self {
            cm,
            plan,
            channel,
            nodes: Vec::with_capacity(plan.amount.connections()),
            waiting: plan.amount.connections(),
            done: Exchanged::default(),
        })
    }

    /// The server's part. `listening` is called once clients may come.
    pub(crate) fn serve(
        mut self,
        address: SockAddr,
        listening: &mut dyn FnMut(),
    ) -> Result<Exchanged> {
        let space = self.plan.port_space;
        let listener = self.cm.create_id(Some(self.channel), u64::MAX, space)?;
        self.cm.bind_addr(listener, address)?;
        self.cm.listen(listener, 0)?;
        listening();
        // The first client has no time limit.
        let event = self.cm.get_cm_event(self.channel)?;
        self.handle(&event)?;
        self.wait_for_all()?;
        for number in 0..self.nodes.len() {
            self.receive(number)?;
            // The received message goes back.
            if let Some(messages) = &self.nodes[number].messages {
                messages.say(&messages.received(0)?.1)?;
            }
        }
        for number in 0..self.nodes.len() {
            self.send(number)?;
        }
        self.cm.destroy_id(listener)?;
        self.finish()
    }

    /// The client's part. `verify`: the server is this program's, and returns what it received.
    pub(crate) fn work(mut self, here: Host, server: SockAddr, verify: bool) -> Result<Exchanged> {
        for number in 0..self.plan.amount.connections() {
            let space = self.plan.port_space;
            let id = self
                .cm
                .create_id(Some(self.channel), number as u64, space)?;
            self.add(id);
            if let Some(tos) = self.plan.tos {
                self.cm.set_option(id, IdOption::Tos(tos))?;
            }
            let here = here.at(space, 0);
            self.cm.resolve_addr(id, Some(here), server, RESOLVE)?;
        }
        self.wait_for_all()?;
        for number in 0..self.nodes.len() {
            if let Some(messages) = &self.nodes[number].messages {
                messages.say(&text(number, self.plan.amount.size()))?;
            }
            self.send(number)?;
        }
        for number in 0..self.nodes.len() {
            self.receive(number)?;
            if verify {
                self.compare(number)?;
            }
        }
        self.finish()
    }

    fn add(&mut self, id: CmId) {
        self.nodes.push(Node {
            id,
            there: None,
            messages: None,
        });
    }

    fn wait_for_all(&mut self) -> Result<()> {
        while self.waiting > 0 {
            let event = next_event(self.cm, self.channel)?;
            self.handle(&event)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: &CmEvent) -> Result<()> {
        let id = event.id;
        match event.event {
            EventType::AddrResolved => self.cm.resolve_route(id, RESOLVE)?,
            EventType::RouteResolved => {
                self.prepare(event.context as usize)?;
                self.cm.connect(id, None)?;
            }
            EventType::ConnectRequest if self.nodes.len() == self.plan.amount.connections() => {
                self.cm.reject(id, &[])?;
                self.cm.destroy_id(id)?;
            }
            EventType::ConnectRequest => {
                let number = self.nodes.len();
                self.add(id);
                self.cm.set_context(id, number as u64)?;
                // Datagrams may come as soon as the client has the address.
                self.prepare(number)?;
                self.cm.accept(id, None)?;
                self.ready();
            }
            EventType::Established => {
                let there = RemoteQp::from_event(self.cm, &event.ud)?;
                self.nodes[event.context as usize].there = Some(there);
                self.ready();
            }
            _ => {
                let why = Unreached::from_event(self.cm, event);
                return Err(format!("queue pair {}: {why}", event.context).into());
            }
        }
        Ok(())
    }

    fn ready(&mut self) {
        self.waiting -= 1;
        self.done.connections += 1;
    }

    /// Creates the queue pair of an id, and the memory for all its datagrams.
    fn prepare(&mut self, number: usize) -> Result<()> {
        let amount = self.plan.amount;
        let sizes = MessageSizes {
            size: amount.size(),
            header: GRH,
            sends: amount.messages(),
            receives: amount.messages(),
            // They are all the same.
            places: 1,
        };
        let node = &mut self.nodes[number];
        node.messages = Some(Messages::new(self.cm, node.id, sizes)?);
        Ok(())
    }

    fn send(&mut self, number: usize) -> Result<()> {
        if let Node {
            there: Some(there),
            messages: Some(messages),
            ..
        } = &self.nodes[number]
        {
            self.done.sent += there.send(self.cm, messages)?;
        }
        Ok(())
    }

    fn receive(&mut self, number: usize) -> Result<()> {
        for _ in 0..self.plan.amount.messages() {
            let Some(messages) = &self.nodes[number].messages else {
                break;
            };
            let wc = messages.receive(self.cm)?;
            self.done.received += 1;
            if self.nodes[number].there.is_none() {
                self.learn(number, &wc)?;
            }
        }
        Ok(())
    }

    /// The server takes the client's address from the first datagram.
    fn learn(&mut self, number: usize, wc: &Wc) -> Result<()> {
        let mut grh = [0; GRH];
        if let Some(messages) = &self.nodes[number].messages {
            grh.copy_from_slice(&messages.received(0)?.0);
        }
        let deadline = self.cm.now() + RESOLVE;
        let way = loop {
            match self.cm.ah_attr_from_wc(wc, &grh) {
                Err(RdmaError::WouldBlock) if self.cm.now() < deadline => {
                    self.cm.wait(self.cm.now() + AGAIN)?;
                }
                way => break way?,
            }
        };
        let destination = if wc.flags.contains(WcFlags::WITH_IMM) {
            Qpn::from_low_bits(wc.imm_data)
        } else {
            wc.src_qp
        };
        self.nodes[number].there = Some(RemoteQp {
            ah: self.cm.device().create_ah(&way)?,
            destination,
            qkey: UDP_QKEY,
        });
        Ok(())
    }

    fn compare(&self, number: usize) -> Result<()> {
        let amount = self.plan.amount;
        match &self.nodes[number].messages {
            Some(messages) if amount.messages() > 0 => {
                if messages.received(0)?.1 == text(number, amount.size()) {
                    return Ok(());
                }
                Err(format!("queue pair {number}: another message came back").into())
            }
            _ => Ok(()),
        }
    }

    fn finish(mut self) -> Result<Exchanged> {
        for Node { id, messages, .. } in self.nodes.drain(..) {
            drop(messages);
            self.cm.destroy_id(id)?;
        }
        self.cm.destroy_event_channel(self.channel)?;
        Ok(self.done)
    }
}
