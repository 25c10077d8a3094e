//! The scripts, from text to the lines that the runner reads.
//!
//! A file has parts (`part NAME` to `end`) and scripts (`script NAME` to the next one). `do NAME` stands for a part's lines,
//! of whichever file. `each NAME WORD…` repeats the script for each word, and `let NAME WORD…` names several; `$NAME` stands
//! for these. A line with `{a,b,c}` is a line for each of these; the nth has the nth of each group, and shorter groups begin
//! again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The last call of each script. Objects that are left are destroyed, and the errors are told.
pub(super) const END: &str = "end";

/// A script as it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) name: String,
    /// Its calls.
    pub(super) lines: Vec<String>,
}

/// The parts of all files, by name.
type Parts<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// Reads the files of a folder, in the order of their names.
pub(super) fn read_folder(folder: &Path) -> Result<Vec<Script>, String> {
    let texts = texts(folder)?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    read(&texts)
}

fn texts(folder: &Path) -> Result<Vec<String>, String> {
    let texts = || -> std::io::Result<Vec<String>> {
        let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
        let mut paths = paths.collect::<std::io::Result<Vec<_>>>()?;
        paths.sort();
        paths.iter().map(fs::read_to_string).collect()
    };
    texts().map_err(|error| format!("{}: {error}", folder.display()))
}

/// Reads the scripts of a file, which may use parts of the files in a folder.
pub(super) fn read_one(folder: &Path, file: &Path) -> Result<Vec<Script>, String> {
    let known = texts(folder)?;
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let others = read(&known)?.len();
    Ok(read(&[known.as_slice(), &[&text]].concat())?.split_off(others))
}

/// Reads files.
pub(super) fn read(texts: &[&str]) -> Result<Vec<Script>, String> {
    let mut parts = Parts::new();
    let mut scripts: Vec<(&str, Vec<&str>)> = Vec::new();
    for text in texts {
        let mut part = None;
        for line in text.lines() {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("", _) | ("#", _) => {}
                ("part", name) => {
                    part = Some(name);
                    parts.insert(name, Vec::new());
                }
                ("end", "") => part = None,
                ("script", name) => scripts.push((name, Vec::new())),
                _ => {
                    let lines = match part {
                        Some(part) => parts.get_mut(part),
                        None => scripts.last_mut().map(|(_, lines)| lines),
                    };
                    lines
                        .ok_or(format!("outside of a script: {line}"))?
                        .push(line);
                }
            }
        }
    }
    let mut all = Vec::new();
    for (name, lines) in scripts {
        repeat(name, &lines, &parts, Vec::new(), &mut all)?;
    }
    Ok(all)
}

/// Adds a script for each choice of its words.
fn repeat<'a>(
    name: &str,
    lines: &[&'a str],
    parts: &Parts<'_>,
    mut chosen: Vec<(&'a str, &'a str)>,
    all: &mut Vec<Script>,
) -> Result<(), String> {
    if let [first, rest @ ..] = lines {
        if let Some((variable, words)) = first
            .strip_prefix("each ")
            .and_then(|it| it.split_once(' '))
        {
            for word in words.split(' ') {
                let name = format!("{name}-{word}");
                let chosen = [chosen.as_slice(), &[(variable, word)]].concat();
                repeat(&name, rest, parts, chosen, all)?;
            }
            return Ok(());
        }
        if let Some(named) = first.strip_prefix("let ").and_then(|it| it.split_once(' ')) {
            chosen.push(named);
            return repeat(name, rest, parts, chosen, all);
        }
    }
    let mut script = Script {
        name: name.into(),
        lines: Vec::new(),
    };
    for line in lines {
        script.add(line, parts, &chosen)?;
    }
    script.lines.push(END.into());
    all.push(script);
    Ok(())
}

impl Script {
    /// Returns `true` if it calls functions that are newer than Debian's rdma-core.
    pub(super) fn is_newer(&self) -> bool {
        self.name.starts_with("newer-")
    }

    /// Returns `true` if its name begins with one of these.
    pub(super) fn begins(&self, names: &[String]) -> bool {
        names.iter().any(|name| self.name.starts_with(name))
    }

    /// Returns `true` if it has nothing to do with connections, addresses, groups and sockets, which processes share, so that it
    /// can run beside others. The machine has memory for one of the largest completion queues.
    pub(super) fn is_alone(&self) -> bool {
        let shared = ["rdma_", "mcast", "group", "addr", "max.max_cqe"];
        let is = |line: &String| !shared.iter().any(|word| line.contains(word));
        !self.name.contains("sock") && !self.name.starts_with("drawn-") && self.lines.iter().all(is)
    }

