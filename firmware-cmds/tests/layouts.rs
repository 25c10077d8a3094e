//! Rung 0: every field that this crate names, against tables made from the vendor's own headers (`data/mlx5_ifc.tsv` from the
//! oldest, `data/mlx5_ifc_others.tsv` where the newest differs; `cargo rig layouts` makes them again from Debian's packages and
//! fails if they differ). The newest header rules; where it has a field elsewhere than the oldest, `witnesses.rs` says so.

mod table;

use bareverbs_firmware_cmds::layout::{Descriptor, Field, Kind};
use bareverbs_firmware_cmds::registry;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use table::{Row, Table, named, newest, oldest};

/// Fields and sizes (an empty field name) that differ from the headers on purpose, or are not in them.
const REASONS: &[(&str, &str, &str)] = &[
    (
        "initial_seg",
        "",
        "the structure here ends with the health buffer; what follows are the registers of `struct mlx5_init_seg`",
    ),
    (
        "initial_seg",
        "nic_interface",
        "2 bits in mlx5_ifc.h, but its value 7 (software reset) needs 3; mlx5_core reads (register >> 8) & 7",
    ),
    (
        "health_buffer",
        "assert_var",
        "reserved in mlx5_ifc.h; `struct health_buffer` of device.h has it as assert_var[6] at 0",
    ),
    (
        "health_buffer",
        "crr",
        "reserved in mlx5_ifc.h; device.h has it since Linux 6.15 (MLX5_CRR_BIT_OFFSET, bit 6 of the byte at 0x38)",
    ),
    (
        "cqc",
        "dbr_umem_id",
        "reserved in the headers; rdma-core's tests (mlx5_prm_structs.py) have it at bit 0x20",
    ),
    (
        "create_cq_in",
        "cq_umem_offset",
        "reserved in the headers; rdma-core's tests (mlx5_prm_structs.py) have it at bit 0x280",
    ),
    (
        "create_cq_in",
        "cq_umem_id",
        "reserved in the headers; rdma-core's tests (mlx5_prm_structs.py) have it at bit 0x2c0",
    ),
    (
        "modify_cq_in",
        "cq_umem_offset",
        "reserved in the headers; where CREATE_CQ has it",
    ),
    (
        "modify_cq_in",
        "cq_umem_id",
        "reserved in the headers; where CREATE_CQ has it",
    ),
    (
        "qpc",
        "dbr_umem_id",
        "reserved in the headers; rdma-core's mlx5_ifc.h has it at bit 0x720",
    ),
    (
        "create_mkey_in",
        "mkey_umem_id",
        "reserved in the headers; rdma-core's tests (mlx5_prm_structs.py) have it at bit 0x320",
    ),
    (
        "create_mkey_in",
        "mkey_umem_offset",
        "reserved in the headers; rdma-core's tests (mlx5_prm_structs.py) have it at bit 0x340",
    ),
    (
        "query_vuid_in",
        "op_mod",
        "reserved in the header, and zero; it is where every command has it",
    ),
    (
        "qpc_ext",
        "",
        "not in the headers of Linux 6.1; rdma-core's mlx5_ifc.h has it, 0xc0 bytes",
    ),
    (
        "rts2rts_qp_in",
        "qpc_ext",
        "reserved in the headers; rdma-core's mlx5_ifc.h has it at bit 0x40",
    ),
    (
        "rts2rts_qp_in",
        "opt_param_mask_95_32",
        "reserved in the headers; rdma-core's mlx5_ifc.h has it at bit 0x840",
    ),
    (
        "rts2rts_qp_in",
        "qpc_data_ext",
        "behind the end in the headers; rdma-core's mlx5_ifc.h has it at bit 0x880",
    ),
];

fn is_reserved(name: &str) -> bool {
    name.starts_with("reserved")
}

