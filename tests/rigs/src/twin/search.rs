//! `cargo rig twin drawn CALLS [SEED]`: many drawn scripts, and the shortest ones that show how the sides differ.

use super::compare::{Difference, Row};
use super::oracles::{self, LONG};
use super::script::{END, Script};
use super::{LOGS, PAGE, both, drawn, read, shrink};
use crate::outcome::Outcome;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The kinds of differences of which scripts are shortened, at most.
const MOST: usize = 12;

/// A seed that another run does not have.
pub(super) fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// Draws, runs and compares; then shortens.
pub(super) fn run(root: &Path, arguments: &[String]) -> Result<Outcome, String> {
    let number = |word: &String| word.parse().map_err(|error| format!("{word:?}: {error}"));
    let numbers = arguments
        .iter()
        .map(number)
        .collect::<Result<Vec<u64>, String>>()?;
    let (calls, seed) = match numbers[..] {
        [calls] => (calls, new_seed()),
        [calls, seed] => (calls, seed),
        _ => return Err("cargo rig twin drawn CALLS [SEED]".into()),
    };
    println!("drawn by seed {seed}");
    let scripts = drawn::scripts(seed, calls as usize);
    let page = read(&root.join(PAGE))?;
    let rows = oracles::rows(&page, None)?;
    let (mut outcome, sides) = both(root, LONG, &scripts, &[LONG.into()], false)?;
    keep(root)?;
    let differences = sides.differences(&scripts);
    let explained = differences
        .iter()
        .filter(|it| is_explained(it, &rows))
        .count();
    let calls: usize = scripts.iter().map(|script| script.lines.len()).sum();
    outcome.passed += calls - differences.len();
    println!(
        "{} scripts, {calls} calls, {explained} differences explained, {} not",
        scripts.len(),
        differences.len() - explained
    );

    let kinds = kinds(&differences, &rows);
    for (kind, found) in &kinds {
        outcome.check(false, || {
            format!("{} scripts differ first in {kind}", found.len())
        });
        println!("{}", found[0]);
    }
    let shown: Vec<(&String, &Difference<'_>)> = kinds
        .iter()
        .map(|(kind, found)| (kind, found[0]))
        .take(MOST)
        .collect();
    if shown.is_empty() {
        return Ok(outcome);
    }
    let begun: Vec<Script> = shown
        .iter()
        .map(|(_, found)| until(&scripts, found))
        .collect();
    let short = shrink::shrink(&begun, |tried| {
        let mut run: Vec<Script> = tried.iter().map(|(_, script)| script.clone()).collect();
        for script in &mut run {
            script.lines.iter_mut().for_each(hurry);
            script.lines.push(END.into());
        }
        let (_, sides) = both(root, LONG, &run, &[LONG.into()], false)?;
        let differences = sides.differences(&run);
        let shows = |(number, script): &(usize, Script)| {
            let of_it = differences
                .iter()
                .find(|it| it.script == script.name && !is_explained(it, &rows));
            of_it.is_some_and(|found| kind(found) == *shown[*number].0)
        };
        Ok(tried.iter().map(shows).collect())
    })?;
    for ((kind, _), script) in shown.iter().zip(short) {
        println!(
            "\n{kind}:\nscript {}\n{}",
            script.name,
            script.lines.join("\n")
        );
    }
    Ok(outcome)
}

/// Shortens the waits of a line: where what it waits for is left out, nothing comes.
fn hurry(line: &mut String) {
    if let Some((begin, _)) = line.split_once(" wait=5000") {
        *line = format!("{begin} wait=1500");
    } else if (line.starts_with("event ") || line.contains(" = event ")) && !line.contains(" wait=")
    {
        *line += " wait=2000";
    }
}

/// Keeps what the first run left: those that shorten scripts leave the same files.
fn keep(root: &Path) -> Result<(), String> {
    let logs = root.join(LOGS);
    for name in ["scripts", "linux", "ours"] {
        let to = logs.join(format!("drawn-{name}"));
        fs::copy(logs.join(name), &to).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

fn is_explained(found: &Difference<'_>, rows: &[Row<'_>]) -> bool {
    rows.iter().any(|row| row.explains(found))
}

/// The first difference of each script that no row explains, by kind; others of a script may follow from it. Of a kind,
/// that which comes soonest is the first.
fn kinds<'a>(
    differences: &'a [Difference<'a>],
    rows: &[Row<'_>],
) -> BTreeMap<String, Vec<&'a Difference<'a>>> {
    let mut kinds: BTreeMap<String, Vec<&Difference<'_>>> = BTreeMap::new();
    let mut script = "";
    for found in differences.iter().filter(|it| !is_explained(it, rows)) {
        if found.script != script {
            script = found.script;
            kinds.entry(kind(found)).or_default().push(found);
        }
    }
    for of_kind in kinds.values_mut() {
        of_kind.sort_by_key(|found| found.number);
    }
    kinds
}

/// A difference without what numbers and names there are in it.
fn kind(found: &Difference<'_>) -> String {
    let call = match found.call.split_once(" = ") {
        Some((_, call)) => call,
        None => found.call,
    };
    let call = call.split(' ').next().unwrap_or_default();
    let words = |text: &str| {
        let words = text
            .split(' ')
            .map(|word| word.split_once('=').map_or(word, |(key, _)| key));
        let words = words.map(|word| word.trim_matches(|c: char| c.is_ascii_digit()));
        words.collect::<Vec<_>>().join(" ")
    };
    format!("{call}: {} / {}", words(&found.linux), words(&found.ours))
}

/// The script of a difference, up to it.
fn until(scripts: &[Script], found: &Difference<'_>) -> Script {
    let script = scripts.iter().find(|script| script.name == found.script);
    Script {
        name: found.script.into(),
        lines: script.map_or(Vec::new(), |script| {
            let lines = script.lines[..=found.number].iter();
            lines.filter(|line| *line != END).cloned().collect()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_counts_with_its_first_difference() {
        let found = |script, number, call, linux: &str, ours: &str| Difference {
            script,
            number,
            call,
            linux: linux.into(),
            ours: ours.into(),
        };
        let page = "| `*` | `b` | `0` | `1` | why | when |\n";
        let rows = Row::all(page).unwrap();
        let all = [
            found("s", 1, "b", "0", "1"),
            found("s", 4, "x1 = a x0", "made", "null EINVAL"),
            found("s", 5, "use x1", "0", "left out"),
            found("t", 2, "x3 = a x2", "made", "null EINVAL"),
            found("u", 2, "query q", "sum=7", "sum=8"),
        ];
        let kinds = kinds(&all, &rows);
        let names: Vec<_> = kinds
            .iter()
            .map(|(kind, found)| (kind.as_str(), found.len()))
            .collect();
        assert_eq!(
            names,
            [("a: made / null EINVAL", 2), ("query: sum / sum", 1)]
        );
        assert_eq!(kinds["a: made / null EINVAL"][0].script, "t");
    }
}
