//! Datagrams between queue pairs that find each other by SIDR, as rdma-core's `udaddy` has them: everything is asynchronous,
//! and one event channel has all their events. With the built-in model (the default) both ends run here.

mod nodes;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use bareverbs::cm::rdma::PortSpace;
use bareverbs_command_line::{PORTS, is_port};
use bareverbs_examples::Result;
use bareverbs_examples::addresses::{Addresses, addresses};
use bareverbs_examples::datagrams;
use bareverbs_examples::exchange::{Amount, Exchange, Exchanged, amount};
use bareverbs_examples::program;
use bareverbs_node::{Cm, Host};
use bpaf::Bpaf;
use nodes::{Nodes, Plan};

/// Datagrams both ways: the client sends first, and the server answers each to its source.
///
/// Both ends run in this process, on two ConnectX models that are cabled together or on two cards, the server's named
/// first. On one card, or with --link, one end runs: the client if -s says where the server is. Both ends have to be
/// given the same -c, -C, -S and -p.
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
    /// Port space: udp (0x0111), which is the default, or ipoib (0x0002).
    #[bpaf(
        short('p'),
        argument::<String>("SPACE"), last,
        parse(datagrams::parse_port_space),
        fallback(PortSpace::Udp)
    )]
    port_space: PortSpace,
    /// Port.
    #[bpaf(
        long,
        argument("PORT"),
        last,
        guard(is_port, PORTS),
        fallback(7174),
        display_fallback
    )]
    port: u16,
}

fn main() -> ExitCode {
    program::main("udaddy", &options(), |options| {
        options.addresses.run(options)
    })
}

impl Options {
    fn plan(&self) -> Plan {
        Plan {
            amount: self.amount,
            tos: self.tos,
            port_space: self.port_space,
        }
    }
}

impl Exchange for Options {
    fn name(&self) -> &'static str {
        "udaddy"
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
        let address = address.at(self.port_space, self.port);
        Nodes::new(cm, self.plan())?.serve(address, listening)
    }

    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        [here, server]: [Host; 2],
        both: bool,
    ) -> Result<Exchanged> {
        let server = server.at(self.port_space, self.port);
        Nodes::new(cm, self.plan())?.work(here, server, both)
    }

    fn announce(&self, address: Host) {
        println!("listening on {address} port {}", self.port);
    }
}
