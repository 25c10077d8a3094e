//! The licences of what is in a Debian package: ours, and those of other crates that are linked in.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::command::run;

/// These packages are built into a bundle.
pub(crate) const PACKAGES: [&str; 5] = [
    "bareverbs-c",
    "bareverbs-paths",
    "bareverbs-sockets",
    "bareverbs-uverbs",
    env!("CARGO_PKG_NAME"),
];

/// The package's `copyright`, in Debian's machine-readable format.
pub(crate) fn copyright(root: &Path) -> Result<String, String> {
    let mit = read(&root.join("LICENSE-MIT"))?;
    let holder = mit
        .lines()
        .find_map(|line| line.strip_prefix("Copyright (c) "))
        .ok_or("LICENSE-MIT names no holder")?;
    // The rest is the text that Debian calls Expat.
    let (_, expat) = mit
        .split_once(holder)
        .ok_or("LICENSE-MIT names no holder")?;
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: bareverbs\n\
         Comment:\n \
         The files have other crates linked in, each under its own licence. These are\n \
         in third-party-licences, beside this file.\n\
         \n\
         Files: *\n\
         Copyright: {holder}\n\
         License: Expat or Apache-2.0\n\
         \n\
         License: Expat\n{}\
         \n\
         License: Apache-2.0\n{}",
        paragraph(expat),
        paragraph(&read(&root.join("LICENSE-APACHE"))?)
    ))
}

/// A text as the value of a field: each line is indented, and empty ones have a dot.
fn paragraph(text: &str) -> String {
    let mut lines = String::new();
    for line in text.trim_matches('\n').lines() {
        let line = if line.trim().is_empty() { "." } else { line };
        lines += &format!(" {line}\n");
    }
    lines
}

/// Names, licences and the texts of licences of all crates of others that are linked into a bundle.
pub(crate) fn third_parties(root: &Path) -> Result<String, String> {
    let cargo = || {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(root);
        command
    };
    let mut tree = cargo();
    tree.args(["tree", "--locked", "--prefix", "none", "--format", "{p}"])
        // Procedural macros run in the compiler, and are not linked in.
        .args(["--edges", "normal,no-proc-macro"]);
    for package in PACKAGES {
        tree.args(["--package", package]);
    }
    let linked: BTreeSet<String> = run(&mut tree)?
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some(format!("{} {}", words.next()?, words.next()?))
        })
        .collect();
    let metadata = run(cargo().args(["metadata", "--locked", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    let mut text =
        "The libraries and the program have these crates linked in, and Rust's standard library,\n\
                    which is under either of MIT and Apache-2.0.\n"
            .to_owned();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let word = |name: &str| package[name].as_str().unwrap_or_default();
        let crate_ = format!("{} v{}", word("name"), word("version"));
        // Our own have no source.
        if package["source"].is_null() || !linked.contains(&crate_) {
            continue;
        }
        // A String takes everything.
        let _ = write!(text, "\n{:=<80}\n{crate_}: {}\n", "", word("license"));
        let folder = Path::new(word("manifest_path")).parent();
        for (name, licence) in licences(folder.ok_or("a manifest without a folder")?)? {
            let _ = write!(text, "\n--- {name}\n\n{}\n", licence.trim_matches('\n'));
        }
    }
    Ok(text)
}

/// The files of a crate that are texts of licences or notices.
fn licences(folder: &Path) -> Result<Vec<(String, String)>, String> {
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let upper = name.to_uppercase();
        let names = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
        if entry.path().is_file() && names.iter().any(|start| upper.starts_with(start)) {
            found.push((name, read(&entry.path())?));
        }
    }
    found.sort();
    Ok(found)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}
