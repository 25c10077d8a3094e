//! `cargo rig twin`: the same program on Linux's driver with Debian's rdma-core, and on our libraries. What it can see is
//! equal, or it is in the table of `docs/differences.md`.
//!
//! The program reads scripts of calls, and prints what each call gave. On Linux it runs in a machine of the stock-driver rig;
//! our libraries have a model of their own. A row of the table that explains nothing is a failure as well.
//!
//! `cargo rig twin whole` compares further machines: our libraries on vfio-pci, and on Linux's side the newest kernel, and
//! rdma-core older and newer. It also compares `rdma_rxe` with Linux's driver of the card, by `docs/providers.md`, of which each
//! run has a part.
//!
//! Scripts are written, or drawn by a seed: each run has some of a seed that is always the same, and some of a new one, which
//! it prints. `cargo rig twin drawn CALLS [SEED]` runs drawn scripts alone, as many as have that many calls, and shortens
//! those in which the sides differ without a row.
//!
//! `cargo rig twin MACHINE` runs one of these machines, and compares with the last run of all scripts.
//!
//! Rust's API is judged by the same scripts and Linux's results. `cargo rig twin rust` does it by those of the last run of all
//! scripts, without a machine.
//!
//! Scripts whose names end in `-plain` use the C library's sockets: TCP and UDP on Linux, and rsockets under
//! `bareverbs-run --sockets` here.
//!
//! Scripts whose names begin with `newer-` call functions that are newer than Debian's rdma-core: they are compared on the
//! machine with the newest only. `cargo rig twin only NAME...` compares the scripts whose names begin so, and
//! `cargo rig twin whole NAME...` does on all machines.
//!
//! Each function of libibverbs and librdmacm that works has to be called by twenty scripts, also those of rsockets; mlx5's own are
//! not counted. `cargo rig twin coverage` prints in how many the last run of all scripts has called each.
//!
//! Both sides' results are left in `target/rigs/twin/log/`, and those of the last run of all scripts in its folder `full/`.

mod compare;
mod coverage;
mod drawn;
mod oracles;
mod providers;
mod rust;
mod script;
mod search;
mod shrink;

use crate::outcome::Outcome;
use crate::stock_driver::{self, InC, Program, Rig, provision};
use bareverbs_bundle::{LIBRARY, RUNNER};
use compare::{Difference, Results, Row};
use oracles::{NAME, ORACLES, Oracle, SCENARIOS};
use script::Script;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

pub(crate) const ABOUT: &str = "a program on Linux's driver and rdma-core, and on our libraries: equal, call by call (boots a machine)";

/// The program's name, and its text.
const RUNNER_NAME: &str = "runner";
const PROGRAM: &str = concat!(
    include_str!("language.c"),
    include_str!("verbs.c"),
    include_str!("data.c"),
    include_str!("extended.c"),
    include_str!("cm.c"),
    include_str!("process.c"),
    include_str!("newer.c"),
    include_str!("sockets.c"),
    include_str!("runner.c"),
);
const PACKAGES: &[&str] = &[
    "libibverbs-dev",
    "libibverbs1",
    "librdmacm-dev",
    "librdmacm1t64",
];
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";

/// The folder of both sides' results.
const LOGS: &str = "target/rigs/twin/log";
/// The runner's input, and Linux's results.
const INPUT: &str = "scripts";
const LINUX: &str = "linux";
/// The results of our libraries.
const OURS: &str = "ours";
/// The folder, in that of the results, of those of the last run of all scripts.
const FULL: &str = "full";
const SCRIPTS: &str = "tests/rigs/src/twin/scripts";
const PAGE: &str = "docs/differences.md";
/// The section of the page about Rust's API.
const RUST: &str = "Rust's API";
/// The page with the functions of the libraries.
const LIST: &str = "docs/c-abi.md";

/// The calls that are drawn in each run by a seed that is always the same, and by a new one.
const DRAWN: [usize; 2] = [2000, 1000];
const SAME_SEED: u64 = 1;

