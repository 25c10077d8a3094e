//! The settings of an InfiniBand port that a subnet manager has made, and the port's counters.

use bareverbs::verbs::firmware_cmds::register::PortCounterGroup;
use bareverbs::verbs::{Counters, Device, Gid, Platform, PortAttr};
use bareverbs_examples::Result;

use super::report::Report;

/// The bit of a P_Key that full members have.
const FULL_MEMBER: u16 = 0x8000;

/// Adds what there is.
pub(crate) fn report<P: Platform>(
    report: &mut Report,
    device: &Device<'_, P>,
    port: &PortAttr,
) -> Result<()> {
    for (index, gid) in gids(device, port)? {
        if index == 0 {
            let [prefix @ .., _, _, _, _, _, _, _, _] = gid.0;
            let prefix = prefix.map(|byte| format!("{byte:02x}"));
            report.text("subnet_prefix", format!("0x{}", prefix.concat()));
        }
        report.text(&format!("GID[{index:3}]"), gid.to_string());
    }
    for index in 0..u16::try_from(port.pkey_table_len)? {
        let pkey = device.query_pkey(index)?;
        if pkey & !FULL_MEMBER != 0 {
            let member = match pkey & FULL_MEMBER {
                0 => "limited",
                _ => "full",
            };
            report.text(
                &format!("PKEY[{index:3}]"),
                format!("{pkey:#06x}, {member} member"),
            );
        }
    }
    let port = device.query_port_counters(PortCounterGroup::Infiniband, 0)?;
    for counter in port.iter().flat_map(Counters::iter) {
        report.number(&format!("counter.{}", counter.name), counter.value);
    }
    let function = device.query_vport_counters()?;
    for counter in function.iter().flat_map(Counters::iter) {
        // It has those of Ethernet frames, too.
        if counter.name.contains("_ib_") {
            let unit = counter.unit.unwrap_or("packets");
            let name = format!("counter.{}.{unit}", counter.name);
            report.number(&name, counter.value);
        }
    }
    Ok(())
}

/// The valid entries of the port's table: those with a GUID.
fn gids<P: Platform>(device: &Device<'_, P>, port: &PortAttr) -> Result<Vec<(u16, Gid)>> {
    let mut gids = Vec::new();
    for index in 0..u16::try_from(port.gid_table_len)? {
        let gid = device.query_infiniband_gid(index)?;
        if gid.0[8..] != [0; 8] {
            gids.push((index, gid));
        }
    }
    Ok(gids)
}

#[cfg(test)]
mod tests {
    use bareverbs_in_process::Builder;
    use bareverbs_in_process::subnet::infiniband_port;
    use connectx_model::Config as Card;

    #[test]
    fn a_port_is_shown_as_its_manager_has_set_it() {
        let mut card = infiniband_port(Card::new(7), 7);
        card.port_guid = 0x0002_c903_0000_0007;
        let world = Builder::new().function(card).threaded();
        let report = crate::attributes::report(world.platform(0), "model0", 0).unwrap();
        let (text, json) = (report.to_text(), report.to_json());
        let line = |name: &str| {
            let mut lines = text.lines().map(str::trim_start);
            let line = lines.find_map(|line| line.strip_prefix(&format!("{name}:")));
            line.map(str::trim_start)
        };
        for (name, value) in [
            ("port_lid", "7"),
            ("sm_lid", "49151"),
            ("port_lmc", "0x0"),
            ("subnet_prefix", "0xfe80000000000000"),
            ("GID[  0]", "fe80::2:c903:0:7"),
            ("PKEY[  0]", "0xffff, full member"),
        ] {
            assert_eq!(line(name), Some(value), "{name} in {text}");
            assert!(json.contains(&format!("\"{name}\": ")), "{json}");
        }
        let (_, port) = json.split_once("\"port\": {").unwrap();
        assert!(
            port.contains("\"counter.symbol_error_counter\": 0"),
            "{port}"
        );
        // It has no Ethernet address.
        assert_eq!(line("mac"), None);
    }
}
