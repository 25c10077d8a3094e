//! Management datagrams through the firmware, and multicast groups.

use crate::command::commands;

commands! {
    input MadIfcIn of MadIfc: "mad_ifc_in", 0x110 {
        bits remote_lid, set_remote_lid: u16 @ 0x08 [31:16];
        bits port, set_port: u8 @ 0x08 [7:0];
        bytes mad, mad_mut: 256 @ 0x10;
    }
    output MadIfcOut: "mad_ifc_out", 0x110 {
        bytes response_mad_packet, response_mad_packet_mut: 256 @ 0x10;
    }

    input AttachToMcgIn of AttachToMcg: "attach_to_mcg_in", 0x20, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bytes multicast_gid, multicast_gid_mut: 16 @ 0x10;
    }

    input DetachFromMcgIn of DetachFromMcg: "detach_from_mcg_in", 0x20, uid {
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bytes multicast_gid, multicast_gid_mut: 16 @ 0x10;
    }
}
