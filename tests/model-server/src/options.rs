//! The command line.

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use connectx_model::Card;
use connectx_model::link::datagram::Address;
use connectx_model::link::setting::Fault;
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "connectx-model", about = "A model of a ConnectX network card")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve functions over vfio-user until SIGTERM or SIGINT
    ///
    /// Two functions are cabled together, more are on one switch; those with a --link are not among them. A client may
    /// come, go and come again: the function is reset in between.
    ///
    /// Lines on standard input strike while the server runs: "link FUNCTION up", "link FUNCTION down", "health FUNCTION
    /// SYNDROME", "restart FUNCTION", "vanish FUNCTION", "pages FUNCTION COUNT"; "loss 0.1" and the other kinds of --fault, "faults off", and
    /// "faults", which logs what they did so far; "state FUNCTION" prints what it did and how much memory it can reach.
    /// That standard input ends is not an end.
    Serve(Serve),
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum PortType {
    /// RoCE
    Eth,
    /// InfiniBand
    Ib,
}

#[derive(Args)]
pub(crate) struct Serve {
    /// Socket to listen at, one per function; a socket left there is removed
    #[arg(long = "socket", required = true, value_name = "PATH")]
    pub(crate) sockets: Vec<PathBuf>,
    /// A wire out of the process for the port of the function whose --socket comes before, instead of a place on the
    /// cable or switch: unix:LOCAL,REMOTE (paths) or udp:LOCAL,REMOTE (HOST:PORT or [IPv6]:PORT each)
    ///
    /// Every datagram is one Ethernet frame without check sequence, as with QEMU's -netdev dgram. LOCAL is bound (a
    /// socket left there is removed), REMOTE sent to; while no socket is bound there, frames are lost.
    #[arg(long = "link", value_name = "FAMILY:LOCAL,REMOTE")]
    links: Vec<Address>,
    /// Number of the first function, from 1: MAC addresses are 02:c9:00:00:00:NUMBER, GUIDs likewise, so that servers that
    /// are wired together have to differ
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) first_unit: u8,
    /// The card that every function is of: connectx-4-lx (as recorded from one), connectx-4, connectx-5, connectx-6-dx,
    /// connectx-7, bluefield, bluefield-ecpf, bluefield-vf
    #[arg(long, value_name = "NAME", default_value_t = Card::ConnectX5)]
    pub(crate) card: Card,
    /// Leave out what the card offers and the model does not do, as network drivers take up every offer
    #[arg(long)]
    pub(crate) modelled: bool,
    /// The link layer of the ports
    #[arg(long, value_enum, default_value = "eth")]
    pub(crate) port_type: PortType,
    /// Serve this function, counted from 0, as a virtual one
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) vf: Vec<usize>,
    /// The same, without a MAC address and GUIDs
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) vf_without_mac: Vec<usize>,
    /// Faults of frames between ports, and between ports and wires: loss, duplicate, reorder, delay or corrupt with its
    /// share of the frames (0.001 to 1), and max-delay with the longest delay (20us, 1ms, 2s; 1ms if not given)
    ///
    /// As in --fault loss=0.01,delay=0.1,max-delay=5ms.
    #[arg(long = "fault", value_name = "KIND=VALUE", value_delimiter = ',')]
    pub(crate) faults: Vec<Fault>,
    /// Decides which frames; printed at the start, and random if not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Pages that the firmware requests at boot
    #[arg(long)]
    pub(crate) boot_pages: Option<u32>,
    /// Pages that the firmware requests for INIT_HCA
    #[arg(long)]
    pub(crate) init_pages: Option<u32>,
    /// How many pages the firmware asks for at a time when it runs out later
    #[arg(long)]
    pub(crate) page_chunk: Option<u32>,
    /// Accept commands with unknown bits set, as newer drivers send them
    #[arg(long)]
    pub(crate) lenient: bool,
    /// Cards that take WQEs from their doorbell registers, if they come in bursts of 64 bytes
    #[arg(long)]
    pub(crate) blue_flame: bool,
    /// Combine writes to doorbell registers, which emulated processors do not, and let what does not fill a burst wait for
    /// so many microseconds
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) combining: Option<u64>,
    /// Record frames as they are sent, before faults, in this pcap file; it is whole whenever the server is killed
    #[arg(long)]
    pub(crate) pcap: Option<PathBuf>,
    /// What to log, as RUST_LOG has it
    ///
    /// error: what stopped. warn: what a driver or peer did wrong. info: clients, resets, faults. debug: each firmware
    /// command with its status, memory maps, interrupt vectors. trace: each command with all its fields, each register
    /// access, each frame.
    #[arg(long, default_value = "info")]
    pub(crate) log: String,
}

