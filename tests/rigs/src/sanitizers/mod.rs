//! `cargo rig sanitizers`: the driver's tests under ThreadSanitizer and AddressSanitizer, with leak detection.
//!
//! Each sanitizer first has to find the faults of a small program (`faults.rs`), and must report nothing when it has
//! none: a sanitizer that does not work would find nothing in the tests either. Reports and the tests' output are
//! left in `target/rigs/sanitizers/log/`.

mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::outcome::Outcome;
use crate::process::output;
use crate::rust_src;
use programs::{FULL, Program, QUICK};

pub(crate) const ABOUT: &str = "the driver's tests under sanitizers (thread, address: one of them; --quick: the threaded tests)";

struct Sanitizer {
    /// As `-Z sanitizer` has it.
    name: &'static str,
    /// The variable with its options, and those of them that are not about reports.
    options: (&'static str, &'static str),
    /// `true` if the standard library is built with it.
    ///
    /// ThreadSanitizer has to see the atomics in locks and channels, or it takes what they order for races.
    /// AddressSanitizer needs nothing from it: the allocator and `memcpy` are the sanitizer's own anyway.
    build_std: bool,
    /// The reports on the small program that must come, and those that must not.
    found: &'static [&'static str],
    passed: &'static [&'static str],
}

/// A conformance test asks for more memory than sanitizers give (1 TiB), and expects to be refused, by a null pointer.
const REFUSE: &str = "allocator_may_return_null=1";
/// The line that AddressSanitizer then writes, which is no report.
const REFUSED: &str = "WARNING: AddressSanitizer failed to allocate ";

static THREAD: Sanitizer = Sanitizer {
    name: "thread",
    options: ("TSAN_OPTIONS", "halt_on_error=0"),
    build_std: true,
    found: &["race"],
    passed: &["none", "dma"],
};

static ADDRESS: Sanitizer = Sanitizer {
    name: "address",
    options: (
        "ASAN_OPTIONS",
        "detect_leaks=1:detect_stack_use_after_return=1",
    ),
    build_std: false,
    found: &["leak", "use-after-free"],
    passed: &["none"],
};

pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let (mut programs, mut sanitizers) = (FULL, Vec::new());
    for argument in arguments {
        match argument.as_str() {
            "--quick" => programs = QUICK,
            "thread" => sanitizers.push(&THREAD),
            "address" => sanitizers.push(&ADDRESS),
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    if sanitizers.is_empty() {
        sanitizers = vec![&THREAD, &ADDRESS];
    }
    let rig = Rig::new()?;
    let mut outcome = Outcome::default();
    for sanitizer in sanitizers {
        let started = Instant::now();
        rig.try_faults(sanitizer, &mut outcome)?;
        for program in programs {
            rig.run(sanitizer, program, &mut outcome)?;
        }
        println!("{}: {:.0?}", sanitizer.name, started.elapsed());
    }
    Ok(outcome)
}

/// The set-up of both sanitizers.
struct Rig {
    root: PathBuf,
    /// For everything that is made here.
    work: PathBuf,
    /// The sources of the standard library.
    library: PathBuf,
    /// The machine of this compiler.
    machine: String,
}

impl Rig {
    fn new() -> Result<Self, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().map_err(|error| error.to_string())?;
        let work = root.join("target/rigs/sanitizers");
        let log = work.join("log");
        // Reports of an earlier run are not this one's.
        if log.exists() {
            fs::remove_dir_all(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        }
        fs::create_dir_all(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        Ok(Self {
            library: rust_src::library()?,
            machine: rust_src::rustc("host")?,
            root,
            work,
        })
    }

    /// The options of a sanitizer, whose reports go to files that begin with `log`.
    fn options(&self, sanitizer: &Sanitizer, log: &str) -> Result<(&'static str, String), String> {
        let (variable, own) = sanitizer.options;
        let log = self.log(log);
        // Suppressions are by name, so that addresses have to become names: by a program that comes with the linker.
        let symbolizer = find("addr2line").ok_or("no addr2line (Debian's binutils)")?;
        let suppressions = match sanitizer.name {
            "thread" => {
                let folder = self.root.join("tests/rigs/src/sanitizers");
                format!(
                    ":suppressions={}",
                    folder.join("thread.suppressions").display()
                )
            }
            _ => String::new(),
        };
        let options = format!(
            "{own}:{REFUSE}{suppressions}:external_symbolizer_path={}:allow_addr2line=1:log_path={}",
            symbolizer.display(),
            log.display()
        );
        Ok((variable, options))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.work.join("log").join(name)
    }

    /// The reports in the files that begin with `log`, by their first and last lines.
    fn reports(&self, log: &str) -> Result<Vec<String>, String> {
        let folder = self.work.join("log");
        let entries =
            fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let prefix = format!("{log}.");
        let mut reports = Vec::new();
        for entry in entries.flatten() {
            // `NAME.PROCESS`; the tests' output is in `NAME.txt`.
            let name = entry.file_name().to_string_lossy().into_owned();
            let process = name.strip_prefix(&prefix);
            if process.is_some_and(|process| process.parse::<u32>().is_ok()) {
                let text = fs::read(entry.path()).map_err(|error| format!("{name}: {error}"))?;
                let text = String::from_utf8_lossy(&text);
                let sums = text.lines().filter(|line| line.starts_with("SUMMARY: "));
                let before = reports.len();
                reports.extend(sums.map(str::to_string));
                let refused = text.lines().all(|line| line.contains(REFUSED));
                if reports.len() == before && !refused {
                    // Something that it did not expect, which must not pass for nothing.
                    reports.push(format!("{name}: {text}"));
                }
            }
        }
        Ok(reports)
    }

    /// Checks whether the sanitizer is at work.
    fn try_faults(&self, sanitizer: &Sanitizer, outcome: &mut Outcome) -> Result<(), String> {
        let program = self.work.join(format!("faults-{}", sanitizer.name));
        let source = self.root.join("tests/rigs/src/sanitizers/faults.rs");
        let mut rustc = Command::new("rustc");
        rustc.env("RUSTC_BOOTSTRAP", "1").arg(&source);
        rustc.args(["--edition=2024", "-Copt-level=1", "-Cdebuginfo=1", "-o"]);
        rustc.arg(&program).args(flags(sanitizer));
        output(&mut rustc)?;
        let faults = |faults: &'static [&'static str], wanted| {
            faults.iter().map(move |fault| (*fault, wanted))
        };
        for (fault, wanted) in faults(sanitizer.found, true).chain(faults(sanitizer.passed, false))
        {
            let log = format!("faults-{}-{fault}", sanitizer.name);
            let (variable, options) = self.options(sanitizer, &log)?;
            let mut command = Command::new(&program);
            command.arg(fault).env(variable, options);
            let status = command.stdin(Stdio::null()).status();
            let status = status.map_err(|error| format!("{command:?}: {error}"))?;
            let reports = self.reports(&log)?;
            let found = !status.success() && !reports.is_empty();
            let clean = status.success() && reports.is_empty();
            outcome.check(if wanted { found } else { clean }, || {
                format!(
                    "{}: a program with {fault}: {status}, {reports:?}",
                    sanitizer.name
                )
            });
        }
        Ok(())
    }

    /// Runs tests of one package.
    fn run(
        &self,
        sanitizer: &Sanitizer,
        program: &Program,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let name = format!("{}-{}", sanitizer.name, program.name());
        let (variable, options) = self.options(sanitizer, &name)?;
        let output = self.log(&format!("{name}.txt"));
        let file =
            fs::File::create(&output).map_err(|error| format!("{}: {error}", output.display()))?;
        let started = Instant::now();
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .current_dir(&self.root)
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("CARGO_TARGET_DIR", self.work.join(sanitizer.name))
            .env("CARGO_INCREMENTAL", "0")
            // Much quicker to run, and little slower to build.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("RUSTFLAGS", flags(sanitizer).join(" "))
            // Sanitizers and -Z build-std are for nightly compilers, which this makes of any.
            .env("RUSTC_BOOTSTRAP", "1")
            .env(variable, options)
            .args(["test", "--locked", "--no-fail-fast", "--package"])
            .arg(program.package)
            .args(program.targets)
            // Given a target, the flags are not for build scripts.
            .args(["--target", &self.machine]);
        if sanitizer.build_std {
            command
                .arg("-Zbuild-std")
                .env("__CARGO_TESTS_ONLY_SRC_ROOT", &self.library);
        }
        command.arg("--").args(program.tests);
        let status = command.stdin(Stdio::null()).stdout(file).status();
        let status = status.map_err(|error| format!("{command:?}: {error}"))?;

        let text = fs::read(&output).map_err(|error| format!("{}: {error}", output.display()))?;
        let text = String::from_utf8_lossy(&text);
        let reports = self.reports(&name)?;
        let tests = passed(&text);
        println!(
            "{name}: {tests} tests passed, {} reports, {:.0?}",
            reports.len(),
            started.elapsed()
        );
        for report in reports.iter().take(10) {
            println!("  {report}");
        }
        outcome.check(reports.is_empty(), || {
            format!("{name}: {} reports", reports.len())
        });
        outcome.check(status.success() && tests > 0, || {
            let failed = text.lines().filter(|line| line.ends_with("... FAILED"));
            let failed: Vec<&str> = failed.collect();
            format!("{name}: {status}, {failed:?}; see {}", output.display())
        });
        Ok(())
    }
}

fn flags(sanitizer: &Sanitizer) -> [String; 2] {
    [
        format!("-Zsanitizer={}", sanitizer.name),
        // The small program is linked with the standard library as it comes.
        "-Cunsafe-allow-abi-mismatch=sanitizer".to_string(),
    ]
}

/// Where a program is.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.exists())
}

/// The number of tests that passed.
fn passed(output: &str) -> usize {
    let results = output.lines().filter_map(|line| {
        line.strip_prefix("test result: ")?
            .split_once(". ")?
            .1
            .split_once(" passed")
    });
    results
        .filter_map(|(count, _)| count.parse::<usize>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_passed() {
        let output = "test a ... ok\ntest result: ok. 3 passed; 0 failed; 1 ignored\n\
            test result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        assert_eq!(passed(output), 5);
        assert_eq!(passed("test a ... ok\n"), 0);
    }
}
