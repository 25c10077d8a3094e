//! rdma-core's test suite, unmodified, on our libraries.
//!
//! Debian's `python3-pyverbs` has it. How each of its tests has to end is in `table.tsv`: passed, skipped with the reason
//! that the suite prints, or failed, with the reason why nothing else is to be expected. A test that ends otherwise is a
//! fault, also one that passes. What was found is left beside the logs as a table.
//!
//! It runs on Debian's own libraries as well, for which the kernel's verbs ABI is served. There a number of tests has to pass.

use super::larger::{INFINIBAND, Program, QUIET, end, start};
use super::run::{Place, never};
use super::scenario::SERVED;
use crate::outcome::Outcome;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const NAME: &str = "pyverbs";
/// The suite on Debian's libraries, and how many of its tests pass there at least.
pub(super) const SERVED_NAME: &str = "served-pyverbs";
const SERVED_PASSED: usize = 183;
/// The expected result of each test.
const TABLE: &str = include_str!("pyverbs/table.tsv");
/// The results that differ on an InfiniBand port.
const INFINIBAND_TABLE: &str = include_str!("pyverbs/infiniband.tsv");
/// The program that starts the suite.
const RUN: &str = include_str!("pyverbs/run.py");
/// The program that the suite runs to learn a port's address.
const IP: &str = include_str!("pyverbs/ip.sh");
const END: Duration = Duration::from_secs(600);
/// In front of what `run.py` says of a test.
const RESULT: &str = "RESULT\t";

/// The end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End<'a> {
    how: &'a str,
    why: &'a str,
}

/// The suite on an Ethernet port and on an InfiniBand port.
pub(super) fn run(place: &Place<'_>) -> Outcome {
    let mut table = rows(TABLE);
    let mut outcome = run_on(place, NAME, &["--address", "10.0.0.{unit}"], &table);
    table.extend(rows(INFINIBAND_TABLE));
    outcome.add(run_on(
        place,
        &format!("{NAME}-infiniband"),
        &[INFINIBAND],
        &table,
    ));
    outcome
}

/// The suite on Debian's own libraries.
pub(super) fn run_served(place: &Place<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let options = [SERVED, &["--address", "10.0.0.{unit}"]].concat();
    let printed = match suite(place, SERVED_NAME, &options) {
        Ok(printed) => printed,
        Err(why) => {
            outcome.check(false, || {
                let logs = place.logs.display();
                format!("{SERVED_NAME}: {why} (logs: {logs}/{SERVED_NAME}*)")
            });
            return outcome;
        }
    };
    let found = found(&printed);
    let left = place.logs.join(format!("{SERVED_NAME}.tsv"));
    let written = fs::write(&left, render(&found));
    outcome.check(written.is_ok(), || {
        format!("{SERVED_NAME}: {}", left.display())
    });
    let count = |how: &str| found.values().filter(|end| end.how == how).count();
    let passed = count("passed");
    println!(
        "{SERVED_NAME}: {passed} passed, {} skipped, {} failed",
        count("skipped"),
        count("failed")
    );
    outcome.check(passed >= SERVED_PASSED, || {
        format!("{SERVED_NAME}: {passed} tests passed, {SERVED_PASSED} have to")
    });
    outcome
}

fn run_on(
    place: &Place<'_>,
    name: &str,
    options: &[&str],
    expected: &BTreeMap<&str, End<'_>>,
) -> Outcome {
    let begun = Instant::now();
    let mut outcome = Outcome::default();
    let logs = place.logs.display();
    let printed = match suite(place, name, options) {
        Ok(printed) => printed,
        Err(why) => {
            outcome.check(false, || format!("{name}: {why} (logs: {logs}/{name}*)"));
            return outcome;
        }
    };
    let found = found(&printed);
    let left = place.logs.join(format!("{name}.tsv"));
    let written = fs::write(&left, render(&found));
    outcome.check(written.is_ok(), || format!("{name}: {}", left.display()));
    let faults = never(&printed);
    outcome.check(faults.is_empty(), || {
        format!("{name}: {} (logs: {logs}/{name}*)", faults.join("; "))
    });
    outcome.add(compare(name, expected, &found));
    let count = |how: &str| found.values().filter(|end| end.how == how).count();
    println!(
        "{name}: {} passed, {} skipped, {} failed; {:.1} s",
        count("passed"),
        count("skipped"),
        count("failed"),
        begun.elapsed().as_secs_f64()
    );
    outcome
}

