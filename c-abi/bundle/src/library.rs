//! From a static library to the folder of shared ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::run;
use crate::symbols::{Kind, Symbol};
use crate::{
    LIBRARY, PATHS_LIBRARY, PRIVATE, RUNNER, SOCKETS_LIBRARY, SUPPRESSIONS, UVERBS_LIBRARY,
    refused, tree,
};

/// The symbols that the preload libraries export.
const EXPORTS: &str = include_str!("../../paths/exports.map");
const SOCKETS_EXPORTS: &str = include_str!("../../sockets/exports.map");
const UVERBS_EXPORTS: &str = include_str!("../../uverbs/exports.map");

/// This list names the findings of valgrind in the library that are no errors.
const EXPECTED: &str = include_str!("../valgrind.supp");

/// The parts of a bundle.
#[derive(Debug, Clone)]
pub struct Sources<'a> {
    /// The static library of `bareverbs-c`.
    pub archive: &'a Path,
    /// The static library of `bareverbs-paths`; without it, there is no preload library.
    pub paths: Option<&'a Path>,
    /// The static library of `bareverbs-sockets`; without it, there is no such preload library.
    pub sockets: Option<&'a Path>,
    /// The static library of `bareverbs-uverbs`; without it, there is no such preload library.
    pub uverbs: Option<&'a Path>,
    /// The program `bareverbs-run`.
    pub runner: &'a Path,
    /// The preload libraries keep their debug symbols, for a package that has them apart.
    pub keeps_symbols: bool,
    /// The symbols that the libraries shall have.
    pub symbols: &'a [Symbol],
}

/// A folder of shared libraries.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// The folder.
    pub folder: PathBuf,
    /// The names of the functions that the static library has.
    pub defined: BTreeSet<String>,
}

/// Makes the folder; what it had is replaced.
pub fn bundle(sources: &Sources<'_>, folder: &Path) -> Result<Bundle, String> {
    let fail = |what: &Path| {
        let what = what.display().to_string();
        move |error: std::io::Error| format!("{what}: {error}")
    };
    let parts = folder.join("parts");
    fs::create_dir_all(&parts).map_err(fail(&parts))?;

    let archive = defined(sources.archive)?;
    let names: BTreeSet<&str> = sources
        .symbols
        .iter()
        .map(|symbol| symbol.name.as_str())
        .collect();
    let defined: BTreeSet<String> = names
        .iter()
        .filter(|name| archive.contains(**name))
        .map(|name| (*name).to_owned())
        .collect();
    let missing = sources
        .symbols
        .iter()
        .filter(|symbol| symbol.kind == Kind::Old || !defined.contains(&symbol.name));
    let refused = parts.join("refused.c");
    fs::write(&refused, refused::source(missing)).map_err(fail(&refused))?;
    let script = parts.join("versions.map");
    let private = PRIVATE.0.iter().all(|name| archive.contains(*name));
    fs::write(&script, version_script(sources.symbols, private)).map_err(fail(&script))?;

    // Written beside and renamed: programs that have the old library open keep it.
    let fresh = parts.join(LIBRARY);
    run(link(sources.archive, &refused, &script)
        .arg("-o")
        .arg(&fresh))?;
    let library = folder.join(LIBRARY);
    fs::rename(&fresh, &library).map_err(fail(&library))?;
    let preloaded = [
        (sources.paths, PATHS_LIBRARY, EXPORTS),
        (sources.sockets, SOCKETS_LIBRARY, SOCKETS_EXPORTS),
        (sources.uverbs, UVERBS_LIBRARY, UVERBS_EXPORTS),
    ];
    for (archive, name, exports) in preloaded {
        let Some(archive) = archive else { continue };
        let script = parts.join(name).with_extension("map");
        fs::write(&script, exports).map_err(fail(&script))?;
        let fresh = parts.join(name);
        let mut link = link_whole(archive, name, &script);
        link.arg("-Wl,--no-undefined-version");
        if !sources.keeps_symbols {
            // Every program that is run has it.
            link.arg("-Wl,--strip-all");
        }
        run(link.arg("-o").arg(&fresh))?;
        let library = folder.join(name);
        fs::rename(&fresh, &library).map_err(fail(&library))?;
    }
    if sources.paths.is_some() {
        tree::make(folder).map_err(fail(folder))?;
    }
    let others: BTreeSet<&str> = sources
        .symbols
        .iter()
        .map(|symbol| symbol.library.as_str())
        .collect();
    for name in others {
        let path = folder.join(name);
        if name != LIBRARY && !path.is_symlink() {
            symlink(LIBRARY, &path).map_err(fail(&path))?;
        }
    }
    let list = folder.join(SUPPRESSIONS);
    fs::write(&list, EXPECTED).map_err(fail(&list))?;
    let fresh = parts.join(RUNNER);
    fs::copy(sources.runner, &fresh).map_err(fail(sources.runner))?;
    let runner = folder.join(RUNNER);
    fs::rename(&fresh, &runner).map_err(fail(&runner))?;
    Ok(Bundle {
        folder: folder.to_owned(),
        defined,
    })
}

/// The command that links the library, but for where to.
fn link(archive: &Path, refused: &Path, script: &Path) -> Command {
    let mut command = link_whole(archive, LIBRARY, script);
    command.arg(refused).arg("-O1");
    command
}

/// The command that makes a shared library of a static one, but for where to.
fn link_whole(archive: &Path, name: &str, script: &Path) -> Command {
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-fPIC"])
        .arg(format!("-Wl,-soname,{name}"))
        // By this number a debugger finds the symbols of a package.
        .arg("-Wl,--build-id=sha1")
        // The members with exported functions are named by nothing.
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .arg("-Wl,--gc-sections")
        .arg(format!("-Wl,--version-script={}", script.display()))
        // The library's calls of its own functions stay its own, whatever the program defines.
        .arg("-Wl,-Bsymbolic-functions")
        // Its threads outlive the last `dlclose`.
        .args([
            "-Wl,-z,nodelete",
            "-Wl,-z,defs",
            "-Wl,-z,now",
            "-Wl,-z,relro",
        ])
        // The C library, as a Rust static library wants it.
        .args(["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"]);
    command
}

/// The linker's list of symbols by version. Everything else is local.
fn version_script(symbols: &[Symbol], private: bool) -> String {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for symbol in symbols {
        let names = versions.entry(&symbol.version).or_default();
        // The old ones are given their version where they are defined.
        if symbol.kind != Kind::Old {
            names.insert(&symbol.name);
        }
    }
    let mut text = String::new();
    for (number, (version, names)) in versions.iter().enumerate() {
        // A String takes everything.
        let _ = writeln!(text, "{version} {{");
        if !names.is_empty() {
            let _ = writeln!(text, "global:");
        }
        for name in names {
            let _ = writeln!(text, "    {name};");
        }
        if number == 0 {
            let _ = writeln!(text, "local: *;");
        }
        let _ = writeln!(text, "}};");
    }
    if private {
        let (names, version) = PRIVATE;
        let _ = writeln!(text, "{version} {{ global: {}; }};", names.join("; "));
    }
    text
}

/// The names of the global symbols that a static library defines.
fn defined(archive: &Path) -> Result<BTreeSet<String>, String> {
    let text = run(Command::new("nm")
        .args(["--defined-only", "--extern-only", "--format=posix"])
        .arg(archive))?;
    // A member's name is a line of its own.
    let names = text.lines().filter(|line| !line.ends_with(':'));
    let names: BTreeSet<String> = names
        .filter_map(|line| line.split(' ').next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        return Err(format!("{}: defines nothing", archive.display()));
    }
    Ok(names)
}
