//! The queue pairs of one end, from the first event to the last datagram.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs::cm::rdma::{
    ChannelId, CmEvent, CmId, EventType, IdOption, PortSpace, QpInit, RdmaError, SendFlags,
    UDP_QKEY,
};
use bareverbs::verbs::mr::Buffer;
use bareverbs::verbs::qp::{Destination, QpCap, SendData, SendOp, SendWr};
use bareverbs::verbs::{AddressHandle, Platform, Qpn, Wc, WcFlags, WcStatus};

use crate::Result;
use crate::node::Cm;

/// How long the other end may take for anything.
const SILENCE: Duration = Duration::from_secs(30);
const RESOLVE: Duration = Duration::from_secs(2);
/// How long to wait before a resolver is asked again.
const AGAIN: Duration = Duration::from_millis(10);
/// The network header that arrives in front of a datagram.
const GRH: usize = 40;

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) connections: usize,
    /// Each way of each pair.
    pub(crate) messages: u32,
    /// Bytes of a message.
    pub(crate) size: usize,
    pub(crate) tos: Option<u8>,
    pub(crate) port_space: PortSpace,
}

/// What was done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub(crate) connections: usize,
    /// Datagrams of all of them.
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// Where a node sends to.
struct There {
    ah: AddressHandle,
    destination: Qpn,
    qkey: u32,
}

