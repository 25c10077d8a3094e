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
    let waits = |line: &usize| script.lines[*line].starts_with("rdma_get_");
    let mut found = BTreeSet::new();
    if all.iter().any(waits) {
        // These wait for ever for a completion that does not come: they go first, with the requests.
        let posts = |line: &usize| script.lines[*line].starts_with("rdma_post_");
        found.insert(
            all.into_iter()
                .filter(|line| !waits(line) && !posts(line))
                .collect(),
        );
        return found;
    }
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
    for line in lines {
        let text = script.lines[*line].as_str();
        if left_out.contains(line) || names(text).any(|name| missing.contains(name)) {
            if let Some((name, _)) = text.split_once(" = ") {
                missing.insert(name);
            }
        } else {
            kept.insert(*line);
        }
    }
    kept
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
    fn what_waits_for_ever_goes_first() {
        let long = script(&[
            "a = open",
            "rdma_post_send a",
            "rdma_get_send_comp a",
            "close a",
        ]);
        let found = shrink(&[long], |tried| {
            let waits = |script: &Script| script.lines.iter().any(|it| it.starts_with("rdma_get"));
            assert!(!tried.iter().any(|(_, script)| waits(script)));
            Ok(vec![true; tried.len()])
        });
        assert_eq!(found.unwrap()[0].lines.len(), 1);
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