/// Runs all scripts on both sides; `whole`: those that are written, and those of the same seed, also on the other machines.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if arguments.first().is_some_and(|word| word == "drawn") {
        return search::run(&root, &arguments[1..]);
    }
    if arguments == ["rust"] {
        let logs = root.join(LOGS).join(FULL);
        let scripts = script::of_input(&read(&logs.join(INPUT))?);
        let linux = read(&logs.join(LINUX))?;
        return judge_rust(&root, &scripts, &compare::results(&linux), true);
    }
    let written = script::read_folder(&root.join(SCRIPTS))?;
    let list = read(&root.join(LIST))?;
    let counts = |printed: &str| {
        let written = written.iter().map(|script| script.name.as_str()).collect();
        coverage::counts(printed, &written, &list)
    };
    if arguments == ["coverage"] {
        let printed = read(&root.join(LOGS).join(FULL).join(OURS))?;
        print!("{}", coverage::report(&counts(&printed)));
        return Ok(Outcome::default());
    }
    let whole = arguments.first().is_some_and(|word| word == "whole");
    let alone = oracles::ALONE.iter().any(|name| arguments == [*name]);
    let mut scripts = written.clone();
    let mut options = vec![NAME.to_string()];
    match arguments {
        [] => {
            scripts.extend(drawn::scripts(SAME_SEED, DRAWN[0]));
            let seed = search::new_seed();
            println!(
                "drawn by seed {SAME_SEED}, and by {seed}: `cargo rig twin drawn {} {seed}` repeats these",
                DRAWN[1]
            );
            scripts.extend(drawn::scripts(seed, DRAWN[1]));
            options.push(oracles::RXE.to_string());
        }
        [_, names @ ..] if whole => {
            scripts.extend(drawn::scripts(SAME_SEED, DRAWN[0]));
            scripts.retain(|script| names.is_empty() || script.begins(names));
            options = oracles::WHOLE.map(String::from).into();
        }
        [name] if alone => {
            scripts = script::of_input(&read(&root.join(LOGS).join(FULL).join(INPUT))?);
            options = vec![name.clone()];
        }
        [word, names @ ..] if word == "only" => {
            scripts.retain(|script| script.begins(names));
            options = Vec::new();
            if !scripts.iter().all(Script::is_newer) {
                options.push(NAME.to_string());
            }
            if scripts.iter().any(Script::is_newer) {
                options.push(oracles::NEWEST.to_string());
            }
        }
        _ => {
            return Err(
                "cargo rig twin [whole [NAME...] | older-libraries | vfio | rxe | rust | coverage | only NAME... | drawn CALLS [SEED]]"
                    .into(),
            );
        }
    }
    if arguments.is_empty() {
        scripts.retain(|script| !script.is_largest());
    }
    if !scripts.iter().any(providers::is_for) {
        options.retain(|option| option != oracles::RXE);
    }
    let all_rows = arguments.is_empty() || arguments == ["whole"];
    let logs = root.join(LOGS);
    let (mut outcome, sides) = match alone {
        true => one_machine(&root, &scripts, &options)?,
        false => both(&root, NAME, &scripts, &options)?,
    };
    if options.iter().any(|it| it == oracles::RXE) {
        let page = read(&root.join(providers::PAGE))?;
        let rxe = printed(&logs.join("trixie").join(oracles::RXE))?;
        let part = |it: &&Script| !arguments.is_empty() || providers::is_in_part(it);
        let of_rxe: Vec<Script> = scripts.iter().filter(part).cloned().collect();
        outcome.add(providers::judge(
            &page,
            &of_rxe,
            &compare::results(&sides.linux),
            &compare::results(&rxe),
            arguments == ["whole"] || alone,
        )?);
    }
    if all_rows {
        let full = logs.join(FULL);
        fs::create_dir_all(&full).map_err(|error| format!("{}: {error}", full.display()))?;
        for name in [INPUT, LINUX, OURS] {
            let to = full.join(name);
            fs::copy(logs.join(name), &to).map_err(|error| format!("{}: {error}", to.display()))?;
        }
    }
    let page = read(&root.join(PAGE))?;
    let judge = Judge {
        rows: oracles::rows(&page, None)?,
        all_rows: all_rows || alone,
        left_out: 0,
    };
    let linux = compare::results(&sides.linux);
    let ours = compare::results(&sides.ours);
    let common: Vec<Script> = scripts
        .iter()
        .filter(|it| !it.is_newer())
        .cloned()
        .collect();
    // The card on vfio-pci is not the kernel's, and our sockets are not put before the C library's there; ours.sh says the rest.
    let of_card = |it: &&Script| !it.has_plain_sockets() && !it.is_largest();
    let on_card: Vec<Script> = common.iter().filter(of_card).cloned().collect();
    if options.iter().any(|it| it == NAME) {
        let mut judge = judge.clone();
        let rows = oracles::rows(&page, Some(oracles::WITHOUT_VFIO))?;
        judge.rows.extend(rows);
        outcome.add(judge.compare("", &common, &linux, &ours, &[]));
        outcome.add(judge_rust(&root, &common, &linux, all_rows)?);
    }
    if all_rows {
        outcome.add(coverage::check(&counts(&sides.ours)));
    }
    let run = |oracle: &&Oracle| {
        let runs = || options.iter().any(|it| oracle.logs.ends_with(it.as_str()));
        whole || oracle.newer && runs() || alone && runs()
    };
    for oracle in ORACLES.iter().filter(run) {
        let other = printed(&logs.join(oracle.logs))?;
        let other = compare::results(&other);
        let (linux, ours) = if oracle.ours {
            (&linux, &other)
        } else {
            (&other, &ours)
        };
        let rows = oracles::rows(&page, Some(oracle.heading))?;
        let mut judge = judge.clone();
        for heading in oracle.also {
            judge.rows.extend(oracles::rows(&page, Some(heading))?);
        }
        let scripts = match (oracle.newer, oracle.ours) {
            (true, _) => &scripts,
            (_, true) => &on_card,
            _ => &common,
        };
        outcome.add(judge.compare(oracle.heading, scripts, linux, ours, &rows));
    }
    Ok(outcome)
}