/// What was asked for: the options, and by function the wire that it is to have.
pub(crate) struct Asked {
    pub(crate) serve: Serve,
    pub(crate) links: Vec<Option<Address>>,
}

/// Reads the command line, or ends the process with help or with what is wrong.
pub(crate) fn parse() -> Asked {
    let mut command = Arguments::command();
    let matches = command.get_matches_mut();
    match asked(&matches) {
        Ok(asked) => asked,
        Err(why) => command
            .error(clap::error::ErrorKind::ValueValidation, why)
            .exit(),
    }
}

fn asked(matches: &ArgMatches) -> Result<Asked, String> {
    let Command::Serve(serve) = Arguments::from_arg_matches(matches)
        .map_err(|error| error.to_string())?
        .command;
    let places = |name: &str| -> Vec<usize> {
        matches
            .subcommand_matches("serve")
            .and_then(|serve| serve.indices_of(name))
            .map(Iterator::collect)
            .unwrap_or_default()
    };
    let links = pair(&places("sockets"), &places("links"), &serve.links)?;
    Ok(Asked { serve, links })
}

/// Gives each link to the socket before it, by their places on the command line.
fn pair(
    sockets: &[usize],
    links: &[usize],
    addresses: &[Address],
) -> Result<Vec<Option<Address>>, String> {
    let mut pairs = vec![None; sockets.len()];
    for (&place, address) in links.iter().zip(addresses) {
        let function = sockets
            .iter()
            .rposition(|&socket| socket < place)
            .ok_or_else(|| format!("--link {address} has no --socket before it"))?;
        if let Some(other) = pairs[function].replace(address.clone()) {
            return Err(format!(
                "function {function} has two links, {other} and {address}"
            ));
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(arguments: &[&str]) -> Result<Vec<Option<String>>, String> {
        let all = [&["connectx-model", "serve"], arguments].concat();
        let matches = Arguments::command()
            .try_get_matches_from(all)
            .map_err(|error| error.to_string())?;
        let asked = asked(&matches)?;
        assert_eq!(asked.links.len(), asked.serve.sockets.len());
        let text = |link: Option<Address>| link.map(|address| address.to_string());
        Ok(asked.links.into_iter().map(text).collect())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn links_belong_to_the_socket_before() {
        let (a, b) = ("unix:/l,/r", "udp:h:1,i:2");
        assert_eq!(
            links(&["--socket", "0", "--socket", "1"]),
            Ok(vec![None; 2])
        );
        assert_eq!(
            links(&[
                "--socket",
                "0",
                "--link",
                a,
                "--socket=1",
                "--socket",
                "2",
                "--link",
                b
            ]),
            Ok(vec![Some(a.into()), None, Some(b.into())])
        );
        assert!(links(&["--link", a, "--socket", "0"]).is_err());
        assert!(links(&["--socket", "0", "--link", a, "--link", b]).is_err());
        assert!(links(&["--socket", "0", "--link", "unix:/l"]).is_err());
        assert!(
            links(&[
                "--socket",
                "0",
                "--fault",
                "loss=0.1,delay=1",
                "--fault=corrupt=0"
            ])
            .is_ok()
        );
        assert!(links(&["--socket", "0", "--fault", "loss=2"]).is_err());
        assert!(links(&["--socket", "0", "--first-unit", "0"]).is_err());
        assert!(links(&["--socket", "0", "--card", "connectx-7"]).is_ok());
        let error = links(&["--socket", "0", "--card", "connectx-3"]).unwrap_err();
        assert!(error.contains("bluefield-ecpf"), "{error}");
        assert!(links(&[]).is_err());
    }
}
