//! Import circles: files of one crate that name each other, directly or through others.
//!
//! A file in a circle cannot be understood without the others of it. Circles of two (a type and the calls on it) are
//! allowed; a longer one fails.
//!
//! Every crate of the checkout is read: each folder with a `lib.rs` or a `main.rs` is one, tests and examples with them.
//!
//! Where the folders of a crate have an order, a file names files of its own folder and of those after it (`order.rs`).
//!
//! An arrow goes from a file to the file that defines the item which it names by a path from `crate`, `self` or `super`,
//! in a `use` declaration or elsewhere. Re-exports are followed to the definition and are no arrows themselves, nor are
//! `mod` declarations. Tests do not count, nor do the insides of macros.

mod order;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::{self, Visit};

use crate::outcome::Outcome;

pub(crate) const ABOUT: &str =
    "files of one crate that import each other in a circle (--list for every arrow in one)";

/// Folders with several crates of which each is one file and a folder of the same name.
const FOLDERS_OF_CRATES: &[&str] = &["tests/bench/benches"];

/// The most files that a circle may have.
const LIMIT: usize = 2;

/// A module, as its path from the crate's root.
type Module = Vec<String>;

/// One crate: its files by module, and what each re-exports.
#[derive(Default)]
struct Crate {
    files: BTreeMap<Module, File>,
}

struct File {
    path: PathBuf,
    /// Paths that it names, as far as they lie in the crate.
    names: BTreeSet<Module>,
    /// The re-exports: a name, and the path behind it.
    exports: BTreeMap<String, Module>,
    /// Modules that are re-exported as a whole.
    globs: Vec<Module>,
}

