//! What `rdma_client` and `rdma_server` have in common: the command line, and both of them in one process.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use bareverbs::cm::rdma::{AddrInfo, QpInit, RdmaCm, Resolver, getaddrinfo};
use bareverbs::verbs::qp::QpCap;
use bareverbs::verbs::{Platform, Wc, WcStatus};
use clap::Parser;

use crate::node::{About, Cm};
use crate::program::{self, Cards, Program, Roles};
use crate::{client, server};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of a message.
pub(crate) const LEN: usize = 16;

pub(crate) type Message = [u8; LEN];

/// Sixteen bytes over an RDMA connection, and sixteen back.
///
/// Client and server run in this process, on two ConnectX models that are cabled together or on two cards, the server's
/// named first. On one card, or with --link, the end runs that the program is named after.
#[derive(Parser, Debug, Clone)]
#[command(name = env!("CARGO_CRATE_NAME"), disable_version_flag = true)]
pub(crate) struct Options {
    /// The server's address.
    #[arg(short = 's', value_name = "ADDRESS")]
    server: Option<IpAddr>,
    /// The client's address.
    #[arg(short = 'b', value_name = "ADDRESS")]
    client: Option<IpAddr>,
    /// Port.
    #[arg(short = 'p', value_name = "PORT", default_value_t = 7471, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    #[command(flatten)]
    cards: Cards,
}

pub(crate) fn main() -> ExitCode {
    program::main(Options::run)
}

impl Options {
    /// What the client was told, if it ran here.
    pub(crate) fn run(&self) -> Result<Option<Message>> {
        let Self { client, server, .. } = *self;
        let roles = if self.cards.one() {
            let server = server.ok_or("-s: where is the server?")?;
            if Self::NAME == "rdma_server" {
                Roles::Server(server)
            } else {
                let here = client.ok_or("-b: which address shall the client have?")?;
                Roles::Client { here, server }
            }
        } else {
            Roles::Both { client, server }
        };
        self.cards.run(self, roles)
    }

    fn find(&self, host: IpAddr, hints: &AddrInfo) -> Result<AddrInfo> {
        let (host, port) = (host.to_string(), self.port.to_string());
        Ok(getaddrinfo(Some(&host), Some(&port), Some(hints))?)
    }
}

impl Program for Options {
    /// What each end heard.
    type Served = Message;
    type Found = Message;

    const NAME: &'static str = env!("CARGO_CRATE_NAME");
    const CLIENT: usize = 1;

    fn serve<P: Platform>(
        &self,
        cm: &mut Cm<'_, '_, P>,
        address: IpAddr,
        listening: &mut dyn FnMut(),
    ) -> Result<Message> {
        let address = self.find(address, &AddrInfo::hints(true))?;
        let message = server::run(cm, &address, listening)?;
        println!("server: was told \"{}\"", message.escape_ascii());
        Ok(message)
    }

    fn work<P: Platform>(
        &self,
        cm: &mut Cm<'_, '_, P>,
        _: &About,
        [here, server]: [IpAddr; 2],
        _: bool,
    ) -> Result<Message> {
        let hints = AddrInfo {
            src_addr: Some((here, 0).into()),
            ..AddrInfo::hints(false)
        };
        let message = client::run(cm, &self.find(server, &hints)?)?;
        println!("client: was told \"{}\"", message.escape_ascii());
        Ok(message)
    }

    fn announce(&self, address: IpAddr) {
        println!("listening on {address} port {}", self.port);
    }

    fn compare(&self, served: &Message, found: &Message) -> Result<()> {
        if (served, found) == (client::HELLO, server::REPLY) {
            return Ok(());
        }
        Err("what was heard is not what was said".into())
    }
}

/// A queue pair for one message each way.
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

/// Until when the other end has to have done its part.
pub(crate) fn soon<P: Platform, R: Resolver>(cm: &RdmaCm<'_, '_, P, R>) -> Duration {
    cm.now() + Duration::from_secs(30)
}

/// That something was done.
pub(crate) fn check(wc: &Wc) -> Result<()> {
    if wc.status == WcStatus::Success {
        return Ok(());
    }
    Err(format!("{:?} failed: {}", wc.opcode, wc.status).into())
}
