//! `cargo rig peers`: what other projects' drivers take for the operations that `cargo bench --bench data_path` counts.
//!
//! Their sources come from Debian's source packages, are compiled here and linked to programs of this project's that call
//! their entry points on plain memory; the same tool counts the same shapes in the same loops, whose own cost is
//! subtracted on all sides. `cargo rig peers --write` puts the table into `docs/benchmarks.md`.

mod program;
pub(crate) mod rdma_core;
mod source;
mod table;
mod ucx;

use crate::outcome::Outcome;
use crate::process::quiet_output;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) const ABOUT: &str =
    "what rdma-core and UCX take for what the benchmarks count (--write: docs/benchmarks.md)";

/// Where the table is written.
const PAGE: &str = "docs/benchmarks.md";

/// Builds the peers, counts theirs and ours, and compares them.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let write = match arguments {
        [] => false,
        [argument] if argument == "--write" => true,
        _ => return Err("arguments: none, or --write".to_string()),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let directory = root.join("target/rigs/peers");
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let compiler = quiet_output(Command::new("cc").arg("--version"))?;
    let peers = table::Peers {
        rdma_core: rdma_core::count(&directory)?,
        ucx: ucx::count(&directory)?,
        compiler: compiler.lines().next().unwrap_or_default().to_string(),
    };
    let ours = table::ours(&root)?;
    let (text, outcome) = table::compare(&ours, &peers)?;
    print!("{text}");
    if write {
        table::write(&root.join(PAGE), &text)?;
    }
    Ok(outcome)
}
