//! The command line, with the letters that rdma-core's `rping` uses.

use clap::Parser;

use bareverbs_examples::ends::Ends;

/// RDMA ping-pong: the server reads what the client advertises, then writes it back.
///
/// With neither -s nor -c server and client run in this process: on two ConnectX models that are cabled together, without
/// hardware and without root; or on two cards, the server's named first. With --link the model's port leads out of the
/// process, so that one end runs here.
#[derive(Parser, Debug, Clone)]
#[command(name = "rping", disable_version_flag = true)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) ends: Ends,
    /// Port.
    #[arg(short = 'p', value_name = "PORT", default_value_t = 7174, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Ping-pongs; the server goes on until the client disconnects.
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 10_000)]
    pub(crate) count: u32,
    /// Connections, one after the other: of a client, each with its ping-pongs; of a server, before it ends.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) times: u32,
    /// Serve any number of clients, one after the other, until the program is ended. One that says nothing for 30 seconds has
    /// to make way.
    #[arg(short = 'P', requires = "server", conflicts_with_all = ["times", "client"])]
    pub(crate) persistent: bool,
    /// Reject connections, with this text.
    #[arg(long, value_name = "TEXT", requires = "server")]
    pub(crate) reject: Option<String>,
    /// Ask for a connection with this text, which rping's server has no use for, but perhaps another one.
    #[arg(long, value_name = "TEXT", default_value = "", requires = "client")]
    pub(crate) private_data: String,
    /// Bytes of a message.
    #[arg(short = 'S', value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(26..=64 << 20))]
    pub(crate) size: u32,
    /// Verify every byte; always on when both ends run here.
    #[arg(short = 'V')]
    pub(crate) validate: bool,
    /// Print every ping.
    #[arg(short = 'v')]
    pub(crate) verbose: bool,
    /// Print the results as JSON, and nothing else on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}
