//! The number of scripts in which each function of the libraries is called.

use super::script::Script;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Names of functions, each with those that its text names.
type Calls<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The scripts of an exported function that works, for each; those in fewest first. `list` is the page that has them.
pub(super) fn report(program: &str, scripts: &[Script], list: &str) -> String {
    let calls = calls(program);
    let mut counts: BTreeMap<&str, usize> = exported(list).map(|name| (name, 0)).collect();
    for script in scripts {
        let words = script.lines.iter().flat_map(|line| line.split(' ').take(3));
        let mut reached = BTreeSet::new();
        for word in words.collect::<BTreeSet<_>>() {
            if let Some((name, _)) = calls.get_key_value(quoted(word).as_str()) {
                reach(name, &calls, &mut reached);
            }
        }
        for name in reached {
            if let Some(count) = counts.get_mut(name) {
                *count += 1;
            }
        }
    }
    let mut counts: Vec<_> = counts
        .into_iter()
        .map(|(name, count)| (count, name))
        .collect();
    counts.sort_unstable();
    let least = |least| counts.iter().filter(|(count, _)| *count >= least).count();
    let (some, twenty, all) = (least(1), least(20), counts.len());
    let mut text = String::new();
    for (count, name) in &counts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{count:4} {name}");
    }
    let _ = writeln!(
        text,
        "{all} functions, {some} in scripts, {twenty} in 20 or more"
    );
    text
}

/// The functions that work, of the tables of the page.
fn exported(list: &str) -> impl Iterator<Item = &str> {
    let rows = list
        .lines()
        .filter_map(|line| line.split_once(" | works |"));
    let names = rows.flat_map(|(names, _)| names.split(['|', ',']));
    let names = names.map(|name| name.trim_matches([' ', '`']));
    names.filter(|name| {
        name.starts_with("ibv_") || name.starts_with("rdma_") || name.contains("ibv_rate")
    })
}

/// The name by which the program compares a call's word.
fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

/// The program's functions, and its calls (`"create_cq"`), each with the names in its text.
fn calls(program: &str) -> Calls<'_> {
    let mut calls = Calls::new();
    let mut of = "";
    for line in program.lines() {
        if !line.starts_with([' ', '#', '/', '}']) && line.ends_with('{') {
            let head = line.split_once('(').map_or(line, |(head, _)| head);
            of = head.rsplit([' ', '*']).next().unwrap_or_default();
        } else if let Some(at) = line.find("(\"")
            && ["NEW", "END", "INT", "DO"].contains(&line[..at].trim_start())
            && let Some(length) = line[at + 2..].find('"')
        {
            of = &line[at + 1..at + length + 3];
        }
        // Every other piece is a string's text.
        let pieces = line.split('"').step_by(2);
        let names =
            pieces.flat_map(|piece| piece.split(|c: char| !c.is_alphanumeric() && c != '_'));
        calls
            .entry(of)
            .or_default()
            .extend(names.filter(|name| *name != of));
    }
    calls
}

/// Adds what a function calls, itself or through others of the program.
fn reach<'a>(name: &str, calls: &Calls<'a>, reached: &mut BTreeSet<&'a str>) {
    for called in calls.get(name).into_iter().flatten() {
        if reached.insert(called) {
            reach(called, calls, reached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_counted_through_those_of_the_program() {
        let program = "static void help(void) {\n    ibv_b(\"ibv_e\");\n}\nstatic bool call(const char *name) {\n    \
                       NEW(\"one\", , ibv_a(help()), ibv_c)\n    DO(\"two\", ibv_d(\n        3))\n}\n";
        let list = "| `ibv_a`, `ibv_b` | works | x |\n| `ibv_c` | works | x |\n| `ibv_d`, `ibv_e` | works | x |\n\
                    | `ibv_f` | refuses | x |\n";
        let script = |lines: &[&str]| Script {
            name: "a".into(),
            lines: lines.iter().map(|line| (*line).into()).collect(),
        };
        let scripts = [
            script(&["x = one 1"]),
            script(&["one", "two"]),
            script(&["nothing"]),
        ];
        let report = report(program, &scripts, list);
        let counts: Vec<_> = report.lines().map(str::trim_start).collect();
        assert_eq!(
            counts,
            [
                "0 ibv_e",
                "1 ibv_d",
                "2 ibv_a",
                "2 ibv_b",
                "2 ibv_c",
                "5 functions, 4 in scripts, 0 in 20 or more"
            ]
        );
    }
}
