//! `cargo rig c-abi`: Debian's RDMA programs, unmodified, on our libibverbs and librdmacm.
//!
//! The programs run alone or in pairs of processes, each with a device model of its own, and a wire between the two:
//! no root, no kernel driver. Before that the library is compared with Debian's: symbols and versions, structures and
//! numbers of the headers, and the table of functions in `docs/c-abi.md`.
//!
//! Then the larger engines, with their processes on one switch: Open MPI over UCX and over libfabric. `cargo rig c-abi
//! whole` has all of their runs; without that, there is a small one of each.
//!
//! What the programs print is left in `target/rigs/c-abi/log/`.

mod cost;
mod docs;
mod engines;
mod headers;
mod larger;
mod machines;
mod mpi;
mod names;
mod package;
mod packages;
mod programs_in_c;
mod pyverbs;
mod rates;
mod reasons;
mod run;
mod scenario;
mod switch;
mod symbols;
mod table;
mod testpmd;
mod trouble;

use crate::outcome::Outcome;
use crate::vfio::programs;
use scenario::Scenario;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub(crate) const ABOUT: &str = "Debian's RDMA programs on our libibverbs and librdmacm (whole: all; --write makes symbols.tsv again)";

/// The argument for everything.
const WHOLE: &str = "whole";
/// The comparison of the library with Debian's, alone.
const LIBRARY: &str = "library";
const TABLE: &str = "c-abi/symbols/symbols.tsv";
const PAGE: &str = "docs/c-abi.md";

/// Compares the library with Debian's and runs those scenarios that are part of CI, or all (`whole`), or only runs those that
/// are named.
pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = root.join("target/rigs/c-abi");
    let packages = packages::fetch(&directory.join("packages"))?;
    println!("packages: {}", packages.versions.join(", "));
    if let [argument] = arguments
        && argument == "--write"
    {
        let fresh = symbols::table(&directory, &packages)?;
        let path = root.join(TABLE);
        fs::write(&path, symbols::render(&packages, &fresh))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        // The table is compiled in: the next run has it.
        println!("wrote {TABLE}");
        return Ok(Outcome::default());
    }
    let scenarios = selected(arguments)?;

    let symbols = bareverbs_bundle::symbols()?;
    let bundle = bareverbs_bundle::build(
        Some(&directory.join("bundle")),
        bareverbs_bundle::Kept::Code,
    )?;
    println!("libraries: {}", bundle.folder.display());
    let mut outcome = Outcome::default();
    let is_all = is_all(arguments);
    if is_all || arguments.iter().any(|word| word == LIBRARY) {
        let table = root.join(TABLE);
        let table =
            fs::read_to_string(&table).map_err(|error| format!("{}: {error}", table.display()))?;
        let fresh = symbols::table(&directory, &packages)?;
        let from = symbols::from(&packages);
        let is_of_these = table.lines().any(|line| line == from);
        outcome.add(symbols::compare(&symbols, &fresh, is_of_these));
        outcome.add(symbols::compare_exports(&bundle, &symbols)?);
        outcome.add(headers::compare(&root, &directory, &packages)?);
        let page = root.join(PAGE);
        let page =
            fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
        outcome.add(docs::compare(&page, &symbols, &bundle.defined));
    }

    let logs = directory.join("log");
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let sockets = std::env::temp_dir().join(format!("bareverbs-c-abi-{}", std::process::id()));
    fs::create_dir_all(&sockets).map_err(|error| format!("{}: {error}", sockets.display()))?;
    let mut ours: BTreeSet<&str> = scenarios.iter().flat_map(|one| one.ours()).collect();
    let wants_rates = arguments
        .iter()
        .any(|word| word == WHOLE || word == rates::NAME);
    if wants_rates {
        ours.extend(rates::OURS);
    }
    let examples = match ours.is_empty() {
        true => None,
        false => Some(programs::examples(&root, &Vec::from_iter(ours))?),
    };
    let in_c = programs_in_c::compile(&root, &directory, &bundle, &packages)?;
    let place = run::Place {
        bundle: &bundle,
        packages: &packages,
        examples: examples.as_deref(),
        in_c: &in_c,
        logs: &logs,
        sockets: &sockets,
    };
    for scenario in scenarios {
        outcome.add(place.run(scenario));
    }
    let is_named = |name: &str| is_all || arguments.iter().any(|word| word == name);
    outcome.add(trouble::run(&place, is_named)?);
    outcome.add(reasons::run(&place, is_named));
    if is_named(cost::NAME) {
        outcome.add(cost::run(&place)?);
    }
    if wants_rates {
        outcome.add(rates::run(&place));
    }
    if is_named(package::NAME) {
        outcome.add(package::run(&place, &directory));
    }
    if is_named(names::NAME) {
        outcome.add(names::run(&place));
    }
    if is_named(switch::NAME) {
        outcome.add(switch::run(&place));
    }
    if is_named(pyverbs::NAME) {
        outcome.add(pyverbs::run(&place));
    }
    let is_whole = |word: &String| word == WHOLE || word == pyverbs::SERVED_NAME;
    if arguments.iter().any(is_whole) {
        outcome.add(pyverbs::run_served(&place));
    }
    let is_whole = |word: &String| word == WHOLE || word == testpmd::NAME;
    if arguments.iter().any(is_whole) {
        outcome.add(testpmd::run(&place, &directory));
    }
    outcome.add(run_larger(&place, &directory, arguments)?);
    fs::remove_dir_all(&sockets).map_err(|error| format!("{}: {error}", sockets.display()))?;
    Ok(outcome)
}