/// The fault of a field, if it has one.
fn fault(rows: &[Row], field: &Field) -> Option<String> {
    let candidates: Vec<&Row> = rows.iter().filter(|row| named(row, field.name)).collect();
    if candidates.is_empty() {
        return Some("no such field".into());
    }
    let good = candidates.iter().any(|row| {
        row.offset == field.offset
            && match field.kind {
                // The decoder walks a tail in its own elements; they must tile the header's.
                Kind::Tail => row.width.is_multiple_of(field.width),
                Kind::Struct(inner) => {
                    row.width == field.width
                        && (row.nested == inner.name || row.nested.is_empty())
                        && inner.size as u32 * 8 == field.width
                }
                Kind::Bits | Kind::Bytes => row.width == field.width,
            }
    });
    let places = || {
        let places = candidates
            .iter()
            .map(|row| format!("{}+{}", row.offset, row.width));
        places.collect::<Vec<_>>().join(" or ")
    };
    (!good).then(|| {
        format!(
            "{}+{} here, {} in the header",
            field.offset,
            field.width,
            places()
        )
    })
}

/// All faults of a structure, as (field, what); an empty field is the structure itself.
fn faults(table: &Table, structure: &Descriptor) -> Vec<(&'static str, String)> {
    let Some(rows) = table.get(structure.name) else {
        return vec![("", "no such structure".into())];
    };
    let mut faults = Vec::new();
    let has_tail = structure
        .fields
        .iter()
        .any(|field| matches!(field.kind, Kind::Tail));
    let size = rows
        .iter()
        .find(|row| row.field.is_empty())
        .map_or(0, |row| row.width);
    // With a tail, the fixed part ends where the tail starts, and its offset is compared.
    if !has_tail && size != structure.size as u32 * 8 {
        faults.push((
            "",
            format!("{} bits here, {size} in the header", structure.size * 8),
        ));
    }
    for field in structure
        .fields
        .iter()
        .filter(|field| !is_reserved(field.name))
    {
        if let Some(what) = fault(rows, field) {
            faults.push((field.name, what));
        }
    }
    faults
}

/// Past the test harness, which keeps the output of passing tests to itself.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn every_field_is_where_the_header_has_it() {
    let table = newest();
    let mut unused: BTreeSet<_> = REASONS
        .iter()
        .map(|&(structure, field, _)| (structure, field))
        .collect();
    let mut wrong = Vec::new();
    let (mut structures, mut fields) = (0, 0);
    for structure in registry::all() {
        structures += 1;
        fields += structure
            .fields
            .iter()
            .filter(|field| !is_reserved(field.name))
            .count();
        for (field, what) in faults(&table, structure) {
            if !unused.remove(&(structure.name, field)) {
                wrong.push(format!("{}.{field}: {what}", structure.name));
            }
        }
    }
    say(&format!(
        "{fields} fields of {structures} structures compared; without counterpart:"
    ));
    for (structure, field, reason) in REASONS {
        let field = if field.is_empty() { "(size)" } else { field };
        say(&format!("  {structure}.{field}: {reason}"));
    }
    assert!(
        wrong.is_empty(),
        "{} differ from the headers:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(
        unused.is_empty(),
        "reasons for fields that do not differ: {unused:?}"
    );
    assert!(
        fields > 1200 && structures > 150,
        "the registry has lost most of its structures"
    );
}

#[test]
fn every_field_of_the_header_is_named() {
    let table = oldest();
    let mut missing = Vec::new();
    for structure in registry::all().filter(|structure| !structure.name.starts_with("struct ")) {
        // Fields behind the fixed part of a shortened structure, and unions of which one member is named.
        let covered = |row: &Row| {
            let end = row.offset + row.width;
            row.offset as usize >= structure.size * 8
                || structure.fields.iter().any(|field| {
                    let inside = field.offset <= row.offset && end <= field.offset + field.width;
                    let around = row.offset <= field.offset && field.offset + field.width <= end;
                    named(row, field.name) || inside || around
                })
        };
        let rows = table.get(structure.name).map_or(&[][..], |rows| rows);
        for row in rows
            .iter()
            .filter(|row| !row.field.is_empty() && !covered(row))
        {
            missing.push(format!("{}.{}", structure.name, row.field));
        }
    }
    assert!(missing.is_empty(), "not named: {}", missing.join(", "));
}

