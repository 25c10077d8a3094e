//! Rust's API by the same scripts: a runner on `bareverbs-core` and `bareverbs-cm`, on a model whose clock is virtual, so that
//! nothing is waited for. It prints what runner.c prints, and is judged by the same results of Linux's.
//!
//! A call without a counterpart in Rust is left out where it has no effect on Linux either, as it fails or asks only; otherwise
//! the rest of the script is. There are as many results of calls as the least that [`LEAST`] says, so that no change of the
//! scripts or of the runner takes them away unnoticed.

mod cm;
mod data;
mod line;
mod objects;
mod verbs;
mod world;

use super::compare::{Results, results};
use super::script::Script;
use crate::outcome::Outcome;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The results that are compared at least. The scripts that are written and those of the same seed had 27,868 in November 2026, as
/// `cargo rig twin rust` prints.
const LEAST: usize = 27_800;

/// Scripts for each world, so that what one leaves behind meets few others.
const AT_A_TIME: usize = 100;

/// The output of the runner.
#[derive(Default)]
pub(super) struct Printed {
    /// As runner.c's, without the calls that were left out.
    pub(super) lines: String,
    /// Scripts of which all calls were made, and of which some were.
    whole: usize,
    part: usize,
    /// Results of calls that were made.
    made: usize,
    /// Calls that were left out, by the reason.
    left: BTreeMap<String, usize>,
}

impl Printed {
    /// Runs scripts.
    pub(super) fn of(scripts: &[Script], linux: &Results<'_>) -> Self {
        let mut printed = Self::default();
        for scripts in scripts.chunks(AT_A_TIME) {
            world::run(scripts, linux, &mut printed);
        }
        printed
    }

    /// Prints what was left out, and checks that it is not too much.
    pub(super) fn report(&self) -> Outcome {
        println!(
            "Rust: {} scripts whole, {} in part, {} results of calls; left out, by reason:",
            self.whole, self.part, self.made
        );
        let mut reasons: Vec<_> = self.left.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (reason, count) in reasons {
            println!("    {count:6} {reason}");
        }
        let mut outcome = Outcome::default();
        outcome.check(self.made >= LEAST, || {
            format!(
                "Rust: {} results of calls, and {LEAST} are the least",
                self.made
            )
        });
        outcome
    }

    /// Adds a script's results, of which those without one were left out for a reason.
    fn add(&mut self, script: &Script, results: Vec<Result<String, String>>) {
        let made = results.iter().filter(|result| result.is_ok()).count();
        let end = results.last().is_some_and(Result::is_ok);
        self.made += made - usize::from(end);
        let count = match made == results.len() {
            true => &mut self.whole,
            false => &mut self.part,
        };
        *count += 1;
        // Writing to a string cannot fail.
        let _ = writeln!(self.lines, "@ {}", script.name);
        for (number, result) in results.into_iter().enumerate() {
            match result {
                Ok(result) => {
                    let _ = writeln!(self.lines, "{number} {result}");
                }
                Err(reason) => *self.left.entry(reason).or_default() += 1,
            }
        }
    }

    /// The results, with Linux's in place of those of calls that were left out, and how many these are.
    pub(super) fn filled<'a>(&'a self, linux: &Results<'a>) -> (Results<'a>, usize) {
        let mut all = results(&self.lines);
        let mut left_out = 0;
        for (script, linux) in linux {
            let ours = all.entry(script).or_default();
            for (number, result) in linux {
                ours.entry(*number).or_insert_with(|| {
                    left_out += 1;
                    *result
                });
            }
        }
        (all, left_out)
    }
}