/// Runs scripts on Rust's API, and compares with Linux's results.
fn judge_rust(
    root: &Path,
    scripts: &[Script],
    linux: &Results<'_>,
    all: bool,
) -> Result<Outcome, String> {
    let page = read(&root.join(PAGE))?;
    let mut rows = oracles::rows(&page, None)?;
    rows.extend(oracles::rows(&page, Some(oracles::WITHOUT_VFIO))?);
    let printed = rust::Printed::of(scripts, linux);
    write(&root.join(LOGS).join("rust"), &printed.lines)?;
    let mut outcome = match all {
        true => printed.report(),
        false => Outcome::default(),
    };
    check_faults(
        &format!("{RUST}: "),
        &compare::results(&printed.lines),
        &mut outcome,
    );
    let (ours, left_out) = printed.filled(linux);
    let judge = Judge {
        rows,
        all_rows: all,
        left_out,
    };
    let rows = oracles::rows(&page, Some(RUST))?;
    outcome.add(judge.compare(RUST, scripts, linux, &ours, &rows));
    Ok(outcome)
}

/// The output of the program on each side.
struct Sides {
    linux: String,
    ours: String,
}

impl Sides {
    fn differences<'a>(&'a self, scripts: &'a [Script]) -> Vec<Difference<'a>> {
        let linux = compare::results(&self.linux);
        let ours = compare::results(&self.ours);
        compare::differences(scripts, &linux, &ours)
    }
}

