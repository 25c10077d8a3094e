//! `cargo rig twin drawn CALLS [SEED]`: many drawn scripts, and the shortest ones that show how the sides differ, each in a
//! file of its own. `cargo rig twin drawn FILE` does the same with the scripts of a file, such as one of these.

use super::compare::{Difference, Row};
use super::oracles::{self, LONG};
use super::script::{self, END, Script};
use super::{LOGS, PAGE, SCRIPTS, both, drawn, read, shrink, write};
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

/// Draws, or reads a file; runs and compares; then shortens.
pub(super) fn run(root: &Path, arguments: &[String]) -> Result<Outcome, String> {
    let number = |word: &String| word.parse::<u64>();
    let scripts = match arguments {
        [file] if number(file).is_err() => script::read_one(&root.join(SCRIPTS), Path::new(file))?,
        [calls, rest @ ..] if rest.len() < 2 => {
            let numbers = [calls].into_iter().chain(rest).map(number);
            let numbers = numbers.collect::<Result<Vec<u64>, _>>();
            let numbers = numbers.map_err(|error| format!("{arguments:?}: {error}"))?;
            let seed = numbers.get(1).copied().unwrap_or_else(new_seed);
            println!("drawn by seed {seed}");
            drawn::scripts(seed, numbers[0] as usize)
        }
        _ => return Err("cargo rig twin drawn CALLS [SEED] | FILE".into()),
    };
    let page = read(&root.join(PAGE))?;
    let rows = oracles::rows(&page, None)?;
    let (mut outcome, sides) = both(root, LONG, &scripts, &[LONG.into()])?;
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
    let shown: Vec<&Difference<'_>> = kinds.values().map(|found| found[0]).take(MOST).collect();
    if shown.is_empty() {
        return Ok(outcome);
    }
    let begun: Vec<Script> = shown.iter().map(|found| until(&scripts, found)).collect();
    let short = shrink::shrink(&begun, |tried| {
        let mut run: Vec<Script> = tried.iter().map(|(_, script)| script.clone()).collect();
        for script in &mut run {
            script.lines.iter_mut().for_each(hurry);
            script.lines.push(END.into());
        }
        let (_, sides) = both(root, LONG, &run, &[LONG.into()])?;
        let differences = sides.differences(&run);
        let shows = |(number, script): &(usize, Script)| {
            let first = differences
                .iter()
                .find(|it| it.script == script.name && !is_explained(it, &rows));
            first.is_some_and(|first| is_same(first, shown[*number], script))
        };
        Ok(tried.iter().map(shows).collect())
    })?;
    let logs = root.join(LOGS);
    for (found, script) in shown.iter().zip(short) {
        let text = script::text(&script);
        let path = logs.join(&script.name);
        write(&path, &text)?;
        println!(
            "\n{}:\n{text}    Linux: {}\n    ours:  {}",
            kind(found),
            found.linux,
            found.ours
        );
        println!("again: cargo rig twin drawn {}", path.display());
    }
    Ok(outcome)
}

/// Returns `true` if the first difference of a shortened script is the one that the long script showed: the same call with the
/// same results. At the end of a script, the objects that stay may be fewer.
fn is_same(first: &Difference<'_>, shown: &Difference<'_>, script: &Script) -> bool {
    match script.lines.get(first.number) {
        Some(call) => {
            call == shown.call && (&first.linux, &first.ours) == (&shown.linux, &shown.ours)
        }
        None => shown.call == END && kind(first) == kind(shown),
    }
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

    #[test]
    fn a_shorter_script_shows_the_same_difference() {
        let found = |number, call, linux: &str, ours: &str| Difference {
            script: "s",
            number,
            call,
            linux: linux.into(),
            ours: ours.into(),
        };
        let script = Script {
            name: "s".into(),
            lines: ["a", "poll q wait=5000"].map(String::from).into(),
        };
        let shown = found(7, "poll q wait=5000", "sum=7", "sum=8");
        // It runs with a shorter wait.
        let same =
            |linux, ours| is_same(&found(1, "poll q wait=1500", linux, ours), &shown, &script);
        assert!(same("sum=7", "sum=8"));
        assert!(!same("sum=7", "sum=9"));
        assert!(!same("sum=6", "sum=8"));
        assert!(!is_same(&found(0, "a", "sum=7", "sum=8"), &shown, &script));
        let end = found(9, END, "x1=EBUSY x2=EBUSY", "all gone");
        assert!(is_same(
            &found(2, END, "x1=EBUSY x2=EBUSY", "all gone"),
            &end,
            &script
        ));
        assert!(!is_same(&found(2, END, "0", "1"), &end, &script));
        assert!(!is_same(&found(2, END, "sum=7", "sum=8"), &shown, &script));
    }

    #[test]
    fn the_shortest_script_can_be_read_again() {
        let short = Script {
            name: "drawn-1-2".into(),
            lines: ["a = open", "close a"].map(String::from).into(),
        };
        let mut again = script::read(&[&script::text(&short)]).unwrap();
        assert_eq!(again[0].lines.pop().as_deref(), Some(END));
        assert_eq!(again, [short]);
    }
}
