//! ClassPortInfo, the one attribute of the CM class that is asked for by Get (IBTA volume 1, chapter 13.4.8.1).

use super::fields::message;

message! {
    /// The capabilities of a class manager, and its address. Has no private data: what follows its 72 bytes is zero.
    ClassPortInfo, attribute ClassPortInfo, private 72,
    bits {
        /// Base version of the MADs, 1.
        base_version: u8 = 0, 0, 8;
        /// Version of the class, 2 for the CM.
        class_version: u8 = 1, 0, 8;
        /// Capabilities.
        capability_mask: u16 = 2, 0, 16;
        /// More capabilities.
        capability_mask2: u32 = 4, 0, 27;
        /// Exponent of the longest time (4.096 us times 2 to it) to an answer.
        response_time: u8 = 7, 3, 5;
        /// Traffic class to the redirect target.
        redirect_traffic_class: u8 = 24, 0, 8;
        /// Service level to the redirect target.
        redirect_sl: u8 = 25, 0, 4;
        /// Flow label to the redirect target.
        redirect_flow_label: u32 = 25, 4, 20;
        /// LID of the redirect target.
        redirect_lid: u16 = 28, 0, 16;
        /// P_Key of the redirect target.
        redirect_pkey: u16 = 30, 0, 16;
        /// QP of the redirect target.
        redirect_qpn: u32 = 33, 0, 24;
        /// Q_Key of the redirect target.
        redirect_qkey: u32 = 36, 0, 32;
        /// Traffic class to the trap target.
        trap_traffic_class: u8 = 56, 0, 8;
        /// Service level to the trap target.
        trap_sl: u8 = 57, 0, 4;
        /// Flow label to the trap target.
        trap_flow_label: u32 = 57, 4, 20;
        /// LID of the trap target.
        trap_lid: u16 = 60, 0, 16;
        /// P_Key of the trap target.
        trap_pkey: u16 = 62, 0, 16;
        /// Hop limit to the trap target.
        trap_hop_limit: u8 = 64, 0, 8;
        /// QP of the trap target.
        trap_qpn: u32 = 65, 0, 24;
        /// Q_Key of the trap target.
        trap_qkey: u32 = 68, 0, 32;
    }
    bytes {
        /// GID of the redirect target.
        redirect_gid: 16 = 8;
        /// GID of the trap target.
        trap_gid: 16 = 40;
    }
}