#[test]
fn empty_answers_are_empty() {
    let table = oldest();
    let mut compared = 0;
    for command in registry::COMMANDS
        .iter()
        .filter(|command| command.output_is_empty())
    {
        let name = format!("{}out", command.input.name.trim_end_matches("in"));
        let rows = table
            .get(name.as_str())
            .unwrap_or_else(|| panic!("{name} is not in the table"));
        let fields: Vec<_> = rows
            .iter()
            .map(|row| (row.field, row.offset, row.width))
            .collect();
        let size = fields[0].2;
        // Behind the syndrome there is nothing but reserved bits, of which there are 32 in one answer (ENABLE_HCA).
        assert!([0x40, 0x60, 0x80].contains(&size), "{name} has {size} bits");
        assert_eq!(
            fields[1..],
            [("status", 0, 8), ("syndrome", 32, 32)],
            "{name}"
        );
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn one_bit_off_is_caught() {
    let table = newest();
    let mut shifted = 0;
    for structure in registry::all() {
        let Some(rows) = table.get(structure.name) else {
            continue;
        };
        for field in structure
            .fields
            .iter()
            .filter(|field| !is_reserved(field.name))
        {
            if REASONS
                .iter()
                .any(|&(s, f, _)| (s, f) == (structure.name, field.name))
            {
                continue;
            }
            let off_by_one = [field.offset.wrapping_sub(1), field.offset + 1];
            for offset in off_by_one {
                let moved = Field { offset, ..*field };
                assert!(
                    fault(rows, &moved).is_some(),
                    "{}.{} at bit {offset} passes",
                    structure.name,
                    field.name
                );
                shifted += 1;
            }
            let wider = Field {
                width: field.width + 1,
                ..*field
            };
            assert!(
                fault(rows, &wider).is_some(),
                "{}.{} one bit wider passes",
                structure.name,
                field.name
            );
        }
    }
    assert!(shifted > 2400);
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .collect()
}

#[test]
fn every_structure_of_the_sources_is_registered() {
    let registered: BTreeSet<&str> = registry::all().map(|structure| structure.name).collect();
    let mut words: BTreeSet<&str> = registry::WORDS.iter().map(|word| word.name).collect();
    assert_eq!(words.len(), registry::WORDS.len());
    let mut found = 0;
    for path in sources(concat!(env!("CARGO_MANIFEST_DIR"), "/src").as_ref()) {
        let text = std::fs::read_to_string(path).unwrap();
        // Definitions start at the margin; the macros themselves and their documentation do not.
        for (start, definitions) in [
            ("\nlayout! {\n", &["    pub struct "][..]),
            ("\ncommands! {\n", &["    input ", "    output "]),
        ] {
            for block in text.split(start).skip(1) {
                let block = block.split("\n}\n").next().unwrap();
                for line in block.lines().filter(|line| {
                    definitions
                        .iter()
                        .any(|definition| line.starts_with(definition))
                }) {
                    let name = line.split('"').nth(1).unwrap();
                    assert!(registered.contains(name), "{name} is not in registry.rs");
                    found += 1;
                }
            }
        }
        for block in text.split("\nwords! {\n").skip(1) {
            let block = block.split("\n}\n").next().unwrap();
            for line in block
                .lines()
                .filter_map(|line| line.trim_start().strip_prefix("pub struct "))
            {
                let name = line.split('(').next().unwrap();
                assert!(words.remove(name), "{name} is not in registry.rs");
            }
        }
    }
    assert!(words.is_empty(), "{words:?}");
    // The registers of the init segment are the one structure made otherwise.
    assert_eq!(found + 1, registered.len());
}
