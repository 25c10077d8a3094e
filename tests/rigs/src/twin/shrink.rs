//! The shortest scripts that still show what a longer one does.
//!
//! Lines are left out by halves, quarters and so on, each together with those that depend on it. All candidates of a round
//! run in one go, since each run boots a machine.

use super::script::Script;
use std::collections::BTreeSet;

/// The most rounds; each takes a boot.
const ROUNDS: usize = 8;

/// Numbers of lines of the script as it was.
type Lines = BTreeSet<usize>;

/// The words of a line that may be names of objects.
pub(super) fn names(line: &str) -> impl Iterator<Item = &str> {
    line.split([' ', '=', '|', '+', ','])
}

/// Shortens scripts as long as `shows` says so: it tells of each candidate, whose number among the scripts comes with it,
/// whether it shows what the script does.
pub(super) fn shrink(
    scripts: &[Script],
    mut shows: impl FnMut(&[(usize, Script)]) -> Result<Vec<bool>, String>,
) -> Result<Vec<Script>, String> {
    let mut best: Vec<Lines> = scripts
        .iter()
        .map(|it| (0..it.lines.len()).collect())
        .collect();
    let mut together: Vec<Vec<Lines>> = vec![Vec::new(); scripts.len()];
    for round in 0..ROUNDS {
        let mut tried: Vec<(usize, Lines)> = Vec::new();
        for (number, script) in scripts.iter().enumerate() {
            let mut all = candidates(script, &best[number]);
            all.extend(together[number].drain(..));
            all.retain(|lines| lines.len() < best[number].len() && !lines.is_empty());
            tried.extend(all.into_iter().map(|lines| (number, lines)));
        }
        if tried.is_empty() {
            break;
        }
        let run: Vec<(usize, Script)> = tried
            .iter()
            .enumerate()
            .map(|(at, (number, lines))| {
                let name = format!("{}-{round}-{at}", scripts[*number].name);
                (*number, part(&scripts[*number], name, lines))
            })
            .collect();
        let shown = shows(&run)?;
        let mut good: Vec<(usize, &Lines)> = Vec::new();
        for ((number, lines), shown) in tried.iter().zip(shown) {
            if shown {
                good.push((*number, lines));
            }
        }
        let before: Vec<usize> = best.iter().map(BTreeSet::len).collect();
        good.sort_by_key(|(_, lines)| lines.len());
        let mut all: Vec<Option<Lines>> = vec![None; scripts.len()];
        for (number, lines) in good {
            if lines.len() < best[number].len() {
                best[number].clone_from(lines);
            }
            // What may be left out one by one may perhaps be left out together.
            let without = match &all[number] {
                Some(known) => known & lines,
                None => lines.clone(),
            };
            together[number].push(without.clone());
            all[number] = Some(without);
        }
        if best.iter().map(BTreeSet::len).eq(before) {
            break;
        }
    }
    let named = scripts.iter().zip(&best);
    Ok(named
        .map(|(script, lines)| part(script, script.name.clone(), lines))
        .collect())
}

/// The script with these lines only.
fn part(script: &Script, name: String, lines: &Lines) -> Script {
    Script {
        name,
        lines: lines
            .iter()
            .map(|line| script.lines[*line].clone())
            .collect(),
    }
}

/// The next candidates: everything but a half, a quarter and so on down to each line, and what depends on these.
fn candidates(script: &Script, lines: &Lines) -> BTreeSet<Lines> {
    let all: Vec<usize> = lines.iter().copied().collect();
    let mut found = BTreeSet::new();
    let mut size = all.len().div_ceil(2);
    loop {
        for left_out in all.chunks(size) {
            found.insert(without(script, lines, left_out));
        }
        if size == 1 {
            return found;
        }
        size = size.div_ceil(2);
    }
}

/// The lines without some, and without those that use what these make.
fn without(script: &Script, lines: &Lines, left_out: &[usize]) -> Lines {
    let mut kept = Lines::new();
    let mut missing = BTreeSet::new();
    let mut connected = true;
    for line in lines {
        let text = script.lines[*line].as_str();
        if left_out.contains(line) || names(text).any(|name| missing.contains(name)) {
            if let Some((name, _)) = text.split_once(" = ") {
                missing.insert(name);
            }
            connected &= !makes_connections(text);
        } else {
            kept.insert(*line);
        }
    }
    without_waits(script, kept, connected)
}

/// Returns `true` if messages of ids may not come without this call.
fn makes_connections(text: &str) -> bool {
    let call = text.split_once(" = ").map_or(text, |(_, call)| call);
    let begins = ["rdma_", "event "];
    let begins = begins.iter().any(|begin| call.starts_with(begin));
    begins && !waits(call) && !posts(call)
}

