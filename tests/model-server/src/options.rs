//! The command line.

use bareverbs_command_line::{EMPTY, Named, is_path, within};
use bpaf::Bpaf;
use connectx_model::Profile;
use connectx_model::fault::setting::Setting;
use connectx_model::link::datagram::Address;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

/// A model of a ConnectX network card
#[derive(Bpaf)]
#[bpaf(options)]
enum Command {
    /// Serve functions over vfio-user until SIGTERM or SIGINT
    ///
    /// Two functions are cabled together, more are on one switch; those with a --link are not among them. A client may
    /// come, go and come again: the function is reset in between.
    ///
    /// Lines on standard input strike while the server runs: "link FUNCTION up", "link FUNCTION down", "cable SWITCH PORT
    /// down" or "up", "busy COUNT" (questions to subnet administration), "health FUNCTION
    /// SYNDROME", "restart FUNCTION", "vanish FUNCTION", "pages FUNCTION COUNT"; "loss 0.1" and the other kinds of --fault, "fault
    /// command=NAME,…" as for --fault, "faults off", and
    /// "faults", which logs what they did so far; "state FUNCTION" prints what it did and how much memory it can reach.
    /// That standard input ends is not an end.
    #[bpaf(command)]
    Serve(#[bpaf(external(serve))] Serve),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortType {
    /// RoCE
    Eth,
    /// InfiniBand
    Ib,
}

impl Named for PortType {
    const ALL: &'static [(&'static str, Self)] = &[("eth", Self::Eth), ("ib", Self::Ib)];
}

impl FromStr for PortType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text)
    }
}

/// The functions, and their wires:
#[derive(Bpaf, Debug, Clone)]
enum Port {
    Socket(
        /// Socket to listen at, one per function; a socket left there is removed
        #[bpaf(long("socket"), argument("PATH"), guard(is_path, EMPTY))]
        PathBuf,
    ),
    Link(
        /// A wire out of the process for the port of the function whose --socket comes before, instead of a place on the
        /// cable or switch: unix:LOCAL,REMOTE (paths) or udp:LOCAL,REMOTE (HOST:PORT or [IPv6]:PORT each)
        ///
        /// Every datagram is one Ethernet frame without check sequence, as with QEMU's -netdev dgram. LOCAL is bound (a
        /// socket left there is removed), REMOTE sent to; while no socket is bound there, frames are lost.
        #[bpaf(long("link"), argument("FAMILY:LOCAL,REMOTE"))]
        Address,
    ),
}

