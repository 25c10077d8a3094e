//! The table made from the vendor's headers.

use std::collections::HashMap;

const TABLE: &str = include_str!("../../data/mlx5_ifc.tsv");

/// A field of a structure, or the structure itself if `field` is empty.
pub(crate) struct Row {
    pub(crate) field: &'static str,
    pub(crate) offset: u32,
    pub(crate) width: u32,
    pub(crate) nested: &'static str,
}

/// The rows of each structure.
pub(crate) fn table() -> HashMap<&'static str, Vec<Row>> {
    let mut table: HashMap<_, Vec<Row>> = HashMap::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut column = || columns.next().unwrap_or_default();
        let (structure, field) = (column(), column());
        let (offset, width) = (column().parse().unwrap(), column().parse().unwrap());
        let nested = column();
        table.entry(structure).or_default().push(Row {
            field,
            offset,
            width,
            nested,
        });
    }
    table
}
