//! A program of ours with a peer's object code in it: compiled in some ways, and counted.

use crate::folder::empty;
use crate::process::quiet_output;
use bareverbs_bench::callgrind::{self, Costs};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Batches and operations of a batch in the programs with loops.
const OPERATIONS: f64 = 4.0 * 256.0;
/// Operations of a list there.
const LIST: f64 = 16.0;

/// A way to compile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Build {
    pub(super) name: &'static str,
    pub(super) flags: &'static [&'static str],
}

/// Sections are for the linker, which leaves out what the program does not call. A function's rare parts stay with it: apart,
/// and under a name of their own that also begins as the counted functions' do, they would not be counted.
const COMMON: [&str; 4] = [
    "-fno-pie",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-reorder-blocks-and-partition",
];

/// The parts of a program.
pub(super) struct Program<'p> {
    /// Its name, and that of its folder.
    pub(super) name: &'p str,
    pub(super) flags: &'p [&'p str],
    /// Where headers are.
    pub(super) include: &'p [PathBuf],
    /// Sources.
    pub(super) files: &'p [PathBuf],
}

impl Program<'_> {
    /// Compiles it.
    pub(super) fn compile(&self, directory: &Path, build: Build) -> Result<PathBuf, String> {
        let folder = directory.join(format!("{}{}", self.name, build.name.replace(' ', "")));
        empty(&folder)?;
        let mut objects = Vec::new();
        for file in self.files {
            let name = file.file_name().unwrap_or_default();
            let object = folder.join(name).with_extension("o");
            let mut cc = Command::new("cc");
            cc.args(self.flags).args(COMMON).args(build.flags);
            for include in self.include {
                cc.arg("-I").arg(include);
            }
            quiet_output(cc.arg("-c").arg(file).arg("-o").arg(&object))?;
            objects.push(object);
        }
        let program = folder.join("program");
        let mut cc = Command::new("cc");
        // What the control paths need of other libraries is not there, and is not called.
        cc.args(build.flags)
            .args(["-no-pie", "-Wl,--gc-sections"])
            .arg("-Wl,--unresolved-symbols=ignore-all");
        quiet_output(cc.args(&objects).arg("-o").arg(&program))?;
        Ok(program)
    }
}

/// Runs a program and counts what its functions cost whose names begin with `counted_`.
pub(super) fn costs(program: &Path, arguments: &[&str]) -> Result<Costs, String> {
    let mut words = vec![OsString::from(program)];
    words.extend(arguments.iter().map(OsString::from));
    callgrind::count_program(Command::new("valgrind"), &words, "counted_", &[])
        .map_err(|error| format!("{} {arguments:?}: {error}", program.display()))
}

/// The way in which a doorbell is rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doorbell {
    /// By its first 8 bytes.
    Word,
    /// By the whole request, if it is a single short one.
    BlueFlame,
}

impl Doorbell {
    pub(super) const ALL: [Self; 2] = [Self::Word, Self::BlueFlame];

    /// The programs' argument for it.
    pub(super) fn argument(self) -> &'static str {
        match self {
            Self::Word => "doorbell",
            Self::BlueFlame => "blue-flame",
        }
    }
}

/// The instructions of one build in one mode.
pub(super) struct Count {
    pub(super) build: &'static str,
    pub(super) doorbell: Doorbell,
    pub(super) costs: Costs,
}

impl Count {
    /// Instructions of an operation, less those of the loop.
    pub(super) fn of(&self, function: &str) -> Result<f64, String> {
        let cost = |name: &str| {
            let cost = self.costs.of(&format!("counted_{name}"));
            cost.map(|cost| cost as f64 / OPERATIONS)
                .ok_or_else(|| format!("{}: counted_{name} was not counted", self.build))
        };
        // A list goes round the loop once.
        let is_list = ["_16", "_wcs"].iter().any(|part| function.contains(part));
        let times = if is_list { LIST } else { 1.0 };
        Ok(cost(function)? - cost("nothing")? / times)
    }
}

/// The fewest instructions, and where.
pub(super) struct Best {
    pub(super) cost: f64,
    /// The build and the interface.
    pub(super) how: String,
}

/// The best of these counts and of these functions of the program.
pub(super) fn best(
    counts: &[Count],
    functions: &[&str],
    doorbell: Doorbell,
) -> Result<Best, String> {
    let mut best: Option<Best> = None;
    for count in counts.iter().filter(|count| count.doorbell == doorbell) {
        for function in functions {
            let cost = count.of(function)?;
            if best.as_ref().is_none_or(|best| cost < best.cost) {
                let interface = function.split_once("__").map_or("", |(_, name)| name);
                let how = format!("{} {interface}", count.build);
                best = Some(Best { cost, how });
            }
        }
    }
    best.ok_or_else(|| "nothing was counted".to_string())
}
