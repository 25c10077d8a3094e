//! rdma-core's mlx5 provider in the builds that make sense for it, and what each takes.

use crate::process::quiet_output;
use crate::stock_driver::provision::{Apt, empty};
use bareverbs_bench::callgrind::{self, Costs};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's release.
const SUITE: &str = "trixie";
const PACKAGE: &str = "rdma-core";
/// Changes when the sources have to be fetched again although the package is the same.
const RECIPE: &str = "1";

/// Our programs, and what they are made of.
const PLAIN_HEADER: &str = include_str!("plain.h");
const OURS: [(&str, &str); 2] = [
    ("plain.c", include_str!("plain.c")),
    ("rdma_core.c", include_str!("rdma_core.c")),
];
/// Those of the provider's files that its data path is in, and what that calls.
const PROVIDERS: [&str; 6] = ["buf.c", "cq.c", "dbrec.c", "mlx5.c", "qp.c", "srq.c"];
/// Headers that the provider's build makes from the kernel's.
const KERNEL_ABI: [&str; 2] = ["ib_user_verbs.h", "mlx5-abi.h"];

/// What rdma-core's `CMakeLists.txt` passes, less warnings. Its annotations for valgrind are off, as packagers may have them;
/// sections are for the linker, which leaves out what the program does not call.
const FLAGS: [&str; 8] = [
    "-std=gnu11",
    "-D_GNU_SOURCE=",
    "-D_FILE_OFFSET_BITS=64",
    "-DNVALGRIND",
    "-fno-strict-aliasing",
    "-fno-pie",
    "-ffunction-sections",
    "-fdata-sections",
];

/// What its `config.h` says on Linux with 64 bits.
const CONFIG: &str = "\
#define HAVE_STATEMENT_EXPR 1
#define HAVE_BUILTIN_TYPES_COMPATIBLE_P 1
#define HAVE_TYPEOF 1
#define HAVE_ISBLANK 1
#define HAVE_BUILTIN_CLZ 1
#define HAVE_BUILTIN_CLZL 1
#define HAVE_FUNC_ATTRIBUTE_ALWAYS_INLINE 1
#define HAVE_FUNC_ATTRIBUTE_IFUNC 1
#define HAVE_FUNC_ATTRIBUTE_SYMVER 1
#define HAVE_WORKING_IF_H 1
#define HAVE_FULL_SYMBOL_VERSIONS 1
#define SIZEOF_LONG 8
#define VERBS_IOCTL_ONLY 0
#define VERBS_WRITE_ONLY 0
#define RDMA_CDEV_DIR \"/dev/infiniband\"
#define IBVERBS_PABI_VERSION 34
";

/// A way to compile it.
#[derive(Debug, Clone, Copy)]
struct Build {
    name: &'static str,
    flags: &'static [&'static str],
}

/// Upstream's default, its release build, and both with the provider compiled into the program.
const BUILDS: [Build; 4] = [
    Build {
        name: "-O2",
        flags: &["-O2"],
    },
    Build {
        name: "-O3",
        flags: &["-O3"],
    },
    Build {
        name: "-O2 -flto",
        flags: &["-O2", "-flto=2", "-DDIRECT"],
    },
    Build {
        name: "-O3 -flto",
        flags: &["-O3", "-flto=2", "-DDIRECT"],
    },
];

/// How a doorbell is rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doorbell {
    /// By its first 8 bytes.
    Word,
    /// By the whole request, if it is a single short one.
    BlueFlame,
}

/// What one build took in one mode.
pub(super) struct Count {
    build: &'static str,
    doorbell: Doorbell,
    costs: Costs,
}

/// What all of them took.
pub(super) struct Counts {
    /// The package and its version.
    pub(super) version: String,
    /// The compiler.
    pub(super) compiler: String,
    /// With locks, in upstream's default build: what programs have that ask for nothing else.
    default: [Count; 2],
    /// Without.
    all: Vec<Count>,
}

/// Batches and operations of a batch in the program.
const OPERATIONS: f64 = 4.0 * 256.0;
/// Operations of a list.
const LIST: f64 = 16.0;

impl Count {
    /// Instructions of an operation, less those of the loop.
    fn of(&self, function: &str) -> Result<f64, String> {
        let cost = |name: &str| {
            let cost = self.costs.of(&format!("counted_{name}"));
            cost.map(|cost| cost as f64 / OPERATIONS)
                .ok_or_else(|| format!("{}: counted_{name} was not counted", self.build))
        };
        // A list goes round the loop once.
        let times = if function.contains("_16") || function.contains("_wcs") {
            LIST
        } else {
            1.0
        };
        Ok(cost(function)? - cost("nothing")? / times)
    }
}

/// The fewest instructions, and where.
pub(super) struct Best {
    pub(super) cost: f64,
    /// The build and the interface.
    pub(super) how: String,
}

impl Counts {
    /// The best of all builds and of these functions of the program.
    pub(super) fn best(&self, functions: &[&str], doorbell: Doorbell) -> Result<Best, String> {
        let mut best: Option<Best> = None;
        for count in self.all.iter().filter(|count| count.doorbell == doorbell) {
            for function in functions {
                let cost = count.of(function)?;
                if best.as_ref().is_none_or(|best| cost < best.cost) {
                    let interface = function.split_once("__").map_or("", |(_, name)| name);
                    let how = format!("{}, `ibv_{interface}`", count.build);
                    best = Some(Best { cost, how });
                }
            }
        }
        best.ok_or_else(|| "nothing was counted".to_string())
    }

