//! The command line, with the letters that rdma-core's `rping` uses.

use bareverbs::verbs::Mtu;
use clap::Parser;
use std::net::IpAddr;

use crate::place::Place;

fn parse_mtu(text: &str) -> Result<Mtu, String> {
    (1..=5)
        .filter_map(Mtu::from_number)
        .find(|mtu| mtu.bytes().to_string() == text)
        .ok_or_else(|| "256, 512, 1024, 2048 or 4096".into())
}

/// RDMA ping-pong: the server reads what the client advertises, then writes it back.
///
/// With neither -s nor -c server and client run in this process: on two ConnectX models that are cabled together, without
/// hardware and without root; or on two cards, the server's named first.
#[derive(Parser, Debug, Clone)]
#[command(name = "rping", disable_version_flag = true)]
pub(crate) struct Options {
    /// Act as the server.
    #[arg(short = 's', conflicts_with = "client")]
    pub(crate) server: bool,
    /// Act as the client.
    #[arg(short = 'c')]
    pub(crate) client: bool,
    /// Address: of the server to connect to, or to listen on.
    #[arg(short = 'a', value_name = "ADDRESS")]
    pub(crate) address: Option<IpAddr>,
    /// Port.
    #[arg(short = 'p', value_name = "PORT", default_value_t = 7174, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Ping-pongs; the server goes on until the client disconnects.
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 10_000)]
    pub(crate) count: u32,
    /// Bytes of a message.
    #[arg(short = 'S', value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(26..=64 << 20))]
    pub(crate) size: u32,
    /// Verify every byte; always on when both ends run here.
    #[arg(short = 'V')]
    pub(crate) validate: bool,
    /// Print every ping.
    #[arg(short = 'v')]
    pub(crate) verbose: bool,
    /// The card: "model", or "vfio:BDF" for the function at this PCI address; two of them with a comma between, if both
    /// ends are to run here.
    #[arg(
        long,
        value_name = "DEVICE",
        default_value = "model",
        env = "BAREVERBS_DEVICE",
        value_delimiter = ','
    )]
    pub(crate) device: Vec<Place>,
    /// Sleep until the card raises an interrupt, instead of polling it.
    #[arg(long)]
    pub(crate) interrupts: bool,
    /// This end's address, for a client on a card; a server has the one that it listens on.
    #[arg(short = 'I', value_name = "ADDRESS")]
    pub(crate) source: Option<IpAddr>,
    /// The peer's MAC address, or the router's, on a card: there is no ARP yet.
    #[arg(long, value_name = "MAC")]
    pub(crate) peer_mac: Option<String>,
    /// Largest path MTU in bytes that a client asks for: 256 to 4096. On a card 1024 if not given, which fits the frames of
    /// 1500 bytes that networks carry unless told otherwise.
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub(crate) mtu: Option<Mtu>,
    /// Print the results as JSON, and nothing else on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}
