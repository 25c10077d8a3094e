//! TCP and RDMA on one port, with one address. The server sends back what it receives: over TCP, with smoltcp on the
//! port's Ethernet queue or its interface of IP over InfiniBand, and over RDMA connections that carry a message each. Echo
//! requests it answers as well.
//!
//! With --iperf3 the TCP service is iperf3's instead, for `iperf3 -c` in either direction.
//!
//! By default the client runs in this process too, on a second device model. To a server any TCP client may come, and
//! rdma-core's `rdma_client`.

mod iperf3;
mod service;
mod stack;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use bareverbs::cm::rdma::PortSpace;
use bareverbs_command_line::{PORTS, is_port};
use bareverbs_examples::Result;
use bareverbs_examples::addresses::{Addresses, addresses};
use bareverbs_examples::program::{self, Program};
use bareverbs_node::{About, Cm, Host};
use bpaf::Bpaf;
use service::{Client, Server};
use stack::Stack;

/// The longest time that the client waits for anything.
const SILENCE: Duration = Duration::from_secs(30);

/// TCP and RDMA on one port.
///
/// Both ends run in this process, on two ConnectX models that are cabled together or on two cards, the server's named
/// first. On one card, or with --link, one end runs: the client if -s says where the server is.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(
    options,
    guard(|it| it.iperf3.is_none() || it.addresses.is_server(), "--iperf3 is for a server alone")
)]
struct Options {
    #[bpaf(external)]
    addresses: Addresses,
    /// Port of the RDMA service.
    #[bpaf(
        short('p'),
        argument("PORT"),
        last,
        guard(is_port, PORTS),
        fallback(7471),
        display_fallback
    )]
    port: u16,
    /// Port of the TCP service. 7 if not given, as the service of echoes has, or 5201, as iperf3's has.
    #[bpaf(short('t'), argument("PORT"), last, guard(is_port, PORTS), optional)]
    tcp_port: Option<u16>,
    /// Bytes that the client sends over TCP.
    #[bpaf(
        short('S'),
        argument("BYTES"),
        last,
        fallback(1_000_000),
        display_fallback
    )]
    size: usize,
    /// Messages that the client sends over RDMA meanwhile, each over a separate connection. A server ends after so
    /// many, if its TCP client has gone as well.
    #[bpaf(short('C'), argument("COUNT"), last, fallback(10), display_fallback)]
    messages: u32,
    /// Instead of sending back what comes over TCP, be the server of so many tests by iperf3's client. There are no
    /// messages over RDMA then.
    #[bpaf(long, argument("TESTS"), optional)]
    iperf3: Option<u32>,
}

/// The bytes that went by at one end, each way.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Echoed {
    bytes: usize,
    messages: u32,
}

fn main() -> ExitCode {
    program::main("tcp_echo", &options(), |options| {
        options.addresses.run(options)
    })
}

impl Options {
    fn tcp_port(&self) -> u16 {
        let usual = if self.iperf3.is_some() { 5201 } else { 7 };
        self.tcp_port.unwrap_or(usual)
    }

    fn print_result(&self, end: &str, echoed: Echoed) {
        let Echoed { bytes, messages } = echoed;
        println!("{end}: {bytes} bytes over TCP and {messages} messages over RDMA, there and back");
    }
}

impl Options {
    /// The server of some tests. What fails because of its client is logged, and does not count.
    fn serve_iperf3(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        tests: u32,
        listening: &mut dyn FnMut(),
    ) -> Result<Echoed> {
        let port = self.tcp_port();
        let mut stack = Stack::new(cm, address, iperf3::CONNECTIONS)?;
        let mut server = iperf3::Server::new(&mut stack.listeners(port))?;
        listening();
        let (mut bytes, mut left) = (0, tests);
        while left > 0 || !server.is_idle() {
            match server.work(cm.now(), &mut stack.listeners(port))? {
                Some(Ok(report)) => {
                    println!("{report}");
                    bytes += report.bytes() as usize;
                    left = left.saturating_sub(1);
                }
                Some(Err(error)) => log::warn!("iperf3: {error}"),
                None => {}
            }
            stack.poll(cm)?;
            let deadline = stack.next_deadline(cm, iperf3::SILENCE);
            cm.wait(deadline)?;
        }
        let messages = 0;
        Ok(Echoed { bytes, messages })
    }
}

impl Program for Options {
    type Served = Echoed;
    type Found = Echoed;

    fn name(&self) -> &'static str {
        "tcp_echo"
    }
    const CLIENT: usize = 1;

    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<Echoed> {
        if let Some(tests) = self.iperf3 {
            return self.serve_iperf3(cm, address, tests, listening);
        }
        let mut server = Server::new(cm, address.at(PortSpace::Tcp, self.port))?;
        let mut stack = Stack::new(cm, address, 1)?;
        stack.socket().listen(self.tcp_port())?;
        listening();
        let mut echoed = Echoed::default();
        while echoed.messages < self.messages || !stack.is_over() {
            echoed.messages += server.work(cm)?;
            echoed.bytes += stack.echo()?;
            stack.poll(cm)?;
            let deadline = stack.next_deadline(cm, SILENCE);
            cm.wait(deadline)?;
        }
        server.close(cm)?;
        self.print_result("server", echoed);
        Ok(echoed)
    }

    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        _: &About,
        [here, server]: [Host; 2],
        both: bool,
    ) -> Result<Echoed> {
        let mut stack = Stack::new(cm, here, 1)?;
        stack.connect(server, self.tcp_port())?;
        let mut client = Client::new(cm, [here, server], self.port, self.messages, both)?;
        let (mut sent, mut received) = (0, 0);
        let mut give_up = cm.now() + SILENCE;
        while received < self.size || !client.is_over() {
            let before = (received, client.messages());
            client.work(cm)?;
            sent += stack.send(sent, self.size)?;
            received += stack.compare(received)?;
            stack.poll(cm)?;
            if (received, client.messages()) != before {
                give_up = cm.now() + SILENCE;
            } else if cm.now() >= give_up {
                return Err(format!("no answer; {received} bytes until then").into());
            }
            let deadline = stack.next_deadline(cm, SILENCE).min(give_up);
            cm.wait(deadline)?;
        }
        stack.close(cm, give_up)?;
        let echoed = Echoed {
            bytes: received,
            messages: client.messages(),
        };
        self.print_result("client", echoed);
        Ok(echoed)
    }

    fn announce(&self, address: Host) {
        let (port, tcp_port) = (self.port, self.tcp_port());
        println!("listening on {address} port {port}, and TCP port {tcp_port}");
    }

    fn compare(&self, served: &Echoed, found: &Echoed) -> Result<()> {
        if served == found {
            return Ok(());
        }
        Err(format!("the server counts {served:?}, the client {found:?}").into())
    }
}
