//! The differences between the witnesses of rung 0: the newest of Linux's headers and the oldest, rdma-core's copy and both, and
//! mstflint's database of registers and the headers. Each difference in what this crate names is listed with the choice taken.

mod table;

use bareverbs_firmware_cmds::layout::{Descriptor, Field};
use bareverbs_firmware_cmds::registry;
use bareverbs_firmware_cmds::values::RegisterId;
use std::collections::BTreeSet;
use std::io::Write;
use table::{Row, named, oldest, others, registers};

/// The header whose place a field has here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// The oldest header's, which is that of every header before the change.
    Oldest,
    /// The newest header's.
    Newest,
}

/// The fields at other places in the newest header than in the oldest: structure, field (empty for the size), the one that
/// rules, the reason.
const MOVED: &[(&str, &str, Rules, &str)] = &[
    (
        "cmd_hca_cap",
        "shampo",
        Rules::Newest,
        "moved in 6.12, until when Linux read a bit that cards do not set",
    ),
    (
        "cmd_hca_cap",
        "relaxed_ordering_read",
        Rules::Newest,
        "moved in 6.12; what it was is relaxed_ordering_read_pci_enabled now, and the driver takes either",
    ),
    (
        "mkc",
        "log_page_size",
        Rules::Newest,
        "a sixth bit, reserved and so 0 before",
    ),
    (
        "ppcnt_reg",
        "prio_tc",
        Rules::Newest,
        "two bits more, reserved and so 0 before; mstflint has them",
    ),
    (
        "pplm_reg",
        "",
        Rules::Newest,
        "0x78 bytes for 0x50; Linux sends the newer size to all cards, and mstflint has it",
    ),
    (
        "ets_tcn_config_reg",
        "max_bw_value",
        Rules::Newest,
        "16 bits for 8, reserved and so 0 before; mstflint still has 8",
    ),
    (
        "nic_vport_context",
        "allowed_list_size",
        Rules::Newest,
        "16 bits for 12, reserved and so 0 before",
    ),
    (
        "flow_table_context",
        "sw_owner_icm_root_1",
        Rules::Oldest,
        "only in a part for tables of software steering, with the same place",
    ),
    (
        "flow_table_context",
        "sw_owner_icm_root_0",
        Rules::Oldest,
        "only in a part for tables of software steering, with the same place",
    ),
    (
        "query_qp_out",
        "",
        Rules::Oldest,
        "the newer one has room for an extension that this crate does not ask for",
    ),
    (
        "query_qp_out",
        "pas",
        Rules::Oldest,
        "in a union with that extension, at the same place",
    ),
];

/// The fields at other places in rdma-core's copy than in Linux's headers. The latter rule: Linux's driver reads them.
const RDMA_CORE: &[(&str, &str, &str)] = &[
    (
        "cmd_hca_cap",
        "fast_teardown",
        "bit 0x111 for 0xfb; rdma-core's VFIO driver tests it, and reads a reserved bit",
    ),
    (
        "eqc",
        "intr",
        "8 bits for 12: the same for fewer than 256 vectors",
    ),
    ("dctc", "", "its end is missing"),
    ("qpc", "dbr_umem_id", "Linux has none"),
    ("qpc_ext", "", "Linux has none of it"),
    ("qpc_ext", "mmo", "Linux has none of it"),
    ("qpc_ext", "dci_stream_channel_id", "Linux has none of it"),
    (
        "qpc_ext",
        "qos_queue_group_id_requester",
        "Linux has none of it",
    ),
    (
        "qpc_ext",
        "qos_queue_group_id_responder",
        "Linux has none of it",
    ),
    (
        "flow_context",
        "destination",
        "another name for the entries, which are the same",
    ),
    (
        "init_hca_in",
        "",
        "ends before sw_owner_id, which needs a capability",
    ),
    ("rts2rts_qp_in", "", "with the extension at the end"),
    ("rts2rts_qp_in", "qpc_ext", "Linux has none of it"),
    (
        "rts2rts_qp_in",
        "opt_param_mask_95_32",
        "Linux has none of it",
    ),
    ("rts2rts_qp_in", "qpc_data_ext", "Linux has none of it"),
    ("init2init_qp_in", "", "with the extension at the end"),
];

