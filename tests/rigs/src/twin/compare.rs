//! The comparison of two runners' results, and the table of the differences that are meant.

use super::script::Script;
use std::collections::BTreeMap;
use std::fmt;

/// The lines of a runner: results by script and number of the line.
pub(super) type Results<'a> = BTreeMap<&'a str, BTreeMap<usize, &'a str>>;

/// The lines of a runner's scripts, each with its script's name.
pub(super) fn scripts_of(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut script = "";
    text.lines().filter_map(move |line| {
        if let Some(name) = line.strip_prefix("@ ") {
            script = name;
            return None;
        }
        Some((script, line))
    })
}

/// Takes a runner's lines apart. Those of others are left out.
pub(super) fn results(text: &str) -> Results<'_> {
    let mut all = Results::new();
    for (script, line) in scripts_of(text) {
        if let Some((number, result)) = line.split_once(' ')
            && let Ok(number) = number.parse()
        {
            all.entry(script).or_default().insert(number, result);
        }
    }
    all
}

/// A call whose results differ.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference<'a> {
    pub(super) script: &'a str,
    /// The number of the call in the script.
    pub(super) number: usize,
    pub(super) call: &'a str,
    /// The words of the results that are not the same, if both have as many, and else the whole results.
    pub(super) linux: String,
    pub(super) ours: String,
}

/// The words that two results do not have in common.
fn apart(linux: &str, ours: &str) -> (String, String) {
    let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
    let (mut linux, mut ours) = (words(linux), words(ours));
    if linux.len() == ours.len() {
        let pairs = linux.into_iter().zip(ours);
        (linux, ours) = pairs.filter(|(linux, ours)| linux != ours).unzip();
    }
    (linux.join(" "), ours.join(" "))
}

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            script,
            call,
            linux,
            ours,
            ..
        } = self;
        write!(f, "{script}: {call}\n    Linux: {linux}\n    ours:  {ours}")
    }
}

/// The text in place of a result that is not there.
const NOTHING: &str = "no result";

/// The differences of two runs of scripts. A call without a result on either side is one.
pub(super) fn differences<'a>(
    scripts: &'a [Script],
    linux: &Results<'a>,
    ours: &Results<'a>,
) -> Vec<Difference<'a>> {
    let mut found = Vec::new();
    for Script { name, lines } in scripts {
        for (number, call) in lines.iter().enumerate() {
            let of = |all: &Results<'a>| {
                let result = all
                    .get(name.as_str())
                    .and_then(|script| script.get(&number));
                result.copied()
            };
            let (linux, ours) = (of(linux), of(ours));
            if linux.is_none() || linux != ours {
                let whole = |side: Option<&str>| side.unwrap_or(NOTHING).to_string();
                let (linux, ours) = match (linux, ours) {
                    (Some(linux), Some(ours)) => apart(linux, ours),
                    _ => (whole(linux), whole(ours)),
                };
                found.push(Difference {
                    script: name,
                    number,
                    call,
                    linux,
                    ours,
                });
            }
        }
    }
    found
}

/// A row of the table: patterns, in which `*` is any part of a word, and `**` any text. There may be several for scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    script: &'a str,
    call: &'a str,
    linux: &'a str,
    ours: &'a str,
}

impl<'a> Row<'a> {
    /// The rows of a page: those of its table whose first four cells are code, and which has reasons in the next.
    pub(super) fn all(page: &'a str) -> Result<Vec<Self>, String> {
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        rows.map(|line| {
            let cells: Vec<&str> = line.split(" | ").collect();
            let code = |cell: &'a str| {
                let cell = cell.trim_matches(['|', ' ']);
                cell.strip_prefix('`')
                    .and_then(|cell| cell.strip_suffix('`'))
            };
            let [script, call, linux, ours, why, since] = cells[..] else {
                return Err(format!("not six cells: {line}"));
            };
            let (Some(script), Some(call), Some(linux), Some(ours)) =
                (code(script), code(call), code(linux), code(ours))
            else {
                return Err(format!("no code in a cell: {line}"));
            };
            if why.trim().is_empty() || since.trim_matches(['|', ' ']).is_empty() {
                return Err(format!("no reason, or not since when: {line}"));
            }
            Ok(Self {
                script,
                call,
                linux,
                ours,
            })
        })
        .collect()
    }

    /// Returns `true` if it is about this difference.
    pub(super) fn explains(&self, found: &Difference<'_>) -> bool {
        let mut scripts = self.script.split("`, `");
        scripts.any(|pattern| matches(pattern, found.script))
            && matches(self.call, found.call)
            && matches(self.linux, &found.linux)
            && matches(self.ours, &found.ours)
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}: {}: {}",
            self.script, self.call, self.linux, self.ours
        )
    }
}

