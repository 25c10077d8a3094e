//! Management datagrams through the firmware, and multicast groups.

use crate::command::EmptyOut;
use crate::command::command;
use crate::layout::layout;

layout! {
    /// Input of MAD_IFC.
    pub struct MadIfcIn: "mad_ifc_in", 0x110 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits remote_lid, set_remote_lid: u16 @ 0x08 [31:16];
        bits port, set_port: u8 @ 0x08 [7:0];
        bytes mad, mad_mut: 256 @ 0x10;
    }
}

layout! {
    /// Output of MAD_IFC.
    pub struct MadIfcOut: "mad_ifc_out", 0x110 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
        bytes response_mad_packet, response_mad_packet_mut: 256 @ 0x10;
    }
}

command!(MadIfcIn => MadIfcOut, MadIfc);

layout! {
    /// Input of ATTACH_TO_MCG.
    pub struct AttachToMcgIn: "attach_to_mcg_in", 0x20 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bytes multicast_gid, multicast_gid_mut: 16 @ 0x10;
    }
}

command!(AttachToMcgIn => EmptyOut, AttachToMcg);

layout! {
    /// Input of DETACH_FROM_MCG.
    pub struct DetachFromMcgIn: "detach_from_mcg_in", 0x20 {
        bits opcode, set_opcode: u16 @ 0x00 [31:16];
        bits uid, set_uid: u16 @ 0x00 [15:0];
        bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
        bits qpn, set_qpn: u32 @ 0x08 [23:0];
        bytes multicast_gid, multicast_gid_mut: 16 @ 0x10;
    }
}

command!(DetachFromMcgIn => EmptyOut, DetachFromMcg);