/// The machines with the scripts, and our libraries. `all`: also machines with other libraries than Debian 13's.
fn prepare(root: &Path, scripts: &[Script], all: bool) -> Result<(Rig, PathBuf, PathBuf), String> {
    let directory = root.join("target/rigs/twin");
    let logs = root.join(LOGS);
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let file = |name: &'static str, is_in: &dyn Fn(&&Script) -> bool| {
        let path = logs.join(name);
        let text = script::input(scripts.iter().filter(is_in));
        write(&path, &text).map(|()| Program { name, path })
    };
    let mut programs = vec![
        file(INPUT, &|it| !it.is_newer())?,
        file("together", &|it| !it.is_newer() && !it.is_alone())?,
        file("alone", &|it| !it.is_newer() && it.is_alone())?,
        file("newer", &|it| it.is_newer())?,
        file(oracles::RXE, &|it| {
            providers::is_for(it) && (all || providers::is_in_part(it))
        })?,
    ];

    let in_c = directory.join("in-c");
    let tree = provision::guest_packages(&in_c, PACKAGES, RECIPE)?;
    let (text, counting) = coverage::counting(PROGRAM, &read(&root.join(LIST))?);
    let counting = counting.iter().map(String::as_str);
    let program = InC {
        name: RUNNER_NAME,
        text: &text,
        libraries: &counting
            .chain(["-lrdmacm", "-libverbs"])
            .collect::<Vec<_>>(),
    };
    let program = program.build(&in_c, &tree, None)?;
    let bundle = directory.join("bundle");
    let bundle = bareverbs_bundle::build(Some(&bundle), bareverbs_bundle::Kept::Code)?.folder;
    programs.push(Program {
        name: RUNNER_NAME,
        path: program.clone(),
    });
    if all {
        programs.push(Program {
            name: LIBRARY,
            path: bundle.join(LIBRARY),
        });
        programs.extend(oracles::libraries(&directory)?);
    }
    let rig = Rig {
        name: "twin",
        scenarios: SCENARIOS,
        programs,
        ours: PathBuf::new(),
    };
    Ok((rig, bundle, program))
}

/// Runs scripts on one machine; the sides are those of the last run of all scripts.
fn one_machine(
    root: &Path,
    scripts: &[Script],
    options: &[String],
) -> Result<(Outcome, Sides), String> {
    let (rig, ..) = prepare(root, scripts, true)?;
    let outcome = stock_driver::run_rig(&rig, options)?;
    let side = |name| read(&root.join(LOGS).join(FULL).join(name));
    let (linux, ours) = (side(LINUX)?, side(OURS)?);
    Ok((outcome, Sides { linux, ours }))
}

/// Runs scripts on our libraries and in the scenarios of the options; Linux's results are those of one. The checks are those
/// of the machines.
fn both(
    root: &Path,
    scenario: &str,
    scripts: &[Script],
    options: &[String],
) -> Result<(Outcome, Sides), String> {
    let logs = root.join(LOGS);
    let of_guests = [scenario, oracles::RXE];
    let all = options.iter().any(|it| !of_guests.contains(&it.as_str()));
    let (rig, bundle, program) = prepare(root, scripts, all)?;
    // Both sides wait most of the time, each for itself.
    let (of_machines, ours) = thread::scope(|scope| {
        let ours = scope.spawn(|| on_ours(&bundle, &program, scripts, &logs));
        (stock_driver::run_rig(&rig, options), ours.join())
    });
    let mut outcome = of_machines?;
    let (of_ours, ours) = ours.map_err(|_| "the run on our libraries panicked")??;
    outcome.add(of_ours);
    write(&logs.join(OURS), &ours)?;
    check_faults("", &compare::results(&ours), &mut outcome);
    let linux = match options.iter().any(|option| option == scenario) {
        true => printed(&logs.join("trixie").join(scenario))?,
        false => String::new(),
    };
    write(&logs.join(LINUX), &linux)?;
    Ok((outcome, Sides { linux, ours }))
}

/// The comparison of two results by the table's rows.
#[derive(Clone)]
struct Judge<'a> {
    rows: Vec<Row<'a>>,
    /// `true` if all scripts are there, so that each row has to explain something.
    all_rows: bool,
    /// Calls that ours did not make, and which have Linux's results.
    left_out: usize,
}

