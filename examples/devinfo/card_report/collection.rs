//! Collects the parts of a report: the text and the result of each. Another thread may take what is there at any time.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bareverbs_examples::Result;

/// The parts in the order in which they are tried.
pub(crate) const PARTS: [&str; 18] = [
    "about",
    "pci",
    "iommu",
    "vfio",
    "init-segment",
    "health-before",
    "bring-up",
    "capabilities",
    "contexts",
    "port",
    "registers",
    "module",
    "temperature",
    "close",
    "selftest",
    "health-after",
    "conformance",
    "latency",
];

/// The result of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    Failed(String),
    NotTried(String),
}

#[derive(Debug, Default, Clone)]
struct State {
    files: BTreeMap<&'static str, String>,
    outcomes: BTreeMap<&'static str, Outcome>,
    current: Option<&'static str>,
}

/// A report that is being written.
#[derive(Debug)]
pub(crate) struct Collection {
    started: Instant,
    state: Mutex<State>,
    /// True if the parts are named on standard error as they begin.
    progress: bool,
}

impl Collection {
    pub(crate) fn new(progress: bool) -> Self {
        Self {
            started: Instant::now(),
            state: Mutex::default(),
            progress,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No change of the state is left half done by a thread that panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a text at the end of a file.
    pub(crate) fn append(&self, file: &'static str, text: &str) {
        self.state().files.entry(file).or_default().push_str(text);
    }

    /// Appends text to a file, with the time since the report's start before it.
    pub(crate) fn append_stamped(&self, file: &'static str, text: &str) {
        let now = self.started.elapsed();
        let (seconds, nanoseconds) = (now.as_secs(), now.subsec_nanos());
        let mut state = self.state();
        let file = state.files.entry(file).or_default();
        // Writing to a String does not fail.
        let _ = writeln!(file, "[{seconds}.{nanoseconds:09}] {text}");
    }

    /// The text of a file.
    pub(crate) fn text(&self, file: &str) -> String {
        self.state().files.get(file).cloned().unwrap_or_default()
    }

    pub(crate) fn begin(&self, part: &'static str) {
        if self.progress {
            eprintln!("{part} ...");
        }
        self.state().current = Some(part);
    }

    fn end(&self, part: &'static str, outcome: Outcome) {
        if self.progress && outcome != Outcome::Ok {
            eprintln!("{}", line(part, &outcome));
        }
        let mut state = self.state();
        state.outcomes.insert(part, outcome);
        state.current = state.current.filter(|current| *current != part);
    }

    /// Runs one part. Returns its value, unless it failed.
    pub(crate) fn part<T>(
        &self,
        part: &'static str,
        work: impl FnOnce() -> Result<T>,
    ) -> Option<T> {
        self.begin(part);
        self.finish(part, work())
    }

    /// Notes the result of a part.
    pub(crate) fn finish<T>(&self, part: &'static str, done: Result<T>) -> Option<T> {
        match done {
            Ok(done) => {
                self.end(part, Outcome::Ok);
                Some(done)
            }
            Err(error) => {
                self.end(part, Outcome::Failed(one_line(&error.to_string())));
                None
            }
        }
    }

    /// Notes that a part is left out.
    pub(crate) fn leave_out(&self, part: &'static str, why: &str) {
        self.end(part, Outcome::NotTried(one_line(why)));
    }

    /// All files as they are now, `parts.txt` the last one, and the number of parts that failed. `why` is the reason if the report
    /// ended early.
    pub(crate) fn files(&self, why: Option<&str>) -> (Vec<(&'static str, String)>, usize) {
        let State {
            mut files,
            outcomes,
            current,
        } = self.state().clone();
        let why = one_line(why.unwrap_or("the report ended before"));
        let (mut parts, mut failed) = (String::new(), 0);
        for part in PARTS {
            let outcome = outcomes.get(part).cloned();
            let outcome = outcome.unwrap_or_else(|| match current {
                Some(current) if current == part => Outcome::Failed(why.clone()),
                _ => Outcome::NotTried(why.clone()),
            });
            failed += usize::from(matches!(outcome, Outcome::Failed(_)));
            parts.push_str(&line(part, &outcome));
            parts.push('\n');
        }
        files.remove("parts.txt");
        let files = files.into_iter().chain([("parts.txt", parts)]);
        (files.collect(), failed)
    }
}

fn line(part: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ok => format!("{part}: ok"),
        Outcome::Failed(why) => format!("{part}: failed: {why}"),
        Outcome::NotTried(why) => format!("{part}: not tried: {why}"),
    }
}

/// Joins the lines of a message: the files have one line for each entry.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_there_at_any_time() {
        let collection = Collection::new(false);
        collection.part("about", || {
            collection.append("about.txt", "a\n");
            Ok(())
        });
        let failed = collection.part("pci", || -> Result<()> { Err("one\ntwo".into()) });
        assert_eq!(failed, None);
        collection.leave_out("iommu", "none");
        collection.begin("vfio");
        collection.append("vfio.txt", "begun");
        let (files, failed) = collection.files(Some("interrupted by SIGINT"));
        assert_eq!(failed, 2);
        let [
            ("about.txt", about),
            ("vfio.txt", begun),
            ("parts.txt", parts),
        ] = &files[..]
        else {
            panic!("{files:?}");
        };
        assert_eq!((&**about, &**begun), ("a\n", "begun"));
        let mut lines = parts.lines();
        for expected in [
            "about: ok",
            "pci: failed: one two",
            "iommu: not tried: none",
            "vfio: failed: interrupted by SIGINT",
        ] {
            assert_eq!(lines.next(), Some(expected));
        }
        let rest = PARTS.len() - 4;
        let not_tried = ": not tried: interrupted by SIGINT";
        assert_eq!(lines.filter(|line| line.ends_with(not_tried)).count(), rest);
    }
}