pub(crate) fn run(arguments: &[String]) -> Result<Outcome, String> {
    let list = match arguments {
        [] => false,
        [option] if option == "--list" => true,
        other => return Err(format!("unknown arguments {other:?}")),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut outcome = Outcome::default();
    let folders = crates(&root)?;
    for folder in &folders {
        let krate = Crate::read(&root.join(folder))?;
        let circles = krate.circles();
        let longest = circles.first().map_or(0, Vec::len);
        println!(
            "{folder}: {} files, longest circle: {longest}",
            krate.files.len()
        );
        for circle in circles.iter().filter(|circle| circle.len() > LIMIT) {
            println!("  a circle of {} files", circle.len());
            for module in circle {
                let of = &krate.files[*module];
                let path = of.path.strip_prefix(&root).unwrap_or(&of.path);
                let to: Vec<String> = krate
                    .arrows(module)
                    .into_iter()
                    .filter(|to| list && circle.contains(to))
                    .map(|to| to.join("::"))
                    .collect();
                println!("    {} {}", path.display(), to.join(" "));
            }
        }
        outcome.check(longest <= LIMIT, || {
            format!("{folder}: a circle of {longest} files, {LIMIT} at most")
        });
        order::check(folder, &krate, &mut outcome);
    }
    Ok(outcome)
}

/// The folders of all crates in the checkout, relative to it.
fn crates(root: &Path) -> Result<Vec<String>, String> {
    let mut found: Vec<String> = FOLDERS_OF_CRATES.iter().map(|&of| of.to_owned()).collect();
    find_crates(root, root, &mut found)?;
    found.sort();
    Ok(found)
}

fn find_crates(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<(), String> {
    for path in entries(folder)? {
        // Hidden folders, and those of what was built: Cargo marks them, but not one that was there before.
        let passed_over = path
            .file_name()
            .is_some_and(|name| name == "target" || name.as_encoded_bytes().starts_with(b"."));
        if path.is_dir() && !path.is_symlink() && !passed_over {
            if is_crate(&path) {
                let path = path.strip_prefix(root).unwrap_or(&path);
                found.push(path.to_string_lossy().into_owned());
            }
            find_crates(root, &path, found)?;
        }
    }
    Ok(())
}

fn is_crate(folder: &Path) -> bool {
    folder.join("lib.rs").exists() || folder.join("main.rs").exists()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let of = |error| format!("{}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(of)?;
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(of))
        .collect()
}

impl Crate {
    fn read(folder: &Path) -> Result<Self, String> {
        let mut krate = Self::default();
        krate.read_folder(folder, folder)?;
        Ok(krate)
    }

    fn read_folder(&mut self, root: &Path, folder: &Path) -> Result<(), String> {
        for path in entries(folder)? {
            if path.is_dir() {
                // A crate inside the folder of another is read for itself.
                if !is_crate(&path) {
                    self.read_folder(root, &path)?;
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let module = module_of(root, &path);
                let file = File::read(&path, &module)?;
                match self.files.entry(module) {
                    Entry::Vacant(place) => {
                        place.insert(file);
                    }
                    // The library and the program of one package are both the root.
                    Entry::Occupied(mut root) => root.get_mut().join(file),
                }
            }
        }
        Ok(())
    }

    /// The file that defines what a path names.
    fn definition(&self, path: &[String], depth: usize) -> Option<&Module> {
        // Re-exports of re-exports end somewhere, unless they go round.
        if depth > 16 {
            return None;
        }
        let (module, file, rest) = (0..=path.len()).rev().find_map(|len| {
            let (module, file) = self.files.get_key_value(&path[..len])?;
            Some((module, file, &path[len..]))
        })?;
        let Some(name) = rest.first() else {
            return Some(module);
        };
        if let Some(behind) = file.exports.get(name) {
            let mut behind = behind.clone();
            behind.extend_from_slice(&rest[1..]);
            if behind != path {
                return self.definition(&behind, depth + 1);
            }
        }
        for glob in &file.globs {
            let mut behind = glob.clone();
            behind.extend_from_slice(rest);
            let found = self.definition(&behind, depth + 1);
            if found.is_some_and(|found| found != module) {
                return found;
            }
        }
        Some(module)
    }

    /// The files whose items a file names.
    fn arrows(&self, of: &Module) -> BTreeSet<&Module> {
        let names = self.files[of].names.iter();
        names
            .filter_map(|name| self.definition(name, 0))
            .filter(|&to| to != of)
            .collect()
    }

    /// Circles of more than one file, largest first.
    fn circles(&self) -> Vec<Vec<&Module>> {
        let modules: Vec<&Module> = self.files.keys().collect();
        let number = |module: &Module| modules.binary_search(&module).unwrap_or(0);
        let mut graph = DiGraphMap::<usize, ()>::new();
        for (from, module) in modules.iter().enumerate() {
            graph.add_node(from);
            for to in self.arrows(module) {
                graph.add_edge(from, number(to), ());
            }
        }
        let mut circles: Vec<Vec<&Module>> = tarjan_scc(&graph)
            .into_iter()
            .filter(|circle| circle.len() > 1)
            .map(|circle| {
                let mut circle: Vec<&Module> =
                    circle.into_iter().map(|index| modules[index]).collect();
                circle.sort();
                circle
            })
            .collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }
}

/// `a/mod.rs` and `a.rs` are both module `a`.
fn module_of(root: &Path, path: &Path) -> Module {
    let relative = path.strip_prefix(root).unwrap_or(path).with_extension("");
    let mut module: Module = relative
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let last = module.last().map(String::as_str);
    if last == Some("mod") || (module.len() == 1 && matches!(last, Some("lib" | "main"))) {
        module.pop();
    }
    module
}

impl File {
    fn join(&mut self, other: Self) {
        self.names.extend(other.names);
        self.exports.extend(other.exports);
        self.globs.extend(other.globs);
    }

    fn read(path: &Path, module: &Module) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let parsed =
            syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut file = Self {
            path: path.to_owned(),
            names: BTreeSet::new(),
            exports: BTreeMap::new(),
            globs: Vec::new(),
        };
        let mut reader = Reader {
            file: &mut file,
            module: module.clone(),
            children: BTreeSet::new(),
        };
        reader.children = parsed
            .items
            .iter()
            .filter_map(|item| match item {
                syn::Item::Mod(inner) => Some(inner.ident.to_string()),
                _ => None,
            })
            .collect();
        reader.visit_file(&parsed);
        Ok(file)
    }
}

struct Reader<'f> {
    file: &'f mut File,
    /// Where it is: the file's module, and modules inside the file.
    module: Module,
    /// Modules declared in the file.
    children: BTreeSet<String>,
}

impl Reader<'_> {
    /// A path as it is written, from the crate's root; `None` if it leads elsewhere.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let mut at = self.module.clone();
        let mut rest = path;
        match rest.first().map(String::as_str)? {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
                at.extend_from_slice(rest);
                return Some(at);
            }
            child if self.children.contains(child) && rest.len() > 1 => {
                at.extend_from_slice(rest);
                return Some(at);
            }
            _ => return None,
        }
        at.extend_from_slice(&rest[1..]);
        Some(at)
    }

    fn take_use(&mut self, tree: &syn::UseTree, before: &mut Module, exported: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.take_use(&path.tree, before, exported);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.take_use(tree, before, exported);
                }
            }
            syn::UseTree::Name(name) => self.take_name(before, &name.ident, &name.ident, exported),
            syn::UseTree::Rename(name) => {
                self.take_name(before, &name.ident, &name.rename, exported);
            }
            syn::UseTree::Glob(_) => {
                let Some(path) = self.absolute(before) else {
                    return;
                };
                if exported {
                    self.file.globs.push(path);
                } else {
                    self.file.names.insert(path);
                }
            }
        }
    }

    fn take_name(
        &mut self,
        before: &[String],
        name: &syn::Ident,
        shown: &syn::Ident,
        exported: bool,
    ) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_string());
        }
        let Some(path) = self.absolute(&path) else {
            return;
        };
        if exported {
            self.file.exports.insert(shown.to_string(), path);
        } else {
            self.file.names.insert(path);
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if is_test(&item.attrs) {
            return;
        }
        let exported = !matches!(item.vis, syn::Visibility::Inherited);
        self.take_use(&item.tree, &mut Vec::new(), exported);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let parts: Module = path
                .segments
                .iter()
                .map(|segment| segment.ident.to_string())
                .collect();
            if let Some(path) = self.absolute(&parts) {
                self.file.names.insert(path);
            }
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // The path of `pub(in crate::engine)` imports nothing.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_of_the_workspace_is_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let members = manifest.split_once("members = [").unwrap().1;
        let members = members.split_once(']').unwrap().0;
        let found = crates(&root).unwrap();
        for member in members.split('"').skip(1).step_by(2) {
            let read = found.iter().any(|folder| folder.starts_with(member));
            assert!(read, "{member} is in no list of {found:?}");
        }
    }

    pub(super) fn read(name: &str, files: &[(&str, &str)]) -> Crate {
        let mut krate = Crate::default();
        let folder = std::env::temp_dir().join(format!("circles-{name}-{}", std::process::id()));
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        krate.read_folder(&folder, &folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        krate
    }

    fn circles(name: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let krate = read(name, files);
        let circles = krate.circles();
        let names = |circle: Vec<&Module>| circle.iter().map(|module| module.join("::")).collect();
        circles.into_iter().map(names).collect()
    }

    #[test]
    fn a_circle_is_found_through_re_exports_groups_and_paths() {
        let found = circles(
            "up",
            &[
                (
                    "lib.rs",
                    "mod a; mod b; mod c; mod d; pub use a::A; pub use d::D;",
                ),
                ("a.rs", "use crate::b::{self, inner::{B}}; pub struct A(B);"),
                ("b/mod.rs", "pub mod inner; fn f() { let _ = super::c::C; }"),
                (
                    "b/inner.rs",
                    "use super::super::c::C as Other; pub struct B(Other);",
                ),
                (
                    "c.rs",
                    "use crate::A; pub struct C; #[cfg(test)] mod tests { use crate::D; }",
                ),
                ("d.rs", "use crate::A; pub struct D;"),
            ],
        );
        assert_eq!(found, [["a", "b", "b::inner", "c"]]);
    }

    #[test]
    fn arrows_that_lead_down_are_no_circle() {
        let found = circles(
            "down",
            &[
                ("lib.rs", "pub mod a; mod b; pub use b::*;"),
                ("a.rs", "use crate::B; pub(in crate::a) struct A(B);"),
                (
                    "b.rs",
                    "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
                ),
            ],
        );
        assert!(found.is_empty(), "{found:?}");
    }
}