    /// Returns `true` if it sends messages of 1 GiB, which take long.
    pub(super) fn is_largest(&self) -> bool {
        self.name.starts_with("largest")
    }

    /// Returns `true` if it uses the C library's sockets.
    pub(super) fn has_plain_sockets(&self) -> bool {
        self.name.ends_with("-plain")
    }

    fn add(
        &mut self,
        line: &str,
        parts: &Parts<'_>,
        chosen: &[(&str, &str)],
    ) -> Result<(), String> {
        let line = chosen
            .iter()
            .fold(line.to_string(), |line, (variable, words)| {
                line.replace(&format!("${variable}"), words)
            });
        if line.contains('$') {
            return Err(format!("{}: a word without a meaning: {line}", self.name));
        }
        if let Some(part) = line.strip_prefix("do ") {
            let lines = parts.get(part);
            let lines = lines.ok_or_else(|| format!("{}: no part {part:?}", self.name))?;
            return lines
                .iter()
                .try_for_each(|line| self.add(line, parts, chosen));
        }
        self.lines.extend(alternatives(&line));
        Ok(())
    }
}

/// The lines that a line with groups stands for.
fn alternatives(line: &str) -> Vec<String> {
    let mut pieces = line.split('{');
    let begin = pieces.next().unwrap_or_default();
    let groups: Vec<(Vec<&str>, &str)> = pieces
        .filter_map(|piece| piece.split_once('}'))
        .map(|(group, rest)| (group.split(',').collect(), rest))
        .collect();
    let most = groups.iter().map(|(words, _)| words.len()).max();
    let one = |nth: usize| {
        let begin = begin.to_string();
        groups.iter().fold(begin, |line, (words, rest)| {
            line + words[nth % words.len()] + rest
        })
    };
    (0..most.unwrap_or(1)).map(one).collect()
}

/// The text of a file with this script, which has no `end` as its last call.
pub(super) fn text(script: &Script) -> String {
    format!("script {}\n{}\n", script.name, script.lines.join("\n"))
}

/// The runner's input.
pub(super) fn input<'a>(scripts: impl IntoIterator<Item = &'a Script>) -> String {
    let mut text = String::new();
    for script in scripts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "@ {}", script.name);
        for (number, line) in script.lines.iter().enumerate() {
            let _ = writeln!(text, "{number} {line}");
        }
    }
    text
}

/// The scripts of a runner's input.
pub(super) fn of_input(text: &str) -> Vec<Script> {
    let mut scripts: Vec<Script> = Vec::new();
    for line in text.lines() {
        match (line.split_once(' '), scripts.last_mut()) {
            (Some(("@", name)), _) => scripts.push(Script {
                name: name.into(),
                lines: Vec::new(),
            }),
            (Some((_, line)), Some(script)) => script.lines.push(line.into()),
            _ => {}
        }
    }
    scripts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_repeated_and_parts_put_in() {
        let text = "
# A remark.
part first
open $kind
end
script a
each kind x y
let rest 1 2
do first
use {p,q,r} {3,4} $rest
script b
do second
";
        let scripts = read(&[text, "part second\nclose\nend\n"]).unwrap();
        let expected = [
            (
                "a-x",
                vec!["open x", "use p 3 1 2", "use q 4 1 2", "use r 3 1 2", "end"],
            ),
            (
                "a-y",
                vec!["open y", "use p 3 1 2", "use q 4 1 2", "use r 3 1 2", "end"],
            ),
            ("b", vec!["close", "end"]),
        ];
        let found: Vec<_> = scripts
            .iter()
            .map(|script| {
                let lines: Vec<&str> = script.lines.iter().map(String::as_str).collect();
                (script.name.as_str(), lines)
            })
            .collect();
        assert_eq!(found, expected);
        assert_eq!(input(&scripts[2..]), "@ b\n0 close\n1 end\n");
        assert_eq!(of_input(&input(&scripts)), scripts);
    }

    #[test]
    fn what_processes_share_is_not_alone() {
        let text =
            "script a\npd = alloc_pd\nscript b\nid = rdma_create_id\nscript drawn-1-2\nalloc_pd\n";
        let alone = read(&[text]).unwrap().into_iter().map(|it| it.is_alone());
        assert_eq!(alone.collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn what_has_no_meaning_is_an_error() {
        for text in ["open", "script a\ndo nothing", "script a\nopen $kind"] {
            assert!(read(&[text]).is_err(), "{text}");
        }
    }
}
