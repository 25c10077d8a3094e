//! `cargo rig stock-driver`: the vendor's own driver, unmodified from Debian's stock kernel, on the device model.
//!
//! The model serves vfio-user; QEMU (software emulation, no KVM needed) plugs it into machines, whose kernels load
//! `mlx5_core` and `mlx5_ib` and run stock programs, alone or against each other. Every message of the driver or the
//! model at warning level or above is a failure, unless it is in the list of explained messages; and so is a step of a
//! script that never ran.
//!
//! Frames between functions are recorded, and tshark and our decoders have to read the same from them.
//!
//! With `--card NAME` the model is that card instead of the usual ConnectX-5, except for features of the card that the
//! model does not have.
//!
//! Consoles, QEMU's and the model's logs and these frames are left in
//! `target/rigs/stock-driver/log/KERNEL/SCENARIO/`, with the name of the card before the scenario's if one was asked for.

mod bzimage;
mod cpio;
mod in_c;
pub(crate) mod kernel;
mod machine;
mod plan;
mod process;
pub(crate) mod provision;
mod report;
mod rig;
mod scenario;
mod server;
mod transcript;

use crate::folder::empty;
use crate::outcome::Outcome;
use connectx_model::Card;
pub(crate) use in_c::InC;
pub(crate) use kernel::Purpose;
pub(crate) use provision::Kernel;
use report::Report;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

pub(crate) use process::{Process, spawn};
pub(crate) use provision::Provisions;
pub(crate) use rig::{Program, Rig};
#[cfg(test)]
pub(crate) use scenario::check_plans;
pub(crate) use scenario::{BOOT, Boot, Loader, SCENARIO, Scenario};
pub(crate) use server::Server;

pub(crate) const ABOUT: &str =
    "Linux's own mlx5 driver in QEMU guests, on the model (slow: boots machines; downloads once)";

/// The number of scenarios that run at a time.
const AT_A_TIME: usize = 2;

/// The arguments.
#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    kernels: Vec<Kernel>,
    /// By name; none means all.
    scenarios: Vec<&'a str>,
    /// The cards that the model is one after the other; the model's own card if none is named.
    cards: Vec<Option<Card>>,
}

impl<'a> Request<'a> {
    fn parse(arguments: &'a [String], all: &[Scenario]) -> Result<Self, String> {
        let mut kernels = Vec::new();
        let mut scenarios = Vec::new();
        let mut cards = Vec::new();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--card" {
                let name = arguments.next().map_or("", String::as_str);
                let card: Card = name
                    .parse()
                    .map_err(|error| format!("--card {name:?}: {error}"))?;
                cards.push(Some(card));
            } else if argument.starts_with("--") {
                let kernel = Kernel::by_option(argument).ok_or_else(|| {
                    format!(
                        "no option {argument}: --stable boots trixie's kernel, --backports the newest, --bookworm an \
                         older one, --iommufd and --flow-offload ones that are built for it; --card NAME is the card that \
                         the model is"
                    )
                })?;
                kernels.push(kernel);
            } else if all.iter().any(|known| known.name == argument) {
                scenarios.push(argument.as_str());
            } else {
                let names: Vec<_> = all.iter().map(|known| known.name).collect();
                return Err(format!("no scenario {argument:?}: {}", names.join(", ")));
            }
        }
        if kernels.is_empty() {
            kernels.push(Kernel::Stable);
        }
        if cards.is_empty() {
            cards.push(None);
        }
        Ok(Self {
            kernels,
            scenarios,
            cards,
        })
    }

    /// Returns `true` if a scenario is to run on the first kernel, or on another one.
    fn includes(&self, scenario: &Scenario, first: bool) -> bool {
        let first_only = !scenario.every_kernel || scenario.kernel.is_some();
        match self.scenarios.as_slice() {
            [] => first || !first_only,
            named => named.contains(&scenario.name) && (first || scenario.kernel.is_none()),
        }
    }

    /// The scenarios to run, each with its kernel: the one that is asked for, unless the scenario is for another.
    fn jobs<'s>(&self, all: &'s [Scenario]) -> Vec<(&'s Scenario, Kernel)> {
        let of = |(index, kernel): (usize, &Kernel)| {
            let kernel = *kernel;
            let wanted = all
                .iter()
                .filter(move |known| self.includes(known, index == 0));
            wanted.map(move |scenario| (scenario, scenario.kernel.unwrap_or(kernel)))
        };
        self.kernels.iter().enumerate().flat_map(of).collect()
    }
}

