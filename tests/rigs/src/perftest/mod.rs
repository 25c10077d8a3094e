//! `cargo rig perftest`: perftest's programs between two processes of one machine, on Linux's RoCE in software and on our
//! libraries, whose model takes the place of the card.
//!
//! The machine is a guest with two emulated processors, so that only ratios say something. The two take turns, and of each
//! number the median counts. A ratio beyond its limit is a failure: limits leave room for what else the computer does.
//!
//! `cargo rig perftest --write` puts the table into `docs/benchmarks.md`.

use crate::outcome::Outcome;
use crate::stock_driver::{self, BOOT, Boot, Kernel, Program, Rig, SCENARIO, Scenario};
use bareverbs_bundle::{Kept, LIBRARY, RUNNER};
use std::fs;
use std::path::Path;

pub(crate) const ABOUT: &str = "perftest on Linux's RoCE in software and on our libraries, in turns, as ratios (boots a machine)";

const NAME: &str = "perftest";
const PAGE: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- perftest:begin -->\n";
const END: &str = "<!-- perftest:end -->\n";

const SCENARIOS: &[Scenario] = &[Scenario {
    name: NAME,
    about: "two processes on one machine",
    kernel: Some(Kernel::Stable),
    functions: 0,
    rounds: &[Boot {
        script: concat!("turns=5\n", include_str!("guest.sh")),
        machines: &[&[]],
        network: true,
        limit: 30,
        ..BOOT
    }],
    ..SCENARIO
}];

/// A program with its options, as the guest's script has them.
struct Row {
    program: &'static str,
    about: &'static str,
    /// The column with the number in the table that it prints.
    column: usize,
    /// `true` if less is better.
    is_time: bool,
    /// The ratio to `rdma_rxe` to be reached, and the one that is a failure.
    goal: f64,
    limit: f64,
}

const TYPICAL: usize = 4;
const AVERAGE: usize = 3;
const MESSAGES: usize = 4;

const fn time(program: &'static str, about: &'static str, goal: f64, limit: f64) -> Row {
    Row {
        program,
        about,
        column: TYPICAL,
        is_time: true,
        goal,
        limit,
    }
}

const fn rate(
    program: &'static str,
    about: &'static str,
    column: usize,
    goal: f64,
    limit: f64,
) -> Row {
    Row {
        program,
        about,
        column,
        is_time: false,
        goal,
        limit,
    }
}

const ROWS: [Row; 7] = [
    time(
        "ib_send_lat -s 64 -n 1000",
        "`ib_send_lat` 64 B, polling, typical µs",
        0.5,
        100.0,
    ),
    time(
        "ib_send_lat -s 64 -n 1000 -e",
        "`ib_send_lat -e` 64 B, typical µs",
        0.6,
        40.0,
    ),
    time(
        "ib_write_lat -s 8 -n 1000",
        "`ib_write_lat` 8 B, typical µs",
        0.5,
        100.0,
    ),
    rate(
        "ib_send_bw -s 64 -n 20000",
        "`ib_send_bw` 64 B, million/s",
        MESSAGES,
        3.0,
        0.05,
    ),
    rate(
        "ib_write_bw -s 4096 -n 5000",
        "`ib_write_bw` 4 KiB, MiB/s",
        AVERAGE,
        3.0,
        0.05,
    ),
    rate(
        "ib_write_bw -s 65536 -n 1000",
        "`ib_write_bw` 64 KiB, MiB/s",
        AVERAGE,
        3.0,
        0.05,
    ),
    rate(
        "ib_read_bw -s 65536 -n 1000",
        "`ib_read_bw` 64 KiB, MiB/s",
        AVERAGE,
        3.0,
        0.05,
    ),
];

