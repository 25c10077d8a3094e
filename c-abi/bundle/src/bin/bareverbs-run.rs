//! Runs a program with the libraries that lie beside this one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use bareverbs_bundle::{
    Impairment, LIBRARIES, LIBRARY, PATHS_LIBRARY, SOCKETS_LIBRARY, SUPPRESSIONS, UVERBS_LIBRARY,
    hang_up, impairment, switch, tree,
};
use bareverbs_command_line::{EMPTY, is_path, parse_words};
use bpaf::Bpaf;
use connectx_model::link::datagram::Address;
use connectx_model::pcap::PAGE;

/// Runs an RDMA program on bareverbs: with its libibverbs.so.1 and librdmacm.so.1 in place of the system's.
///
/// On the device model, two programs are joined by a wire: `bareverbs-run --wire /tmp/wire --unit 1 rping -s` and, on
/// another terminal, `bareverbs-run --wire /tmp/wire --unit 2 rping -c -a 10.0.0.1`. Any number are joined by a switch:
/// `bareverbs-run --switch /tmp/switch mpirun -n 8 PROGRAM`.
#[derive(Bpaf, Debug)]
#[bpaf(
    options,
    guard(|it| it.wire.is_none() || it.link.is_none(), "--wire and --link cannot be used together"),
    guard(|it| it.wire.is_none() || it.unit.is_some(), "--wire needs --unit"),
    guard(
        |it| it.switch.is_none() || it.link.is_none() && it.wire.is_none(),
        "--switch cannot be used together with --link or --wire"
    ),
    guard(
        |it| !it.infiniband || !it.sockets && it.address.is_none(),
        "--infiniband cannot be used together with --sockets or --address"
    ),
    guard(
        |it| !it.uverbs || !it.sockets && !it.preload && !it.infiniband,
        "--uverbs cannot be used together with --sockets, --preload or --infiniband"
    ),
    guard(
        |it| it.serve_switch.is_none() || it.switch.is_none() && it.program.is_empty(),
        "a switch is served by itself"
    ),
    guard(|it| it.serve_switch.is_some() || !it.program.is_empty(), "which PROGRAM?")
)]
struct Options {
    /// The devices: model, or vfio:ADDRESS of a PCI function that is bound to vfio-pci; with commas between them.
    #[bpaf(argument("DEVICE"), last, optional)]
    device: Option<String>,
    /// The model's wire to another process: unix:LOCAL,REMOTE (paths) or udp:LOCAL,REMOTE (HOST:PORT each).
    #[bpaf(argument("FAMILY:LOCAL,REMOTE"), last, optional)]
    link: Option<String>,
    /// A wire between two processes on one machine, in place of --link: a path that both name, of sockets PATH.1 and
    /// PATH.2. One process is --unit 1, the other --unit 2.
    #[bpaf(long, argument("PATH"), last, guard(is_path, EMPTY), optional)]
    wire: Option<PathBuf>,
    /// Connect the program, and all those that it starts, to the switch at this path, with everyone else who names it. It
    /// runs from the first one to the last one.
    #[bpaf(long, argument("PATH"), last, guard(is_path, EMPTY), optional)]
    switch: Option<PathBuf>,
    /// Join the switch to that of another machine, over UDP: udp:LOCAL,REMOTE (HOST:PORT each), REMOTE being LOCAL of the
    /// other one's. More than two machines need one for each pair. Only the process that starts the
    /// switch sets its uplinks. Processes of all machines need different unit numbers.
    #[bpaf(long, argument::<String>("udp:LOCAL,REMOTE"), parse(uplink), many)]
    uplink: Vec<Address>,
    /// Be the switch at this path, and say on standard output when it is there.
    #[bpaf(long, argument("PATH"), last, guard(is_path, EMPTY), optional, hide)]
    serve_switch: Option<PathBuf>,
    /// The number of the model, which its MAC address and its IP addresses end in. If not given, it is the rank of the
    /// process plus 1 (of Open MPI, PMIx, MPICH or Slurm), else the switch gives one, else it is 1. Each process of a wire
    /// or of a switch has another.
    #[bpaf(argument("NUMBER"), last, optional)]
    unit: Option<u8>,
    /// The device's IP addresses, with commas between them, each with a prefix length if it is not the usual one;
    /// 10.0.0.UNIT and fd00::UNIT if not given. {unit} in it stands for the number of the model.
    #[bpaf(argument("ADDRESS[/PREFIX]"), last, optional)]
    address: Option<String>,
    /// Make the model's port an InfiniBand port, whose LID is the number of the model. It has no IP addresses: the connection
    /// manager takes GIDs (AF_IB).
    #[bpaf(switch, last)]
    infiniband: bool,
    /// Use RDMA for the program's ordinary sockets, where their addresses are in the networks of the devices: both ends run
    /// with this option, or are programs with rsockets.
    #[bpaf(switch, last)]
    sockets: bool,
    /// Put the libraries in front of those that the program brings along under other names (LD_PRELOAD), as programs from
    /// wheels do.
    #[bpaf(switch, last)]
    preload: bool,
    /// Serve the kernel's verbs ABI in the process, for rdma-core's own libibverbs and libmlx5, which the program then uses in
    /// place of these libraries. A trial: docs/verbs-abi.md says what there is. One device.
    #[bpaf(switch, last)]
    uverbs: bool,
    /// Record the frames that pass the model's port, in this pcap file. docs/captures.md has how to read it.
    #[bpaf(argument("FILE"), last, optional)]
    pcap: Option<String>,
    #[bpaf(external)]
    impairment: Impairment,
    /// Log of the library on standard error: error, warn, info, debug or trace, or filters of env_logger.
    #[bpaf(argument("FILTER"), last, optional)]
    log: Option<String>,
    /// The program and its arguments.
    #[bpaf(positional("PROGRAM"), many)]
    program: Vec<OsString>,
}

