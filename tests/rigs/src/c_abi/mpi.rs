//! Debian's Open MPI, with a program of ours that checks its results.

use super::larger::{Ended, Engines, Program, end, judge, start};
use super::run::Place;
use crate::outcome::Outcome;
use crate::process::quiet_output;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SOURCE: &str = include_str!("mpi.c");
/// The time that a job may take.
const END: Duration = Duration::from_secs(150);
/// The lines that every job prints.
pub(super) const SAYS: [&str; 4] = [
    "ring done",
    "allreduce done",
    "alltoall done",
    "one-sided done",
];

/// A job.
struct Job {
    name: &'static str,
    ranks: u8,
    /// The size of its largest messages.
    bytes: &'static str,
    engine: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Of `bareverbs-run`.
    options: &'static [&'static str],
    /// Also in the part for every change.
    always: bool,
}

pub(super) const UCX: &[&str] = &[
    "--mca",
    "pml",
    "ucx",
    "--mca",
    "osc",
    "ucx",
    "--mca",
    "btl",
    "self",
    // Without these it wants cards that it knows.
    "--mca",
    "opal_common_ucx_tls",
    "any",
    "--mca",
    "opal_common_ucx_devices",
    "any",
];
pub(super) const RC: &[(&str, &str)] = &[
    ("UCX_NET_DEVICES", "mlx5_0:1"),
    ("UCX_TLS", "rc_verbs,ud_verbs,self"),
];
pub(super) const UD: &[(&str, &str)] = &[
    ("UCX_NET_DEVICES", "mlx5_0:1"),
    ("UCX_TLS", "ud_verbs,self"),
];
pub(super) const OFI: &[&str] = &[
    "--mca",
    "pml",
    "cm",
    "--mca",
    "mtl",
    "ofi",
    "--mca",
    "osc",
    "pt2pt",
    "--mca",
    "btl",
    "self",
    "--mca",
    "mtl_ofi_provider_include",
    "verbs;ofi_rxm",
];
/// Ranks choose different ones of a device's addresses, which have to be of one family.
const IPV4: &[&str] = &["--log", "warn", "--address", "10.0.0.{unit}"];
const IMPAIRED: &[&str] = &[
    "--log",
    "error",
    "--address",
    "10.0.0.{unit}",
    "--loss",
    "1%",
    "--reorder",
    "1%",
    "--delay",
    "50us",
    "--fault-seed",
    "7",
];
const TCP: &[&str] = &[
    "--mca",
    "pml",
    "ob1",
    "--mca",
    "btl",
    "self,tcp",
    "--mca",
    "btl_tcp_if_include",
    "lo",
];
const LITTLE: &str = "65536";
pub(super) const LARGE: &str = "8388608";

const fn job(
    name: &'static str,
    ranks: u8,
    engine: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
) -> Job {
    Job {
        name,
        ranks,
        bytes: LARGE,
        engine,
        environment,
        options: IPV4,
        always: false,
    }
}

const fn small(job: Job, name: &'static str) -> Job {
    Job {
        name,
        bytes: LITTLE,
        always: true,
        ..job
    }
}

/// Each rank loses, reorders and delays what it sends.
const fn impaired(job: Job, name: &'static str) -> Job {
    Job {
        name,
        bytes: LITTLE,
        options: IMPAIRED,
        ..job
    }
}

const JOBS: &[Job] = &[
    small(job("", 2, UCX, RC), "mpi-ucx-rc-2-small"),
    small(job("", 2, OFI, &[]), "mpi-ofi-2-small"),
    impaired(job("", 2, UCX, RC), "mpi-ucx-rc-2-impaired"),
    impaired(job("", 2, UCX, UD), "mpi-ucx-ud-2-impaired"),
    impaired(job("", 2, OFI, &[]), "mpi-ofi-2-impaired"),
    job("mpi-tcp-2", 2, TCP, &[]),
    job("mpi-ucx-rc-2", 2, UCX, RC),
    job("mpi-ucx-ud-2", 2, UCX, UD),
    job("mpi-ofi-2", 2, OFI, &[]),
    job("mpi-ucx-rc-8", 8, UCX, RC),
    job("mpi-ucx-ud-8", 8, UCX, UD),
    job("mpi-ofi-8", 8, OFI, &[]),
];

/// All names, and which run for every change.
pub(super) fn names() -> impl Iterator<Item = (&'static str, bool)> {
    JOBS.iter().map(|job| (job.name, job.always))
}

/// Runs what is named.
pub(super) fn run(
    place: &Place<'_>,
    engines: &Engines,
    is_named: impl Fn(&str) -> bool,
) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    if !JOBS.iter().any(|job| is_named(job.name)) {
        return Ok(outcome);
    }
    let program = compile(place.logs, engines)?;
    for job in JOBS.iter().filter(|job| is_named(job.name)) {
        let begun = Instant::now();
        let mut arguments: Vec<String> = ["--oversubscribe", "-n"].map(String::from).into();
        arguments.push(job.ranks.to_string());
        arguments.extend(job.engine.iter().map(|word| (*word).to_owned()));
        arguments.push(program.display().to_string());
        arguments.push(job.bytes.to_owned());
        let launcher = Program {
            log: job.name.to_owned(),
            options: job.options,
            environment: job.environment,
            path: engines.program("mpirun.openmpi"),
            arguments,
        };
        let ended = start(place, Some(engines), &launcher).and_then(|running| end(running, END));
        let measured = ended.as_ref().ok().and_then(measured);
        let ranks = format!("{} ranks", job.ranks);
        let mut says = SAYS.to_vec();
        says.extend(["latency ", ranks.as_str()]);
        outcome.add(judge(place, job.name, ended, &says));
        let measured = measured.unwrap_or_default();
        println!(
            "{}: {:.1} s; {measured}",
            job.name,
            begun.elapsed().as_secs_f64()
        );
    }
    Ok(outcome)
}

/// The figures that the program has measured.
pub(super) fn measured(ended: &Ended) -> Option<String> {
    let mut lines = ended.printed.lines();
    lines
        .find(|line| line.starts_with("latency"))
        .map(str::to_owned)
}

pub(super) fn compile(logs: &Path, engines: &Engines) -> Result<PathBuf, String> {
    let (source, program) = (logs.join("mpi.c"), logs.join("mpi"));
    fs::write(&source, SOURCE).map_err(|error| format!("{}: {error}", source.display()))?;
    let libraries = engines.libraries();
    quiet_output(
        Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-o"])
            .arg(&program)
            .arg("-I")
            .arg(libraries.join("openmpi/include"))
            .arg(&source)
            .arg(format!("-L{}", libraries.display()))
            .args(["-l:libmpi.so.40", "-Wl,--allow-shlib-undefined"])
            .arg(format!("-Wl,-rpath-link,{}", libraries.display())),
    )?;
    Ok(program)
}