/// The registers in which mstflint differs from the headers. The headers rule: Linux's driver runs on cards with their sizes
/// and fields.
const MSTFLINT: &[(&str, &str, &str)] = &[
    (
        "ptys_reg",
        "",
        "0x44 bytes for 0x40: Linux sends 0x40 to every card",
    ),
    (
        "ptys_reg",
        "eth_proto_lp_advertise",
        "reserved there; Linux reports it as the peer's speeds",
    ),
    (
        "mcia_reg",
        "",
        "0x94 bytes for 0x90, which Linux sends to every card: the second half of a password follows the data",
    ),
    (
        "mfrl_reg",
        "pci_sync_for_fw_update_start",
        "two bits there, of which the upper one is for tools",
    ),
    ("pplm_reg", "port_profile_mode", "reserved there"),
    ("pplm_reg", "static_port_profile", "reserved there"),
    ("pplm_reg", "active_port_profile", "reserved there"),
    ("pplm_reg", "retransmission_active", "reserved there"),
    (
        "ets_tcn_config_reg",
        "max_bw_value",
        "8 bits there, 16 in the newest header",
    ),
    (
        "qtct_reg",
        "prio",
        "four bits there; adapters have eight priorities",
    ),
    (
        "qtct_reg",
        "tclass",
        "four bits there; adapters have eight traffic classes",
    ),
    (
        "ib_port_cntrs_grp_data_layout",
        "",
        "the whole space for counters there, here without its reserved end",
    ),
    (
        "ib_port_cntrs_grp_data_layout",
        "link_overrun_errors",
        "two counters of four bits there, local integrity and buffer overruns, as InfiniBand has them",
    ),
    (
        "pcie_perf_cntrs_grp_data_layout",
        "life_time_counter_high",
        "reserved there",
    ),
    (
        "pcie_perf_cntrs_grp_data_layout",
        "life_time_counter_low",
        "reserved there",
    ),
    (
        "pcie_perf_cntrs_grp_data_layout",
        "l0_to_recovery_eieos",
        "reserved there",
    ),
    (
        "pcie_perf_cntrs_grp_data_layout",
        "l0_to_recovery_ts",
        "reserved there",
    ),
    (
        "pcie_perf_cntrs_grp_data_layout",
        "l0_to_recovery_framing",
        "reserved there",
    ),
    (
        "pcie_perf_cntrs_grp_data_layout",
        "l0_to_recovery_retrain",
        "reserved there",
    ),
];

/// Prints a line past the test harness, which hides the output of passing tests.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn structure(name: &str) -> &'static Descriptor {
    let mut all = registry::all();
    all.find(|structure| structure.name == name)
        .unwrap_or_else(|| panic!("the crate has no {name}"))
}

/// Place and width of a field here, or the structure's if the name is empty.
fn here(structure: &Descriptor, name: &str) -> (u32, u32) {
    if name.is_empty() {
        return (0, structure.size as u32 * 8);
    }
    let mut fields = structure.fields.iter();
    let field = fields.find(|field| field.name == name);
    field.map_or((0, 0), |field| (field.offset, field.width))
}

fn places<'r>(rows: impl IntoIterator<Item = &'r Row>, name: &str) -> BTreeSet<(u32, u32)> {
    let rows = rows.into_iter().filter(|row| named(row, name));
    rows.map(|row| (row.offset, row.width)).collect()
}

#[test]
fn where_the_newest_header_differs_from_the_oldest_one_rules() {
    let table = oldest();
    let mut listed: BTreeSet<_> = MOVED.iter().map(|&(s, f, ..)| (s, f)).collect();
    let mut added = 0;
    for (name, field, rows) in others("linux") {
        let before = places(table.get(name).into_iter().flatten(), field);
        if before.is_empty() {
            added += 1;
            continue;
        }
        let moved = MOVED
            .iter()
            .find(|moved| (moved.0, moved.1) == (name, field));
        let &(.., rules, why) =
            moved.unwrap_or_else(|| panic!("{name}.{field} moved, and no choice is taken"));
        listed.remove(&(name, field));
        let after = places(&rows, field);
        say(&format!(
            "  {name}.{field}: {before:?} was, {after:?} is, {rules:?} rules: {why}"
        ));
        let of = match rules {
            Rules::Oldest => before,
            Rules::Newest => after,
        };
        let place = here(structure(name), field);
        assert!(of.contains(&place), "{name}.{field} is at {place:?}");
    }
    assert!(listed.is_empty(), "did not move: {listed:?}");
    say(&format!(
        "{added} that the oldest header does not have are where the newest one has them"
    ));
    assert!(added > 100, "{added}");
}

