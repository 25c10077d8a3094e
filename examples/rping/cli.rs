//! The command line, with the letters that rdma-core's `rping` uses.

use bareverbs_command_line::{PORTS, is_port, within};
use bareverbs_examples::ends::{Ends, ends};
use bpaf::Bpaf;
use std::str::FromStr;

/// Where messages lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    Region,
    Window,
    Indirect,
    Device,
}

impl FromStr for MemoryKind {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "region" => Ok(Self::Region),
            "window" => Ok(Self::Window),
            "indirect" => Ok(Self::Indirect),
            "device" => Ok(Self::Device),
            _ => Err("it is region, window, indirect or device"),
        }
    }
}

/// RDMA ping-pong: the server reads what the client advertises, then writes it back.
///
/// With neither -s nor -c server and client run in this process: on two ConnectX models that are cabled together, without
/// hardware and without root; or on two cards, the server's named first. With --link the model's port leads out of the
/// process, so that one end runs here.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(
    options,
    guard(|it| !it.persistent || it.ends.server, "-P needs -s"),
    guard(|it| !it.persistent || it.times.is_none(), "-P and --times cannot be used together"),
    guard(|it| it.reject.is_none() || it.ends.server, "--reject needs -s"),
    guard(|it| it.private_data.is_none() || it.ends.client, "--private-data needs -c"),
    guard(
        |it| it.memory != MemoryKind::Window || !it.ends.server,
        "--memory window cannot be used with -s: the client reads and writes nothing of a server's, and a window has no \
         key for this end"
    )
)]
pub(crate) struct Options {
    #[bpaf(external)]
    pub(crate) ends: Ends,
    /// Port.
    #[bpaf(
        short('p'),
        argument("PORT"),
        last,
        guard(is_port, PORTS),
        fallback(7174),
        display_fallback
    )]
    pub(crate) port: u16,
    /// Ping-pongs; the server goes on until the client disconnects.
    #[bpaf(
        short('C'),
        argument("COUNT"),
        last,
        fallback(10_000),
        display_fallback
    )]
    pub(crate) count: u32,
    /// Connections, one after the other: of a client, each with its ping-pongs; of a server, before it ends; 1 if not given.
    #[bpaf(long, argument("COUNT"), last, guard(within(1..), "less than 1"), optional)]
    pub(crate) times: Option<u32>,
    /// Serve any number of clients, one after the other, until the program is ended. One that says nothing for 30 seconds has
    /// to make way.
    #[bpaf(short('P'), switch, last)]
    pub(crate) persistent: bool,
    /// Reject connections, with this text.
    #[bpaf(argument("TEXT"), last, optional)]
    pub(crate) reject: Option<String>,
    /// Ask for a connection with this text, which rping's server has no use for, but perhaps another one.
    #[bpaf(argument("TEXT"), last, optional)]
    pub(crate) private_data: Option<String>,
    /// Bytes of a message.
    #[bpaf(
        short('S'),
        argument("BYTES"), last,
        guard(within(26..=64 << 20), "not 26 to 67108864"),
        fallback(4096),
        display_fallback
    )]
    pub(crate) size: u32,
    /// Where messages lie: "region", in registered memory; "window", behind a window of type 2, bound for each
    /// message and invalidated then; "indirect", in two regions behind one indirect key, which is opened and closed by work
    /// requests; "device", in memory of the card. The server has a region behind no window.
    #[bpaf(argument("KIND"), last, fallback(MemoryKind::Region))]
    pub(crate) memory: MemoryKind,
    /// Verify every byte; always on when both ends run here.
    #[bpaf(short('V'), switch, last)]
    pub(crate) validate: bool,
    /// Print every ping.
    #[bpaf(short('v'), switch, last)]
    pub(crate) verbose: bool,
    /// Print the results as JSON, and nothing else on standard output.
    #[bpaf(switch, last)]
    pub(crate) json: bool,
}

impl Options {
    /// The number of connections.
    pub(crate) fn times(&self) -> u32 {
        self.times.unwrap_or(1)
    }
}