/// Returns `true` if a text is as a pattern says.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(begin) else {
        return false;
    };
    let (rest, most) = match rest.strip_prefix('*') {
        Some(rest) => (rest, text.len()),
        None => (rest, text.find(' ').unwrap_or(text.len())),
    };
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.take_while(|at| *at <= most)
        .any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts() -> Vec<Script> {
        let calls = ["open", "close 1", "close 2"];
        vec![Script {
            name: "a".into(),
            lines: calls.map(String::from).into(),
        }]
    }

    #[test]
    fn results_are_compared_call_by_call() {
        let scripts = scripts();
        let linux = results("@ a\n0 made\na message\n1 0\n2 EBUSY\n");
        assert_eq!(differences(&scripts, &linux, &linux), []);
        let ours = results("@ a\n0 made\n1 EINVAL\n");
        let found = differences(&scripts, &linux, &ours);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.call, it.linux.as_str(), it.ours.as_str()))
            .collect();
        assert_eq!(
            found,
            [("close 1", "0", "EINVAL"), ("close 2", "EBUSY", NOTHING)]
        );
        let pair = |linux: &str, ours: &str| (linux.to_string(), ours.to_string());
        assert_eq!(
            apart("0 a=1 b=2 c=3", "0 a=1 b=3 c=4"),
            pair("b=2 c=3", "b=3 c=4")
        );
        assert_eq!(apart("0 a=1", "EINVAL"), pair("0 a=1", "EINVAL"));
    }

    #[test]
    fn nothing_on_either_side_is_a_difference() {
        let nothing = Results::new();
        assert_eq!(differences(&scripts(), &nothing, &nothing).len(), 3);
    }

    #[test]
    fn rows_explain_what_they_are_about_only() {
        let page = "| script | call |\n|---|---|\n| `a`, `d*` | `close *` | `0` | `E*` | it is so | always |\n";
        let rows = Row::all(page).unwrap();
        let found = |script, call, linux: &str, ours: &str| Difference {
            script,
            number: 0,
            call,
            linux: linux.into(),
            ours: ours.into(),
        };
        let explained = |it| rows.iter().any(|row| row.explains(&it));
        assert!(explained(found("a", "close 1", "0", "EINVAL")));
        assert!(explained(found("drawn", "close 1", "0", "EINVAL")));
        assert!(!explained(found("b", "close 1", "0", "EINVAL")));
        assert!(!explained(found("a", "open", "0", "EINVAL")));
        assert!(!explained(found("a", "close 1", "EINVAL", "EINVAL")));
        assert!(!explained(found("a", "close 1", "0", "0")));
        for page in [
            "| `a` | `b` |",
            "| `a` | `b` | `c` | `d` |  | 1 |",
            "| `a` | b | `c` | `d` | e | 1 |",
        ] {
            assert!(Row::all(page).is_err(), "{page}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, text) in [
            ("", ""),
            ("*", "abc"),
            ("a*c", "abbc"),
            ("*b*", "abc"),
            ("a*", "a"),
            ("a* c", "ab c"),
            ("a **", "a b c"),
            ("**c", "a b c"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("a", "ab"),
            ("a*c", "ab"),
            ("*b", "abc"),
            ("a *", "a b c"),
            ("a*c", "a c"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
