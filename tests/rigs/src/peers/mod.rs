//! `cargo rig peers`: what other projects' drivers take for the operations that `cargo bench --bench data_path` counts.
//!
//! Their sources come from Debian's source packages, are compiled here and linked to programs of this project's that call
//! their entry points on plain memory; the same tool counts the same shapes in the same loops, whose own cost is
//! subtracted on all sides. `cargo rig peers --write` puts the table into `docs/benchmarks.md`, and some of its rows into the
//! README. `cargo rig peers scale` takes times instead, by the number of QPs.

mod program;
pub(crate) mod rdma_core;
mod scale;
pub(crate) mod source;
mod table;
mod ucx;

use crate::outcome::Outcome;
use crate::process::quiet_output;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) const ABOUT: &str = "what rdma-core and UCX take for what the benchmarks count (--write: docs/benchmarks.md, README.md; scale: times by QPs)";

/// Where the table is written.
const PAGE: &str = "docs/benchmarks.md";

/// Where some of its rows are.
const README: &str = "README.md";

/// The argument for that.
const WRITE: &str = "--write";

/// Builds the peers, counts theirs and ours, and compares them.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let argument = match arguments {
        [] => None,
        [argument] if [WRITE, scale::NAME].contains(&argument.as_str()) => Some(argument.as_str()),
        _ => return Err(format!("arguments: none, {WRITE} or {}", scale::NAME)),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let directory = root.join("target/rigs/peers");
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    if argument == Some(scale::NAME) {
        return scale::run(&root, &directory);
    }
    let compiler = quiet_output(Command::new("cc").arg("--version"))?;
    let peers = table::Peers {
        rdma_core: rdma_core::count(&directory)?,
        ucx: ucx::count(&directory)?,
        compiler: compiler.lines().next().unwrap_or_default().to_string(),
    };
    let ours = table::ours(&root)?;
    let (text, outcome) = table::compare(&ours, &peers)?;
    print!("{text}");
    if argument == Some(WRITE) {
        table::write(&root.join(PAGE), &text)?;
        table::write(&root.join(README), &table::short(&text)?)?;
    }
    Ok(outcome)
}