    /// The first of these functions, in the default build with locks.
    pub(super) fn default(&self, functions: &[&str], doorbell: Doorbell) -> Result<f64, String> {
        let count = self
            .default
            .iter()
            .find(|count| count.doorbell == doorbell)
            .ok_or("the default build was not counted")?;
        let costs: Vec<f64> = functions
            .iter()
            .map(|function| count.of(function))
            .collect::<Result<_, _>>()?;
        Ok(costs.into_iter().fold(f64::INFINITY, f64::min))
    }
}

/// Fetches it, compiles it, and counts.
pub(super) fn count(directory: &Path) -> Result<Counts, String> {
    let (sources, version) = fetch(directory)?;
    let compiler = quiet_output(Command::new("cc").arg("--version"))?;
    let compiler = compiler.lines().next().unwrap_or_default().to_string();
    println!("{PACKAGE} {version}, {compiler}");
    let include = include(directory, &sources)?;
    let mut all = Vec::new();
    let mut default = Vec::new();
    for build in BUILDS {
        let program = compile(directory, &sources, &include, build)?;
        for doorbell in [Doorbell::Word, Doorbell::BlueFlame] {
            all.push(counted(&program, build, "no-locks", doorbell)?);
            if build.name == BUILDS[0].name {
                default.push(counted(&program, build, "locks", doorbell)?);
            }
        }
    }
    let default = default
        .try_into()
        .map_err(|_| "the default build was not counted")?;
    Ok(Counts {
        version: format!("{PACKAGE} {version}"),
        compiler,
        default,
        all,
    })
}

fn counted(program: &Path, build: Build, locks: &str, doorbell: Doorbell) -> Result<Count, String> {
    let mode = match doorbell {
        Doorbell::Word => "doorbell",
        Doorbell::BlueFlame => "blue-flame",
    };
    let words = [program.as_os_str(), locks.as_ref(), mode.as_ref()].map(OsString::from);
    let costs = callgrind::count_program(Command::new("valgrind"), &words, "counted_", &[])
        .map_err(|error| format!("{} {locks} {mode}: {error}", build.name))?;
    Ok(Count {
        build: build.name,
        doorbell,
        costs,
    })
}

/// The sources and the package's version, fetched if they are not there yet.
fn fetch(directory: &Path) -> Result<(PathBuf, String), String> {
    let sources = directory.join(PACKAGE);
    let stamp = directory.join(format!("{PACKAGE}.stamp"));
    let recipe = format!("{RECIPE} {SUITE}\n");
    let found = fs::read_to_string(&stamp).unwrap_or_default();
    if let Some(version) = found.strip_prefix(&recipe) {
        return Ok((sources, version.trim().to_string()));
    }
    let apt = Apt::of_sources(directory, SUITE)?;
    let version = apt.fetch_source(PACKAGE, &sources)?;
    fs::write(&stamp, format!("{recipe}{version}\n"))
        .map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok((sources, version))
}

/// The headers where the provider's build has them.
fn include(directory: &Path, sources: &Path) -> Result<PathBuf, String> {
    let include = directory.join("include");
    empty(&include)?;
    let fail = |error: std::io::Error| format!("{}: {error}", include.display());
    let kernel = sources.join("kernel-headers");
    for (from, to, ending) in [
        ("libibverbs", "infiniband", ".h"),
        ("providers/mlx5", "infiniband", "mlx5dv.h"),
        ("providers/mlx5", "infiniband", "mlx5_api.h"),
        ("kernel-headers/rdma", "infiniband", "_ioctl_verbs.h"),
        ("util", "util", ".h"),
        ("ccan", "ccan", ".h"),
    ] {
        let to = include.join(to);
        fs::create_dir_all(&to).map_err(fail)?;
        for entry in fs::read_dir(sources.join(from)).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name();
            if name.as_encoded_bytes().ends_with(ending.as_bytes()) {
                symlink(entry.path(), to.join(name)).map_err(fail)?;
            }
        }
    }
    symlink(kernel.join("rdma"), include.join("rdma")).map_err(fail)?;
    let abi = include.join("kernel-abi");
    fs::create_dir_all(&abi).map_err(fail)?;
    for header in KERNEL_ABI {
        let mut python = Command::new("python3");
        python.arg(sources.join("buildlib/make_abi_structs.py"));
        python.arg(format!("rdma/{header}")).arg(abi.join(header));
        quiet_output(python.current_dir(&kernel))?;
    }
    fs::write(include.join("config.h"), CONFIG).map_err(fail)?;
    fs::write(include.join("plain.h"), PLAIN_HEADER).map_err(fail)?;
    for (name, text) in OURS {
        fs::write(directory.join(name), text).map_err(fail)?;
    }
    Ok(include)
}

/// The program of one build.
fn compile(
    directory: &Path,
    sources: &Path,
    include: &Path,
    build: Build,
) -> Result<PathBuf, String> {
    let folder = directory.join(format!("build{}", build.name.replace(' ', "")));
    empty(&folder)?;
    let provider = sources.join("providers/mlx5");
    let files = PROVIDERS
        .iter()
        .map(|name| provider.join(name))
        .chain(OURS.iter().map(|(name, _)| directory.join(name)));
    let mut objects = Vec::new();
    for file in files {
        let object = folder
            .join(file.file_name().unwrap_or_default())
            .with_extension("o");
        let mut cc = Command::new("cc");
        cc.args(FLAGS).args(build.flags).arg("-I").arg(include);
        cc.arg("-I").arg(&provider).arg("-c").arg(&file).arg("-o");
        quiet_output(cc.arg(&object))?;
        objects.push(object);
    }
    let program = folder.join("program");
    let mut cc = Command::new("cc");
    // What the provider's control path needs of libibverbs is not there, and is not called.
    cc.args(build.flags)
        .args(["-no-pie", "-Wl,--gc-sections"])
        .arg("-Wl,--unresolved-symbols=ignore-all");
    quiet_output(cc.args(&objects).arg("-o").arg(&program))?;
    Ok(program)
}
