//! The calls of functions in a linked program, from its machine code: to show that a path has no call that panics.
//!
//! A check of an index or a `Result` that is not proven away ends in a call of the standard library, which would be found
//! here. Calls are found in what `objdump` prints: direct ones, jumps out of the function, and functions whose address is
//! taken, also from a table that the loader fills.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::{io, str};

/// The functions of a program, and those that each names.
#[derive(Debug, Default)]
pub struct Program(HashMap<String, BTreeSet<String>>);

impl Program {
    /// Reads a program of this machine.
    ///
    /// # Errors
    /// `objdump` cannot read it.
    pub fn read(path: &Path) -> io::Result<Self> {
        let code = objdump(&["-d", "-C", "--no-show-raw-insn"], path)?;
        let relocations = objdump(&["-R"], path)?;
        Ok(Self::parse(&code, &relocations))
    }

    fn parse(code: &str, relocations: &str) -> Self {
        let heads = || code.lines().filter_map(head);
        let names: HashMap<u64, &str> = heads().collect();
        let filled: HashMap<u64, u64> = relocations.lines().filter_map(relocation).collect();
        let mut functions: HashMap<String, BTreeSet<String>> = HashMap::new();
        let mut function = "";
        for line in code.lines() {
            if let Some((_, name)) = head(line) {
                function = name;
                functions.entry(name.to_owned()).or_default();
                continue;
            }
            let address = |at: u64| names.get(&at).copied();
            let by_table = address_read(line).map(|at| filled.get(&at).copied().unwrap_or(at));
            let named = jump(line).or_else(|| by_table.and_then(address));
            if let Some(named) = named.filter(|named| *named != function) {
                let entry = functions.entry(function.to_owned()).or_default();
                entry.insert(named.to_owned());
            }
        }
        Self(functions)
    }

    /// The function that the one whose path ends in `function` calls, of those with `name` in their paths.
    #[must_use]
    pub fn called_by(&self, function: &str, name: &str) -> Option<&str> {
        let ends = format!("::{function}");
        let mut callers = self.0.iter().filter(|(path, _)| path.ends_with(&ends));
        let (_, called) = callers.next()?;
        called
            .iter()
            .map(String::as_str)
            .find(|called| called.contains(name))
    }

    /// Functions that the functions with this path, or one that ends in `function`, reach outside of themselves and of the crate
    /// `within`: not beyond those whose names are in `cold`. `None` if there is no such function.
    #[must_use]
    pub fn reaches(&self, function: &str, within: &str, cold: &[&str]) -> Option<BTreeSet<&str>> {
        let ends = format!("::{function}");
        let is_it = |name: &&str| *name == function || name.ends_with(&ends);
        let mut open: Vec<&str> = self.0.keys().map(String::as_str).filter(is_it).collect();
        let mut seen: BTreeSet<&str> = open.iter().copied().collect();
        let mut outside = BTreeSet::new();
        open.first()?;
        while let Some(name) = open.pop() {
            for called in self.0.get(name).into_iter().flatten() {
                let last = called.rsplit("::").next().unwrap_or(called);
                if cold.contains(&last) || !seen.insert(called) {
                    continue;
                }
                if called.contains(within) && self.0.contains_key(called) {
                    open.push(called);
                } else {
                    outside.insert(called.as_str());
                }
            }
        }
        Some(outside)
    }
}

fn objdump(arguments: &[&str], program: &Path) -> io::Result<String> {
    let output = Command::new("objdump")
        .args(arguments.iter().map(OsStr::new))
        .arg(program)
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("objdump (binutils): {error}")))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(message));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// `0000000000001000 <path::of::function>:`
fn head(line: &str) -> Option<(u64, &str)> {
    let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
    Some((hexadecimal(address)?, name))
}

/// `0000000000002000 R_X86_64_RELATIVE  *ABS*+0x1000`: which address the loader writes where.
fn relocation(line: &str) -> Option<(u64, u64)> {
    let (at, value) = line.split_once(" R_X86_64_RELATIVE")?;
    Some((
        hexadecimal(at)?,
        hexadecimal(value.trim().strip_prefix("*ABS*+")?)?,
    ))
}

/// `call 1000 <path::of::function>`, or any jump: which function it goes to.
fn jump(line: &str) -> Option<&str> {
    let (_, instruction) = line.split_once(":\t")?;
    let (operation, target) = instruction.split_once(char::is_whitespace)?;
    if !operation.starts_with("call") && !operation.starts_with('j') {
        return None;
    }
    let (address, name) = target.trim().strip_suffix('>')?.split_once(" <")?;
    hexadecimal(address)?;
    // Into the function's midst.
    let start = name.rsplit_once("+0x");
    let start = start.filter(|(_, offset)| hexadecimal(offset).is_some());
    Some(start.map_or(name, |(start, _)| start))
}

/// `mov 0x10(%rip),%rax  # 2000 <…>`: the address.
fn address_read(line: &str) -> Option<u64> {
    let (_, comment) = line.split_once("        # ")?;
    hexadecimal(comment.split(' ').next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
0000000000001000 <own::measured::op>:
    1000:\tpush   %rbx
    1001:\tje     1009 <own::measured::op+0x9>
    1003:\tcall   1040 <own::Queue<T>::late>
    1009:\tmov    0x9bc2f(%rip),%r12        # 2000 <_DYNAMIC+0x10>
    1010:\tcall   *%r12
    1012:\tjmp    1023 <own::ring+0x3>

0000000000001020 <own::ring>:
    1020:\tlea    0x10(%rip),%rax        # 1060 <own::other>

0000000000001040 <own::Queue<T>::late>:
    1040:\tcall   1080 <core::panicking::panic_bounds_check>

0000000000001060 <own::other>:
    1060:\tret

0000000000001080 <core::panicking::panic_bounds_check>:
    1080:\tud2
";
    const RELOCATIONS: &str = "0000000000002000 R_X86_64_RELATIVE  *ABS*+0x0000000000001080\n";

    #[test]
    fn calls_are_followed_within_the_crate() {
        let program = Program::parse(CODE, RELOCATIONS);
        let panic = BTreeSet::from(["core::panicking::panic_bounds_check"]);
        assert_eq!(program.reaches("op", "own", &["late"]), Some(panic));
        let program = Program::parse(CODE, "");
        assert_eq!(
            program.reaches("op", "own", &["late"]),
            Some(BTreeSet::new())
        );
        assert_eq!(
            program.reaches("op", "own", &[]).map(|found| found.len()),
            Some(1)
        );
        assert_eq!(program.reaches("op", "other", &["late"]).unwrap().len(), 1);
        assert_eq!(program.reaches("gone", "own", &[]), None);
        assert_eq!(program.called_by("op", "::ri"), Some("own::ring"));
        assert_eq!(program.called_by("op", "::none"), None);
    }
}
