//! Nanoseconds by the number of QPs, ours and rdma-core's in turns.

use super::{rdma_core, table};
use crate::outcome::Outcome;
use crate::process::quiet_output;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// The name of this part on the command line.
pub(super) const NAME: &str = "scale";

const SOURCE: &str = include_str!("scale.c");
/// Numbers of QPs.
const COUNTS: [&str; 6] = ["16", "256", "1024", "4096", "16384", "100000"];
/// Turns of each. What counts is the least of them: a machine that does something else makes it only more.
const TURNS: usize = 5;

/// Nanoseconds of a post and of a completion, for each number.
type Times = [[f64; 2]; COUNTS.len()];

/// Measures, prints the table, and checks that ours take no longer.
pub(super) fn run(root: &Path, directory: &Path) -> Result<Outcome, String> {
    let (program, version) = rdma_core::compiled(directory, NAME, SOURCE)?;
    let (mut ours, mut theirs) = (
        [[f64::INFINITY; 2]; COUNTS.len()],
        [[f64::INFINITY; 2]; COUNTS.len()],
    );
    for _ in 0..TURNS {
        let mut bench = table::bench(root, NAME);
        keep_least(&mut ours, &quiet_output(bench.args(COUNTS))?)?;
        keep_least(
            &mut theirs,
            &quiet_output(Command::new(&program).args(COUNTS))?,
        )?;
    }
    let mut text = format!(
        "Nanoseconds beside {version} (-O3, `ibv_wr_*` and `ibv_poll_cq`, without locks), the least of {TURNS} turns. \
         Only ratios say something.\n\n\
         | QPs in random order, 16 deep | post | rdma-core | ratio | completion | rdma-core | ratio |\n\
         | --: | --: | --: | --: | --: | --: | --: |\n"
    );
    let mut outcome = Outcome::default();
    for ((count, ours), theirs) in COUNTS.iter().zip(ours).zip(theirs) {
        let [post, poll] =
            [0, 1].map(|which| (ours[which], theirs[which], ours[which] / theirs[which]));
        let _ = writeln!(
            text,
            "| {count} | {:.1} | {:.1} | {:.2} | {:.1} | {:.1} | {:.2} |",
            post.0, post.1, post.2, poll.0, poll.1, poll.2
        );
        for (what, (ours, theirs, ratio)) in [("post", post), ("completion", poll)] {
            outcome.check(ratio < 1.0, || {
                format!("{count} QPs: ours takes {ours:.1} ns a {what}, rdma-core's {theirs:.1}")
            });
        }
    }
    print!("{text}");
    Ok(outcome)
}

/// Takes the lines `scale COUNT POST COMPLETION` of a program.
fn keep_least(times: &mut Times, text: &str) -> Result<(), String> {
    for (count, times) in COUNTS.iter().zip(times) {
        let line = format!("scale {count} ");
        let figures = text.lines().find_map(|found| found.strip_prefix(&line));
        let figures: Vec<f64> = figures
            .unwrap_or_default()
            .split(' ')
            .filter_map(|figure| figure.parse().ok())
            .collect();
        let [post, poll] = figures[..] else {
            return Err(format!("no line for {count} QPs in:\n{text}"));
        };
        *times = [times[0].min(post), times[1].min(poll)];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_the_turns_is_kept() {
        let lines = |post: f64| -> String {
            let line = |count: &&str| format!("scale {count} {post:.2} 3.00\n");
            COUNTS.iter().map(line).collect()
        };
        let mut times = [[f64::INFINITY; 2]; COUNTS.len()];
        keep_least(&mut times, &lines(5.0)).unwrap();
        keep_least(&mut times, &lines(4.0)).unwrap();
        keep_least(&mut times, &lines(6.0)).unwrap();
        assert_eq!(times[0], [4.0, 3.0]);
        assert!(keep_least(&mut times, "scale 16 1.00\n").is_err());
    }
}
