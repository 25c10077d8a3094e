//! Makes the table of other headers: the newest that Debian's kernels have, and rdma-core's own copy.

use super::headers::{self, Row};
use crate::apt::{self, Apt};
use crate::peers::source;
use bareverbs_firmware_cmds::layout::Descriptor;
use bareverbs_firmware_cmds::registry;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The release with the newest kernel.
const SUITE: &str = "trixie-backports";
/// The release whose rdma-core is read.
const STABLE: &str = "trixie";

/// Makes the table. Its rows are the fields that the crate names and that other headers have at other places than the oldest
/// one, or that the oldest lacks.
pub(super) fn table(directory: &Path, apt: &Apt, oldest: &[Row]) -> Result<String, String> {
    let (version, newest) = newest(directory, apt)?;
    let core = source::fetch(directory, "rdma-core", STABLE)?;
    let copy = headers::read_bits(&core.folder.join("providers/mlx5/mlx5_ifc.h"))?;
    let newest = headers::read_bits(&newest)?;
    println!("headers: {version}, rdma-core {}", core.version);
    unnamed(&newest);
    let mut out = format!(
        "# Where the newest header has what this crate names, if elsewhere than mlx5_ifc.tsv or not there: mlx5_ifc.h of\n\
         # {version} (linux), and of rdma-core {} (rdma-core).\n\
         # Made by `cargo rig layouts --write`. Columns: whose, structure, field, bit offset, width in bits, nested structure;\n\
         # `gone` for what the newest header no longer names.\n",
        core.version
    );
    for row in rows("linux", oldest, &newest, true).into_iter().chain(rows(
        "rdma-core",
        oldest,
        &copy,
        false,
    )) {
        out.push_str(&row);
        out.push('\n');
    }
    Ok(out)
}

/// Version and file of the newest kernel's header.
fn newest(directory: &Path, apt: &Apt) -> Result<(String, PathBuf), String> {
    let (release, _) = apt.kernel(SUITE)?;
    let release = release.strip_suffix("-amd64").unwrap_or(&release);
    let name = format!("linux-headers-{release}-common");
    let unpacked = directory.join(&name);
    let header = unpacked
        .join("usr/src")
        .join(&name)
        .join("include/linux/mlx5/mlx5_ifc.h");
    if !header.is_file() {
        for deb in apt.fetch(&directory.join("newest"), &[&name])? {
            apt::unpack(&deb, &unpacked)?;
        }
    }
    Ok((name, header))
}

fn structures() -> impl Iterator<Item = &'static Descriptor> {
    registry::all().filter(|structure| !structure.name.starts_with("struct "))
}

/// The structure itself, and what the crate names in it.
fn names(structure: &'static Descriptor) -> impl Iterator<Item = &'static str> {
    let fields = structure.fields.iter().map(|field| field.name);
    std::iter::once("").chain(fields.filter(|name| !name.starts_with("reserved")))
}

/// Members of nested unions stand with their path; the crate flattens them.
fn named(row: &Row, structure: &str, name: &str) -> bool {
    let last = row.field.rsplit('.').next();
    row.structure == structure && (row.field == name || !name.is_empty() && last == Some(name))
}

fn rows(whose: &str, oldest: &[Row], other: &[Row], gone: bool) -> Vec<String> {
    let mut out = Vec::new();
    for structure in structures() {
        let of = |rows: &[Row]| -> Vec<Row> {
            let rows = rows.iter();
            rows.filter(|row| row.structure == structure.name)
                .cloned()
                .collect()
        };
        let (old, new) = (of(oldest), of(other));
        if new.is_empty() {
            continue;
        }
        for name in names(structure) {
            let places = |rows: &[Row]| -> BTreeSet<(u64, u64)> {
                let rows = rows.iter().filter(|row| named(row, structure.name, name));
                rows.map(|row| (row.offset, row.width)).collect()
            };
            let (before, after) = (places(&old), places(&new));
            if before == after {
                continue;
            }
            if after.is_empty() && gone {
                out.push(format!("{whose}\t{}\t{name}\tgone", structure.name));
            }
            for row in new.iter().filter(|row| named(row, structure.name, name)) {
                let line = format!(
                    "{whose}\t{}\t{name}\t{}\t{}\t{}",
                    structure.name, row.offset, row.width, row.nested
                );
                out.push(line.trim_end().to_owned());
            }
        }
    }
    out
}

/// Says which fields of the newest header the crate does not name. They are reserved in the headers that it was written from.
fn unnamed(newest: &[Row]) {
    for structure in structures() {
        let end = structure.size as u64 * 8;
        let covered = |row: &Row| {
            row.field.is_empty()
                || row.offset >= end
                || structure.fields.iter().any(|field| {
                    let (start, width) = (u64::from(field.offset), u64::from(field.width));
                    start < row.offset + row.width && row.offset < start + width
                })
        };
        let fields: Vec<&str> = newest
            .iter()
            .filter(|row| row.structure == structure.name && !covered(row))
            .map(|row| row.field.as_str())
            .collect();
        if !fields.is_empty() {
            println!("not named: {}: {}", structure.name, fields.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_moved_and_one_that_went_are_told_from_those_that_stayed() {
        let oldest = headers::parse_bits(
            "struct mlx5_ifc_qpts_reg_bits { u8 reserved_at_0[0x8]; u8 local_port[0x8]; u8 reserved_at_10[0x2d]; u8 trust_state[0x3]; };",
        );
        assert_eq!(rows("linux", &oldest, &oldest, true), [""; 0]);
        let moved = headers::parse_bits(
            "struct mlx5_ifc_qpts_reg_bits { u8 reserved_at_0[0x8]; u8 port[0x8]; u8 reserved_at_10[0x2c]; u8 trust_state[0x4]; };",
        );
        let expected = [
            "linux\tqpts_reg\tlocal_port\tgone",
            "linux\tqpts_reg\ttrust_state\t60\t4",
        ];
        assert_eq!(rows("linux", &oldest, &moved, true), expected);
        assert_eq!(rows("linux", &oldest, &moved, false), expected[1..]);
    }
}
