//! Many connections at once, with messages both ways, as rdma-core's `ucmatose` makes them: everything is asynchronous, and
//! one event channel tells of all of it. With the built-in model (the default) both ends run here.

#[path = "../common/addresses.rs"]
mod addresses;
mod connections;
#[path = "../common/model.rs"]
mod model;
#[path = "../common/node.rs"]
mod node;
#[path = "../common/place.rs"]
mod place;
#[path = "../common/program.rs"]
mod program;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use addresses::Addresses;
use bareverbs::verbs::Platform;
use clap::Parser;
use connections::{Connections, Exchanged, Plan};
use node::{About, Cm};
use program::Program;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Many connections, with messages both ways: the server speaks first, and the client answers.
///
/// Both ends run in this process, on two ConnectX models that are cabled together or on two cards, the server's named
/// first. On one card, or with --link, one end runs: the client if -s says where the server is. Both ends have to be
/// given the same -c, -C and -S.
#[derive(Parser, Debug, Clone)]
#[command(name = "ucmatose", disable_version_flag = true)]
struct Options {
    #[command(flatten)]
    addresses: Addresses,
    /// Connections.
    #[arg(short = 'c', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
    /// Messages each way of each connection, all posted at once.
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=8192))]
    messages: u32,
    /// Bytes of a message.
    #[arg(short = 'S', value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=16 << 20))]
    size: u32,
    /// Type of service.
    #[arg(short = 't', value_name = "TOS")]
    tos: Option<u8>,
    /// Exponent of the time that an acknowledgement may take: 4.096 µs times 2 to it.
    #[arg(short = 'a', value_name = "EXPONENT", value_parser = clap::value_parser!(u8).range(..=31))]
    ack_timeout: Option<u8>,
    /// Port.
    #[arg(short = 'p', value_name = "PORT", default_value_t = 7471, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Move to another event channel before it ends.
    #[arg(short = 'm')]
    migrate: bool,
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
            messages: if self.size == 0 { 0 } else { self.messages },
            size: self.size as usize,
            tos: self.tos,
            ack_timeout: self.ack_timeout,
            migrate: self.migrate,
        }
    }

    fn tell(&self, end: &str, exchanged: &Exchanged) {
        println!(
            "{end}: {} connections, {} messages of {} bytes sent and {} received",
            exchanged.connections, exchanged.sent, self.size, exchanged.received
        );
    }
}

impl Program for Options {
    type Served = Exchanged;
    type Found = Exchanged;

    const NAME: &'static str = "ucmatose";
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
        let exchanged = Connections::new(cm, self.plan())?.serve(address, listening)?;
        self.tell("server", &exchanged);
        Ok(exchanged)
    }

    fn work<P: Platform>(
        &self,
        cm: &mut Cm<'_, '_, P>,
        _: &About,
        [here, server]: [IpAddr; 2],
        _: bool,
    ) -> Result<Exchanged> {
        let server = SocketAddr::new(server, self.port);
        let exchanged = Connections::new(cm, self.plan())?.work(here, server)?;
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
