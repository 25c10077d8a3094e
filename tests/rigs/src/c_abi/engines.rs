//! UCX's and libfabric's own programs, by themselves and in pairs.

use super::larger::{Ended, Engines, Program, QUIET, end, judge, start};
use super::run::{Place, free_port};
use super::scenario::{Ready, SERVED};
use crate::outcome::Outcome;
use std::time::{Duration, Instant};

/// The time that a program may take.
const END: Duration = Duration::from_secs(60);

/// A program by itself, or a pair.
struct Run {
    name: &'static str,
    program: &'static str,
    /// With `{port}` for a free TCP port, over which the two exchange their addresses.
    server: &'static [&'static str],
    /// Nothing: the program runs by itself.
    client: &'static [&'static str],
    /// Parts of what the last of them prints.
    says: &'static [&'static str],
    /// The transports that UCX may use, or all.
    transports: Option<&'static str>,
}

const fn perftest(
    name: &'static str,
    server: &'static [&'static str],
    client: &'static [&'static str],
) -> Run {
    Run {
        name,
        program: "ucx_perftest",
        server,
        client,
        says: &["Final: "],
        transports: None,
    }
}

const fn pingpong(
    name: &'static str,
    server: &'static [&'static str],
    client: &'static [&'static str],
    says: &'static [&'static str],
) -> Run {
    Run {
        name,
        program: "fi_pingpong",
        server,
        client,
        says,
        transports: None,
    }
}

/// The arguments of a server, and the same with those of the client.
macro_rules! ends {
    ($make:ident, $name:expr, [$($server:expr),*], [$($client:expr),*] $(, $says:expr)?) => {
        $make($name, &[$($server),*], &[$($client),*] $(, $says)?)
    };
}

/// A test of UCP on Debian's libmlx5, with one kind of transports (`rc_x` and `dc_x` have `ud_mlx5` for their first messages).
macro_rules! ucp {
    ($transports:literal, $test:literal) => {
        Run {
            transports: Some($transports),
            ..ends!(
                perftest,
                concat!("served-ucx-", $transports, "-", $test),
                ["-p", "{port}", "-t", $test, "-n", "100", "-w", "10"],
                [
                    "-p",
                    "{port}",
                    "-t",
                    $test,
                    "-n",
                    "100",
                    "-w",
                    "10",
                    "127.0.0.1"
                ]
            )
        }
    };
}

/// The beginning of the names of runs on Debian's own libraries, for which the kernel's verbs ABI is served.
const SERVED_PREFIX: &str = "served-";

/// The end of the name of a client's log.
const CLIENT: &str = ".client";

