//! The common part of `rdma_client` and `rdma_server`: the command line, and for each the other end. It is not in the examples'
//! library, where it would be compiled for all of them.
#![expect(dead_code, reason = "each of them has one of the other ends")]

use std::process::ExitCode;
use std::time::Duration;

use bareverbs::cm::rdma::{
    AddrInfo, AddressFamily, CmId, PortSpace, QpInit, RdmaCm, Resolver, SendFlags, getaddrinfo,
};
use bareverbs::verbs::Platform;
use bareverbs::verbs::qp::QpCap;
use bareverbs_command_line::{PORTS, is_port};
use bareverbs_node::{About, Cm, Host};
use bpaf::Bpaf;

use bareverbs_examples::Result;
use bareverbs_examples::program::{self, Cards, Program, Roles, cards};

/// Bytes of a message.
pub(crate) const LEN: usize = 16;
pub(crate) type Message = [u8; LEN];

/// The client's message.
pub(crate) const HELLO: &Message = b"good morning! :)";
/// The server's answer.
pub(crate) const REPLY: &Message = b"good evening. :(";

/// Sixteen bytes over an RDMA connection, and sixteen back.
///
/// Client and server run in this process, on two ConnectX models that are cabled together or on two cards, the server's
/// named first. On one card, or with --link, the end runs that the program is named after.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(options)]
pub(crate) struct Options {
    /// The server's address.
    #[bpaf(short('s'), argument("ADDRESS"), last, optional)]
    server: Option<Host>,
    /// The client's address.
    #[bpaf(short('b'), argument("ADDRESS"), last, optional)]
    client: Option<Host>,
    /// Port.
    #[bpaf(
        short('p'),
        argument("PORT"),
        last,
        guard(is_port, PORTS),
        fallback(7471),
        display_fallback
    )]
    port: u16,
    #[bpaf(external)]
    cards: Cards,
}

/// The two ends of a program. `listening` is to be called once a client may come.
pub(crate) struct Ends {
    /// `true` if the program's own end is the server, for one card or a link.
    pub(crate) is_server: bool,
    pub(crate) server:
        fn(cm: &mut Cm<'_, '_>, here: &AddrInfo, listening: &mut dyn FnMut()) -> Result<Message>,
    pub(crate) client: fn(cm: &mut Cm<'_, '_>, server: &AddrInfo) -> Result<Message>,
}

impl Ends {
    const fn name(&self) -> &'static str {
        if self.is_server {
            "rdma_server"
        } else {
            "rdma_client"
        }
    }
}

/// The whole of a program with these ends.
pub(crate) fn main(ends: &Ends) -> ExitCode {
    program::main(ends.name(), &options(), |options| options.run(ends))
}

impl Options {
    /// The message that the client received, if it ran here.
    pub(crate) fn run(&self, ends: &Ends) -> Result<Option<Message>> {
        let Self { client, server, .. } = *self;
        let roles = if self.cards.one() {
            let server = server.ok_or("-s: where is the server?")?;
            if ends.is_server {
                Roles::Server(server)
            } else {
                let here = client.ok_or("-b: which address shall the client have?")?;
                Roles::Client { here, server }
            }
        } else {
            Roles::Both { client, server }
        };
        self.cards.run(&Hello(self, ends), roles)
    }

    fn find(&self, host: Host, hints: &AddrInfo) -> Result<AddrInfo> {
        let port = self.port.to_string();
        let (host, family) = match host {
            Host::Ip(ip) => (ip.to_string(), None),
            Host::Gid(gid) => (gid.to_ipv6().to_string(), Some(AddressFamily::Ib)),
        };
        let hints = AddrInfo { family, ..*hints };
        Ok(getaddrinfo(Some(&host), Some(&port), Some(&hints))?)
    }
}

struct Hello<'a>(&'a Options, &'a Ends);

impl Program for Hello<'_> {
    /// The message that each end received.
    type Served = Message;
    type Found = Message;

    const CLIENT: usize = 1;

    fn name(&self) -> &'static str {
        self.1.name()
    }

    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<Message> {
        let address = self.0.find(address, &AddrInfo::hints(true))?;
        let message = (self.1.server)(cm, &address, listening)?;
        println!("server: received \"{}\"", message.escape_ascii());
        Ok(message)
    }

    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        _: &About,
        [here, server]: [Host; 2],
        _: bool,
    ) -> Result<Message> {
        let hints = AddrInfo {
            src_addr: Some(here.at(PortSpace::Tcp, 0)),
            ..AddrInfo::hints(false)
        };
        let message = (self.1.client)(cm, &self.0.find(server, &hints)?)?;
        println!("client: received \"{}\"", message.escape_ascii());
        Ok(message)
    }

    fn announce(&self, address: Host) {
        println!("listening on {address} port {}", self.0.port);
    }

    fn compare(&self, served: &Message, found: &Message) -> Result<()> {
        if (served, found) == (HELLO, REPLY) {
            return Ok(());
        }
        Err("the received message is not the sent one".into())
    }
}

/// A queue pair for one message each way, of which every send has a completion.
pub(crate) fn queues<'a, 'd, P: Platform>() -> QpInit<'a, 'd, P> {
    QpInit {
        cap: QpCap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: LEN as u32,
        },
        ..QpInit::default()
    }
}

/// Sends a message, and waits until the other end has it.
pub(crate) fn send<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    id: CmId,
    message: &Message,
) -> Result<()> {
    cm.post_send_inline(id, 0, message, SendFlags::SIGNALED)?;
    let _ = cm.get_send_comp_until(id, soon(cm))?;
    Ok(())
}

/// Waits until a message is there.
pub(crate) fn receive<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    id: CmId,
) -> Result<()> {
    let _ = cm.get_recv_comp_until(id, soon(cm))?;
    Ok(())
}

/// Until when the other end has to have done its part.
fn soon<P: Platform, R: Resolver>(cm: &RdmaCm<'_, '_, P, R>) -> Duration {
    cm.now() + Duration::from_secs(30)
}

/// The other end of `rdma_client`.
pub(crate) fn serve(
    cm: &mut Cm<'_, '_>,
    here: &AddrInfo,
    listening: &mut dyn FnMut(),
) -> Result<Message> {
    let listener = cm.create_ep(here, None, Some(&mut queues()))?;
    cm.listen(listener, 1)?;
    listening();
    let id = cm.get_request(listener)?;
    let inbox = cm.reg_msgs(id, LEN)?;
    cm.post_recv(id, 0, inbox.slice(..LEN)?)?;
    cm.accept(id, None)?;
    receive(cm, id)?;
    let mut message = [0; LEN];
    inbox.copy_out(0, &mut message)?;
    send(cm, id, REPLY)?;
    cm.disconnect(id)?;
    cm.destroy_ep(id)?;
    cm.destroy_ep(listener)?;
    Ok(message)
}

/// The other end of `rdma_server`.
pub(crate) fn call(cm: &mut Cm<'_, '_>, server: &AddrInfo) -> Result<Message> {
    let id = cm.create_ep(server, None, Some(&mut queues()))?;
    let inbox = cm.reg_msgs(id, LEN)?;
    cm.post_recv(id, 0, inbox.slice(..LEN)?)?;
    cm.connect(id, None)?;
    send(cm, id, HELLO)?;
    receive(cm, id)?;
    let mut message = [0; LEN];
    inbox.copy_out(0, &mut message)?;
    cm.disconnect(id)?;
    cm.destroy_ep(id)?;
    Ok(message)
}