/// Runs all scenarios on the first kernel that is asked for, and on others those in which kernels differ; or, if some are
/// named, those on each.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let rig = Rig {
        name: "stock-driver",
        scenarios: scenario::ALL,
        programs: Vec::new(),
        ours: PathBuf::new(),
    };
    run_rig(&rig, arguments)
}

/// Runs a rig's scenarios.
pub(crate) fn run_rig(rig: &Rig, arguments: &[String]) -> Result<Outcome, String> {
    let started = Instant::now();
    let request = Request::parse(arguments, rig.scenarios)?;
    let directory = directory()?;
    let lock = lock(&directory)?;

    let wanted = request.jobs(rig.scenarios);
    let mut provisions: Vec<(Kernel, Provisions)> = Vec::new();
    for &(_, kernel) in &wanted {
        if !provisions.iter().any(|(known, _)| *known == kernel) {
            let found = provision::provision(&directory, kernel)?;
            println!("{}", found.about);
            provisions.push((kernel, found));
        }
    }
    build_server(&root())?;
    println!("ready after {} s", started.elapsed().as_secs());

    let jobs: Vec<Job<'_>> = wanted
        .iter()
        .filter_map(|&(scenario, kernel)| {
            let (_, provisions) = provisions.iter().find(|(known, _)| *known == kernel)?;
            Some((scenario, kernel, provisions))
        })
        .flat_map(|(scenario, kernel, provisions)| {
            request.cards.iter().map(move |&card| Job {
                scenario,
                card,
                kernel,
                provisions,
                rig,
            })
        })
        .collect();
    let logs = directory.with_file_name(rig.name).join("log");
    let report = run_all(&jobs, &logs)?;
    drop(lock);
    for (known, times) in &report.explained {
        println!(
            "explained, {times} times: {known}: {}",
            scenario::reason(known, rig.scenarios)
        );
    }
    println!("finished after {} s", started.elapsed().as_secs());
    Ok(Outcome {
        passed: report.passed,
        failed: report.failed,
    })
}

/// The set-up of a rig with machines of another kind: QEMU, and the model's server, built. As long as the file is open, no
/// other rig boots machines.
pub(crate) fn prepare() -> Result<(Provisions, fs::File), String> {
    let lock = lock(&directory()?)?;
    let provisions = provisions()?;
    build_server(&root())?;
    Ok((provisions, lock))
}

/// The files that were fetched, or are fetched now.
pub(crate) fn provisions() -> Result<Provisions, String> {
    provision::provision(&directory()?, Kernel::Stable)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The directory of everything that was fetched.
fn directory() -> Result<PathBuf, String> {
    let directory = root().join("target/rigs/stock-driver");
    fs::create_dir_all(&directory)
        .and_then(|()| directory.canonicalize())
        .map_err(|error| error.to_string())
}

/// Two rigs at a time would be too slow for their time limits.
fn lock(directory: &Path) -> Result<fs::File, String> {
    let lock = directory.join("lock");
    fs::File::create(&lock)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| format!("{}: {error}", lock.display()))
}

/// A scenario on a kernel and a card.
struct Job<'a> {
    scenario: &'a Scenario,
    card: Option<Card>,
    kernel: Kernel,
    provisions: &'a Provisions,
    rig: &'a Rig,
}

