//! The findings of a scenario, kept together until its end: several run at a time.

use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Default)]
pub(super) struct Report {
    pub(super) text: String,
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// The number of times that each explained message came, by its text.
    pub(super) explained: BTreeMap<&'static str, usize>,
}

impl Report {
    /// Adds a line.
    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Counts a check, and prints which one failed.
    pub(super) fn check(&mut self, good: bool, what: impl FnOnce() -> String) {
        if good {
            self.passed += 1;
        } else {
            self.failed += 1;
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "FAILED: {}", what());
        }
    }

    /// Counts what another one has.
    pub(super) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        for (known, times) in &other.explained {
            *self.explained.entry(known).or_default() += times;
        }
    }

    pub(super) fn explain(&mut self, known: &'static str) {
        *self.explained.entry(known).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted() {
        let mut report = Report::default();
        report.check(true, || "good".into());
        report.check(false, || "bad".into());
        report.explain("odd");
        report.explain("odd");
        assert_eq!((report.passed, report.failed), (1, 1));
        assert_eq!(report.text, "FAILED: bad\n");
        let mut all = Report::default();
        all.add(&report);
        all.add(&report);
        assert_eq!((all.passed, all.failed), (2, 2));
        assert_eq!(all.explained["odd"], 4);
    }
}
