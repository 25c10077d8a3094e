//! The counters of a port and its virtual port, under the names that mlx5e gives them in `ethtool -S`.

use std::fmt;

use bareverbs::verbs::firmware_cmds::register::PortCounterGroup;
use bareverbs::verbs::{Device, Platform};
use bareverbs_examples::Result;

/// Counters of the virtual port, which come in packets and bytes: mlx5e's name, and ours.
const VPORT: [(&str, &str); 2] = [
    ("rx_vport_unicast", "received_eth_unicast"),
    ("tx_vport_unicast", "transmitted_eth_unicast"),
];

/// Counters of the port: mlx5e's name, and the one in 802.3's group of PPCNT.
const PORT: [(&str, &str); 4] = [
    ("rx_packets_phy", "a_frames_received_ok"),
    ("rx_bytes_phy", "a_octets_received_ok"),
    ("tx_packets_phy", "a_frames_transmitted_ok"),
    ("tx_bytes_phy", "a_octets_transmitted_ok"),
];

/// Names and values, in one order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PortCounters(Vec<(String, u64)>);

impl PortCounters {
    /// Asks the device. A card that does not count something has no line for it.
    pub(crate) fn read<P: Platform>(device: &Device<'_, P>) -> Result<Self> {
        let mut values = Vec::new();
        if let Some(counters) = device.query_vport_counters()? {
            for (theirs, ours) in VPORT {
                for counter in counters.iter().filter(|counter| counter.name == ours) {
                    let unit = match counter.unit {
                        Some("octets") => "bytes",
                        _ => "packets",
                    };
                    values.push((format!("{theirs}_{unit}"), counter.value));
                }
            }
        }
        if let Some(counters) = device.query_port_counters(PortCounterGroup::Ieee8023, 0)? {
            for (theirs, ours) in PORT {
                if let Some(value) = counters.get(ours) {
                    values.push((theirs.into(), value));
                }
            }
        }
        Ok(Self(values))
    }

    /// One of them, if the card has it.
    #[cfg(test)]
    pub(crate) fn get(&self, name: &str) -> Option<u64> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| *value)
    }
}

impl fmt::Display for PortCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            write!(f, "{space}{name} {value}")?;
        }
        Ok(())
    }
}
