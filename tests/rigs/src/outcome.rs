//! The sum that every rig ends with.

/// The result of a rig.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Outcome {
    /// Counts a check, and prints which one failed.
    pub(crate) fn check(&mut self, good: bool, what: impl FnOnce() -> String) {
        if good {
            self.passed += 1;
        } else {
            self.failed += 1;
            println!("FAILED: {}", what());
        }
    }

    /// Counts the checks of a part.
    pub(crate) fn add(&mut self, part: Self) {
        self.passed += part.passed;
        self.failed += part.failed;
    }
}
