//! Reads the tables made from the vendor's headers, from rdma-core's, and from mstflint's database.

#![allow(dead_code, reason = "each test looks at some of the tables")]

use std::collections::HashMap;

const OLDEST: &str = include_str!("../../data/mlx5_ifc.tsv");
const OTHERS: &str = include_str!("../../data/mlx5_ifc_others.tsv");
const REGISTERS: &str = include_str!("../../data/mstflint_registers.tsv");

/// A field of a structure, or the structure itself if `field` is empty.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) field: &'static str,
    pub(crate) offset: u32,
    pub(crate) width: u32,
    pub(crate) nested: &'static str,
}

/// The rows of each structure.
pub(crate) type Table = HashMap<&'static str, Vec<Row>>;

fn lines(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect())
}

fn row(columns: &[&'static str]) -> Row {
    Row {
        field: columns[0],
        offset: columns[1].parse().unwrap(),
        width: columns[2].parse().unwrap(),
        nested: columns.get(3).copied().unwrap_or_default(),
    }
}

fn read(table: &'static str) -> Table {
    let mut rows: Table = HashMap::new();
    for columns in lines(table) {
        rows.entry(columns[0]).or_default().push(row(&columns[1..]));
    }
    rows
}

/// Members of nested unions stand with their path; the crate flattens them.
pub(crate) fn named(row: &Row, name: &str) -> bool {
    row.field == name || !name.is_empty() && row.field.rsplit('.').next() == Some(name)
}

/// The layouts of the oldest header.
pub(crate) fn oldest() -> Table {
    read(OLDEST)
}

/// The registers of mstflint, and those of their fields that have the same names.
pub(crate) fn registers() -> Table {
    read(REGISTERS)
}

/// The fields that another header has at another place than the oldest, or that only it has: structure, field, and the places
/// there, none if it is gone.
pub(crate) fn others(whose: &str) -> Vec<(&'static str, &'static str, Vec<Row>)> {
    let mut others: Vec<(&str, &str, Vec<Row>)> = Vec::new();
    for columns in lines(OTHERS).filter(|columns| columns[0] == whose) {
        let (structure, field) = (columns[1], columns[2]);
        if others
            .last()
            .is_none_or(|last| (last.0, last.1) != (structure, field))
        {
            others.push((structure, field, Vec::new()));
        }
        if columns[3] != "gone" {
            others.last_mut().unwrap().2.push(row(&columns[2..]));
        }
    }
    others
}

/// The oldest header, changed by what another has.
pub(crate) fn changed_by(whose: &str) -> Table {
    let mut table = oldest();
    for (structure, field, rows) in others(whose) {
        let all = table.entry(structure).or_default();
        if !rows.is_empty() {
            all.retain(|row| !named(row, field));
            all.extend(rows);
        }
    }
    table
}

/// The layouts of the newest header. Fields that it no longer names stay as in the oldest.
pub(crate) fn newest() -> Table {
    changed_by("linux")
}
