//! The RDMA service: sixteen bytes there, sixteen back, as between rdma-core's `rdma_client` and `rdma_server`. Nothing in
//! here blocks, as TCP has to go on meanwhile.

use std::time::Duration;

use bareverbs::cm::rdma::{ChannelId, CmId, EventType, PortSpace, QpInit, SendFlags, SockAddr};
use bareverbs::verbs::Platform;
use bareverbs::verbs::mr::Buffer;
use bareverbs::verbs::qp::QpCap;

use bareverbs_examples::Result;
use bareverbs_node::{Cm, Host};

/// Bytes of a message.
const LEN: usize = 16;
const HELLO: &[u8; LEN] = b"good morning! :)";
const RESOLVE: Duration = Duration::from_secs(2);

/// A connection with a posted receive for a message.
struct Peer<'d, P: Platform> {
    id: CmId,
    inbox: Buffer<'d, P>,
}

impl<'d, P: Platform> Peer<'d, P> {
    fn new(cm: &mut Cm<'_, 'd, P>, id: CmId) -> Result<Self> {
        let mut init = QpInit {
            cap: QpCap {
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: LEN as u32,
            },
            ..QpInit::default()
        };
        cm.create_qp(id, None, &mut init)?;
        let inbox = cm.reg_msgs(id, LEN)?;
        cm.post_recv(id, 0, inbox.slice(..LEN)?)?;
        Ok(Self { id, inbox })
    }

    /// The message, if it has come.
    fn receive(&self, cm: &mut Cm<'_, 'd, P>) -> Result<Option<[u8; LEN]>> {
        if cm.try_get_recv_comp(self.id)?.is_none() {
            return Ok(None);
        }
        let mut message = [0; LEN];
        self.inbox.copy_out(0, &mut message)?;
        Ok(Some(message))
    }

    fn say(&self, cm: &mut Cm<'_, 'd, P>, message: &[u8; LEN]) -> Result<()> {
        Ok(cm.post_send_inline(self.id, 0, message, SendFlags::SIGNALED)?)
    }
}

pub(crate) struct Server<'d, P: Platform> {
    channel: ChannelId,
    listener: CmId,
    peers: Vec<Peer<'d, P>>,
}

impl<'d, P: Platform> Server<'d, P> {
    pub(crate) fn new(cm: &mut Cm<'_, 'd, P>, address: SockAddr) -> Result<Self> {
        let channel = cm.create_event_channel()?;
        let listener = cm.create_id(Some(channel), 0, PortSpace::Tcp)?;
        cm.bind_addr(listener, address)?;
        cm.listen(listener, 0)?;
        Ok(Self {
            channel,
            listener,
            peers: Vec::new(),
        })
    }

    /// Sends back received messages. How many clients have gone with their answer.
    pub(crate) fn work(&mut self, cm: &mut Cm<'_, 'd, P>) -> Result<u32> {
        let mut gone = 0;
        while let Some(event) = cm.try_get_cm_event(self.channel)? {
            match event.event {
                EventType::ConnectRequest => {
                    self.peers.push(Peer::new(cm, event.id)?);
                    cm.accept(event.id, None)?;
                }
                EventType::Established | EventType::TimewaitExit => {}
                EventType::Disconnected => {
                    cm.disconnect(event.id)?;
                    self.peers.retain(|peer| peer.id != event.id);
                    cm.destroy_id(event.id)?;
                    gone += 1;
                }
                failure => return Err(format!("server: {failure}, {}", event.status).into()),
            }
        }
        for peer in &self.peers {
            if let Some(message) = peer.receive(cm)? {
                peer.say(cm, &message)?;
            }
        }
        Ok(gone)
    }

    pub(crate) fn close(self, cm: &mut Cm<'_, 'd, P>) -> Result<()> {
        for peer in self.peers {
            cm.destroy_id(peer.id)?;
        }
        cm.destroy_id(self.listener)?;
        Ok(cm.destroy_event_channel(self.channel)?)
    }
}

pub(crate) struct Client<'d, P: Platform> {
    channel: ChannelId,
    ends: [Host; 2],
    port: u16,
    verify: bool,
    peer: Option<Peer<'d, P>>,
    left: u32,
    messages: u32,
}

impl<'d, P: Platform> Client<'d, P> {
    /// From the first address to the second, so often. `verify`: what comes back is to be what was said, which rdma-core's
    /// server does not do.
    pub(crate) fn new(
        cm: &mut Cm<'_, 'd, P>,
        ends: [Host; 2],
        port: u16,
        times: u32,
        verify: bool,
    ) -> Result<Self> {
        let mut client = Self {
            channel: cm.create_event_channel()?,
            ends,
            port,
            verify,
            peer: None,
            left: times,
            messages: 0,
        };
        client.begin(cm)?;
        Ok(client)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Answers that were received.
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }

    /// Begins a connection, if there is another one to make.
    fn begin(&mut self, cm: &mut Cm<'_, 'd, P>) -> Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        let id = cm.create_id(Some(self.channel), 0, PortSpace::Tcp)?;
        let [here, server] = self.ends;
        let here = here.at(PortSpace::Tcp, 0);
        let server = server.at(PortSpace::Tcp, self.port);
        Ok(cm.resolve_addr(id, Some(here), server, RESOLVE)?)
    }

    pub(crate) fn work(&mut self, cm: &mut Cm<'_, 'd, P>) -> Result<()> {
        while let Some(event) = cm.try_get_cm_event(self.channel)? {
            let id = event.id;
            match event.event {
                EventType::AddrResolved => cm.resolve_route(id, RESOLVE)?,
                EventType::RouteResolved => {
                    self.peer = Some(Peer::new(cm, id)?);
                    cm.connect(id, None)?;
                }
                EventType::Established => {
                    if let Some(peer) = &self.peer {
                        peer.say(cm, HELLO)?;
                    }
                }
                EventType::Disconnected => {
                    self.peer = None;
                    cm.destroy_id(id)?;
                    self.left -= 1;
                    self.begin(cm)?;
                }
                EventType::TimewaitExit => {}
                failure => return Err(format!("client: {failure}, {}", event.status).into()),
            }
        }
        let Some(peer) = &self.peer else {
            return Ok(());
        };
        if let Some(message) = peer.receive(cm)? {
            if self.verify && message != *HELLO {
                return Err(format!("client: received \"{}\"", message.escape_ascii()).into());
            }
            self.messages += 1;
            cm.disconnect(peer.id)?;
        }
        Ok(())
    }
}
