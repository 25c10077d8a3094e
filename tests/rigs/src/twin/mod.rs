//! `cargo rig twin`: the same program on Linux's driver with Debian's rdma-core, and on our libraries. What it can see is
//! equal, or it is in the table of `docs/differences.md`.
//!
//! The program reads scripts of calls, and prints what each call gave. On Linux it runs in a machine of the stock-driver rig;
//! our libraries have a model of their own. A row of the table that explains nothing is a failure as well.
//!
//! `cargo rig twin coverage` prints in how many scripts each function of the libraries is called, without a machine.
//!
//! Both sides' results, and the differences, are left in `target/rigs/twin/log/`.

mod compare;
mod coverage;
mod script;

use crate::outcome::Outcome;
use crate::stock_driver::{self, BOOT, Boot, InC, Program, Rig, SCENARIO, Scenario, provision};
use bareverbs_bundle::RUNNER;
use compare::Row;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ABOUT: &str = "a program on Linux's driver and rdma-core, and on our libraries: equal, call by call (boots a machine)";

const PROGRAM: InC = InC {
    name: "runner",
    text: concat!(
        include_str!("language.c"),
        include_str!("verbs.c"),
        include_str!("data.c"),
        include_str!("extended.c"),
        include_str!("cm.c"),
        include_str!("runner.c"),
    ),
    libraries: &["-lrdmacm", "-libverbs"],
};
const PACKAGES: &[&str] = &[
    "libibverbs-dev",
    "libibverbs1",
    "librdmacm-dev",
    "librdmacm1t64",
];
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";

const SCRIPTS: &str = "tests/rigs/src/twin/scripts";
const PAGE: &str = "docs/differences.md";
/// The page with the functions of the libraries.
const LIST: &str = "docs/c-abi.md";

/// The scenario, whose step of the same name has the results.
const NAME: &str = "scripts";
const SCENARIOS: &[Scenario] = &[Scenario {
    name: NAME,
    about: "scripts of calls",
    functions: 1,
    rounds: &[Boot {
        script: include_str!("guest.sh"),
        machines: &[&[0]],
        prints: &[(NAME, "@ end")],
        driver_may_warn: &[
            (
                NAME,
                "Create QP type",
                "a queue pair that has to be refused",
            ),
            (NAME, ": invalid mtu", "a path MTU that has to be refused"),
            (
                NAME,
                "psn overflow, masking to 24 bits",
                "PSNs with more bits",
            ),
            (
                NAME,
                ": wrong entries number",
                "a size that has to be refused",
            ),
        ],
        limit: 7,
        ..BOOT
    }],
    model_may_warn: &[(
        "of type 0x1: opcode 0x10",
        "mlx5's library posts READ on UC, which has none",
    )],
    ..SCENARIO
}];

/// Runs all scripts on both sides.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = root.join("target/rigs/twin");
    let logs = directory.join("log");
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let scripts = script::read_folder(&root.join(SCRIPTS))?;
    if arguments == ["coverage"] {
        print!(
            "{}",
            coverage::report(PROGRAM.text, &scripts, &read(&root.join(LIST))?)
        );
        return Ok(Outcome::default());
    }
    let input = logs.join("scripts");
    write(&input, &script::input(&scripts))?;

    let in_c = directory.join("in-c");
    let tree = provision::guest_packages(&in_c, PACKAGES, RECIPE)?;
    let program = PROGRAM.build(&in_c, &tree, None)?;
    let ours = on_ours(&directory.join("bundle"), &program, &input)?;
    write(&logs.join("ours"), &ours)?;

    let rig = Rig {
        name: "twin",
        scenarios: SCENARIOS,
        programs: vec![
            Program {
                name: PROGRAM.name,
                path: program,
            },
            Program {
                name: NAME,
                path: input,
            },
        ],
        ours: PathBuf::new(),
    };
    let mut outcome = stock_driver::run_rig(&rig, arguments)?;
    let linux = on_linux(&logs)?;
    write(&logs.join("linux"), &linux)?;

    // No call of ours may die, not even where Linux's libraries do as well.
    for line in ours.lines().filter(|line| line.contains(" died of ")) {
        outcome.check(false, || format!("ours: {line}"));
    }
    let page = read(&root.join(PAGE))?;
    let rows = Row::all(&page)?;
    let linux = compare::results(linux.lines());
    let ours = compare::results(ours.lines());
    let differences = compare::differences(&scripts, &linux, &ours);
    let (explained, unexplained): (Vec<_>, Vec<_>) = differences
        .iter()
        .partition(|found| rows.iter().any(|row| row.explains(found)));
    for found in &unexplained {
        outcome.check(false, || found.to_string());
    }
    for row in &rows {
        let shows = explained.iter().any(|found| row.explains(found));
        outcome.check(shows, || {
            format!("{PAGE} has a difference that does not show: {row}")
        });
    }
    let calls: usize = scripts.iter().map(|script| script.lines.len()).sum();
    outcome.passed += calls - differences.len();
    println!(
        "{} scripts, {calls} calls, {} differences explained by {} rows, {} not",
        scripts.len(),
        explained.len(),
        rows.len(),
        unexplained.len()
    );
    Ok(outcome)
}

/// Runs the program on our libraries, with a model in its own process. Its output.
fn on_ours(bundle: &Path, program: &Path, input: &Path) -> Result<String, String> {
    let bundle = bareverbs_bundle::build(Some(bundle), bareverbs_bundle::Kept::Code)?;
    let input = File::open(input).map_err(|error| format!("{}: {error}", input.display()))?;
    let mut command = Command::new(bundle.folder.join(RUNNER));
    command.args(["--unit", "1"]).arg(program).stdin(input);
    let done = command.output();
    let done = done.map_err(|error| format!("{command:?}: {error}"))?;
    let (printed, errors) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    if !done.status.success() || !printed.ends_with("@ end\n") {
        let lines: Vec<&str> = printed.lines().rev().take(5).collect();
        return Err(format!("{command:?}: {}\n{lines:?}\n{errors}", done.status));
    }
    Ok(printed.into_owned())
}

/// The output of the machine's steps, from the record of its console.
fn on_linux(logs: &Path) -> Result<String, String> {
    let console = logs.join("trixie").join(NAME).join("0.console.log");
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