#[derive(Bpaf, Debug)]
pub(crate) struct Serve {
    #[bpaf(external(port), many, parse(pair))]
    pub(crate) functions: Vec<Function>,
    /// Number of the first function, from 1 to 65535: the last two bytes of the MAC address 02:c9:00:00:XX:XX, and likewise
    /// in GUIDs, so that servers that are wired together have to differ
    #[bpaf(argument("NUMBER"), last, guard(within(1..), "not 1 to 65535"), fallback(1), display_fallback)]
    pub(crate) first_unit: u16,
    /// The card that every function is of: connectx-4-lx (as recorded from one), connectx-4, connectx-5, connectx-6-dx,
    /// connectx-7, bluefield, bluefield-ecpf, bluefield-vf; or the file of a card
    #[bpaf(
        argument("NAME|FILE"),
        last,
        fallback(Profile::default()),
        display_fallback
    )]
    pub(crate) card: Profile,
    /// Leave out what the card offers and the model does not do, as network drivers take up every offer
    #[bpaf(switch, last)]
    pub(crate) modelled: bool,
    /// The link layer of the ports: eth (RoCE), which is the default, or ib (InfiniBand)
    #[bpaf(argument("PORT_TYPE"), last, fallback(PortType::Eth))]
    pub(crate) port_type: PortType,
    /// InfiniBand ports begin without identifiers, and await a subnet manager
    #[bpaf(switch, last)]
    pub(crate) subnet_managed: bool,
    /// The firmware's agent answers subnet managers also where the driver has QP0, as iPXE's needs it
    #[bpaf(switch, last)]
    pub(crate) subnet_agent: bool,
    /// InfiniBand ports on a switch that a subnet manager configures
    #[bpaf(switch, last)]
    pub(crate) switch: bool,
    /// The same with several switches, as lines of this file say: "switch NAME PORTS", "adapter FUNCTION NAME:PORT",
    /// "cable NAME:PORT NAME:PORT", or of all as "fat-tree ADAPTERS PORTS" (of each switch); adapters beyond the last
    /// function have no driver, and what the firmware does for a subnet manager
    #[bpaf(long, argument("FILE"), last, guard(is_path, EMPTY), optional)]
    pub(crate) topology: Option<PathBuf>,
    /// Serve this function, counted from 0, as a virtual one
    #[bpaf(argument("FUNCTION"), last)]
    pub(crate) vf: Vec<usize>,
    /// The same, without a MAC address and GUIDs
    #[bpaf(argument("FUNCTION"), last)]
    pub(crate) vf_without_mac: Vec<usize>,
    /// Faults of frames between ports, and between ports and wires: loss, duplicate, reorder, delay or corrupt with its
    /// share of the frames (0.001 to 1), and max-delay with the longest delay (20us, 1ms, 2s; 1ms if not given); or a
    /// fault of a firmware command
    ///
    /// Examples are --fault loss=0.01,delay=0.1,max-delay=5ms and
    /// --fault command=CREATE_QP,nth=3,status=BAD_PARAM,syndrome=0x3c5a71,function=1. Which command: command=NAME, =NUMBER or
    /// =any, op-mod=NUMBER, the nth=NUMBER since the start (1 if not given), times=NUMBER in a row, of function=NUMBER
    /// (of each if not given). What happens, one of status=NAME with syndrome=NUMBER, delivery=NUMBER, late=TIME, dropped,
    /// never-answered (it is executed), half (an answer), event-lost, health=SYNDROME, vanish.
    #[bpaf(long("fault"), argument::<Setting>("KIND=VALUE,..."), many)]
    pub(crate) faults: Vec<Setting>,
    /// Decides which frames; printed at the start, and random if not given
    #[bpaf(argument("SEED"), last, optional)]
    pub(crate) seed: Option<u64>,
    /// Pages that the firmware requests at boot
    #[bpaf(argument("BOOT_PAGES"), last, optional)]
    pub(crate) boot_pages: Option<u32>,
    /// Pages that the firmware requests for INIT_HCA
    #[bpaf(argument("INIT_PAGES"), last, optional)]
    pub(crate) init_pages: Option<u32>,
    /// The number of pages that the firmware asks for at a time when it runs out later
    #[bpaf(argument("PAGE_CHUNK"), last, optional)]
    pub(crate) page_chunk: Option<u32>,
    /// Accept commands with unknown bits set, as newer drivers send them
    #[bpaf(switch, last)]
    pub(crate) lenient: bool,
    /// Cards that take WQEs from their doorbell registers, if they come in bursts of 64 bytes
    #[bpaf(switch, last)]
    pub(crate) blue_flame: bool,
    /// Combine writes to doorbell registers, which emulated processors do not, and let what does not fill a burst wait for
    /// so many microseconds
    #[bpaf(argument("MICROSECONDS"), last, optional)]
    pub(crate) combining: Option<u64>,
    /// Record frames as they are sent, before faults, in this pcap file; it is whole whenever the server is killed
    #[bpaf(long, argument("PCAP"), last, guard(is_path, EMPTY), optional)]
    pub(crate) pcap: Option<PathBuf>,
    /// Log filter, in the syntax of RUST_LOG
    ///
    /// error: what stopped. warn: what a driver or peer did wrong. info: clients, resets, faults. debug: each firmware
    /// command with its status, memory maps, interrupt vectors. trace: each command with all its fields, each register
    /// access, each frame.
    #[bpaf(argument("LOG"), last, fallback("info".to_owned()), display_fallback)]
    pub(crate) log: String,
}

/// A function that is asked for: its socket, and the wire that it is to have.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) socket: PathBuf,
    pub(crate) link: Option<Address>,
}

/// Reads the command line, or prints help or what is wrong.
pub(crate) fn parse() -> Result<Serve, ExitCode> {
    let Command::Serve(serve) = bareverbs_command_line::parse("connectx-model", &command())?;
    Ok(serve)
}

/// Gives each link to the socket before it.
fn pair(ports: Vec<Port>) -> Result<Vec<Function>, String> {
    let mut functions: Vec<Function> = Vec::new();
    for port in ports {
        match (port, functions.last_mut()) {
            (Port::Socket(socket), _) => functions.push(Function { socket, link: None }),
            (Port::Link(address), None) => {
                return Err(format!("--link {address} has no --socket before it"));
            }
            (Port::Link(address), Some(function)) => {
                if let Some(other) = function.link.replace(address.clone()) {
                    let number = functions.len() - 1;
                    return Err(format!(
                        "function {number} has two links, {other} and {address}"
                    ));
                }
            }
        }
    }
    match functions.len() {
        0 => Err("--socket: where?".to_owned()),
        _ => Ok(functions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(arguments: &[&str]) -> Result<Vec<Option<String>>, String> {
        let line = format!("serve {}", arguments.join(" "));
        let Command::Serve(serve) = bareverbs_command_line::parse_line(&command(), &line)?;
        let text = |function: Function| function.link.map(|address| address.to_string());
        Ok(serve.functions.into_iter().map(text).collect())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command().check_invariants(true);
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
        let command = "command=2ERR_QP,nth=2,late=20ms,function=0";
        assert!(links(&["--socket", "0", "--fault", command]).is_ok());
        let error = links(&["--socket", "0", "--fault", "command=2ERR_QP,late=20"]).unwrap_err();
        assert!(error.contains("\"20\" is no time"), "{error}");
        assert!(links(&["--socket", "0", "--first-unit", "0"]).is_err());
        assert!(links(&["--socket", "0", "--card", "connectx-7"]).is_ok());
        let error = links(&["--socket", "0", "--card", "connectx-3"]).unwrap_err();
        assert!(error.contains("bluefield-ecpf"), "{error}");
        assert!(links(&[]).is_err());
    }
}
