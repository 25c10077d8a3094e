//! Latencies of commands, and the pages that bring-up was asked for.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use bareverbs::verbs::firmware_cmds::dump::opcode_name;
use bareverbs::verbs::firmware_cmds::opcode::Opcode;

use super::dumps;

/// Bounds of the histogram's columns, in microseconds: each has what is below its bound and not below the one before.
const BOUNDS: [u128; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, u128::MAX];
const COLUMNS: [&str; 8] = [
    "<1us", "<10us", "<100us", "<1ms", "<10ms", "<100ms", "<1s", "more",
];

/// A histogram for each opcode, of the time from the end of the input's dump to the beginning of the output's.
pub(crate) fn table(commands: &str) -> String {
    let mut by_opcode: BTreeMap<u16, (Vec<Duration>, usize)> = BTreeMap::new();
    let dumps = dumps::read(commands);
    for (input, output) in dumps::pairs(&dumps) {
        let (times, unanswered) = by_opcode.entry(input.opcode).or_default();
        match output {
            Some(output) => times.push(output.times[0].saturating_sub(input.times[1])),
            None => *unanswered += 1,
        }
    }
    let mut text = format!(
        "{:<28}{:>7}{:>12}{:>12}{:>12}",
        "command", "count", "min_us", "median_us", "max_us"
    );
    for column in COLUMNS {
        // Writing to a String does not fail.
        let _ = write!(text, "{column:>8}");
    }
    text.push_str("  unanswered\n");
    for (opcode, (mut times, unanswered)) in by_opcode {
        times.sort();
        let micros = |time: Option<&Duration>| {
            time.map_or("-".into(), |time| {
                format!("{:.1}", time.as_secs_f64() * 1e6)
            })
        };
        let _ = write!(
            text,
            "{:<28}{:>7}{:>12}{:>12}{:>12}",
            opcode_name(opcode),
            times.len(),
            micros(times.first()),
            micros(times.get(times.len() / 2)),
            micros(times.last())
        );
        let mut from = 0;
        for to in BOUNDS {
            let within = |time: &&Duration| (from..to).contains(&time.as_micros());
            let _ = write!(text, "{:>8}", times.iter().filter(within).count());
            from = to;
        }
        let _ = writeln!(text, "  {unanswered}");
    }
    text
}

/// The pages that bring-up asked for, as lines for `about.txt`.
pub(crate) fn counted(commands: &str) -> String {
    let mut text = String::new();
    let dumps = dumps::read(commands);
    for (name, op_mod) in [("boot pages", 1), ("init pages", 2)] {
        let pages = dumps::pairs(&dumps).iter().find_map(|(input, output)| {
            let asked = input.opcode == Opcode::QueryPages.number()
                && input.message().get(6..8) == Some(&[0, op_mod]);
            let answer = output.filter(|_| asked)?.message();
            let status = *answer.first()?;
            let pages = u32::from_be_bytes(*answer.get(12..)?.first_chunk()?);
            (status == 0).then_some(pages)
        });
        if let Some(pages) = pages {
            let _ = writeln!(text, "{name}: {pages}");
        }
    }
    text
}
