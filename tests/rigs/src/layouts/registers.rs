//! Makes the table of mstflint's registers, of those that the crate has.

use crate::apt::{self, Apt};
use std::fs;
use std::path::Path;

/// The release whose mstflint is read.
const PACKAGE: &str = "mstflint/trixie";
/// The package's databases: that of adapters, and that of switches, which still has registers that the former lost.
const DATABASES: [&str; 2] = ["hca", "switch"];
/// Structures of the crate, with mstflint's names for them.
const NODES: &[(&str, &str)] = &[
    ("dtor_reg", "dtor_reg_ext"),
    ("pvlc_reg", "pvlc_reg_ext"),
    ("ptys_reg", "ptys_reg_ext"),
    ("pplm_reg", "pplm_reg_ext"),
    ("ppcnt_reg", "ppcnt_reg_ext"),
    ("mpcnt_reg", "mpcnt_reg_ext"),
    ("pmtu_reg", "pmtu_reg_ext"),
    ("pmlp_reg", "pmlp_reg_ext"),
    ("lane_2_module_mapping", "lane_2_module_mapping_ext"),
    ("pfcc_reg", "pfcc_reg_ext"),
    ("pcam_reg", "pcam_reg_ext"),
    ("mcam_reg", "mcam_reg_ext"),
    ("qcam_reg", "qcam_ext"),
    ("paos_reg", "paos_reg_ext"),
    ("ets_tcn_config_reg", "ets_ext"),
    ("ets_global_config_reg", "ets_global_ext"),
    ("qetc_reg", "qetcr_ext"),
    ("qpdpm_reg", "qpdpm_ext"),
    ("qpts_reg", "qpts_ext"),
    ("qtct_reg", "qtct_ext"),
    ("mcia_reg", "mcia_ext"),
    ("mfrl_reg", "mfrl_reg_ext"),
    ("mtcap_reg", "mtcap_ext"),
    ("mtmp_reg", "mtmp_ext"),
    ("register_host_endianness", "register_host_endianness_ext"),
    ("phys_layer_statistical_cntrs", "phys_layer_stat_cntrs_ext"),
    (
        "ib_port_cntrs_grp_data_layout",
        "IB_portcntrs_attribute_grp_data_ext",
    ),
    (
        "eth_per_prio_grp_data_layout",
        "eth_per_prio_grp_data_layout_ext",
    ),
    (
        "eth_extended_cntrs_grp_data_layout",
        "eth_extended_cntrs_grp_data_layout_ext",
    ),
    (
        "eth_2819_cntrs_grp_data_layout",
        "eth_2819_cntrs_grp_data_layout_ext",
    ),
    (
        "eth_2863_cntrs_grp_data_layout",
        "eth_2863_cntrs_grp_data_layout_ext",
    ),
    (
        "eth_802_3_cntrs_grp_data_layout",
        "eth_802_3_cntrs_grp_data_layout_ext",
    ),
    ("pcie_perf_cntrs_grp_data_layout", "pcie_perf_counters_ext"),
];

/// Fetches the package and makes the table.
pub(super) fn table(directory: &Path, apt: &Apt) -> Result<String, String> {
    let into = directory.join("mstflint");
    let mut version = String::new();
    for deb in apt.fetch(&directory.join("mstflint-packages"), &[PACKAGE])? {
        version = deb
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .replace("%3a", ":");
        apt::unpack(&deb, &into)?;
    }
    let mut databases = String::new();
    for name in DATABASES {
        let path = into
            .join("usr/share/mstflint/prm_dbs")
            .join(name)
            .join("ext/register_access_table.adb");
        databases += &fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let mut out = format!(
        "# Registers as mstflint's databases have them (prm_dbs/{{hca,switch}}/ext/register_access_table.adb of\n\
         # {version}), for the structures of this crate.\n\
         # Made by `cargo rig layouts --write`. Columns: structure here, field there, bit offset, width in bits. A line without\n\
         # a field gives the size.\n"
    );
    for &(structure, node) in NODES {
        let rows = node_rows(&databases, node)
            .ok_or_else(|| format!("mstflint has no {node}, or one that cannot be read"))?;
        for (field, offset, width) in rows {
            out.push_str(&format!("{structure}\t{field}\t{offset}\t{width}\n"));
        }
    }
    Ok(out)
}

/// The first node of that name: its size, and its fields.
fn node_rows(database: &str, node: &str) -> Option<Vec<(String, u64, u64)>> {
    let start = format!("<node name=\"{node}\" ");
    let mut lines = database
        .lines()
        .skip_while(|line| !line.trim_start().starts_with(&start));
    let size = bits(attribute(lines.next()?, "size")?)?;
    let mut rows = vec![(String::new(), 0, size)];
    for line in lines.take_while(|line| !line.contains("</node>")) {
        let Some(name) = line
            .trim_start()
            .strip_prefix("<field ")
            .and(attribute(line, "name"))
        else {
            continue;
        };
        let width = bits(attribute(line, "size")?)?;
        rows.push((
            name.to_owned(),
            place(attribute(line, "offset")?, width)?,
            width,
        ));
    }
    Some(rows)
}

/// Quotation marks inside values are written as entities.
fn attribute<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// `0xBYTES.BITS`.
fn split(text: &str) -> Option<(u64, u64)> {
    let (bytes, bits) = text.split_once('.').unwrap_or((text, "0"));
    let bytes = u64::from_str_radix(bytes.strip_prefix("0x")?, 16).ok()?;
    Some((bytes, bits.parse().ok()?))
}

fn bits(text: &str) -> Option<u64> {
    split(text).map(|(bytes, bits)| bytes * 8 + bits)
}

/// The place where a field begins, counted from the most significant bit of the structure. mstflint counts the bits of a dword
/// from its least significant one, and gives the place of the first element for an array within a dword, which is at the top.
fn place(text: &str, width: u64) -> Option<u64> {
    let (byte, bit) = split(text)?;
    let (dword, bit) = (byte / 4 * 32, byte % 4 * 8 + bit);
    if width >= 32 {
        return Some(dword);
    }
    32u64
        .checked_sub(bit + width)
        .map(|from_top| dword + from_top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read() {
        let database = r#"
<node name="other_ext" descr="" size="0x4.0" >
</node>
<node name="some_ext" descr="a &quot;register&quot;" size="0x88.0" >
	<field name="status" descr="" access="RO" offset="0x0.0" size="0x0.8" />
	<field name="flag" descr="" access="RO" offset="0x4.31" size="0x0.1" />
	<field name="high" descr="" access="RO" offset="0x8.16" size="0x0.16" />
	<field name="word" descr="" access="RO" offset="0xC.0" size="0x4.0" />
	<field name="list" descr="" access="RO" offset="0x10.16" size="0x78.0" low_bound="0" high_bound="59" />
</node>"#;
        let rows = node_rows(database, "some_ext").expect("it is there");
        let rows: Vec<_> = rows
            .iter()
            .map(|(name, at, width)| (&name[..], *at, *width))
            .collect();
        assert_eq!(
            rows,
            [
                ("", 0, 0x440),
                ("status", 24, 8),
                ("flag", 32, 1),
                ("high", 64, 16),
                ("word", 96, 32),
                ("list", 128, 0x3c0),
            ]
        );
        assert!(node_rows(database, "missing_ext").is_none());
    }
}