const RUNS: &[Run] = &[
    Run {
        name: "ucx-info",
        program: "ucx_info",
        server: &["-d"],
        client: &[],
        says: &[
            "Transport: rc_verbs",
            "Transport: ud_verbs",
            "Device: mlx5_0:1",
        ],
        transports: None,
    },
    ends!(
        perftest,
        "ucx-rc-am-lat",
        [
            "-p", "{port}", "-d", "mlx5_0:1", "-x", "rc_verbs", "-t", "am_lat", "-s", "64", "-n",
            "500", "-w", "10"
        ],
        [
            "-p",
            "{port}",
            "-d",
            "mlx5_0:1",
            "-x",
            "rc_verbs",
            "-t",
            "am_lat",
            "-s",
            "64",
            "-n",
            "500",
            "-w",
            "10",
            "127.0.0.1"
        ]
    ),
    ends!(
        perftest,
        "ucx-rc-put-bw",
        [
            "-p", "{port}", "-d", "mlx5_0:1", "-x", "rc_verbs", "-t", "put_bw", "-D", "zcopy",
            "-s", "65536", "-n", "500", "-w", "10"
        ],
        [
            "-p",
            "{port}",
            "-d",
            "mlx5_0:1",
            "-x",
            "rc_verbs",
            "-t",
            "put_bw",
            "-D",
            "zcopy",
            "-s",
            "65536",
            "-n",
            "500",
            "-w",
            "10",
            "127.0.0.1"
        ]
    ),
    ends!(
        perftest,
        "ucx-ud-am-bw",
        [
            "-p", "{port}", "-d", "mlx5_0:1", "-x", "ud_verbs", "-t", "am_bw", "-D", "bcopy", "-s",
            "2048", "-n", "500", "-w", "10"
        ],
        [
            "-p",
            "{port}",
            "-d",
            "mlx5_0:1",
            "-x",
            "ud_verbs",
            "-t",
            "am_bw",
            "-D",
            "bcopy",
            "-s",
            "2048",
            "-n",
            "500",
            "-w",
            "10",
            "127.0.0.1"
        ]
    ),
    // On Debian's libmlx5, which writes the work requests' rings.
    ends!(
        perftest,
        "served-ucx-rc-mlx5-put-lat",
        [
            "-p", "{port}", "-d", "mlx5_0:1", "-x", "rc_mlx5", "-t", "put_lat", "-n", "200", "-w",
            "10"
        ],
        [
            "-p",
            "{port}",
            "-d",
            "mlx5_0:1",
            "-x",
            "rc_mlx5",
            "-t",
            "put_lat",
            "-n",
            "200",
            "-w",
            "10",
            "127.0.0.1"
        ]
    ),
    ends!(
        perftest,
        "served-ucx-ud-mlx5-am-lat",
        [
            "-p", "{port}", "-d", "mlx5_0:1", "-x", "ud_mlx5", "-t", "am_lat", "-n", "200", "-w",
            "10"
        ],
        [
            "-p",
            "{port}",
            "-d",
            "mlx5_0:1",
            "-x",
            "ud_mlx5",
            "-t",
            "am_lat",
            "-n",
            "200",
            "-w",
            "10",
            "127.0.0.1"
        ]
    ),
    ucp!("rc_x", "ucp_put_lat"),
    ucp!("rc_x", "ucp_get"),
    ucp!("rc_x", "ucp_am_lat"),
    ucp!("rc_x", "tag_lat"),
    ucp!("rc_x", "tag_bw"),
    ucp!("rc_x", "stream_bw"),
    ucp!("rc_x", "ucp_fadd"),
    ucp!("rc_x", "ucp_cswap"),
    ucp!("dc_x", "ucp_put_lat"),
    ucp!("dc_x", "ucp_get"),
    ucp!("dc_x", "ucp_am_lat"),
    ucp!("dc_x", "tag_lat"),
    ucp!("dc_x", "tag_bw"),
    ucp!("dc_x", "stream_bw"),
    ucp!("dc_x", "ucp_fadd"),
    ucp!("dc_x", "ucp_cswap"),
    Run {
        name: "fi-info",
        program: "fi_info",
        server: &["-p", "verbs"],
        client: &[],
        says: &[
            "provider: verbs;ofi_rxm",
            "type: FI_EP_MSG",
            "type: FI_EP_DGRAM",
            "domain: mlx5_0",
        ],
        transports: None,
    },
    ends!(
        pingpong,
        "fi-pingpong-msg",
        [
            "-B", "{port}", "-p", "verbs", "-e", "msg", "-I", "100", "-c"
        ],
        [
            "-P",
            "{port}",
            "-p",
            "verbs",
            "-e",
            "msg",
            "-I",
            "100",
            "-c",
            "127.0.0.1"
        ],
        &["\n64k ", "\n1m "]
    ),
    ends!(
        pingpong,
        "fi-pingpong-dgram",
        [
            "-B",
            "{port}",
            "-p",
            "verbs",
            "-e",
            "dgram",
            "-d",
            "mlx5_0-dgram",
            "-I",
            "100"
        ],
        [
            "-P",
            "{port}",
            "-p",
            "verbs",
            "-e",
            "dgram",
            "-d",
            "mlx5_0-dgram",
            "-I",
            "100",
            "127.0.0.1"
        ],
        &["\n64 ", "\n1k "]
    ),
    ends!(
        pingpong,
        "fi-pingpong-rxm",
        [
            "-B",
            "{port}",
            "-p",
            "verbs;ofi_rxm",
            "-e",
            "rdm",
            "-I",
            "100",
            "-c"
        ],
        [
            "-P",
            "{port}",
            "-p",
            "verbs;ofi_rxm",
            "-e",
            "rdm",
            "-I",
            "100",
            "-c",
            "127.0.0.1"
        ],
        &["\n64k ", "\n1m "]
    ),
];

/// All names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    RUNS.iter().map(|run| run.name)
}

/// Runs what is named.
pub(super) fn run(
    place: &Place<'_>,
    engines: &Engines,
    is_named: impl Fn(&str) -> bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    for run in RUNS.iter().filter(|run| is_named(run.name)) {
        let begun = Instant::now();
        outcome.add(judge(place, run.name, ends(place, engines, run), run.says));
        println!("{}: {:.1} s", run.name, begun.elapsed().as_secs_f64());
    }
    outcome
}

/// Runs one or two programs to their ends; what the last one said.
fn ends(place: &Place<'_>, engines: &Engines, run: &Run) -> Result<Ended, String> {
    let port = free_port()?;
    let served = run.name.starts_with(SERVED_PREFIX);
    let debian = match served {
        true => place
            .debian()?
            .map(|(name, value)| {
                let value = value.to_string_lossy().into_owned();
                match name {
                    "LD_LIBRARY_PATH" => {
                        (name, format!("{value}:{}", engines.libraries().display()))
                    }
                    _ => (name, value),
                }
            })
            .to_vec(),
        false => Vec::new(),
    };
    let environment: Vec<(&str, &str)> = debian
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        // UCX would put its own function in the place of the preload library's `mmap`.
        .chain(served.then_some(("UCX_MEM_EVENTS", "n")))
        .chain(run.transports.map(|transports| ("UCX_TLS", transports)))
        .collect();
    let start_one = |side: &str, arguments: &[&str]| {
        // The address of a served device follows from its unit alone: a switch gives it none.
        let unit = if side == CLIENT { "2" } else { "1" };
        let options = match served {
            true => [SERVED, QUIET, &["--unit", unit]].concat(),
            false => QUIET.to_vec(),
        };
        let program = Program {
            log: format!("{}{side}", run.name),
            options: &options,
            environment: &environment,
            path: engines.program(run.program),
            arguments: arguments
                .iter()
                .map(|word| word.replace("{port}", &port.to_string()))
                .collect(),
        };
        start(place, Some(engines), &program)
    };
    if run.client.is_empty() {
        return end(start_one("", run.server)?, END);
    }
    let mut server = start_one(".server", run.server)?;
    place.wait_until_ready(&mut server, Ready::Tcp, port)?;
    let client = end(start_one(CLIENT, run.client)?, END)?;
    if client.status.success() {
        let server = end(server, END).map_err(|why| format!("server: {why}"))?;
        if !server.status.success() {
            return Err(format!("server: {}", server.status));
        }
    }
    Ok(client)
}