impl Job<'_> {
    fn run(&self, logs: &Path) -> Result<Report, String> {
        let mut logs = logs.join(self.kernel.suite());
        if let Some(card) = self.card {
            logs.push(card.name());
        }
        logs.push(self.scenario.name);
        empty(&logs)?;
        // The path of a socket is limited to about a hundred bytes, and a checkout's path may be longer.
        let sockets = std::env::temp_dir().join(format!(
            "rig-{}-{}-{}{}",
            std::process::id(),
            self.kernel.suite(),
            self.scenario.name,
            self.card.map_or("", Card::name)
        ));
        empty(&sockets)?;
        let report = self
            .scenario
            .run(self.provisions, self.rig, self.card, &logs, &sockets);
        fs::remove_dir_all(&sockets).map_err(|error| format!("{}: {error}", sockets.display()))?;
        report
    }
}

/// Runs the jobs, some at a time, and prints each when it has ended. Returns the sum.
fn run_all(jobs: &[Job<'_>], logs: &Path) -> Result<Report, String> {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Ok(Report::default()));
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = Instant::now();
            let result = job.run(logs);
            let seconds = started.elapsed().as_secs();
            let Scenario { name, about, .. } = job.scenario;
            let kernel = job.kernel.suite();
            let card = job.card.map(|card| format!(", {card}")).unwrap_or_default();
            println!("{name} ({kernel}{card}), {seconds} s: {about}");
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *all, result) {
                (Ok(all), Ok(report)) => {
                    print!("{}", report.text);
                    all.add(&report);
                }
                (all, Err(why)) => {
                    println!("FAILED: {why}");
                    *all = Err(format!("{name}: {why}"));
                }
                (Err(_), Ok(_)) => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(jobs.len()) {
            scope.spawn(work);
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The model's server, beside this program.
fn build_server(root: &Path) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["build", "--quiet", "--package", "connectx-model-server"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
            Request::parse(&words, scenario::ALL).map(|request| {
                let count = |first| {
                    let included = |known: &&Scenario| request.includes(known, first);
                    scenario::ALL.iter().filter(included).count()
                };
                (request.kernels.clone(), [count(true), count(false)])
            })
        };
        let differ = |known: &&Scenario| known.every_kernel;
        let differ = scenario::ALL.iter().filter(differ).count();
        assert!(differ > 0);
        let all = [scenario::ALL.len(), differ];
        assert_eq!(parse(&[]), Ok((vec![Kernel::Stable], all)));
        assert_eq!(
            parse(&["--backports", "--stable"]),
            Ok((vec![Kernel::Backports, Kernel::Stable], all))
        );
        assert_eq!(parse(&["probe"]), Ok((vec![Kernel::Stable], [1, 1])));
        assert_eq!(
            parse(&["--bookworm", "probe", "perf"]),
            Ok((vec![Kernel::Old], [2, 2]))
        );
        // A scenario for one kernel runs on that one, whichever is asked for.
        let one = [Scenario {
            name: "one",
            kernel: Some(Kernel::Built(Purpose::Iommufd)),
            ..SCENARIO
        }];
        for words in [&[][..], &["one"], &["--stable", "--backports", "one"]] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
            let jobs = Request::parse(&words, &one).unwrap();
            let jobs: Vec<_> = jobs
                .jobs(&one)
                .into_iter()
                .map(|(_, kernel)| kernel)
                .collect();
            assert_eq!(jobs, [Kernel::Built(Purpose::Iommufd)], "{words:?}");
        }
        assert!(parse(&["--fast"]).is_err());
        assert_eq!(
            parse(&["--card", "connectx-4-lx", "probe"]),
            Ok((vec![Kernel::Stable], [1, 1]))
        );
        assert!(parse(&["--card"]).is_err());
        let error = parse(&["--card", "probe"]).unwrap_err();
        assert!(error.contains("connectx-4-lx, connectx-4,"), "{error}");
        assert!(parse(&["prob"]).is_err());
    }
}
