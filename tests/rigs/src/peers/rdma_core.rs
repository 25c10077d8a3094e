//! rdma-core's mlx5 provider in the builds that make sense for it, and what each takes.

use super::program::{Build, Count, Doorbell, Program, costs};
use super::source::{self, Source};
use crate::folder::empty;
use crate::process::quiet_output;
use bareverbs_bench::callgrind::Costs;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "rdma-core";
/// Debian's release.
const SUITE: &str = "trixie";

/// Headers of our programs.
const HEADERS: [(&str, &str); 2] = [
    ("check.h", include_str!("../c/check.h")),
    ("plain.h", include_str!("plain.h")),
];
const PLAIN: &str = include_str!("plain.c");
/// The program with the shapes of our benchmark.
const SHAPES: &str = include_str!("rdma_core.c");
/// Those of the provider's files that its data path is in, and what that calls.
const PROVIDERS: [&str; 6] = ["buf.c", "cq.c", "dbrec.c", "mlx5.c", "qp.c", "srq.c"];
/// Headers that the provider's build makes from the kernel's.
const KERNEL_ABI: [&str; 2] = ["ib_user_verbs.h", "mlx5-abi.h"];

/// The flags that rdma-core's `CMakeLists.txt` passes, less warnings. Its annotations for valgrind are off, as packagers may
/// have them.
const FLAGS: [&str; 5] = [
    "-std=gnu11",
    "-D_GNU_SOURCE=",
    "-D_FILE_OFFSET_BITS=64",
    "-DNVALGRIND",
    "-fno-strict-aliasing",
];

/// The `config.h` that it makes on Linux with 64 bits.
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

/// Upstream's release build.
const RELEASE: Build = Build {
    name: "-O3",
    flags: &["-O3"],
};

/// Upstream's default, its release build, and both with the provider compiled into the program.
const BUILDS: [Build; 4] = [
    Build {
        name: "-O2",
        flags: &["-O2"],
    },
    RELEASE,
    Build {
        name: "-O2 -flto",
        flags: &["-O2", "-flto=2", "-DDIRECT"],
    },
    Build {
        name: "-O3 -flto",
        flags: &["-O3", "-flto=2", "-DDIRECT"],
    },
];

/// The provider's counts.
pub(super) struct Counts {
    /// The package and its version.
    pub(super) version: String,
    /// With locks, in upstream's default build: what programs have that ask for nothing else.
    pub(super) default: Vec<Count>,
    /// Without, in all builds.
    pub(super) all: Vec<Count>,
}

/// The provider's sources, and headers where its build has them.
struct Provider {
    source: Source,
    include: [PathBuf; 2],
}

/// Fetches it, compiles it, and counts.
pub(super) fn count(directory: &Path) -> Result<Counts, String> {
    let provider = Provider::new(directory)?;
    let files = provider.files(directory, "rdma_core.c", SHAPES)?;
    let program = provider.program("rdma-core-shapes", &files);
    let (mut default, mut all) = (Vec::new(), Vec::new());
    for build in BUILDS {
        let program = program.compile(directory, build)?;
        for doorbell in Doorbell::ALL {
            let count = |locks: &str| {
                Ok::<_, String>(Count {
                    build: build.name,
                    doorbell,
                    costs: costs(&program, &[locks, doorbell.argument()])?,
                })
            };
            all.push(count(WITHOUT_LOCKS)?);
            if build.name == BUILDS[0].name {
                default.push(count(WITH_LOCKS)?);
            }
        }
    }
    Ok(Counts {
        version: provider.version(),
        default,
        all,
    })
}

/// The programs' arguments.
const WITH_LOCKS: &str = "locks";
const WITHOUT_LOCKS: &str = "no-locks";

/// The counts of a program of the caller's on the provider in plain memory.
pub(crate) struct Beside {
    /// The package and its version.
    pub(crate) version: String,
    /// As programs get it that ask for nothing else.
    pub(crate) default: Costs,
    /// Without locks, in each build.
    pub(crate) all: Vec<Costs>,
}

/// Compiles the caller's program, which finds `plain.h`, and counts what its functions take whose names begin with `counted_`.
/// Its argument is `locks` or `no-locks`.
pub(crate) fn beside(directory: &Path, name: &str, text: &str) -> Result<Beside, String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let provider = Provider::new(directory)?;
    let files = provider.files(directory, &format!("{name}.c"), text)?;
    let name = format!("rdma-core-{name}");
    let program = provider.program(&name, &files);
    let mut default = None;
    let mut all = Vec::new();
    for build in BUILDS {
        let program = program.compile(directory, build)?;
        all.push(costs(&program, &[WITHOUT_LOCKS])?);
        if default.is_none() {
            default = Some(costs(&program, &[WITH_LOCKS])?);
        }
    }
    Ok(Beside {
        version: provider.version(),
        default: default.ok_or("no build")?,
        all,
    })
}

/// A program of the caller's in the release build, and the package's version.
pub(super) fn compiled(
    directory: &Path,
    name: &str,
    text: &str,
) -> Result<(PathBuf, String), String> {
    let provider = Provider::new(directory)?;
    let files = provider.files(directory, &format!("{name}.c"), text)?;
    let name = format!("rdma-core-{name}");
    let program = provider.program(&name, &files);
    Ok((program.compile(directory, RELEASE)?, provider.version()))
}

impl Provider {
    fn new(directory: &Path) -> Result<Self, String> {
        let source = source::fetch(directory, PACKAGE, SUITE)?;
        let include = [
            include(directory, &source.folder)?,
            source.folder.join("providers/mlx5"),
        ];
        Ok(Self { source, include })
    }

    fn version(&self) -> String {
        format!("{PACKAGE} {}", self.source.version)
    }

    /// The provider's files, those that stand in for a device, and one of a program.
    fn files(&self, directory: &Path, name: &str, text: &str) -> Result<Vec<PathBuf>, String> {
        let folder = self.source.folder.join("providers/mlx5");
        let mut files: Vec<PathBuf> = PROVIDERS.iter().map(|name| folder.join(name)).collect();
        for (name, text) in [("plain.c", PLAIN), (name, text)] {
            let file = directory.join(name);
            fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
            files.push(file);
        }
        Ok(files)
    }

    fn program<'p>(&'p self, name: &'p str, files: &'p [PathBuf]) -> Program<'p> {
        Program {
            name,
            flags: &FLAGS,
            include: &self.include,
            files,
        }
    }
}

/// The headers, by the names that programs and the provider know them by.
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
    for (name, text) in HEADERS.iter().chain(&[("config.h", CONFIG)]) {
        fs::write(include.join(name), text).map_err(fail)?;
    }
    Ok(include)
}
