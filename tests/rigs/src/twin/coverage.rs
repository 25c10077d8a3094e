//! The number of scripts that call each function of the libraries.
//!
//! The linker leads the program's calls through code that marks the function, and the program prints what was marked behind
//! each script. So a function counts where it was called, and not where it might have been.

use super::compare::scripts_of;
use crate::outcome::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The number of scripts that have to call each function.
const LEAST: usize = 20;

/// The program's line with the functions that a script has called.
const CALLS: &str = "calls";

/// The program with code that marks calls, and the linker's options for it. `list` is the page that has the functions.
pub(super) fn counting(program: &str, list: &str) -> (String, Vec<String>) {
    let names: BTreeSet<&str> = exported(list).collect();
    let mut text = format!("#define COUNTED {}\n", names.len());
    let mut code = String::new();
    let mut options = Vec::new();
    text += "static const char *const counted[COUNTED] = {\n";
    for (place, name) in names.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    \"{name}\",");
        // The program itself looks for some, which the library that it is linked with need not have.
        let by = [
            ("dlsym(", format!(", \"{name}\")")),
            ("NEWER(", format!(", {name}, (")),
        ];
        let is_looked_for = |line: &str| {
            let mut by = by.iter();
            by.any(|(call, argument)| line.contains(call) && line.contains(argument))
        };
        if program.lines().any(is_looked_for) {
            continue;
        }
        let _ = writeln!(
            code,
            "__asm__(\".pushsection .text\\n.globl __wrap_{name}\\n.type __wrap_{name}, @function\\n\"\n    \
             \"__wrap_{name}: movb $1, calls_made+{place}(%rip)\\njmp __real_{name}@PLT\\n.popsection\");"
        );
        options.push(format!("-Wl,--wrap={name}"));
    }
    text += "};\n";
    (text + program + &code, options)
}

/// The scripts, of those that were written, that call each function; those of fewest first.
pub(super) fn counts<'a>(
    printed: &str,
    written: &BTreeSet<&str>,
    list: &'a str,
) -> Vec<(usize, &'a str)> {
    let mut counts: BTreeMap<&str, usize> = exported(list).map(|name| (name, 0)).collect();
    for (script, line) in scripts_of(printed) {
        let Some(names) = line
            .strip_prefix(CALLS)
            .filter(|_| written.contains(script))
        else {
            continue;
        };
        for name in names.split_whitespace() {
            if let Some(count) = counts.get_mut(name) {
                *count += 1;
            }
        }
    }
    let mut counts: Vec<_> = counts
        .into_iter()
        .map(|(name, count)| (count, name))
        .collect();
    counts.sort_unstable();
    counts
}

/// The counts as text.
pub(super) fn report(counts: &[(usize, &str)]) -> String {
    let mut text = String::new();
    for (count, name) in counts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{count:4} {name}");
    }
    text + &summary(counts)
}

fn summary(counts: &[(usize, &str)]) -> String {
    let least = |least| counts.iter().filter(|(count, _)| *count >= least).count();
    format!(
        "{} functions, {} in scripts, {} in {LEAST} or more\n",
        counts.len(),
        least(1),
        least(LEAST)
    )
}

/// A check for each function.
pub(super) fn check(counts: &[(usize, &str)]) -> Outcome {
    let mut outcome = Outcome::default();
    for (count, name) in counts {
        outcome.check(*count >= LEAST, || {
            format!("{name} is called in {count} scripts, not in {LEAST}")
        });
    }
    print!("{}", summary(counts));
    outcome
}

/// The functions that work, of the tables of the page.
fn exported(list: &str) -> impl Iterator<Item = &str> {
    let rows = list
        .lines()
        .filter_map(|line| line.split_once(" | works |"));
    let names = rows.flat_map(|(names, _)| names.split(['|', ',']));
    let names = names.map(|name| name.trim_matches([' ', '`']));
    // The names of rsockets' functions begin with the letter, as those of the connection manager do. No script waits for sets
    // of rsockets.
    names.filter(|name| {
        name.starts_with("ibv_")
            || name.starts_with('r') && !name.starts_with("repoll")
            || name.contains("ibv_rate")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "| `ibv_a`, `ibv_b` | works | x |\n| `rsend`, `mlx5dv_c` | works | x |\n| `ibv_d` | refuses | x |\n";

    #[test]
    fn calls_are_counted_by_script() {
        let printed =
            "@ a\n0 made\ncalls ibv_a ibv_d\n@ b\ncalls ibv_a rsend\n@ drawn\ncalls ibv_b\n";
        let counts = counts(printed, &BTreeSet::from(["a", "b"]), LIST);
        assert_eq!(counts, [(0, "ibv_b"), (1, "rsend"), (2, "ibv_a")]);
        let report = report(&counts);
        assert!(
            report.ends_with("3 functions, 2 in scripts, 0 in 20 or more\n"),
            "{report}"
        );
        assert_eq!(check(&counts).passed, 0);
    }

    #[test]
    fn functions_that_the_program_looks_for_are_not_led_elsewhere() {
        let (text, options) = counting(
            "ARE(\"ibv_a\") ibv_a();\ndlsym(RTLD_DEFAULT, \"ibv_b\"); NEWER(int, rsend, (int))(1);",
            LIST,
        );
        assert!(text.starts_with("#define COUNTED 3\n"), "{text}");
        assert_eq!(options, ["-Wl,--wrap=ibv_a"]);
    }
}
