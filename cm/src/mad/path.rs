//! The messages that load an alternate path: LAP and APR (IBTA volume 1, chapter 12.8). InfiniBand only; RoCE peers
//! neither send nor answer them.

use super::fields::message;

message! {
    /// Load alternate path (IBTA table 114).
    Lap, attribute Lap, private 64,
    bits {
        /// The sender's name for the connection.
        local_comm_id: u32 = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_comm_id: u32 = 4, 0, 32;
        /// The receiver's QP number.
        remote_qpn: u32 = 12, 0, 24;
        /// Exponent of the time in which the receiver is to answer.
        remote_cm_response_timeout: u8 = 15, 0, 5;
        /// LID of the sender on the alternate path.
        alternate_local_lid: u16 = 20, 0, 16;
        /// LID of the receiver on the alternate path.
        alternate_remote_lid: u16 = 22, 0, 16;
        /// Flow label of the alternate path.
        alternate_flow_label: u32 = 56, 0, 20;
        /// Traffic class of the alternate path.
        alternate_traffic_class: u8 = 59, 0, 8;
        /// Hop limit of the alternate path.
        alternate_hop_limit: u8 = 60, 0, 8;
        /// Static rate of the alternate path.
        alternate_rate: u8 = 61, 2, 6;
        /// Service level of the alternate path.
        alternate_sl: u8 = 62, 0, 4;
        /// The alternate path stays in the subnet.
        alternate_subnet_local: u8 = 62, 4, 1;
        /// Exponent of the QP's ACK timeout on the alternate path.
        alternate_ack_timeout: u8 = 63, 0, 5;
    }
    bytes {
        /// GID of the sender on the alternate path.
        alternate_local_gid: 16 = 24;
        /// GID of the receiver on the alternate path.
        alternate_remote_gid: 16 = 40;
    }
}

message! {
    /// Alternate path response (IBTA table 115).
    Apr, attribute Apr, private 84,
    bits {
        /// The sender's name for the connection.
        local_comm_id: u32 = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_comm_id: u32 = 4, 0, 32;
        /// Bytes of `info` that count.
        info_len: u8 = 8, 0, 8;
        /// The answer about the path; see [`AprStatus`](super::AprStatus).
        status: u8 = 9, 0, 8;
    }
    bytes {
        /// The values that would have been acceptable.
        info: 72 = 12;
    }
}