// What is not given here stays as the environment has it.
fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == hang_up::ARGUMENT)
    {
        return hang_up::serve();
    }
    let words = divided(std::env::args_os().skip(1));
    let options = match parse_words("bareverbs-run", &options(), &words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    if let Some(path) = &options.serve_switch {
        return switch::serve(path, &options.uplink);
    }
    let recording = options.pcap.clone();
    let why = match command(options) {
        Ok(mut command) => {
            if let Some(file) = recording {
                eprintln!("bareverbs-run: recording to {file}: {PAGE} has how to read it");
            }
            // Returns only if it fails.
            let error = command.exec();
            format!("{}: {error}", command.get_program().display())
        }
        Err(why) => why,
    };
    eprintln!("bareverbs-run: {why}");
    // As shells have it for programs that cannot be run.
    ExitCode::from(127)
}

fn command(options: Options) -> Result<Command, String> {
    let mut program = options.program.into_iter();
    let mut command = Command::new(program.next().unwrap_or_default());
    command.args(program);

    let here = std::env::current_exe().map_err(|error| format!("where am I: {error}"))?;
    let folder = here.parent().unwrap_or(&here);
    if !folder.join(LIBRARY).exists() {
        return Err(format!(
            "{} has no {LIBRARY}: the program bundle makes it",
            folder.display()
        ));
    }
    if !options.uverbs {
        command.env(
            "LD_LIBRARY_PATH",
            before("LD_LIBRARY_PATH", &[folder.to_owned()]),
        );
    }
    let device = options.device.clone();
    let devices = device.or_else(|| std::env::var("BAREVERBS_DEVICE").ok());
    let devices = devices.unwrap_or_else(|| "model".to_owned());
    if options.uverbs && devices.contains(',') {
        return Err(format!("--uverbs has one device: {devices} are several"));
    }
    let mut preload = Vec::new();
    let preloaded = folder.join(PATHS_LIBRARY);
    let kind = match options.uverbs {
        true => tree::Kind::Served,
        false => tree::Kind::of(options.infiniband, &devices),
    };
    let tree = match devices.strip_prefix("vfio:").filter(|_| options.uverbs) {
        Some(address) => {
            let tree = tree::of_card(address);
            Some(tree.map_err(|error| format!("the files of {devices}: {error}"))?)
        }
        None => tree::of(folder, devices.split(',').count(), kind),
    };
    if let Some(tree) = tree.filter(|_| preloaded.exists()) {
        preload.push(preloaded);
        command.env("BAREVERBS_PATHS", tree);
    }
    for (wanted, name) in [
        (options.sockets, SOCKETS_LIBRARY),
        (options.uverbs, UVERBS_LIBRARY),
    ] {
        let library = folder.join(name);
        if wanted && !library.exists() {
            let folder = folder.display();
            return Err(format!(
                "{folder} has no {name}: the program bundle makes it"
            ));
        }
        if wanted {
            preload.push(library);
        }
    }
    if options.preload {
        preload.extend(LIBRARIES.map(|name| folder.join(name)));
    }
    if !preload.is_empty() {
        command.env("LD_PRELOAD", before("LD_PRELOAD", &preload));
    }

    let suppressions = folder.join(SUPPRESSIONS);
    command.env(
        "VALGRIND_OPTS",
        suppressing(&suppressions, std::env::var_os("VALGRIND_OPTS")),
    );

    let link = match (options.wire, options.unit) {
        (Some(wire), Some(unit @ 1..=2)) => {
            let wire = wire.display();
            Some(format!("unix:{wire}.{unit},{wire}.{}", 3 - unit))
        }
        (Some(_), _) => return Err("a wire has two ends: --unit 1 and --unit 2".into()),
        (None, _) => options.link,
    };
    let link = match options.switch {
        Some(path) => {
            let path = std::path::absolute(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            switch::join(&path, &options.uplink, options.log.as_deref())?;
            Some(format!("switch:{}", path.display()))
        }
        None if !options.uplink.is_empty() => return Err("an uplink is for a --switch".into()),
        None => link,
    };
    let settings = [
        ("BAREVERBS_DEVICE", options.device),
        ("BAREVERBS_LINK", link),
        ("BAREVERBS_UNIT", options.unit.map(|unit| unit.to_string())),
        ("BAREVERBS_ADDRESS", options.address),
        (
            "BAREVERBS_PORT",
            options.infiniband.then(|| "infiniband".to_owned()),
        ),
        ("BAREVERBS_PCAP", options.pcap),
        ("BAREVERBS_LOG", options.log),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.envs(options.impairment.environment());
    Ok(command)
}

fn uplink(text: String) -> Result<Address, String> {
    match text.parse()? {
        address @ Address::Udp { .. } => Ok(address),
        _ => Err("not of the form udp:LOCAL,REMOTE".into()),
    }
}

/// Returns the options that valgrind takes besides its command line: the list of the findings that are to be expected of
/// the library, and the options that the environment has.
fn suppressing(list: &Path, rest: Option<OsString>) -> OsString {
    let mut options = OsString::from("--suppressions=");
    options.push(list);
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        options.push(" ");
        options.push(rest);
    }
    options
}

/// The words with "--" before the program, whose own options are not to be looked at.
fn divided(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut divided = Vec::new();
    let mut words = words.peekable();
    while let Some(word) = words.next_if(|word| word.as_bytes().starts_with(b"-")) {
        let end = word == "--";
        let valued = word.as_bytes().starts_with(b"--")
            && !word.as_bytes().contains(&b'=')
            && !FLAGS.iter().any(|flag| word == *flag);
        divided.push(word);
        if end {
            divided.extend(words);
            return divided;
        }
        if valued {
            divided.extend(words.next());
        }
    }
    if words.peek().is_some() {
        divided.push("--".into());
    }
    divided.extend(words);
    divided
}

/// The options that the word after is no value of.
const FLAGS: [&str; 5] = [
    "--infiniband",
    "--sockets",
    "--preload",
    "--uverbs",
    "--help",
];

/// A list with colons between its parts: these ones, and what the environment has.
fn before(name: &str, first: &[PathBuf]) -> OsString {
    let rest = std::env::var_os(name).filter(|rest| !rest.is_empty());
    let first = first.iter().map(|path| path.as_os_str().to_owned());
    let all: Vec<OsString> = first.chain(rest).collect();
    all.join(":".as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, ExitCode> {
        let words = divided(
            line.split(' ')
                .filter(|word| !word.is_empty())
                .map(OsString::from),
        );
        parse_words("bareverbs-run", &options(), &words)
    }

    #[test]
    fn the_programs_options_are_its_own() {
        options().check_invariants(true);
        for (line, unit, program) in [
            ("rping -s --unit 2", None, "rping -s --unit 2"),
            (
                "--unit 1 rping --unit 2 -- --help",
                Some(1),
                "rping --unit 2 -- --help",
            ),
            (
                "--unit=1 --sockets prog --sockets",
                Some(1),
                "prog --sockets",
            ),
            ("--infiniband -- --prog -x", None, "--prog -x"),
            ("--log a=b --unit 1 -- prog --", Some(1), "prog --"),
        ] {
            let parsed = parse(line).expect(line);
            assert_eq!(parsed.unit, unit, "{line}");
            let words: Vec<OsString> = program.split(' ').map(OsString::from).collect();
            assert_eq!(parsed.program, words, "{line}");
        }
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        for line in [
            "",
            "--unit 1",
            "--wire w prog",
            "--wire w --unit 1 --link l prog",
            "--switch s --link l prog",
            "--switch s --wire w --unit 1 prog",
            "--infiniband --sockets prog",
            "--infiniband --address 10.0.0.1 prog",
            "--uverbs --sockets prog",
            "--serve-switch s prog",
            "--serve-switch s --switch t",
            "--cable-out-for 1s prog",
            "--uplink unix:a,b prog",
            "--unit 256 prog",
            "--bogus prog",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in [
            "--wire w --unit 1 --uverbs prog",
            "--uverbs --device vfio:0000:01:00.0 prog",
            "--switch s --uplink udp:a:1,b:2 --uplink udp:a:1,c:2 prog",
            "--serve-switch s",
            "--cable-out-after 2s --cable-out-for 1s prog",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }
}