/// One queue pair.
struct Node<'d, P: Platform> {
    id: CmId,
    there: Option<There>,
    /// Room for a datagram that is received, and after it for one that is sent; if there are any.
    memory: Option<Buffer<'d, P>>,
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
        let limit = cm.port().active_mtu.bytes() as usize;
        if plan.messages > 0 && plan.size > limit {
            let size = plan.size;
            return Err(
                format!("-S: {size} bytes do not fit the port's MTU, which is {limit}").into(),
            );
        }
        let channel = cm.create_event_channel()?;
        Ok(Self {
            cm,
            plan,
            channel,
            nodes: Vec::with_capacity(plan.connections),
            waiting: plan.connections,
            done: Exchanged::default(),
        })
    }

    /// The server's part. `listening` is called once clients may come.
    pub(crate) fn serve(
        mut self,
        address: SocketAddr,
        listening: &mut dyn FnMut(),
    ) -> Result<Exchanged> {
        let space = self.plan.port_space;
        let listener = self.cm.create_id(Some(self.channel), u64::MAX, space)?;
        self.cm.bind_addr(listener, address)?;
        self.cm.listen(listener, 0)?;
        listening();
        // The first client comes when it likes.
        let event = self.cm.get_cm_event(self.channel)?;
        self.handle(&event)?;
        while self.waiting > 0 {
            self.next_event()?;
        }
        for number in 0..self.nodes.len() {
            self.receive(number)?;
            // What was heard goes back.
            let mut message = vec![0; self.plan.size];
            if let Some(memory) = &self.nodes[number].memory {
                memory.copy_out(GRH, &mut message)?;
                memory.copy_in(GRH + self.plan.size, &message)?;
            }
        }
        for number in 0..self.nodes.len() {
            self.send(number)?;
        }
        self.cm.destroy_id(listener)?;
        self.finish()
    }

    /// The client's part. `verify`: the server is one of these, and sends back what it heard.
    pub(crate) fn work(
        mut self,
        here: IpAddr,
        server: SocketAddr,
        verify: bool,
    ) -> Result<Exchanged> {
        for number in 0..self.plan.connections {
            let space = self.plan.port_space;
            let id = self
                .cm
                .create_id(Some(self.channel), number as u64, space)?;
            self.add(id);
            if let Some(tos) = self.plan.tos {
                self.cm.set_option(id, IdOption::Tos(tos))?;
            }
            let here = SocketAddr::new(here, 0);
            self.cm.resolve_addr(id, Some(here), server, RESOLVE)?;
        }
        while self.waiting > 0 {
            self.next_event()?;
        }
        for number in 0..self.nodes.len() {
            if let Some(memory) = &self.nodes[number].memory {
                let at = GRH + self.plan.size;
                memory.copy_in(at, &text(number, self.plan.size))?;
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
            memory: None,
        });
    }

    fn next_event(&mut self) -> Result<()> {
        let deadline = self.cm.now() + SILENCE;
        let event = self.cm.get_cm_event_until(self.channel, deadline)?;
        self.handle(&event)
    }

    fn handle(&mut self, event: &CmEvent) -> Result<()> {
        let id = event.id;
        match event.event {
            EventType::AddrResolved => self.cm.resolve_route(id, RESOLVE)?,
            EventType::RouteResolved => {
                self.prepare(event.context as usize)?;
                self.cm.connect(id, None)?;
            }
            EventType::ConnectRequest if self.nodes.len() == self.plan.connections => {
                self.cm.reject(id, &[])?;
                self.cm.destroy_id(id)?;
            }
            EventType::ConnectRequest => {
                let number = self.nodes.len();
                self.add(id);
                self.cm.set_context(id, number as u64)?;
                // Datagrams may come as soon as it is told where to send them.
                self.prepare(number)?;
                self.cm.accept(id, None)?;
                self.ready();
            }
            EventType::Established => {
                let ah = self.cm.device().create_ah(&event.ud.ah_attr)?;
                self.nodes[event.context as usize].there = Some(There {
                    ah,
                    destination: Qpn::from_low_bits(event.ud.qp_num),
                    qkey: event.ud.qkey,
                });
                self.ready();
            }
            failure => {
                let (context, status) = (event.context, event.status);
                return Err(format!("queue pair {context}: {failure}, {status}").into());
            }
        }
        Ok(())
    }

    fn ready(&mut self) {
        self.waiting -= 1;
        self.done.connections += 1;
    }

    /// Makes the queue pair of an id and room for all its datagrams.
    fn prepare(&mut self, number: usize) -> Result<()> {
        let Plan { messages, size, .. } = self.plan;
        let id = self.nodes[number].id;
        let mut init = QpInit {
            cap: QpCap {
                max_send_wr: messages.max(1),
                max_recv_wr: messages.max(1),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..QpInit::default()
        };
        self.cm.create_qp(id, None, &mut init)?;
        if messages > 0 {
            let memory = self.cm.reg_msgs(id, GRH + 2 * size)?;
            for _ in 0..messages {
                // All into one place: they are all the same.
                self.cm.post_recv(id, 0, &memory, 0, GRH + size)?;
            }
            self.nodes[number].memory = Some(memory);
        }
        Ok(())
    }

    /// Sends all of a node's datagrams at once, each with the number of the queue pair to answer to.
    fn send(&mut self, number: usize) -> Result<()> {
        let Plan { messages, size, .. } = self.plan;
        let Node { id, there, memory } = &self.nodes[number];
        let (Some(there), Some(memory)) = (there, memory) else {
            return Ok(());
        };
        let sge = memory.sge(GRH + size, size).ok_or("no room to send from")?;
        let qp = self.cm.ud_endpoint(*id)?.qp;
        let own = qp.qpn().number();
        for _ in 0..messages {
            qp.send_queue().post(&SendWr {
                wr_id: 0,
                op: SendOp::SendToImm(
                    Destination {
                        ah: &there.ah,
                        remote_qpn: there.destination,
                        remote_qkey: there.qkey,
                    },
                    own,
                ),
                flags: SendFlags::SIGNALED,
                data: SendData::Sges(&[sge]),
            })?;
        }
        for _ in 0..messages {
            let deadline = self.cm.now() + SILENCE;
            check(&self.cm.get_send_comp_until(*id, deadline)?, "send")?;
            self.done.sent += 1;
        }
        Ok(())
    }

    fn receive(&mut self, number: usize) -> Result<()> {
        let id = self.nodes[number].id;
        for _ in 0..self.plan.messages {
            let deadline = self.cm.now() + SILENCE;
            let wc = self.cm.get_recv_comp_until(id, deadline)?;
            check(&wc, "receive")?;
            if wc.byte_len as usize != GRH + self.plan.size {
                return Err(format!("a datagram of {} bytes came", wc.byte_len).into());
            }
            self.done.received += 1;
            if self.nodes[number].there.is_none() {
                self.learn(number, &wc)?;
            }
        }
        Ok(())
    }

    /// The first datagram tells the server where its client is.
    fn learn(&mut self, number: usize, wc: &Wc) -> Result<()> {
        let mut grh = [0; GRH];
        if let Some(memory) = &self.nodes[number].memory {
            memory.copy_out(0, &mut grh)?;
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
        self.nodes[number].there = Some(There {
            ah: self.cm.device().create_ah(&way)?,
            destination,
            qkey: UDP_QKEY,
        });
        Ok(())
    }

    fn compare(&self, number: usize) -> Result<()> {
        let mut message = vec![0; self.plan.size];
        match &self.nodes[number].memory {
            Some(memory) => memory.copy_out(GRH, &mut message)?,
            None => return Ok(()),
        }
        if message != text(number, self.plan.size) {
            return Err(format!("queue pair {number}: another message came back").into());
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Exchanged> {
        for Node { id, memory, .. } in self.nodes.drain(..) {
            drop(memory);
            self.cm.destroy_id(id)?;
        }
        self.cm.destroy_event_channel(self.channel)?;
        Ok(self.done)
    }
}

/// The client's message of a node.
fn text(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at + 7 * number + 1) as u8).collect()
}

fn check(wc: &Wc, what: &str) -> Result<()> {
    if wc.status == WcStatus::Success {
        return Ok(());
    }
    Err(format!("{what} failed: {}", wc.status).into())
}
