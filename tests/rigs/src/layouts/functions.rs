//! The bytes that the vendor's own functions write and read: two small C programs, compiled against the headers.

use super::package::Package;
use crate::outcome::Outcome;
use crate::process::quiet_output;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const MLX5DV: &str = include_str!("mlx5dv.c");
const KERNEL: &str = include_str!("kernel.c");
/// Headers that those of mlx5 include and that `kernel.c` stands in for.
const EMPTY: [&str; 5] = [
    "linux/types.h",
    "linux/refcount.h",
    "linux/bitfield.h",
    "rdma/ib_verbs.h",
    "linux/mlx5/driver.h",
];

/// Compiles and runs the programs, and puts what they print together.
pub(super) fn table(directory: &Path, kernel: &Package, verbs: &Package) -> Result<String, String> {
    let stubs = directory.join("empty");
    for name in EMPTY {
        let path = stubs.join(name);
        let parent = path.parent().unwrap_or(&stubs);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, ""))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let rows = [
        run(directory, "mlx5dv", MLX5DV, &[&verbs.include])?,
        run(directory, "kernel", KERNEL, &[&stubs, &kernel.include])?,
    ]
    .concat();
    let mut seen = BTreeSet::new();
    let mut out = format!(
        "# What the functions and constants of infiniband/mlx5dv.h and include/linux/mlx5/{{device,cq,qp}}.h of\n\
         # {} and {} make of numbers.\n\
         # Made by `cargo rig layouts --write`. Rows: `vector`, structure or word, fields, bytes; `constant`, name, value.\n",
        verbs.version, kernel.version
    );
    // Some are in both packages, and have to agree.
    for row in rows.lines().filter(|row| seen.insert(row.to_owned())) {
        out.push_str(row);
        out.push('\n');
    }
    Ok(out)
}

fn run(directory: &Path, name: &str, source: &str, include: &[&Path]) -> Result<String, String> {
    let file = directory.join(format!("{name}.c"));
    std::fs::write(&file, source).map_err(|e| format!("{}: {e}", file.display()))?;
    let program = directory.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-o"]).arg(&program);
    for path in include {
        compiler.arg("-I").arg(path);
    }
    quiet_output(compiler.arg(&file))?;
    quiet_output(&mut Command::new(&program))
}

/// Compares row by row.
pub(super) fn compare(checked_in: &str, fresh: &str) -> Outcome {
    let rows = |table: &str| -> BTreeSet<String> {
        table
            .lines()
            .filter(|row| !row.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    let (old, new) = (rows(checked_in), rows(fresh));
    let mut outcome = Outcome::default();
    for row in &new {
        outcome.check(old.contains(row), || format!("only in the packages: {row}"));
    }
    for row in old.difference(&new) {
        outcome.check(false, || format!("only in the checkout: {row}"));
    }
    outcome.check(!new.is_empty(), || "the programs print nothing".to_owned());
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_row_fails() {
        let table = "# x\nvector\ta\tb=1\t01\nconstant\tC\t2\n";
        let same = compare(table, &table.replace("# x", "# y"));
        assert_eq!((same.passed, same.failed), (3, 0));
        let changed = compare(table, &table.replace("\t01", "\t02"));
        assert_eq!((changed.passed, changed.failed), (2, 2));
        let nothing = compare("", "");
        assert_eq!((nothing.passed, nothing.failed), (0, 1));
    }
}