/// Runs the suite to its end. What it printed.
fn suite(place: &Place<'_>, name: &str, options: &[&str]) -> Result<String, String> {
    let folder = place.logs.join("pyverbs-run");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let script = folder.join("run.py");
    file(&script, RUN, 0o644)?;
    file(&folder.join("ip"), IP, 0o755)?;
    let packages = place.packages;
    let path = std::env::var("PATH").unwrap_or_default();
    let text = |path: &Path| path.display().to_string();
    let modules = text(&packages.root.join("usr/lib/python3/dist-packages"));
    let environment = [
        ("PATH", format!("{}:{path}", folder.display())),
        ("PYTHONHOME", text(&packages.root.join("usr"))),
        ("PYTHONPATH", modules),
        ("SUITE", text(&packages.suite())),
    ];
    let debian = match options.starts_with(SERVED) {
        true => place
            .debian()?
            .map(|(name, value)| (name, text(Path::new(&value))))
            .to_vec(),
        false => Vec::new(),
    };
    let mut variables: Vec<(&str, &str)> = vec![
        ("LC_ALL", "C"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("PYTHONHASHSEED", "0"),
    ];
    variables.extend(
        environment
            .iter()
            .chain(&debian)
            .map(|(name, value)| (*name, value.as_str())),
    );
    let program = Program {
        log: name.to_owned(),
        options: &[QUIET, &["--unit", "1"], options].concat(),
        environment: &variables,
        path: packages.programs.join("python3.11"),
        arguments: vec![text(&script)],
    };
    // It exits with 1 where a test fails, as some have to.
    let ended = end(start(place, None, &program)?, END)?;
    match ended.status.code() {
        Some(0 | 1) => Ok(ended.printed),
        _ => Err(ended.status.to_string()),
    }
}

fn file(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::write(path, text).map_err(fail)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fail)
}

/// The rows of a table: the test, how it ends, why.
fn rows(table: &str) -> BTreeMap<&str, End<'_>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines.map(row).collect()
}

fn row(line: &str) -> (&str, End<'_>) {
    let mut columns = line.splitn(3, '\t');
    let mut next = || columns.next().unwrap_or_default().trim();
    let (test, how) = (next(), next());
    (test, End { how, why: next() })
}

/// The results that the suite has printed. Its progress marks are in front of a line.
fn found(printed: &str) -> BTreeMap<&str, End<'_>> {
    let results = printed.lines().filter_map(|line| line.split_once(RESULT));
    results.map(|(_, line)| row(line)).collect()
}

fn render(found: &BTreeMap<&str, End<'_>>) -> String {
    let mut text = String::new();
    for (test, End { how, why }) in found {
        // A String takes everything.
        let _ = writeln!(text, "{test}\t{how}\t{why}");
    }
    text
}

/// Checks that each test ended as expected. The reasons for failures are in our words, those for skipped tests in the suite's.
fn compare(
    name: &str,
    expected: &BTreeMap<&str, End<'_>>,
    found: &BTreeMap<&str, End<'_>>,
) -> Outcome {
    let mut outcome = Outcome::default();
    for (test, end) in found {
        let good = expected.get(test).is_some_and(|expected| {
            expected.how == end.how && (end.how != "skipped" || expected.why == end.why)
        });
        outcome.check(good, || {
            let expected = match expected.get(test) {
                Some(End { how, why }) => format!("{how} {why}"),
                None => "nothing of it".to_owned(),
            };
            let End { how, why } = end;
            format!(
                "{name}: {test}: {how} {why}; the table has {}",
                expected.trim()
            )
        });
    }
    for test in expected.keys().filter(|test| !found.contains_key(*test)) {
        outcome.check(false, || format!("{name}: {test} did not run"));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_end_otherwise_is_found() {
        let table = "# words\na\tpassed\t\nb\tskipped\tno card\nc\tfailed\tkeys change\n";
        let expected = rows(table);
        let failures = |printed: &str| compare(NAME, &expected, &found(printed)).failed;
        let good = "noise\n.RESULT\ta\tpassed\t\nsRESULT\tb\tskipped\tno card\nERESULT\tc\tfailed\tError 5\n";
        assert_eq!(failures(good), 0);
        for (from, to) in [
            ("a\tpassed", "a\tskipped"),
            ("no card", "no port"),
            ("c\tfailed", "c\tpassed"),
            ("RESULT\ta", "RESULT\td\tpassed\t\n.RESULT\ta"),
            (".RESULT\ta\tpassed\t\n", ""),
        ] {
            assert_eq!(failures(&good.replace(from, to)), 1, "{to}");
        }
        assert_eq!(render(&found(good)).lines().count(), 3);
    }

    #[test]
    fn the_table_says_why() {
        for (test, end) in rows(TABLE).into_iter().chain(rows(INFINIBAND_TABLE)) {
            assert!(["passed", "skipped", "failed"].contains(&end.how), "{test}");
            assert_eq!(end.how == "passed", end.why.is_empty(), "{test}");
        }
    }
}
