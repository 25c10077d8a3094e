//! Many connections at once, with messages both ways, as rdma-core's `ucmatose` makes them: everything is asynchronous, and
//! one event channel has all their events. With the built-in model (the default) both ends run here.

mod connections;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use bareverbs_examples::addresses::Addresses;
use bareverbs_examples::exchange::{Amount, Exchange, Exchanged};
use bareverbs_examples::program;
use bareverbs_node::Cm;
use clap::Parser;
use connections::{Connections, Plan};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Many connections, with messages both ways: the server sends first, and the client answers.
///
/// Both ends run in this process, on two ConnectX models that are cabled together or on two cards, the server's named
/// first. On one card, or with --link, one end runs: the client if -s says where the server is. Both ends have to be
/// given the same -c, -C and -S.
#[derive(Parser, Debug, Clone)]
#[command(name = "ucmatose", disable_version_flag = true)]
struct Options {
    #[command(flatten)]
    addresses: Addresses,
    #[command(flatten)]
    amount: Amount,
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
    program::main(|options: &Options| options.addresses.run(options))
}

impl Options {
    fn plan(&self) -> Plan {
        Plan {
            amount: self.amount,
            tos: self.tos,
            ack_timeout: self.ack_timeout,
            migrate: self.migrate,
        }
    }
}

impl Exchange for Options {
    fn name(&self) -> &'static str {
        "ucmatose"
    }

    fn amount(&self) -> Amount {
        self.amount
    }

    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: IpAddr,
        listening: &mut dyn FnMut(),
    ) -> Result<Exchanged> {
        let address = SocketAddr::new(address, self.port);
        Connections::new(cm, self.plan())?.serve(address, listening)
    }

    fn work(&self, cm: &mut Cm<'_, '_>, [here, server]: [IpAddr; 2], _: bool) -> Result<Exchanged> {
        let server = SocketAddr::new(server, self.port);
        Connections::new(cm, self.plan())?.work(here, server)
    }

    fn announce(&self, address: IpAddr) {
        println!("listening on {address} port {}", self.port);
    }
}