/// Measures, prints the table, and compares the ratios with their limits.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let write = match arguments {
        [] => false,
        [word] if word == "--write" => true,
        _ => return Err("cargo rig perftest [--write]".into()),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = root.join("target/rigs").join(NAME);
    let bundle = bareverbs_bundle::build(Some(&directory.join("bundle")), Kept::Code)?.folder;
    let programs = [LIBRARY, RUNNER].map(|name| Program {
        name,
        path: bundle.join(name),
    });
    let rig = Rig {
        name: NAME,
        scenarios: SCENARIOS,
        programs: programs.into(),
        ours: Default::default(),
    };
    let mut outcome = stock_driver::run_rig(&rig, &[])?;
    let console = directory
        .join("log/trixie")
        .join(NAME)
        .join("0.console.log");
    let console = fs::read(&console).map_err(|error| format!("{}: {error}", console.display()))?;
    let numbers = numbers(&String::from_utf8_lossy(&console));
    let table = judge(&numbers, &mut outcome);
    print!("{table}");
    if write {
        let page = root.join(PAGE);
        let fail = |error| format!("{}: {error}", page.display());
        let text = fs::read_to_string(&page).map_err(fail)?;
        let (before, rest) = text.split_once(BEGIN).ok_or("no table of perftest")?;
        let (_, after) = rest.split_once(END).ok_or("no end of perftest's table")?;
        fs::write(&page, [before, BEGIN, &table, END, after].concat()).map_err(fail)?;
    }
    Ok(outcome)
}

/// The table, in Markdown.
fn judge(numbers: &[(String, Vec<String>)], outcome: &mut Outcome) -> String {
    let mut table =
        String::from("| perftest, two processes, one machine | rdma_rxe | ours | ratio | goal |\n");
    table += "| --- | --: | --: | --: | --- |\n";
    for row in &ROWS {
        let [rxe, ours] = ["rdma_rxe", "ours"]
            .map(|side| median(numbers, &format!("{}, {side}", row.program), row.column));
        let ratio = ours / rxe;
        // What was not measured is no number, and compares as `false`.
        let within = |limit: f64| match row.is_time {
            true => ratio <= limit,
            false => ratio >= limit,
        };
        let sign = if row.is_time { "≤" } else { "≥" };
        outcome.check(within(row.limit), || {
            format!(
                "{}: {ratio:.2} of rdma_rxe's, and has to be {sign} {}",
                row.about, row.limit
            )
        });
        let reached = if within(row.goal) {
            "reached"
        } else {
            "missed"
        };
        table += &format!(
            "| {} | {} | {} | {ratio:.2} | {sign} {}, {reached} |\n",
            row.about,
            short(rxe),
            short(ours),
            row.goal
        );
    }
    table
}

fn short(number: f64) -> String {
    let digits = if number < 1.0 { 4 } else { 1 };
    format!("{number:.digits$}")
}

/// The middle one of the numbers in a column of what a step has printed. On a busy computer perftest sometimes cannot tell how
/// fast the processor's cycles are counted, and prints no time, or no rate.
fn median(numbers: &[(String, Vec<String>)], step: &str, column: usize) -> f64 {
    let steps = numbers.iter().filter(|(name, _)| name == step);
    let mut all: Vec<f64> = steps
        .filter_map(|(_, values)| values.get(column)?.parse().ok())
        .filter(|value: &f64| value.is_finite() && *value > 0.0)
        .collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The lines of results, each with its step: those of the client, and of the server where it has any.
fn numbers(console: &str) -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    let mut step = "";
    let mut lines = console.lines().map(str::trim_end);
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("@@ step ") {
            step = name;
        } else if line.starts_with("@out  #bytes") {
            let values = lines.next().unwrap_or_default().split_whitespace().skip(1);
            all.push((step.to_string(), values.map(str::to_string).collect()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_can_be_planned() {
        stock_driver::check_plans(SCENARIOS);
    }

    #[test]
    fn the_median_counts() {
        let mut console = String::new();
        for (side, values) in [
            ("rdma_rxe", ["30", "50", "40"]),
            ("ours", ["inf", "80", "-nan"]),
        ] {
            for value in values {
                console += &format!(
                    "@@ step {}, {side}\r\n@out  #bytes #iterations t_min t_max t_typical\r\n@out  64 1000 1 2 {value}\r\n\
                     @out client 0, server 0:\r\n@out  #bytes #iterations\r\n@out  64 1000 1 2 {value}\r\n",
                    ROWS[0].program
                );
            }
        }
        let mut outcome = Outcome::default();
        let table = judge(&numbers(&console), &mut outcome);
        assert!(
            table.contains("| 40.0 | 80.0 | 2.00 | ≤ 0.5, missed |"),
            "{table}"
        );
        // Of the other rows there are no numbers.
        assert_eq!((outcome.passed, outcome.failed), (1, ROWS.len() - 1));
    }
}
