//! Measures the steps of many connections, as rdma-core's `cmtime` does: every step is begun for all
//! connections and then waited for, so that what can go on at once does. With the built-in model (the default) both
//! ends run here.
//!
//! A message of the connection manager that is not answered is sent again after a quarter of a second, which shows in the
//! times of its step; the program says how many there were. On the built-in model both ends and the model are threads of
//! one process: beside other busy programs one of them may wait for a processor for longer than that, and the other end
//! then repeats all messages that are under way (seen in up to 4 of 200 runs on two busy processors). `--patient` leaves
//! the early repetitions out.
//!
//! ```text
//! cmtime -c 1000
//! cmtime --device vfio:0000:3b:00.0 -b 192.0.2.1 -c 1000
//! cmtime --device vfio:0000:3b:00.1 -b 192.0.2.2 -s 192.0.2.1 -c 1000
//! ```

mod client;
mod in_step;
mod queues;
mod report;
mod server;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use bareverbs::cm::engine::Stats;
use bareverbs::cm::rdma::PortSpace;
use bareverbs_command_line::{PORTS, is_port, within};
use bareverbs_examples::Result;
use bareverbs_examples::addresses::{Addresses, addresses};
use bareverbs_examples::program::{self, Program};
use bareverbs_node::{About, Cm, Host};
use bpaf::Bpaf;
use client::Client;
use in_step::InStep;
use report::Times;

/// How long it takes to make many connections and to take them down, step by step.
///
/// Both ends run in this process, on two ConnectX models that are cabled together or on two cards, the server's named
/// first. On one card, or with --link, one end runs: the client if -s says where the server is. The server ends when as
/// many connections as -c says have come and gone.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(options)]
struct Options {
    #[bpaf(external)]
    addresses: Addresses,
    /// Connections.
    #[bpaf(
        short('c'),
        argument("COUNT"), last,
        guard(within(1..=10_000), "not 1 to 10000"),
        fallback(100),
        display_fallback
    )]
    connections: u16,
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
    /// How often an address is asked for again, and data sent again.
    #[bpaf(short('r'), argument("COUNT"), last, fallback(2), display_fallback)]
    retries: u8,
    /// How long an address may take to be resolved, in ms.
    #[bpaf(
        short('t'),
        argument("MS"), last,
        guard(within(1..), "less than 1"),
        fallback(2000),
        display_fallback
    )]
    timeout: u32,
    /// Keep in step with the cmtime of rdma-core 52 to 58: over TCP on the same port, in rounds of 1, COUNT and COUNT
    /// connections, of which the second is reported.
    #[bpaf(switch, last)]
    in_step: bool,
}

fn main() -> ExitCode {
    program::main("cmtime", &options(), |options| {
        options.addresses.run(options)
    })
}

/// Says how many messages of the connection manager were lost, or late, so that they were sent again: that takes a quarter of
/// a second and more each time, which the rates do not explain.
fn repeated(end: &str, stats: &Stats) {
    log::info!("{end}: {stats:?}");
    if stats.repeated > 0 {
        println!(
            "{end}: {} of {} messages of the connection manager were sent again",
            stats.repeated, stats.sent
        );
    }
}

impl Program for Options {
    /// Connections that came and went.
    type Served = usize;
    type Found = Times;

    fn name(&self) -> &'static str {
        "cmtime"
    }
    const CLIENT: usize = 1;

    fn connections(&self) -> usize {
        self.connections.into()
    }

    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<usize> {
        let address = address.at(PortSpace::Tcp, self.port);
        let in_step = match self.in_step {
            true => Some(InStep::listen(cm, address)?),
            false => None,
        };
        let served = server::serve(cm, address, &self.rounds(), in_step, listening)?;
        repeated("server", cm.stats());
        Ok(served)
    }

    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        _: &About,
        [here, server]: [Host; 2],
        _: bool,
    ) -> Result<Times> {
        let server = server.at(PortSpace::Tcp, self.port);
        let mut in_step = match self.in_step {
            true => Some(InStep::connect(cm, here, server)?),
            false => None,
        };
        let mut rounds = Vec::new();
        for connections in self.rounds() {
            let plan = client::Plan {
                connections,
                here: here.at(PortSpace::Tcp, 0),
                server,
                retries: self.retries,
                timeout: Duration::from_millis(self.timeout.into()),
            };
            rounds.push(Client::new(&mut *cm, &plan, in_step.as_mut())?.run()?);
        }
        if let Some(in_step) = in_step {
            in_step.close(cm)?;
        }
        let measured = rounds.len() / 2;
        let times = rounds.swap_remove(measured);
        print!("{times}");
        times.log();
        repeated("client", cm.stats());
        Ok(times)
    }

    fn announce(&self, address: Host) {
        println!("listening on {address} port {}", self.port);
    }

    fn compare(&self, served: &usize, times: &Times) -> Result<()> {
        let found: usize = self.rounds().iter().sum();
        if *served == found && times.connections() == usize::from(self.connections) {
            return Ok(());
        }
        Err(format!("the server counts {served} connections, the client {found}").into())
    }
}

impl Options {
    /// The number of connections of each round.
    fn rounds(&self) -> Vec<usize> {
        let connections = self.connections.into();
        match self.in_step {
            true => in_step::rounds(connections).to_vec(),
            false => vec![connections],
        }
    }
}
