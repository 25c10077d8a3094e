//! Another provider of Linux's, `rdma_rxe`: differences from `mlx5_ib` in what becomes of requests.
//!
//! The card's provider decides what is right. A page has a row for each kind of difference, so that who reads results of
//! `rdma_rxe` knows them; a difference without a row is a failure, and so is a row that explains none.

use super::compare::{Difference, Results, Row};
use super::oracles::RXE;
use super::script::Script;
use crate::outcome::Outcome;

/// The page with a row for each kind of difference.
pub(super) const PAGE: &str = "docs/providers.md";

/// Calls of scripts that `rdma_rxe` does not run: Linux 6.12 panics in `rxe_invalidate_mw` at some of them.
const DEADLY: [&str; 3] = ["alloc_mw ", "LOCAL_INV", "WITH_INV"];

/// Returns `true` if a script is among those that each run has, a sixth of them: the machine takes minutes for all.
pub(super) fn is_in_part(script: &Script) -> bool {
    let sum: usize = script.name.bytes().map(usize::from).sum();
    sum.is_multiple_of(6)
}

/// Returns `true` if a script posts requests, and none of those left out. It has no XRC.
pub(super) fn is_for(script: &Script) -> bool {
    let has = |words: &[&str]| {
        let has = |line: &String| words.iter().any(|word| line.contains(word));
        script.lines.iter().any(has)
    };
    has(&["post_send ", "post_recv "])
        && !has(&DEADLY)
        && !has(&["QPT_XRC_SEND"])
        && !script.is_newer()
        && !script.is_largest()
        && !script.name.starts_with("drawn-")
}

/// Compares the results of `rdma_rxe` with those of `mlx5_ib`: the first difference of each script, from which others follow.
/// `page`: the text of [`PAGE`]. `all`: each row of it has to explain something.
pub(super) fn judge(
    page: &str,
    scripts: &[Script],
    linux: &Results<'_>,
    rxe: &Results<'_>,
    all: bool,
) -> Result<Outcome, String> {
    let rows = Row::all(page)?;
    let scripts = scripts.iter().filter(|script| is_for(script));
    let (mut outcome, mut differ) = (Outcome::default(), 0);
    let mut shown = vec![false; rows.len()];
    for script in scripts {
        let Some(found) = difference(script, linux, rxe) else {
            outcome.passed += 1;
            continue;
        };
        differ += 1;
        let mut explains = false;
        for (row, shown) in rows.iter().zip(&mut shown) {
            if row.explains(&found) {
                (explains, *shown) = (true, true);
            }
        }
        outcome.check(explains, || {
            format!("{PAGE} has no row (`ours` is {RXE}) of {found}")
        });
    }
    for (row, _) in rows.iter().zip(shown).filter(|(_, shown)| all && !shown) {
        outcome.check(false, || {
            format!("{PAGE} has a difference that does not show: {row}")
        });
    }
    println!(
        "{RXE}: {differ} scripts differ from mlx5_ib, {} rows",
        rows.len()
    );
    Ok(outcome)
}

/// The first difference of a script's results, in brief.
fn difference<'a>(
    script: &'a Script,
    linux: &Results<'_>,
    other: &Results<'_>,
) -> Option<Difference<'a>> {
    let lines = script.lines.iter().enumerate();
    lines
        .map(|(number, line)| {
            let side = |all: &Results<'_>| {
                let result = all
                    .get(script.name.as_str())
                    .and_then(|all| all.get(&number));
                brief(line, result.copied().unwrap_or("no result"))
            };
            Difference {
                script: &script.name,
                number,
                call: line,
                linux: side(linux),
                ours: side(other),
            }
        })
        .find(|found| found.linux != found.ours && !is_late(found))
}

/// Returns `true` for a queue pair that is still in RTS: an error completes before it moves the queue pair to ERR
/// (`rxe_completer`), so that it may be seen in either state.
fn is_late(found: &Difference<'_>) -> bool {
    found.call.starts_with("query_qp ")
        && (found.linux.as_str(), found.ours.as_str()) == ("state=6", "state=3")
}

/// A result without numbers and names: of completions the statuses, of a queue pair's attributes its state.
fn brief(line: &str, result: &str) -> String {
    let call = line.split_once(" = ").map_or(line, |(_, call)| call);
    match call.split(' ').next().unwrap_or_default() {
        "poll" => {
            let mut all: Vec<&str> = Vec::new();
            for completion in result.split("; ") {
                let status = match completion.split_once(" op=") {
                    Some((begin, _)) => begin,
                    None => completion,
                };
                let status = match status.ends_with(" came") {
                    true => "nothing more",
                    false => status.splitn(3, ' ').nth(2).unwrap_or(status),
                };
                if all.last() != Some(&status) {
                    all.push(status);
                }
            }
            all.join(", then ")
        }
        "query_qp" => {
            let state = result.split(' ').find(|word| word.starts_with("state="));
            state.unwrap_or(result).to_string()
        }
        "async" | "no_async" => match result.rsplit_once(' ') {
            Some((event, _)) => event.to_string(),
            None => result.to_string(),
        },
        _ if result.starts_with("-1") || result.starts_with("null") => result.to_string(),
        _ => result.split(' ').next().unwrap_or_default().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::compare;
    use super::*;

    #[test]
    fn results_are_compared_in_brief() {
        for (line, result, expected) in [
            (
                "poll cq 2",
                "1 qp success op=0; 2 qp success op=0 flags=1",
                "success",
            ),
            ("poll cq 1", "1 qp local length error", "local length error"),
            ("poll cq 1", "0 of 1 came", "nothing more"),
            ("query_qp qp 0", "0 state=3 mtu=3", "state=3"),
            ("a = create_ah pd", "null EINVAL", "null EINVAL"),
            ("post_recv q", "EINVAL bad", "EINVAL"),
            ("async", "QP fatal peer", "QP fatal"),
        ] {
            assert_eq!(brief(line, result), expected, "{line}: {result}");
        }
    }

    #[test]
    fn the_first_difference_counts() {
        let calls = ["post_send qp", "poll cq 1", "poll cq 2"];
        let script = Script {
            name: "a".into(),
            lines: calls.map(String::from).into(),
        };
        let linux = compare::results("@ a\n0 0\n1 1 qp success op=0\n2 2 qp success op=0\n");
        let other = compare::results("@ a\n0 0\n1 1 qp success op=1\n");
        let found = difference(&script, &linux, &other).unwrap();
        assert_eq!((found.number, found.ours.as_str()), (2, "no result"));
        let late = compare::results("@ a\n0 0\n1 1 qp success op=0\n2 0 state=3\n");
        let error = compare::results("@ a\n0 0\n1 1 qp success op=0\n2 0 state=6\n");
        let states = Script {
            lines: ["post_send qp", "poll cq 1", "query_qp qp 0"]
                .map(String::from)
                .into(),
            ..script.clone()
        };
        assert_eq!(difference(&states, &error, &late), None);
        assert!(difference(&states, &late, &error).is_some());
        assert_eq!(difference(&script, &linux, &linux), None);
    }
}