/// Returns `true` if no scenario is chosen.
fn is_all(arguments: &[String]) -> bool {
    arguments.iter().all(|word| word == WHOLE)
}

/// Runs the larger engines: all, those that are named, or a part.
fn run_larger(
    place: &run::Place<'_>,
    directory: &Path,
    arguments: &[String],
) -> Result<Outcome, String> {
    let is_whole = arguments.iter().any(|word| word == WHOLE);
    let is_named = |name: &str| is_whole || arguments.iter().any(|word| word == name);
    let is_job = |(name, always): (&str, bool)| is_named(name) || always && arguments.is_empty();
    let mut outcome = Outcome::default();
    let is_on_machines = |name: &str| {
        let mut jobs = machines::names();
        jobs.any(|job| job.0 == name && is_job(job))
    };
    let wants_engines = mpi::names().any(is_job)
        || engines::names().any(is_named)
        || machines::is_parallel(is_on_machines);
    let packages = match wants_engines {
        true => Some(larger::Engines::fetch(&directory.join("engines"))?),
        false => None,
    };
    if let Some(packages) = &packages {
        outcome.add(engines::run(place, packages, is_named));
        outcome.add(mpi::run(place, packages, |name| {
            mpi::names().any(|job| job.0 == name && is_job(job))
        })?);
    }
    let between = machines::run(place, directory, packages.as_ref(), is_on_machines)?;
    outcome.add(between);
    Ok(outcome)
}

/// The scenarios that are named, or all, or those of CI.
fn selected(arguments: &[String]) -> Result<Vec<&'static Scenario>, String> {
    if arguments.is_empty() {
        return Ok(table::all().filter(|scenario| !scenario.whole).collect());
    }
    if is_all(arguments) {
        return Ok(table::all().collect());
    }
    let mut found = Vec::new();
    for name in arguments {
        match table::all().find(|scenario| scenario.name == name) {
            Some(scenario) => found.push(scenario),
            None if name == cost::NAME || trouble::names().any(|of_trouble| of_trouble == name) => {
            }
            None if [
                names::NAME,
                switch::NAME,
                package::NAME,
                pyverbs::NAME,
                pyverbs::SERVED_NAME,
                testpmd::NAME,
                rates::NAME,
                LIBRARY,
            ]
            .contains(&name.as_str()) => {}
            None if reasons::names().any(|reason| reason == name) => {}
            None if engines::names().any(|engine| engine == name) => {}
            None if mpi::names().any(|(job, _)| job == name) => {}
            None if machines::names().any(|(job, _)| job == name) => {}
            None => {
                return Err(format!(
                    "no scenario {name:?}: the files in tests/rigs/src/c_abi/table name most of them, and {LIBRARY:?} \
                     compares symbols, headers and docs/c-abi.md"
                ));
            }
        }
    }
    Ok(found)
}
