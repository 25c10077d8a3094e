//! The images: how they are built, that they have no allocator, and how large they are.

use super::setup::root;
use crate::outcome::Outcome;
use crate::process::output;
use crate::rust_src::library;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The machine that an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    X86,
    Arm,
}

impl Machine {
    pub(super) const ALL: [Self; 2] = [Self::X86, Self::Arm];

    pub(super) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-none",
            Self::Arm => "aarch64-unknown-none",
        }
    }

    /// Parts of the image, and what they may have, in KiB. What is aimed at for the code is 256. Instructions of aarch64 all
    /// have the same length.
    fn budgets(self) -> [(&'static str, u64); 5] {
        let (text, rodata) = match self {
            Self::X86 => (312, 64),
            Self::Arm => (324, 67),
        };
        [
            (".text", text),
            (".rodata", rodata),
            (".data", 40),
            (".bss", 70),
            (".stack", 260),
        ]
    }
}

/// The symbols by which an allocator would be called.
const ALLOCATOR: [&str; 4] = [
    "__rust_alloc",
    "__rust_dealloc",
    "__rg_alloc",
    "__rdl_alloc",
];

/// Where cargo puts what it builds for them: beside what this program was built in, whose lock other builds have.
fn target_dir() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let directory = program.parent().and_then(Path::parent);
    Ok(directory
        .ok_or("this program is nowhere")?
        .join("unikernel"))
}

/// Where an image is, once it was built.
pub(super) fn path(machine: Machine) -> Result<PathBuf, String> {
    let program = Path::new(machine.target()).join("release/bare-metal");
    Ok(target_dir()?.join(program))
}

/// Builds images, and of Rust's library nothing but `core`: code that names `alloc` does not compile.
pub(super) fn build(machines: &[Machine]) -> Result<(), String> {
    run(&mut cargo(machines, "rping")?)
}

/// Builds it with these features.
pub(super) fn build_with(machine: Machine, features: &str) -> Result<(), String> {
    run(cargo(&[machine], features)?.args(["--bin", "bare-metal"]))
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

/// That a program which names `alloc` is refused, and for no other reason: the compiler's errors.
pub(super) fn refuses_alloc(
    machine: Machine,
    outcome: &mut Outcome,
) -> Result<Vec<String>, String> {
    let mut command = cargo(&[machine], "alloc")?;
    command.args(["--bin", "bare-metal"]);
    let refused = command.stdin(Stdio::null()).output();
    let refused = refused.map_err(|error| format!("{command:?}: {error}"))?;
    let stderr = String::from_utf8_lossy(&refused.stderr);
    let errors = stderr.lines().filter(|line| line.starts_with("error"));
    let errors: Vec<&str> = errors
        .filter(|line| !line.starts_with("error: could not compile"))
        .collect();
    let wanted = ["error[E0463]: can't find crate for `alloc`"];
    outcome.check(!refused.status.success() && errors == wanted, || {
        format!("a program that names alloc is not refused for that: {stderr}")
    });
    Ok(errors.into_iter().map(str::to_string).collect())
}

/// Cargo, about to build images with these features, all at once.
fn cargo(machines: &[Machine], features: &str) -> Result<Command, String> {
    let library = library()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Its directory has the linker's options, which these variables would take the place of.
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(variable);
    }
    command
        .current_dir(root().join("tests/bare-metal"))
        .args(["build", "--quiet", "--locked", "--release", "--target-dir"])
        .arg(target_dir()?)
        .args(
            machines
                .iter()
                .flat_map(|machine| ["--target", machine.target()]),
        )
        .args(["--no-default-features", "--features", features])
        .args(["-Z", "build-std=core"])
        .args(["-Z", "build-std-features=compiler-builtins-mem"])
        // Panics name files: without their folders, the sizes are the same wherever this is built.
        .args(["-Z", "trim-paths"])
        .env("CARGO_PROFILE_RELEASE_TRIM_PATHS", "object")
        // -Z is for nightly compilers, which the first makes of this one; the second says where the sources are.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
    Ok(command)
}

/// Looks for an allocator and for folders of this machine, and holds the sizes against their budgets.
pub(super) fn judge(machine: Machine, outcome: &mut Outcome) -> Result<(), String> {
    let (image, name) = (path(machine)?, machine.name());
    let symbols = output(Command::new("nm").arg(&image))?;
    let names = || symbols.lines().filter_map(|line| line.split(' ').nth(2));
    // Without symbols there would be none of an allocator either.
    outcome.check(names().any(|name| name == "start"), || {
        format!("{}: it has no symbols", image.display())
    });
    let found: Vec<&str> = names()
        .filter(|name| ALLOCATOR.iter().any(|part| name.contains(part)))
        .collect();
    outcome.check(found.is_empty(), || {
        format!("{name}: the image has an allocator: {found:?}")
    });
    // Their sizes would differ by machine otherwise.
    let bytes = fs::read(&image).map_err(|error| format!("{}: {error}", image.display()))?;
    for folder in [root(), library()?] {
        let folder = folder.canonicalize().map_err(|error| error.to_string())?;
        let named = contains(&bytes, folder.as_os_str().as_encoded_bytes());
        outcome.check(!named, || {
            format!("{name}: the image names {}", folder.display())
        });
    }
    let sizes = sizes(machine, machine.budgets().map(|(part, _)| part))?;
    for ((part, budget), bytes) in machine.budgets().into_iter().zip(sizes) {
        println!(
            "{name:<7} {part:<8} {bytes:>7} bytes of {:>7}",
            budget << 10
        );
        outcome.check(bytes <= budget << 10, || {
            format!("{name}: {part} has {bytes} bytes, and {budget} KiB are its budget")
        });
    }
    Ok(())
}

/// Returns `true` if these bytes are among those of an image.
fn contains(image: &[u8], bytes: &[u8]) -> bool {
    image.windows(bytes.len()).any(|window| window == bytes)
}

/// The sizes of the sections of the image that was built last.
pub(super) fn sizes<const N: usize>(
    machine: Machine,
    sections: [&str; N],
) -> Result<[u64; N], String> {
    let table = output(Command::new("size").arg("-A").arg(path(machine)?))?;
    let mut sizes = [0; N];
    for (bytes, section) in sizes.iter_mut().zip(sections) {
        *bytes = size(&table, section).ok_or_else(|| format!("the image has no {section}"))?;
    }
    Ok(sizes)
}

/// The size of a section in `size -A`'s table.
fn size(table: &str, section: &str) -> Option<u64> {
    let mut rows = table.lines().map(str::split_whitespace);
    rows.find_map(|mut words| (words.next() == Some(section)).then(|| words.next())?)
        .and_then(|bytes| bytes.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_by_section() {
        let table = "image  :\nsection   size      addr\n.text   409600   2097152\n.data     392   2568192\n";
        assert_eq!(size(table, ".text"), Some(409_600));
        assert_eq!(size(table, ".data"), Some(392));
        assert_eq!(size(table, ".bss"), None);
    }
}
