//! The RoCE address (GID) table.

use crate::command::commands;
use crate::layout::layout;

layout! {
    /// An entry of the RoCE address table: GID, MAC address, VLAN and version.
    pub struct RoceAddr: "roce_addr_layout", 0x20 {
        bytes source_l3_address, source_l3_address_mut: 16 @ 0x00;
        flag vlan_valid, set_vlan_valid @ 0x10 [28];
        bits vlan_id, set_vlan_id: u16 @ 0x10 [27:16];
        bits source_mac_47_32, set_source_mac_47_32: u16 @ 0x10 [15:0];
        bits source_mac_31_0, set_source_mac_31_0: u32 @ 0x14 [31:0];
        bits roce_l3_type, set_roce_l3_type: u8 @ 0x18 [11:8];
        bits roce_version, set_roce_version: u8 @ 0x18 [7:0];
    }
}

commands! {
    input QueryRoceAddressIn of QueryRoceAddress: "query_roce_address_in", 0x10 {
        bits roce_address_index, set_roce_address_index: u16 @ 0x08 [31:16];
        bits vhca_port_num, set_vhca_port_num: u8 @ 0x08 [3:0];
    }
    output QueryRoceAddressOut: "query_roce_address_out", 0x30 {
        part roce_address, roce_address_mut: RoceAddr @ 0x10;
    }

    input SetRoceAddressIn of SetRoceAddress: "set_roce_address_in", 0x30 {
        bits roce_address_index, set_roce_address_index: u16 @ 0x08 [31:16];
        bits vhca_port_num, set_vhca_port_num: u8 @ 0x08 [3:0];
        part roce_address, roce_address_mut: RoceAddr @ 0x10;
    }
}

impl RoceAddr {
    /// MAC address that packets from this GID carry.
    #[must_use]
    pub fn source_mac(&self) -> [u8; 6] {
        let [h1, h0] = self.source_mac_47_32().to_be_bytes();
        let [l3, l2, l1, l0] = self.source_mac_31_0().to_be_bytes();
        [h1, h0, l3, l2, l1, l0]
    }

    /// Sets [`source_mac`](Self::source_mac).
    pub fn set_source_mac(&mut self, mac: [u8; 6]) -> &mut Self {
        let [h1, h0, l3, l2, l1, l0] = mac;
        self.set_source_mac_47_32(u16::from_be_bytes([h1, h0]))
            .set_source_mac_31_0(u32::from_be_bytes([l3, l2, l1, l0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_bytes_in_order() {
        let mut address = RoceAddr([0xa5; 0x20]);
        address.set_source_mac([2, 1, 3, 5, 7, 9]);
        assert_eq!(address.0[0x12..0x18], [2, 1, 3, 5, 7, 9]);
        assert_eq!(address.source_mac(), [2, 1, 3, 5, 7, 9]);
        assert!(
            address.0[..0x12]
                .iter()
                .chain(&address.0[0x18..])
                .all(|&b| b == 0xa5)
        );
    }
}

#[cfg(test)]
mod golden;
