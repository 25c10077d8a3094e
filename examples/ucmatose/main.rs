//! Many connections at once, with messages both ways, as rdma-core's `ucmatose` makes them: everything is asynchronous, and
//! one event channel has all their events. With the built-in model (the default) both ends run here.

mod connections;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use bareverbs::cm::rdma::PortSpace;
use bareverbs_command_line::{PORTS, is_port, within};
use bareverbs_examples::Result;
use bareverbs_examples::addresses::{Addresses, addresses};
use bareverbs_examples::exchange::{Amount, Exchange, Exchanged, amount};
use bareverbs_examples::program;
use bareverbs_node::{Cm, Host};
use bpaf::Bpaf;
use connections::{Connections, Plan};

/// Many connections, with messages both ways: the server sends first, and the client answers.
///
/// Both ends run in this process, on two ConnectX models that are cabled together or on two cards, the server's named
/// first. On one card, or with --link, one end runs: the client if -s says where the server is. Both ends have to be
/// given the same -c, -C and -S.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(options)]
struct Options {
    #[bpaf(external)]
    addresses: Addresses,
    #[bpaf(external)]
    amount: Amount,
    /// Type of service.
    #[bpaf(short('t'), argument("TOS"), last, optional)]
    tos: Option<u8>,
    /// Exponent of the time that an acknowledgement may take: 4.096 µs times 2 to it.
    #[bpaf(short('a'), argument("EXPONENT"), last, guard(within(..=31), "more than 31"), optional)]
    ack_timeout: Option<u8>,
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
    /// Move to another event channel before it ends.
    #[bpaf(short('m'), switch, last)]
    migrate: bool,
}

fn main() -> ExitCode {
    program::main("ucmatose", &options(), |options| {
        options.addresses.run(options)
    })
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
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<Exchanged> {
        let address = address.at(PortSpace::Tcp, self.port);
        Connections::new(cm, self.plan())?.serve(address, listening)
    }

    fn work(&self, cm: &mut Cm<'_, '_>, [here, server]: [Host; 2], _: bool) -> Result<Exchanged> {
        let server = server.at(PortSpace::Tcp, self.port);
        Connections::new(cm, self.plan())?.work(here, server)
    }

    fn announce(&self, address: Host) {
        println!("listening on {address} port {}", self.port);
    }
}
