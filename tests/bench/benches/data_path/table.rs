//! The table: what is printed, compared with its limits, and written into the documentation.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs, io};

use bareverbs_bench::report::{FIGURES, print_figure, verdict};

/// Instructions of an operation.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// The function that is measured, which names the row for programs.
    pub(crate) function: &'static str,
    /// In the best build.
    pub(crate) ours: f64,
    /// Without link-time optimization, and the most that passes there.
    pub(crate) plain: f64,
    pub(crate) plain_gate: f64,
    pub(crate) goal: f64,
    /// The most that passes in the best build.
    pub(crate) gate: f64,
}

impl Line {
    fn verdict(&self) -> &'static str {
        if self.ours > self.gate {
            "**above the gate**"
        } else if self.plain > self.plain_gate {
            "**too dear without LTO**"
        } else if self.ours.round() <= self.goal {
            "reached"
        } else if self.ours <= self.goal * 1.05 {
            "within 5 %"
        } else {
            "missed"
        }
    }

    fn passes(&self) -> bool {
        self.ours <= self.gate && self.plain <= self.plain_gate
    }

    fn row(&self) -> String {
        format!(
            "| {} | {:.0} | {:.0} | {:.0}, {} |\n",
            self.name,
            self.ours,
            self.plain,
            self.goal,
            self.verdict(),
        )
    }
}

const HEAD: &str = "\
| operation | ours | without LTO | goal |
| --- | --: | --: | --- |
";

/// Marks around the table in the documentation.
const BEGIN: &str = "<!-- data-path:begin -->\n";
const END: &str = "<!-- data-path:end -->\n";

/// Prints the table, and writes it into the documentation if the command line says so; prints figures for a program that
/// asks for them.
pub(crate) fn show(lines: &[Line], then: impl FnOnce()) -> ExitCode {
    let asked = |for_what: &str| env::args().any(|argument| argument == for_what);
    if asked(FIGURES) {
        for line in lines {
            print_figure(line.function, line.name, line.ours);
        }
        return ExitCode::SUCCESS;
    }
    let table: String = [HEAD.to_owned()]
        .into_iter()
        .chain(lines.iter().map(Line::row))
        .collect();
    println!("Instructions per operation (callgrind, baseline x86-64)\n\n{table}");
    for line in lines {
        println!(
            "  {}: {:.1} of {:.1}; without LTO {:.1} of {:.1}",
            line.name, line.ours, line.gate, line.plain, line.plain_gate
        );
    }
    println!();
    then();
    if asked("--write")
        && let Err(error) = write(&table)
    {
        eprintln!("docs/benchmarks.md: {error}");
        return ExitCode::FAILURE;
    }
    let passed = lines.iter().filter(|line| line.passes()).count();
    verdict(passed, lines.len() - passed)
}

fn write(table: &str) -> io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks.md");
    let text = fs::read_to_string(&path)?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| io::Error::other("it has no place for the table"))?;
    fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}"))
}

/// Builds this benchmark as `cargo build --release` builds a program; the path of the result.
pub(crate) fn plain_build() -> io::Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["bench", "--profile", "release", "--no-run"])
        // The first package has the features that the examples are built with: all but this program is built once.
        .args(["--package", "bareverbs", "--package", "bareverbs-bench"])
        .args(["--bench", "data_path"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()?;
    // One message a line; the path of the program is in the last that has one.
    let messages = String::from_utf8_lossy(&built.stdout);
    let path = messages.lines().rev().find_map(|message| {
        let (_, rest) = message.split_once("\"executable\":\"")?;
        Some(PathBuf::from(rest.split_once('"')?.0))
    });
    path.filter(|_| built.status.success())
        .ok_or_else(|| io::Error::other("the build without link-time optimization failed"))
}
