//! `cargo rig peers`: what other projects' drivers take for the operations that `cargo bench --bench data_path` counts.
//!
//! Their sources come from Debian's source packages, are compiled here and linked to programs of this project's that call
//! their entry points on plain memory; the same tool counts the same shapes in the same loops, whose own cost is
//! subtracted on all sides. `cargo rig peers --write` puts the table into `docs/benchmarks.md`.

mod rdma_core;
mod table;

use crate::outcome::Outcome;
use std::fs;
use std::path::Path;

pub(crate) const ABOUT: &str =
    "what rdma-core's provider takes for what the benchmarks count (--write: docs/benchmarks.md)";

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
    let rdma_core = rdma_core::count(&directory)?;
    let ours = table::ours(&root)?;
    let (text, outcome) = table::compare(&ours, &rdma_core)?;
    print!("{text}");
    if write {
        table::write(&root.join(PAGE), &text)?;
    }
    Ok(outcome)
}
