//! Programs of Debian's packages for the guests: with the libraries that they need, in an archive.

use crate::apt::{Apt, unpack};
use crate::folder::empty;
use crate::process::quiet_output;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release of the guests' libraries.
const SUITE: &str = "trixie";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// The files of it that every guest has.
const IN_GUESTS: &[&str] = &["ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6"];
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "4";

/// The files to pack.
pub(super) struct Contents {
    /// Debian's packages, with everything that they depend on.
    pub(super) packages: &'static [&'static str],
    /// The programs, and what they load by name.
    pub(super) roots: &'static [&'static str],
    /// The folder in the archive.
    pub(super) folder: &'static str,
}

impl Contents {
    /// The archive in a directory, made if it is not there yet.
    pub(super) fn archive(&self, directory: &Path) -> Result<PathBuf, String> {
        let fail = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        fs::create_dir_all(directory).map_err(|error| fail(directory, error))?;
        let archive = directory.join(format!("{}.tar", self.folder));
        let stamp = directory.join("stamp");
        let recipe = format!("{RECIPE}\n{:?}\n{:?}\n", self.packages, self.roots);
        if fs::read_to_string(&stamp).unwrap_or_default() != recipe {
            let tree = directory.join("packages");
            empty(&tree)?;
            let apt = Apt::new(directory)?;
            for deb in apt.fetch_closure(self.packages, SUITE)? {
                unpack(&deb, &tree)?;
            }
            self.pack(&tree, &archive)?;
            // The archive has what guests need.
            for done in [tree, directory.join("apt/archives")] {
                fs::remove_dir_all(&done).map_err(|error| fail(&done, error))?;
            }
            fs::write(&stamp, recipe).map_err(|error| fail(&stamp, error))?;
        }
        Ok(archive)
    }

    /// Packs the programs, what they load, and all libraries of these.
    fn pack(&self, tree: &Path, archive: &Path) -> Result<(), String> {
        let mut files: BTreeSet<PathBuf> = self.roots.iter().map(|root| tree.join(root)).collect();
        // UCX's parts need others of their own folder.
        let place = tree.join(LIBRARIES);
        let path = format!("{}:{}", place.display(), place.join("ucx").display());
        for root in self.roots {
            let list = quiet_output(
                Command::new(tree.join("usr/lib64/ld-linux-x86-64.so.2"))
                    .arg("--library-path")
                    .arg(&path)
                    .arg("--list")
                    .arg(tree.join(root)),
            )?;
            files.extend(libraries(&list, tree)?);
        }
        let mut tar = Command::new("tar");
        tar.args(["--dereference", "--transform"])
            .arg(format!("s,.*/,{}/,", self.folder))
            .arg("-cf")
            .arg(archive)
            .arg("-C")
            .arg("/")
            .args(files);
        quiet_output(&mut tar).map(|_| ())
    }
}

/// The libraries that the dynamic linker lists, without those that every guest has.
fn libraries(list: &str, tree: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for line in list.lines() {
        let Some((name, place)) = line.trim().split_once(" => ") else {
            continue;
        };
        let path = place.split(" (").next().unwrap_or_default();
        if !Path::new(path).starts_with(tree) {
            return Err(format!("{name} is not in the packages: {place}"));
        }
        if !IN_GUESTS.contains(&name) {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_of_the_packages() {
        let tree = Path::new("/tree");
        let list = "\tlinux-vdso.so.1 (0x00007fff)\n\
                    \tlibc.so.6 => /tree/usr/lib/x86_64-linux-gnu/libc.so.6 (0x00007f00)\n\
                    \tlibnuma.so.1 => /tree/usr/lib/x86_64-linux-gnu/libnuma.so.1 (0x00007f01)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n";
        let found = libraries(list, tree);
        let numa = tree.join(LIBRARIES).join("libnuma.so.1");
        assert_eq!(found, Ok(vec![numa]));
        for elsewhere in [
            "libnuma.so.1 => /lib/libnuma.so.1 (0x00007f01)",
            "libnuma.so.1 => not found",
        ] {
            assert!(libraries(elsewhere, tree).is_err(), "{elsewhere}");
        }
    }
}
