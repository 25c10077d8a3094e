//! The programs of this repository that run in the guests.

use super::super::stock_driver::Program;
use super::in_c;
use bareverbs_bundle::{LIBRARY, PATHS_LIBRARY, RUNNER, UVERBS_LIBRARY};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::output;

const EXAMPLES: [&str; 7] = [
    "rping", "devinfo", "perf", "cmtime", "l2fwd", "dc", "profile",
];

/// Builds the examples, the driver's tests that need a device, the libraries for C, and programs in C, without what only
/// a debugger reads.
pub(super) fn build(root: &Path) -> Result<Vec<Program>, String> {
    let examples = examples(root, &EXAMPLES)?;
    // The name of a test's program contains a hash that only Cargo computes.
    let built = output(
        cargo(root, "test")
            .args(["--no-run", "--message-format", "json-render-diagnostics"])
            // The first package has the features that the examples were built with.
            .args(["--package", "bareverbs", "--package", "bareverbs-vfio"])
            .args(["--package", "bareverbs-node"])
            .args(["--features", "bareverbs-node/last-messages"])
            .args(["--test", "on_device", "--test", "ends"]),
    )?;
    let test = |name: &str| {
        executable(&built, name).ok_or_else(|| format!("cargo does not say where {name} is"))
    };
    let programs = EXAMPLES.map(|name| (name, examples.join(name)));
    let rest = [
        ("on_device", test("on_device")?),
        ("ends-in-rust", test("ends")?),
    ];
    let in_c = in_c::build(&root.join("target/rigs/vfio/in-c"))?;
    let all = programs.into_iter().chain(rest);
    let all = all.chain(bundled(root)?).chain(in_c);
    stripped(&examples, all)
}

/// The libraries for C, what hands them a device, and the examples that InfiniBand ports are tried with.
pub(crate) fn libraries(root: &Path) -> Result<Vec<Program>, String> {
    const NAMES: [&str; 9] = [
        "cmtime",
        "devinfo",
        "migration",
        "rdma_client",
        "rdma_server",
        "rping",
        "subnet",
        "tcp_echo",
        "ucmatose",
    ];
    let examples = examples(root, &NAMES)?;
    let programs = NAMES.map(|name| (name, examples.join(name)));
    stripped(
        &examples,
        programs
            .into_iter()
            .chain([(LIBRARY, bundle(root)?.join(LIBRARY))]),
    )
}

/// The libraries for C, those that are preloaded for programs on rdma-core's own, and the runner.
pub(crate) fn bundled(root: &Path) -> Result<[(&'static str, PathBuf); 4], String> {
    let bundle = bundle(root)?;
    let names = [LIBRARY, PATHS_LIBRARY, UVERBS_LIBRARY, RUNNER];
    Ok(names.map(|name| (name, bundle.join(name))))
}

/// The folder of the libraries for C.
fn bundle(root: &Path) -> Result<PathBuf, String> {
    let bundle = root.join("target/rigs/vfio/bundle");
    Ok(bareverbs_bundle::build(Some(&bundle), bareverbs_bundle::Kept::Code)?.folder)
}

/// Programs without what only a debugger reads, in a folder.
pub(crate) fn stripped(
    to: &Path,
    programs: impl IntoIterator<Item = (&'static str, PathBuf)>,
) -> Result<Vec<Program>, String> {
    let one = |(name, from): (&'static str, PathBuf)| {
        let path = to.join(format!("{name}.guest"));
        output(Command::new("strip").arg("-o").arg(&path).arg(from))?;
        Ok(Program { name, path })
    };
    programs.into_iter().map(one).collect()
}

/// Builds examples. The directory that they are in.
pub(crate) fn examples(root: &Path, names: &[&str]) -> Result<PathBuf, String> {
    let mut command = cargo(root, "build");
    for name in names {
        command.args(["--example", name]);
    }
    output(&mut command)?;
    let beside = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(beside.with_file_name("examples"))
}

fn cargo(root: &Path, verb: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).arg(verb).arg("--quiet");
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    command
}

/// The program of a test in cargo's messages, which are JSON by lines.
fn executable(messages: &str, test: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let (_, rest) = line.split_once(r#""executable":""#)?;
        let path = Path::new(rest.split_once('"')?.0);
        let (name, _) = path.file_name()?.to_str()?.rsplit_once('-')?;
        (name == test).then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","executable":null}
{"reason":"compiler-artifact","filenames":["/t/y"],"executable":"/t/deps/ends-2","fresh":true}
{"reason":"compiler-artifact","filenames":["/t/x"],"executable":"/t/deps/on_device-1","fresh":true}
{"reason":"build-finished","success":true}"#;
        assert_eq!(
            executable(messages, "on_device"),
            Some(PathBuf::from("/t/deps/on_device-1"))
        );
        assert_eq!(executable(messages, "device"), None);
    }
}