fn waits(call: &str) -> bool {
    call.starts_with("rdma_get_send_comp ") || call.starts_with("rdma_get_recv_comp ")
}

fn posts(call: &str) -> bool {
    call.starts_with("rdma_post_")
}

/// The lines without calls that would wait for ever: those for a completion whose request or receive is not posted, or all if
/// the ids may not be connected any more.
fn without_waits(script: &Script, lines: Lines, connected: bool) -> Lines {
    let of = |line: &usize| script.lines[*line].as_str();
    if !connected {
        let data = |line: &usize| waits(of(line)) || posts(of(line));
        return lines.into_iter().filter(|line| !data(line)).collect();
    }
    let posted = |begin: &str| {
        lines
            .iter()
            .filter(|line| of(line).starts_with(begin))
            .count()
    };
    let receives = posted("rdma_post_recv ");
    let requests = posted("rdma_post_") - receives;
    let (mut sent, mut received) = (0, 0);
    let comes = |line: &usize| {
        let (count, most) = match of(line) {
            call if call.starts_with("rdma_get_send_comp ") => (&mut sent, requests),
            call if call.starts_with("rdma_get_recv_comp ") => {
                (&mut received, receives.min(requests))
            }
            _ => return true,
        };
        *count += 1;
        *count <= most
    };
    lines.iter().copied().filter(comes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(lines: &[&str]) -> Script {
        Script {
            name: "a".into(),
            lines: lines.iter().map(|line| (*line).into()).collect(),
        }
    }

    #[test]
    fn the_shortest_script_that_shows_it_is_found() {
        let lines: Vec<String> = (0..40)
            .map(|number| match number {
                3 => "a = open".into(),
                7 => "b = open".into(),
                20 => "c = use a 1".into(),
                33 => "close c".into(),
                number if number % 5 == 1 => "look b".into(),
                _ => format!("step {number}"),
            })
            .collect();
        let lines: Vec<&str> = lines
            .iter()
            .map(String::as_str)
            .filter(|line| *line != "look b")
            .collect();
        let long = script(&lines);
        let mut rounds = 0;
        let found = shrink(&[long], |tried| {
            rounds += 1;
            let shows = |script: &Script| {
                // A line without what it uses would end the runner.
                let has = |line: &str| script.lines.iter().any(|it| it == line);
                assert!(!has("c = use a 1") || has("a = open"));
                assert!(!has("close c") || has("c = use a 1"));
                has("close c") && has("step 12")
            };
            Ok(tried.iter().map(|(_, script)| shows(script)).collect())
        });
        assert_eq!(
            found.unwrap(),
            [script(&["a = open", "step 12", "c = use a 1", "close c"])]
        );
        assert!(rounds <= 4, "{rounds} boots");
    }

    #[test]
    fn what_would_wait_for_ever_is_left_out() {
        let begin = ["a = rdma_create_id", "rdma_connect a", "look"];
        let data = [
            "rdma_post_recv a",
            "rdma_post_send a",
            "rdma_get_send_comp a",
            "rdma_get_recv_comp a",
            "close a",
        ];
        let long = script(&[begin.as_slice(), &data].concat());
        let has =
            |script: &Script, begin: &str| script.lines.iter().any(|it| it.starts_with(begin));
        let ends = |script: &Script| {
            let posted = has(script, "rdma_post_send") && has(script, "rdma_connect");
            let receives = posted && has(script, "rdma_post_recv");
            assert!(posted || !has(script, "rdma_get_send_comp"), "{script:?}");
            assert!(receives || !has(script, "rdma_get_recv_comp"), "{script:?}");
        };
        // A difference in what is received needs the connection, and one after it does not.
        let shortened = |wanted: &str| {
            let found = shrink(std::slice::from_ref(&long), |tried| {
                tried.iter().for_each(|(_, script)| ends(script));
                Ok(tried.iter().map(|(_, it)| has(it, wanted)).collect())
            });
            found.unwrap()[0].lines.clone()
        };
        assert_eq!(shortened("close"), ["a = rdma_create_id", "close a"]);
        let received = [&begin[..2], &[data[0], data[1], data[3]]].concat();
        assert_eq!(shortened("rdma_get_recv_comp"), received);
    }

    #[test]
    fn what_shows_nothing_shorter_stays() {
        let long = script(&["open", "close"]);
        let found = shrink(&[long], |tried| Ok(vec![false; tried.len()]));
        assert_eq!(found.unwrap(), [script(&["open", "close"])]);
        let failed = shrink(&[script(&["open", "close"])], |_| Err("no machine".into()));
        assert!(failed.is_err());
    }
}
