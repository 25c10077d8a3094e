//! Debian packages of a bundle: the programs, and their debug symbols.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::RUNNER;
use crate::command::run;
use crate::copyright::{copyright, third_parties};
use crate::debug_symbols::split;
use crate::library::Bundle;

/// Where the package has the bundle: not where the loader looks, so that nothing changes but for what the runner starts.
pub const INSTALLED: &str = "usr/lib/bareverbs";
const DOCUMENTS: &str = "usr/share/doc/bareverbs";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The packages of a bundle.
#[derive(Debug, Clone)]
pub struct Packages {
    /// The libraries and the runner.
    pub programs: PathBuf,
    /// Their debug symbols.
    pub symbols: PathBuf,
}

impl From<Packages> for Vec<PathBuf> {
    fn from(packages: Packages) -> Self {
        vec![packages.programs, packages.symbols]
    }
}

/// Makes Debian packages of a bundle, beside its folder, with `dpkg-deb`, `dpkg-shlibdeps` and binutils. Cargo names the licences
/// of the crates that are linked in.
pub fn package(bundle: &Bundle) -> Result<Packages, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = bundle.folder.parent().unwrap_or(&bundle.folder);
    let [tree, symbols] = ["package", "package-dbgsym"].map(|name| beside.join(name));
    let fail = |error: std::io::Error| format!("{}: {error}", tree.display());
    for tree in [&tree, &symbols] {
        if tree.exists() {
            fs::remove_dir_all(tree).map_err(fail)?;
        }
    }
    let installed = tree.join(INSTALLED);
    // The parts are for the next bundle only.
    copy_tree(&bundle.folder, &installed, "parts").map_err(fail)?;
    let objects = objects(&installed).map_err(fail)?;
    let ids = split(&objects, &symbols)?;
    fs::create_dir_all(tree.join("usr/bin")).map_err(fail)?;
    let runner = Path::new("../lib/bareverbs").join(RUNNER);
    symlink(runner, tree.join("usr/bin").join(RUNNER)).map_err(fail)?;
    let documents = tree.join(DOCUMENTS);
    fs::create_dir_all(&documents).map_err(fail)?;
    for page in ["c-abi.md", "impairment.md", "hardware.md"] {
        fs::copy(root.join("docs").join(page), documents.join(page)).map_err(fail)?;
    }
    fs::write(documents.join("copyright"), copyright(&root)?).map_err(fail)?;
    let others = documents.join("third-party-licences");
    fs::write(others, third_parties(&root)?).map_err(fail)?;
    let depends = dependencies(&tree, &objects)?;
    let programs = build(&tree, "bareverbs", &about_programs(&depends))?;

    let documents = symbols.join(DOCUMENTS).with_file_name("bareverbs-dbgsym");
    fs::create_dir_all(documents.parent().unwrap_or(&symbols)).map_err(fail)?;
    symlink("bareverbs", documents).map_err(fail)?;
    let symbols = build(&symbols, "bareverbs-dbgsym", &about_symbols(&ids))?;
    Ok(Packages { programs, symbols })
}

/// Makes a package of a tree, which goes.
fn build(tree: &Path, name: &str, about: &str) -> Result<PathBuf, String> {
    let fail = |error: std::io::Error| format!("{}: {error}", tree.display());
    let mut size = 0;
    for file in files(tree).map_err(fail)? {
        size += fs::symlink_metadata(&file).map_or(0, |file| file.len().div_ceil(1024));
    }
    // As Debian's own tools take it.
    let variable = |name| std::env::var(name).ok();
    let maintainer = variable("DEBFULLNAME").unwrap_or_else(|| "bareverbs".to_owned());
    let address = variable("DEBEMAIL").unwrap_or_else(|| "root@localhost".to_owned());
    let machine = architecture()?;
    let control = format!(
        "Package: {name}\n\
         Version: {VERSION}\n\
         Architecture: {machine}\n\
         Maintainer: {maintainer} <{address}>\n\
         Installed-Size: {size}\n\
         Priority: optional\n\
         {about}"
    );
    fs::create_dir_all(tree.join("DEBIAN")).map_err(fail)?;
    fs::write(tree.join("DEBIAN/control"), control).map_err(fail)?;
    let package = tree.with_file_name(format!("{name}_{VERSION}_{machine}.deb"));
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "--build"])
        .args([tree, &package]))?;
    fs::remove_dir_all(tree).map_err(fail)?;
    Ok(package)
}

fn about_programs(depends: &str) -> String {
    format!(
        "Depends: {depends}\n\
         Suggests: ibverbs-utils, rdmacm-utils, perftest\n\
         Section: net\n\
         Description: RDMA programs without a kernel driver\n \
         libibverbs and librdmacm that drive an mlx5 adapter through VFIO, or a\n \
         model of one that needs no card and no root; bareverbs-run runs unmodified\n \
         programs with them, joins processes by wires and switches, and loses, delays\n \
         or damages what they send.\n"
    )
}

/// The fields are those of the packages that debhelper makes.
fn about_symbols(build_ids: &[String]) -> String {
    format!(
        "Depends: bareverbs (= {VERSION})\n\
         Section: debug\n\
         Auto-Built-Package: debug-symbols\n\
         Build-Ids: {}\n\
         Description: debug symbols for bareverbs\n",
        build_ids.join(" ")
    )
}

/// The packages that the libraries need, as `dpkg-shlibdeps` finds them.
fn dependencies(tree: &Path, objects: &[PathBuf]) -> Result<String, String> {
    // It reads names from the file that source packages have.
    let source = tree.join("debian");
    let fail = |error: std::io::Error| format!("{}: {error}", source.display());
    fs::create_dir_all(&source).map_err(fail)?;
    fs::write(
        source.join("control"),
        "Source: bareverbs\n\nPackage: bareverbs\nArchitecture: any\n",
    )
    .map_err(fail)?;
    let text = run(Command::new("dpkg-shlibdeps")
        .current_dir(tree)
        .arg("-O")
        .args(objects));
    fs::remove_dir_all(&source).map_err(fail)?;
    let text = text?;
    text.lines()
        .find_map(|line| line.strip_prefix("shlibs:Depends="))
        .map(str::to_owned)
        .ok_or_else(|| format!("dpkg-shlibdeps names no packages: {text:?}"))
}

/// The files of the bundle that are no links: the libraries and the runner.
fn objects(installed: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(installed)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && is_elf(&entry.path())? {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Returns true if a file is code, which `strip` and `dpkg-shlibdeps` read. The list of suppressions beside the libraries is not.
fn is_elf(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    fs::File::open(path)?.take(4).read_to_end(&mut start)?;
    Ok(start == b"\x7fELF")
}

fn architecture() -> Result<String, String> {
    let text = run(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(text.trim().to_owned())
}

/// Copies a folder with its links, but for what is called `but`.
fn copy_tree(from: &Path, to: &Path, but: &str) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        let to = to.join(&name);
        if name == but {
            continue;
        } else if kind.is_dir() {
            copy_tree(&entry.path(), &to, but)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// All files and links below a folder.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_stripped() {
        let folder = std::env::temp_dir().join(format!("bareverbs-objects-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::copy(std::env::current_exe().unwrap(), folder.join("library.so")).unwrap();
        fs::write(folder.join(crate::SUPPRESSIONS), "{\n}\n").unwrap();
        fs::write(folder.join("empty"), "").unwrap();
        let found = objects(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.unwrap(), [folder.join("library.so")]);
    }
}