impl<'a> Judge<'a> {
    /// Compares. Where `heading` is that of a section of the page, the section's rows hold as well as the table's, and only
    /// they have to explain something.
    fn compare(
        &self,
        heading: &str,
        scripts: &'a [Script],
        linux: &Results<'a>,
        ours: &Results<'a>,
        section: &[Row<'_>],
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let at = match heading {
            "" => String::new(),
            _ => format!("{heading}: "),
        };
        // Those of the table and of Rust's API were checked when they were made.
        if !heading.is_empty() && heading != RUST {
            check_faults(&at, ours, &mut outcome);
        }
        let needed = if heading.is_empty() {
            &self.rows
        } else {
            section
        };
        let rows = || self.rows.iter().chain(section);
        let differences = compare::differences(scripts, linux, ours);
        let (explained, unexplained): (Vec<_>, Vec<_>) = differences
            .iter()
            .partition(|found| rows().any(|row| row.explains(found)));
        for found in &unexplained {
            outcome.check(false, || format!("{at}{found}"));
        }
        for row in needed.iter().filter(|_| self.all_rows) {
            let shows = explained.iter().any(|found| row.explains(found));
            outcome.check(shows, || {
                format!("{PAGE} has a difference that does not show: {at}{row}")
            });
        }
        let calls: usize = scripts.iter().map(|script| script.lines.len()).sum();
        let calls = calls - self.left_out;
        outcome.passed += calls - differences.len();
        println!(
            "{at}{} scripts, {calls} calls, {} differences explained by {} rows, {} not",
            scripts.len(),
            explained.len(),
            rows().count(),
            unexplained.len()
        );
        outcome
    }
}

/// In the result of a call that died, and of one that the program or the C library has no name for.
const FAULTS: [&str; 3] = ["died of ", "no such call", "no-such-error"];

/// No call of ours may have such a result, not even where Linux's libraries do as well.
fn check_faults(at: &str, ours: &Results<'_>, outcome: &mut Outcome) {
    for (script, results) in ours {
        for result in results
            .values()
            .filter(|it| FAULTS.iter().any(|fault| it.contains(fault)))
        {
            outcome.check(false, || format!("{at}ours: {script}: {result}"));
        }
    }
}

/// The number of scripts that a process of the program gets, so that one that dies takes few with it. The guest's script
/// has the same.
const AT_A_TIME: usize = 100;

/// Runs the program on our libraries, with a model in its own process. Returns the checks of its processes' ends, and the output:
/// a process that died has not printed the results of all its scripts.
fn on_ours(
    bundle: &Path,
    program: &Path,
    scripts: &[Script],
    logs: &Path,
) -> Result<(Outcome, String), String> {
    let mut outcome = Outcome::default();
    let part = logs.join("part");
    let mut all = String::new();
    let (plain, others): (Vec<_>, Vec<_>) =
        scripts.iter().cloned().partition(Script::has_plain_sockets);
    for (scripts, option) in [(others, None), (plain, Some("--sockets"))] {
        let mut left = &scripts[..];
        while !left.is_empty() {
            let (scripts, more) = left.split_at(left.len().min(AT_A_TIME));
            write(&part, &script::input(scripts))?;
            let input =
                File::open(&part).map_err(|error| format!("{}: {error}", part.display()))?;
            let mut command = Command::new(bundle.join(RUNNER));
            command.args(option).args(["--unit", "1"]);
            command.arg(program).stdin(input);
            command.env("COUNT_CALLS", "1");
            let done = command.output();
            let done = done.map_err(|error| format!("{command:?}: {error}"))?;
            let printed = String::from_utf8_lossy(&done.stdout);
            let ended = done.status.success() && printed.ends_with("@ end\n");
            outcome.check(ended, || {
                let lines: Vec<&str> = printed.lines().rev().take(5).collect();
                let errors = String::from_utf8_lossy(&done.stderr);
                format!("{command:?}: {}\n{lines:?}\n{errors}", done.status)
            });
            all += &printed;
            all += "\n";
            // Where a process has died, another one goes on behind the script in which it did.
            let begun = printed
                .lines()
                .filter(|line| line.starts_with("@ "))
                .count();
            left = match ended {
                true => more,
                false => &left[begun.clamp(1, scripts.len())..],
            };
        }
    }
    Ok((outcome, all))
}

/// The output of a machine's steps, from the record of its console in a folder.
fn printed(logs: &Path) -> Result<String, String> {
    let console = logs.join("0.console.log");
    let console = fs::read(&console).map_err(|error| format!("{}: {error}", console.display()))?;
    let console = String::from_utf8_lossy(&console);
    let mut lines = String::new();
    for line in console
        .lines()
        .filter_map(|line| line.strip_prefix("@out "))
    {
        lines += line.trim_end();
        lines.push('\n');
    }
    Ok(lines)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_can_be_read_and_planned() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let scripts = script::read_folder(&root.join(SCRIPTS)).unwrap();
        assert!(scripts.len() > 200);
        stock_driver::check_plans(SCENARIOS);
    }
}
