//! Datagrams between queue pairs that find each other by SIDR, as rdma-core's `udaddy` has them: everything is asynchronous,
//! and one event channel tells of all of it. With the built-in model (the default) both ends run here.

#[path = "../common/addresses.rs"]
mod addresses;
#[path = "../common/model.rs"]
mod model;
#[path = "../common/node.rs"]
mod node;
mod nodes;
#[path = "../common/place.rs"]
mod place;
#[path = "../common/program.rs"]
mod program;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use addresses::Addresses;
use bareverbs::cm::rdma::PortSpace;
use bareverbs::verbs::Platform;
use clap::Parser;
use node::{About, Cm};
use nodes::{Exchanged, Nodes, Plan};
use program::Program;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Datagrams both ways: the client speaks first, and the server answers to where each came from.
///
/// Both ends run in this process, on two ConnectX models that are cabled together or on two cards, the server's named
/// first. On one card, or with --link, one end runs: the client if -s says where the server is. Both ends have to be
/// given the same -c, -C, -S and -p.
#[derive(Parser, Debug, Clone)]
#[command(name = "udaddy", disable_version_flag = true)]
struct Options {
    #[command(flatten)]
    addresses: Addresses,
    /// Pairs of queue pairs.
    #[arg(short = 'c', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
    /// Messages each way of each pair, all posted at once.
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=8192))]
    messages: u32,
    /// Bytes of a message; one packet has to hold it.
    #[arg(short = 'S', value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,
    /// Type of service.
    #[arg(short = 't', value_name = "TOS")]
    tos: Option<u8>,
    /// Port space: udp (0x0111) or ipoib (0x0002).
    #[arg(short = 'p', value_name = "SPACE", default_value = "udp", value_parser = parse_port_space)]
    port_space: PortSpace,
    /// Port.
    #[arg(long, value_name = "PORT", default_value_t = 7174, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
}

fn parse_port_space(text: &str) -> std::result::Result<PortSpace, String> {
    let number = text
        .strip_prefix("0x")
        .and_then(|digits| u16::from_str_radix(digits, 16).ok());
    match (text, number) {
        ("udp", _) | (_, Some(0x0111)) => Ok(PortSpace::Udp),
        ("ipoib", _) | (_, Some(0x0002)) => Ok(PortSpace::Ipoib),
        _ => Err("udp (0x0111) or ipoib (0x0002)".into()),
    }
}

fn main() -> ExitCode {
    env_logger::init();
    let options = Options::parse();
    match options.addresses.run(&options) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            program::tell(Options::NAME, &*error);
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn plan(&self) -> Plan {
        Plan {
            connections: self.connections.into(),
            messages: self.messages,
            size: self.size as usize,
            tos: self.tos,
            port_space: self.port_space,
        }
    }

    fn tell(&self, end: &str, exchanged: &Exchanged) {
        println!(
            "{end}: {} queue pairs, {} datagrams of {} bytes sent and {} received",
            exchanged.connections, exchanged.sent, self.size, exchanged.received
        );
    }
}

impl Program for Options {
    type Served = Exchanged;
    type Found = Exchanged;

    const NAME: &'static str = "udaddy";
    const CLIENT: usize = 1;

    fn connections(&self) -> usize {
        self.connections.into()
    }

    fn serve<P: Platform>(
        &self,
        cm: &mut Cm<'_, '_, P>,
        address: IpAddr,
        listening: &mut dyn FnMut(),
    ) -> Result<Exchanged> {
        let address = SocketAddr::new(address, self.port);
        let exchanged = Nodes::new(cm, self.plan())?.serve(address, listening)?;
        self.tell("server", &exchanged);
        Ok(exchanged)
    }

    fn work<P: Platform>(
        &self,
        cm: &mut Cm<'_, '_, P>,
        _: &About,
        [here, server]: [IpAddr; 2],
        both: bool,
    ) -> Result<Exchanged> {
        let server = SocketAddr::new(server, self.port);
        let exchanged = Nodes::new(cm, self.plan())?.work(here, server, both)?;
        self.tell("client", &exchanged);
        Ok(exchanged)
    }

    fn announce(&self, address: IpAddr) {
        println!("listening on {address} port {}", self.port);
    }

    fn compare(&self, served: &Exchanged, found: &Exchanged) -> Result<()> {
        if served == found {
            return Ok(());
        }
        Err(format!("the server counts {served:?}, the client {found:?}").into())
    }
}
