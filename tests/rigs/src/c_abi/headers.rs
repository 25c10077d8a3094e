//! Structures and numbers of the library against the headers, as the C compiler reads them.

use super::packages::Packages;
use crate::outcome::Outcome;
use crate::process::quiet_output;
use bareverbs_c::abi::Layout;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The library's constants of the headers' enumerations.
const NUMBERS: &str = "c-abi/src/abi/numbers.rs";

/// Structures that are a `union` in C.
const UNIONS: &[&str] = &["ibv_gid"];

/// Fields whose names in C are words of Rust: structure, name here, name there.
const RENAMED: &[(&str, &str, &str)] = &[
    ("verbs_context", "_priv", "priv"),
    ("ibv_mw", "mw_type", "type"),
    ("ibv_flow_attr", "flow_type", "type"),
    ("ibv_flow_spec_eth", "spec_type", "type"),
    ("ibv_flow_spec_ipv4", "spec_type", "type"),
    ("ibv_flow_spec_ipv4_ext", "spec_type", "type"),
    ("ibv_flow_spec_ipv6", "spec_type", "type"),
    ("ibv_flow_spec_tcp_udp", "spec_type", "type"),
    ("ibv_flow_spec_action_tag", "spec_type", "type"),
    ("ibv_flow_spec_action_drop", "spec_type", "type"),
    ("ibv_flow_spec_counter_action", "spec_type", "type"),
];

/// Constants that no installed header has: of the file system's strings, of several flags together, or of rdma-core's
/// own `driver.h`.
const NOT_IN_HEADERS: &[&str] = &[
    "PHYS_STATE_POLLING",
    "PHYS_STATE_DISABLED",
    "PHYS_STATE_LINK_UP",
    "IBV_GID_TYPE_SYSFS_IB_ROCE_V1",
    "IBV_GID_TYPE_SYSFS_ROCE_V2",
    "IBV_QP_EX_WITH_ALL_KNOWN",
    "IBV_WC_EX_SUPPORTED",
];

/// Only the headers of the newest release have these, by the beginnings of names.
const NEWER: &[&str] = &[
    "ibv_mr_init_attr",
    "IBV_REG_MR_MASK_",
    "RAI_DNS",
    "RAI_SA",
    "RDMA_CM_EVENT_",
];

/// Structures that newer releases have made longer at their ends: programs say how long theirs is, or do not look there
/// unless they were given what is there.
const LONGER: &[&str] = &["ibv_port_attr", "ibv_qp_ex"];

/// Structures that the newest release has made longer at their beginnings: their `sz` says how long they are.
const BEGUN_EARLIER: &[&str] = &["verbs_context"];

/// Compares the library with what the headers of each release say.
pub(super) fn compare(
    root: &Path,
    directory: &Path,
    packages: &Packages,
) -> Result<Outcome, String> {
    let path = root.join(NUMBERS);
    let numbers =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let numbers = constants(&numbers)?;
    let mut outcome = Outcome::default();
    for (index, release) in packages.libraries.iter().enumerate() {
        let is_newest = index + 1 == packages.libraries.len();
        let is_there = |name: &str| match is_newest {
            true => !BEGUN_EARLIER.contains(&name),
            false => !NEWER.iter().any(|newer| name.starts_with(newer)),
        };
        let layouts = bareverbs_c::abi::layouts().filter(|layout| is_there(layout.name));
        let numbers = numbers.iter().filter(|(name, _)| is_there(name));
        let layouts: Vec<&Layout> = layouts.collect();
        let numbers: Vec<(String, String)> = numbers.cloned().collect();
        let include = &release.include;
        let printed = print(directory, include, &layouts, &numbers)?;
        let there: BTreeMap<&str, &str> = printed
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .collect();
        let has_size = |name: &str| index == 0 || !LONGER.contains(&name);
        let here = ours(&layouts).filter(|(name, _)| has_size(name));
        let here = here.chain(numbers.iter().map(|(name, _)| (name.clone(), "1".into())));
        for (name, value) in here {
            let found = there.get(name.as_str());
            outcome.check(found == Some(&value.as_str()), || {
                let headers = include.display();
                format!("{name}: {value} here, {found:?} by {headers}")
            });
        }
        outcome.check(!layouts.is_empty() && !numbers.is_empty(), || {
            "nothing to compare".to_owned()
        });
    }
    Ok(outcome)
}