#[test]
fn where_rdma_core_differs_from_linux_is_listed() {
    let newest = table::newest();
    let mut listed: BTreeSet<_> = RDMA_CORE.iter().map(|&(s, f, _)| (s, f)).collect();
    let mut agreed = 0;
    for (name, field, rows) in others("rdma-core") {
        let linux = places(newest.get(name).into_iter().flatten(), field);
        let core = places(&rows, field);
        if core == linux {
            agreed += 1;
            continue;
        }
        assert!(
            listed.remove(&(name, field)),
            "{name}.{field}: {core:?} in rdma-core, {linux:?} in Linux"
        );
    }
    for (structure, field, why) in RDMA_CORE {
        say(&format!("  {structure}.{field}: {why}"));
    }
    assert!(listed.is_empty(), "do not differ: {listed:?}");
    assert!(agreed > 10, "{agreed}");
}

/// The form of a field in mstflint: under its name, under another one at the same place, or as part of something larger.
enum There {
    Named,
    Other(&'static str),
    Part(&'static str),
    Elsewhere(String),
}

fn there(rows: &[Row], field: &Field) -> There {
    let end = field.offset + field.width;
    let same = |row: &Row| row.field.eq_ignore_ascii_case(field.name);
    if let Some(row) = rows.iter().find(|row| same(row)) {
        return match (row.offset, row.width) == (field.offset, field.width) {
            true => There::Named,
            false => There::Elsewhere(format!("{}+{}", row.offset, row.width)),
        };
    }
    let mut fields = rows.iter().filter(|row| !row.field.is_empty());
    let around = fields.find(|row| row.offset <= field.offset && end <= row.offset + row.width);
    match around {
        Some(row) if (row.offset, row.width) == (field.offset, field.width) => {
            There::Other(row.field)
        }
        // The field is part of an array or of a long counter, and not of a neighbour that has grown.
        Some(row) if row.width >= 64 => There::Part(row.field),
        _ => There::Elsewhere("nothing of that name or place".into()),
    }
}

#[test]
fn registers_are_as_mstflint_has_them() {
    let registers = registers();
    let mut listed: BTreeSet<_> = MSTFLINT.iter().map(|&(s, f, _)| (s, f)).collect();
    let mut wrong = Vec::new();
    let (mut named, mut otherwise) = (0, 0);
    for (&name, rows) in &registers {
        let structure = structure(name);
        let size = rows.iter().find(|row| row.field.is_empty());
        let size = size.map_or(0, |row| row.width);
        if size != structure.size as u32 * 8 && !listed.remove(&(name, "")) {
            wrong.push(format!("{name}: {size} bits there"));
        }
        let fields = structure.fields.iter();
        for field in fields.filter(|field| !field.name.starts_with("reserved")) {
            match there(rows, field) {
                There::Named => named += 1,
                There::Other(other) | There::Part(other) => {
                    otherwise += 1;
                    say(&format!("  {name}.{}: {other} in mstflint", field.name));
                }
                There::Elsewhere(place) => {
                    if !listed.remove(&(name, field.name)) {
                        wrong.push(format!("{name}.{}: {place}", field.name));
                    }
                }
            }
        }
    }
    for (structure, field, why) in MSTFLINT {
        say(&format!("  {structure}.{field}: {why}"));
    }
    say(&format!(
        "{named} fields of {} structures by name, {otherwise} by place",
        registers.len()
    ));
    assert!(
        wrong.is_empty(),
        "otherwise in mstflint:\n{}",
        wrong.join("\n")
    );
    assert!(listed.is_empty(), "do not differ: {listed:?}");
    assert!(named > 280 && registers.len() > 30, "{named}");
}

#[test]
fn every_register_is_compared_with_mstflint() {
    let registers = registers();
    let mut compared = 0;
    for number in 0..=u16::MAX {
        let Some(id) = RegisterId::from_number(number) else {
            continue;
        };
        if let Some(structure) = registry::register(id) {
            assert!(registers.contains_key(structure.name), "{}", structure.name);
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
}

#[test]
fn one_bit_off_is_seen_by_mstflint_too() {
    let mut shifted = 0;
    for (name, rows) in registers() {
        for field in structure(name).fields {
            if !matches!(there(&rows, field), There::Named) {
                continue;
            }
            let moved = Field {
                offset: field.offset + 1,
                ..*field
            };
            assert!(
                matches!(there(&rows, &moved), There::Elsewhere(_)),
                "{name}.{}",
                field.name
            );
            shifted += 1;
        }
    }
    assert!(shifted > 280, "{shifted}");
}
