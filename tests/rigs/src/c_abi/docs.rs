//! The table of functions in `docs/c-abi.md` against the library.

use crate::outcome::Outcome;
use bareverbs_bundle::{Kind, Symbol};
use std::collections::{BTreeMap, BTreeSet};

/// Compares: each function of the libraries is in one row, and works in the table if the library defines it.
pub(super) fn compare(page: &str, symbols: &[Symbol], defined: &BTreeSet<String>) -> Outcome {
    let mut outcome = Outcome::default();
    let rows = match rows(page) {
        Ok(rows) => rows,
        Err(why) => {
            outcome.check(false, || why);
            return outcome;
        }
    };
    let current = symbols.iter().filter(|symbol| symbol.kind != Kind::Old);
    let names: BTreeSet<&str> = current.map(|symbol| symbol.name.as_str()).collect();
    let mut used = BTreeSet::new();
    for name in &names {
        let row = row(&rows, name);
        used.extend(row.map(|(key, _)| key));
        let there = row.map(|(_, state)| state);
        let here = match defined.contains(*name) {
            true => State::Works,
            false => State::Refuses,
        };
        outcome.check(there == Some(here), || {
            let is = match here {
                State::Works => "works, since the crate bareverbs-c defines it",
                State::Refuses => "refuses, since the crate bareverbs-c does not define it",
            };
            match there {
                Some(_) => format!("{name} {is}, and docs/c-abi.md says otherwise"),
                None => format!("{name} {is}, and is in no row of docs/c-abi.md"),
            }
        });
    }
    for name in rows.keys().filter(|name| !used.contains(**name)) {
        outcome.check(false, || {
            format!("{name} of docs/c-abi.md is in none of the libraries")
        });
    }
    outcome
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Works,
    Refuses,
}

/// A function's row: the one with its name, or the one with the longest beginning of it, as in `ibv_cmd_*`.
fn row<'a>(rows: &BTreeMap<&'a str, State>, name: &str) -> Option<(&'a str, State)> {
    let matches = |key: &str| {
        key == name
            || key
                .strip_suffix('*')
                .is_some_and(|begin| name.starts_with(begin))
    };
    let found = rows.iter().filter(|(key, _)| matches(key));
    let exact_or_longest = found.max_by_key(|(key, _)| (**key == name, key.len()));
    exact_or_longest.map(|(key, state)| (*key, *state))
}

/// The rows `| names | state | words |`, names between backquotes with commas; other tables have other states.
fn rows(page: &str) -> Result<BTreeMap<&str, State>, String> {
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, state, words] = columns[..] else {
            continue;
        };
        let state = match state {
            "works" => State::Works,
            "refuses" => State::Refuses,
            _ => continue,
        };
        if words.is_empty() {
            return Err(format!("docs/c-abi.md does not say why: {line}"));
        }
        for name in names.split(',').map(|name| name.trim().trim_matches('`')) {
            if rows.insert(name, state).is_some() {
                return Err(format!("{name} is twice in docs/c-abi.md"));
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# x\n| function | state | what |\n|---|---|---|\n| `a`, `b` | works | all of it |\n\
                        | `c` | refuses | no such thing |\n| `z` | 3 |\n";

    fn compared(page: &str) -> (usize, usize) {
        let line = |name: &str| {
            format!("libibverbs.so.1\t{name}\tIBVERBS_1.1\tcurrent\terrno")
                .parse()
                .unwrap()
        };
        let symbols: Vec<Symbol> = ["a", "b", "c"].map(line).into();
        let defined = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let outcome = compare(page, &symbols, &defined);
        (outcome.passed, outcome.failed)
    }

    #[test]
    fn each_function_is_in_the_table_with_its_state() {
        assert_eq!(compared(PAGE), (3, 0));
        assert_eq!(compared(&PAGE.replace(", `b`", "")), (2, 1));
        assert_eq!(compared(&PAGE.replace("works", "refuses")), (1, 2));
        assert_eq!(compared(&PAGE.replace("`c`", "`c`, `d`")), (3, 1));
        assert_eq!(compared(&PAGE.replace("`c`", "`a`")).1, 1);
        assert_eq!(compared(&PAGE.replace("`c`", "`c*`")), (3, 0));
        assert_eq!(compared(&PAGE.replace("`c`", "`c`, `d*`")), (3, 1));
        assert_eq!(compared(&PAGE.replace("`a`, `b`", "`*`")), (3, 0));
        assert_eq!(compared(&PAGE.replace("no such thing", "")).1, 1);
    }
}
