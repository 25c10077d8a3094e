//! Counts instructions by running the benchmark's own binary under callgrind.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs, io};

/// Set in the child's environment: run the operations, print nothing.
pub const CHILD: &str = "BAREVERBS_BENCH_CHILD";

/// Returns `true` if this process is the one that runs under callgrind.
#[must_use]
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Returns `true` if this process runs under callgrind and counts what runs inside `function` only: the rest need not be run.
#[must_use]
pub fn is_inside(function: &str) -> bool {
    env::var_os(CHILD).is_some_and(|inside| inside == function)
}

/// Instructions that each function executed, with what it called.
#[derive(Debug, Default)]
pub struct Costs(HashMap<String, u64>);

impl Costs {
    /// The inclusive cost of the function whose path ends in `name`, or `None` if it was never executed.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<u64> {
        let wanted = format!("::{name}");
        let matches = |path: &str| {
            path.strip_suffix(name)
                .is_some_and(|front| front.is_empty() || front.ends_with("::"))
                || path.contains(&format!("{wanted}::h"))
        };
        let mut found = self
            .0
            .iter()
            .filter(|(path, _)| matches(path))
            .map(|(_, cost)| *cost)
            .peekable();
        found.peek()?;
        Some(found.sum())
    }
}

/// The number of callers that a function's cost is told apart by.
const CALLERS: usize = 24;

impl Costs {
    /// The inclusive cost of calls of the function whose path ends in `name` from within the function `from`, at whatever
    /// depth, if the calls of `name` were told apart.
    #[must_use]
    pub fn of_calls(&self, name: &str, from: &str) -> u64 {
        let is_wanted = |path: &str| {
            let mut functions = path.split('\'');
            functions
                .next()
                .is_some_and(|function| function.ends_with(name))
                && functions.any(|caller| caller == from)
        };
        let found = self.0.iter().filter(|(path, _)| is_wanted(path));
        found.map(|(_, cost)| cost).sum()
    }
}

/// Runs this binary again under callgrind and returns what its functions cost.
pub fn count() -> io::Result<Costs> {
    run(None)
}

/// Runs another build of this binary under callgrind and returns what its functions cost.
pub fn count_build(program: &Path) -> io::Result<Costs> {
    let mut command = Command::new("valgrind");
    command.env(CHILD, "everything");
    run_as(command, &[program.as_os_str().to_owned()], None)
}

/// Runs this binary again under callgrind and returns what it costs inside the function whose path ends in `function`.
pub fn count_inside(function: &str) -> io::Result<Costs> {
    run(Some(function))
}

fn run(inside: Option<&str>) -> io::Result<Costs> {
    let mut command = Command::new("valgrind");
    command.env(CHILD, inside.unwrap_or("everything"));
    run_as(command, &[env::current_exe()?.into_os_string()], inside)
}

/// Counts the costs of another program's functions inside those whose names begin with `inside`. `command` runs valgrind, whose
/// arguments are added; the program and its arguments follow them. The calls of functions in `apart` are told apart by
/// their callers ([`Costs::of_calls`]).
pub fn count_program(
    mut command: Command,
    program: &[OsString],
    inside: &str,
    apart: &[&str],
) -> io::Result<Costs> {
    command.arg("--tool=callgrind");
    command.args(
        apart
            .iter()
            .map(|name| format!("--separate-callers{CALLERS}=*{name}*")),
    );
    run_as(command, program, Some(inside))
}

fn run_as(mut command: Command, program: &[OsString], inside: Option<&str>) -> io::Result<Costs> {
    let out = env::temp_dir().join(format!("bareverbs-callgrind-{}", std::process::id()));
    let status = command
        .args(["--tool=callgrind", "--quiet"])
        .args(inside.map(|function| format!("--toggle-collect=*{function}*")))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args(program)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| {
            let hint = "valgrind is needed to count instructions; install the package `valgrind`";
            io::Error::new(
                error.kind(),
                format!("cannot run valgrind ({error}): {hint}"),
            )
        })?;
    if !status.success() {
        let _ = fs::remove_file(&out);
        return Err(io::Error::other(format!(
            "the benchmark failed under callgrind: {status}"
        )));
    }
    let costs = read(&out);
    let _ = fs::remove_file(&out);
    costs
}

fn read(path: &Path) -> io::Result<Costs> {
    let text = fs::read_to_string(path)?;
    parse(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "callgrind's output cannot be read",
        )
    })
}

/// Reads callgrind's profile format: costs of lines are summed by function, and the line after `calls=` is the
/// inclusive cost of a call made by the function at hand.
fn parse(text: &str) -> Option<Costs> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut costs: HashMap<String, u64> = HashMap::new();
    let mut function = "";
    let mut any = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = resolve(name, &mut names)?;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            resolve(name, &mut names)?;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            let cost: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            *costs.entry(function.to_owned()).or_default() += cost;
            any = true;
        }
    }
    any.then_some(Costs(costs))
}

/// `(12) name` the first time, `(12)` later.
fn resolve<'t>(name: &'t str, names: &mut HashMap<&'t str, &'t str>) -> Option<&'t str> {
    if !name.starts_with('(') {
        return Some(name);
    }
    let (id, rest) = name.split_once(')')?;
    let rest = rest.trim();
    if !rest.is_empty() {
        names.insert(id, rest);
    }
    names.get(id).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inclusive_costs() {
        let text = "version: 1\nevents: Ir\n\nfn=(1) bench::measured::outer\n16 3\n+1 4\ncfn=(2) bench::inner\n\
                    calls=2 5\n* 100\n-3 1\n\nfn=(2)\n5 100\n\nfn=(1)\n20 2\ntotals: 210\n";
        let costs = parse(text).unwrap();
        assert_eq!(costs.of("measured::outer"), Some(110));
        assert_eq!(costs.of("inner"), Some(100));
        assert_eq!(costs.of("nner"), None);
        assert_eq!(costs.of("gone"), None);
    }
}