/// Compiles and runs a program that prints what headers say.
fn print(
    directory: &Path,
    include: &Path,
    layouts: &[&Layout],
    numbers: &[(String, String)],
) -> Result<String, String> {
    let source = directory.join("layouts.c");
    let program = directory.join("layouts");
    fs::write(&source, c_source(layouts, numbers))
        .map_err(|error| format!("{}: {error}", source.display()))?;
    quiet_output(
        Command::new("cc")
            .args(["-w", "-o"])
            .arg(&program)
            .arg("-I")
            .arg(include)
            .arg(&source),
    )?;
    quiet_output(&mut Command::new(&program))
}

/// The lines about the structures that the program should print: sizes, and offset and size of fields.
fn ours(layouts: &[&Layout]) -> impl Iterator<Item = (String, String)> {
    layouts.iter().flat_map(|layout| {
        let fields = layout.fields.iter().map(|field| {
            (
                format!("{}.{}", layout.name, field.name),
                format!("{} {}", field.offset, field.size),
            )
        });
        fields.chain([(layout.name.to_owned(), layout.size.to_string())])
    })
}

fn c_source(layouts: &[&Layout], numbers: &[(String, String)]) -> String {
    let mut text = "#include <stddef.h>\n#include <stdio.h>\n\
         #include <infiniband/verbs.h>\n#include <infiniband/ib.h>\n#include <rdma/rdma_cma.h>\n\
         int main(void)\n{\n"
        .to_owned();
    // A String takes everything.
    for layout in layouts {
        let name = layout.name;
        let kind = if UNIONS.contains(&name) {
            "union"
        } else {
            "struct"
        };
        let _ = writeln!(text, "printf(\"{name}\\t%zu\\n\", sizeof({kind} {name}));");
        for field in layout.fields {
            let field = field.name;
            let renamed = RENAMED
                .iter()
                .find(|(of, here, _)| *of == name && *here == field);
            let there = renamed.map_or(field, |(_, _, there)| there);
            let _ = writeln!(
                text,
                "printf(\"{name}.{field}\\t%zu %zu\\n\", offsetof({kind} {name}, {there}), \
                 sizeof((({kind} {name} *)0)->{there}));"
            );
        }
    }
    for (name, value) in numbers {
        let _ = writeln!(
            text,
            "printf(\"{name}\\t%d\\n\", (long long)({name}) == (long long)({value}));"
        );
    }
    text + "return 0;\n}\n"
}

/// Names and values of the constants of a Rust file, whose expressions are those of C.
fn constants(source: &str) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for line in source.lines() {
        let Some((name, rest)) = line
            .strip_prefix("pub const ")
            .and_then(|rest| rest.split_once(": "))
        else {
            continue;
        };
        let value = rest
            .split_once(" = ")
            .and_then(|(_, value)| value.strip_suffix(';'));
        let value = value.ok_or_else(|| format!("not a constant on one line: {line:?}"))?;
        if !NOT_IN_HEADERS.contains(&name) {
            found.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_names_and_values() {
        let text = "//! x\npub const A: c_int = 1 << 3;\npub const PHYS_STATE_POLLING: u8 = 2;\nconst B: u8 = 1;\n";
        assert_eq!(
            constants(text),
            Ok(vec![("A".to_owned(), "1 << 3".to_owned())])
        );
        assert!(constants("pub const A: u8 =\n").is_err());
    }
}
