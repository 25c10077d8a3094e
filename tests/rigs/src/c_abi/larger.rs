//! The set-up of the larger engines: their packages from Debian, unpacked, and a switch for their processes.

use super::run::{Place, Running};
use crate::apt::{Apt, unpack};
use crate::outcome::Outcome;
use crate::stock_driver::spawn;
use bareverbs_bundle::RUNNER;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";
/// The release whose programs run here.
const SUITE: &str = "bookworm";
/// Open MPI, UCX and libfabric, with the libraries that they need besides the C library and ours.
const PACKAGES: &[&str] = &[
    "libatomic1",
    "libevent-core-2.1-7",
    "libevent-pthreads-2.1-7",
    "libfabric-bin",
    "libfabric1",
    "libgomp1",
    "libhwloc15",
    "libmunge2",
    "libnl-3-200",
    "libnl-route-3-200",
    "libnuma1",
    "libopenmpi-dev",
    "libopenmpi3",
    "libpmix2",
    "libpsm-infinipath1",
    "libpsm2-2",
    "libstdc++6",
    "libucx0",
    "libudev1",
    "libuuid1",
    "openmpi-bin",
    "openmpi-common",
    "ucx-utils",
    "zlib1g",
];
/// Where a library of theirs is, which Debian's scripts link to.
const PSM: &str = "usr/lib/libpsm1/libpsm_infinipath.so.1.16";
const LIB: &str = "usr/lib/x86_64-linux-gnu";

/// The engines, unpacked.
pub(super) struct Engines {
    root: PathBuf,
}

impl Engines {
    /// Fetches and unpacks them, if they are not there yet.
    pub(super) fn fetch(directory: &Path) -> Result<Self, String> {
        let root = directory.join("root");
        let stamp = directory.join("stamp");
        let recipe = format!("{RECIPE} {SUITE} {PACKAGES:?}\n");
        let found = fs::read_to_string(&stamp).unwrap_or_default();
        let versions = match found.strip_prefix(&recipe) {
            Some(versions) => versions.trim_end().to_owned(),
            None => {
                let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
                if directory.exists() {
                    fs::remove_dir_all(directory).map_err(fail)?;
                }
                fs::create_dir_all(directory).map_err(fail)?;
                let versions = unpack_into(directory, &root)?;
                fs::write(&stamp, format!("{recipe}{versions}\n")).map_err(fail)?;
                versions
            }
        };
        println!("engines: {versions}");
        Ok(Self { root })
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.root.join("usr/bin").join(name)
    }

    pub(super) fn libraries(&self) -> PathBuf {
        self.root.join(LIB)
    }

    /// Sets what programs need to find their files where they are not installed.
    pub(super) fn environment(&self, command: &mut Command) {
        let libraries = self.libraries();
        let of_mpi = libraries.join("openmpi/lib");
        let pmix = libraries.join("pmix2");
        let paths = [&libraries, &pmix.join("lib")].map(|path| path.display().to_string());
        command
            .env("LD_LIBRARY_PATH", paths.join(":"))
            .env("OPAL_PREFIX", self.root.join("usr"))
            .env("OPAL_PKGLIBDIR", of_mpi.join("openmpi3"))
            .env("OPAL_LIBDIR", of_mpi)
            .env("OPAL_PKGDATADIR", self.root.join("usr/share/openmpi"))
            .env("OPAL_SYSCONFDIR", self.root.join("etc/openmpi"))
            .env("PMIX_INSTALL_PREFIX", pmix)
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("LC_ALL", "C");
    }
}

fn unpack_into(directory: &Path, root: &Path) -> Result<String, String> {
    let apt = Apt::new(directory)?;
    let named: Vec<String> = PACKAGES
        .iter()
        .map(|name| format!("{name}/{SUITE}"))
        .collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let packages = directory.join("debs");
    let mut versions = Vec::new();
    for deb in apt.fetch(&packages, &named)? {
        unpack(&deb, root)?;
        let name = deb.file_stem().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches("_amd64").replace('_', " ");
        let is_engine = ["openmpi-bin ", "libucx0 ", "libfabric1 "];
        if is_engine.iter().any(|engine| name.starts_with(engine)) {
            versions.push(name);
        }
    }
    let psm = root.join(LIB).join("libpsm_infinipath.so.1");
    symlink(root.join(PSM), &psm).map_err(|error| format!("{}: {error}", psm.display()))?;
    // Before the system's directories were merged, some libraries were here.
    let old = root.join("lib/x86_64-linux-gnu");
    if old.is_dir() {
        let fail = |error: std::io::Error| format!("{}: {error}", old.display());
        for entry in fs::read_dir(&old).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let to = root.join(LIB).join(entry.file_name());
            if !to.exists() {
                fs::rename(entry.path(), &to).map_err(fail)?;
            }
        }
    }
    fs::remove_dir_all(&packages).map_err(|error| error.to_string())?;
    Ok(versions.join(", "))
}

/// A program of the engines.
pub(super) struct Program<'a> {
    /// The name of its log.
    pub(super) log: String,
    /// Options of `bareverbs-run`.
    pub(super) options: &'a [&'a str],
    pub(super) environment: &'a [(&'a str, &'a str)],
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<String>,
}

/// Options for programs of which the library shall only say what goes wrong.
pub(super) const QUIET: &[&str] = &["--log", "warn"];

/// The option for an InfiniBand port. Those on this run's switch are Ethernet ports.
pub(super) const INFINIBAND: &str = "--infiniband";

/// Starts a program under `bareverbs-run`, on the switch of this run unless it has an InfiniBand port.
pub(super) fn start(
    place: &Place<'_>,
    engines: Option<&Engines>,
    program: &Program<'_>,
) -> Result<Running, String> {
    let log = place.logs.join(&program.log);
    let fail = |error: std::io::Error| format!("{}: {error}", log.display());
    let file = File::create(&log).map_err(fail)?;
    let mut command = Command::new(place.bundle.folder.join(RUNNER));
    if !program.options.contains(&INFINIBAND) {
        command.arg("--switch").arg(place.sockets.join("switch"));
    }
    command
        .args(program.options)
        .arg(&program.path)
        .args(&program.arguments)
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(fail)?)
        .stderr(file);
    match engines {
        Some(engines) => engines.environment(&mut command),
        None => {
            command.env("LD_LIBRARY_PATH", &place.packages.others);
        }
    }
    command.envs(program.environment.iter().copied());
    Ok(Running::new(spawn(&mut command)?, log))
}

/// The output of a program that ended.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) printed: String,
}

/// Waits for the end.
pub(super) fn end(mut running: Running, within: Duration) -> Result<Ended, String> {
    let status = running.end(Instant::now() + within)?;
    Ok(Ended {
        status,
        printed: running.printed(),
    })
}

/// Checks that a program exited well and printed each of these texts, and none that it must not.
pub(super) fn judge(
    place: &Place<'_>,
    name: &str,
    ended: Result<Ended, String>,
    says: &[&str],
) -> Outcome {
    let mut faults = Vec::new();
    match ended {
        Err(why) => faults.push(why),
        Ok(Ended { status, printed }) => {
            if !status.success() {
                faults.push(status.to_string());
            }
            faults.extend(
                says.iter()
                    .filter(|text| !printed.contains(**text))
                    .map(|text| format!("does not print {text:?}")),
            );
            faults.extend(super::run::never(&printed));
        }
    }
    let mut outcome = Outcome::default();
    outcome.check(faults.is_empty(), || {
        let logs = place.logs.display();
        format!("{name}: {} (logs: {logs}/{name}*)", faults.join("; "))
    });
    outcome
}
