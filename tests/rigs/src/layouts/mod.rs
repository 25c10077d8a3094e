//! Rung 0: the tables of the vendor's layouts, made again from Debian's kernel headers and from those of libibverbs, and the
//! accessors that driver and model run against these tables. The kernel is the oldest that Debian has. One more table has the
//! fields that the newest kernel or rdma-core has at other places, and another one has mstflint's registers.

mod functions;
mod headers;
mod others;
mod package;
mod registers;

use crate::apt::Apt;
use crate::cargo_test;
use crate::outcome::Outcome;
use bareverbs_firmware_cmds::registry;
use headers::Row;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line for the list of rigs.
pub(crate) const ABOUT: &str = "layouts and words against the headers of Debian's kernel and libibverbs (--write to replace the tables)";

const TABLE: &str = "firmware-cmds/data/mlx5_ifc.tsv";
const FUNCTIONS: &str = "firmware-cmds/data/mlx5_functions.tsv";
const OTHERS: &str = "firmware-cmds/data/mlx5_ifc_others.tsv";
const REGISTERS: &str = "firmware-cmds/data/mstflint_registers.tsv";

/// Fetches the packages, makes the tables again, and compares them with those checked in.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let write = match arguments {
        [] => false,
        [argument] if argument == "--write" => true,
        other => return Err(format!("unknown arguments {other:?}")),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = root.join("target/rigs/layouts");
    let kernel = package::fetch_kernel(&directory)?;
    let verbs = package::fetch_verbs(&directory)?;
    println!("headers: {}, {}", kernel.version, verbs.version);

    let wanted = wanted();
    let mut rows = headers::read(&kernel.include)?;
    rows.extend(headers::read_verbs(&verbs.include, &rows)?);
    rows.retain(|row| wanted.contains(row.structure.as_str()));
    let fresh = render(&kernel.version, &rows);
    let mut outcome = compare(&wanted, &checked_in(&root, TABLE, write, &fresh)?, &fresh);

    let fresh = functions::table(&directory, &kernel, &verbs)?;
    let old = checked_in(&root, FUNCTIONS, write, &fresh)?;
    outcome.add(functions::compare(&old, &fresh));

    let apt = Apt::new(&directory)?;
    let fresh = others::table(&directory, &apt, &headers::read(&kernel.include)?)?;
    let old = checked_in(&root, OTHERS, write, &fresh)?;
    outcome.add(functions::compare(&old, &fresh));
    let fresh = registers::table(&directory, &apt)?;
    let old = checked_in(&root, REGISTERS, write, &fresh)?;
    outcome.add(functions::compare(&old, &fresh));

    outcome.add(cargo_test::run(
        Command::new(env!("CARGO"))
            .args(["test", "--locked", "--package", "bareverbs-firmware-cmds"])
            // With the features that `cargo test --workspace` builds others' crates with.
            .args(["--package", "bareverbs-unified"])
            .args([
                "--test",
                "layouts",
                "--test",
                "witnesses",
                "--test",
                "words",
            ])
            .current_dir(&root),
    )?);
    Ok(outcome)
}

/// The `include` directory of Debian's kernel headers, for programs in C that name fields as they do.
pub(crate) fn kernel_headers() -> Result<PathBuf, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/rigs/layouts");
    package::fetch_kernel(&directory).map(|package| package.include)
}

/// A table as it is checked in; with `write` it is replaced before.
fn checked_in(root: &Path, name: &str, write: bool, fresh: &str) -> Result<String, String> {
    let path = root.join(name);
    if write {
        std::fs::write(&path, fresh).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("wrote {name}");
    }
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Structures that the package's headers do not have: those of Linux 6.6 and later, whose driver reads temperatures,
/// have two; the extension of the QP context, which rdma-core's `mlx5_ifc.h` has; and QUERY_VUID, of Linux 6.12.
const NEWER: &[&str] = &[
    "mtcap_reg",
    "mtmp_reg",
    "qpc_ext",
    "query_vuid_in",
    "query_vuid_out",
];

/// The structures that the crate names, and the outputs for which it uses the empty one.
fn wanted() -> BTreeSet<String> {
    let empty = registry::COMMANDS
        .iter()
        .filter(|command| command.output_is_empty())
        .map(|command| format!("{}out", command.input.name.trim_end_matches("in")));
    let words = registry::WORDS
        .iter()
        .map(|word| word.structure.to_owned())
        .filter(|structure| !structure.is_empty());
    registry::all()
        .map(|structure| structure.name.to_owned())
        .filter(|name| !NEWER.contains(&name.as_str()))
        .chain(empty)
        .chain(words)
        .collect()
}

fn render(version: &str, rows: &[Row]) -> String {
    let mut out = format!(
        "# Fields of the mlx5 structures that this crate names, from include/linux/mlx5/{{mlx5_ifc,device,qp}}.h of\n\
         # {version}.\n\
         # Made by `cargo rig layouts --write`. Columns: structure, field, bit offset, width in bits (of one element for\n\
         # an array of open length), nested structure. A line without a field gives the structure's size.\n"
    );
    for row in rows {
        let Row {
            structure,
            field,
            offset,
            width,
            nested,
        } = row;
        let line = format!("{structure}\t{field}\t{offset}\t{width}\t{nested}");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Compares line by line, structure by structure: a structure passes when all its lines are the same.
fn compare(wanted: &BTreeSet<String>, checked_in: &str, fresh: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for structure in wanted {
        let of = |table: &str| -> Vec<String> {
            let mut lines: Vec<String> = table
                .lines()
                .filter(|line| line.split('\t').next() == Some(structure))
                .map(str::to_owned)
                .collect();
            lines.sort();
            lines
        };
        let (old, new) = (of(checked_in), of(fresh));
        for line in &new {
            if !old.contains(line) {
                println!("only in the package:  {line}");
            }
        }
        for line in &old {
            if !new.contains(line) {
                println!("only in the checkout: {line}");
            }
        }
        outcome.check(!new.is_empty(), || {
            format!("{structure} is not in the headers")
        });
        outcome.check(old == new, || {
            format!("{structure} differs from the headers")
        });
    }
    for line in checked_in.lines().filter(|line| !line.starts_with('#')) {
        let structure = line.split('\t').next().unwrap_or_default();
        if !wanted.contains(structure) {
            outcome.check(false, || {
                format!("{structure} is in the table, but the crate has no such structure")
            });
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_fails() {
        let wanted = BTreeSet::from(["qpc".to_owned()]);
        let table = "# x\nqpc\t\t0\t64\nqpc\tstate\t0\t4\n";
        let same = compare(&wanted, table, table);
        assert_eq!((same.passed, same.failed), (2, 0));
        let shifted = compare(&wanted, table, &table.replace("state\t0", "state\t1"));
        assert_eq!((shifted.passed, shifted.failed), (1, 1));
        let missing = compare(&wanted, table, "# x\n");
        assert_eq!((missing.passed, missing.failed), (0, 2));
        let unwanted = compare(&wanted, &format!("{table}cqc\t\t0\t8\n"), table);
        assert_eq!((unwanted.passed, unwanted.failed), (2, 1));
    }
}
