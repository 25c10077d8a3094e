//! The messages that set a connection up: REQ, MRA, REJ, REP and RTU (IBTA volume 1, chapter 12.6).

use super::fields::message;

message! {
    /// Connection request (IBTA table 106).
    Req, attribute Req, private 140,
    bits {
        /// The sender's name for the connection.
        local_comm_id: u32 = 0, 0, 32;
        /// Vendor of the enhanced connection establishment, 0 for none.
        vendor_id: u32 = 5, 0, 24;
        /// The service that the sender requests a connection to.
        service_id: u64 = 8, 0, 64;
        /// The sender's node GUID.
        local_ca_guid: u64 = 16, 0, 64;
        /// Q_Key of the sender's QP; 0 for connected services.
        local_qkey: u32 = 28, 0, 32;
        /// The sender's QP number.
        local_qpn: u32 = 32, 0, 24;
        /// RDMA READs and atomics that the sender can serve at once.
        responder_resources: u8 = 35, 0, 8;
        /// End-to-end context of the sender (RD only).
        local_eecn: u32 = 36, 0, 24;
        /// RDMA READs and atomics that the sender would have outstanding at once.
        initiator_depth: u8 = 39, 0, 8;
        /// End-to-end context of the receiver (RD only).
        remote_eecn: u32 = 40, 0, 24;
        /// Exponent of the time (4.096 us times 2 to it) in which the receiver of this REQ is to answer.
        remote_cm_response_timeout: u8 = 43, 0, 5;
        /// 0 RC, 1 UC, 2 RD, 3 see `extended_transport`.
        transport: u8 = 43, 5, 2;
        /// End-to-end flow control is used.
        flow_control: u8 = 43, 7, 1;
        /// The PSN with which the receiver of this REQ has to start to send.
        starting_psn: u32 = 44, 0, 24;
        /// Exponent of the time in which the sender of this REQ answers.
        local_cm_response_timeout: u8 = 47, 0, 5;
        /// Transport retries for the receiver's QP.
        retry_count: u8 = 47, 5, 3;
        /// Partition of the connection.
        pkey: u16 = 48, 0, 16;
        /// Path MTU: 1 to 5 for 256 to 4096 bytes.
        path_mtu: u8 = 50, 0, 4;
        /// An RD channel exists already.
        rdc_exists: u8 = 50, 4, 1;
        /// Receiver-not-ready retries for the receiver's QP; 7 is for ever.
        rnr_retry_count: u8 = 50, 5, 3;
        /// The number of times that either end repeats an unanswered message.
        max_cm_retries: u8 = 51, 0, 4;
        /// The sender's QP has a shared receive queue.
        srq: u8 = 51, 4, 1;
        /// 1 is XRC, when `transport` is 3.
        extended_transport: u8 = 51, 5, 3;
        /// LID of the sender; 0xffff on RoCE.
        primary_local_lid: u16 = 52, 0, 16;
        /// LID of the receiver; 0xffff on RoCE.
        primary_remote_lid: u16 = 54, 0, 16;
        /// Flow label of the primary path.
        primary_flow_label: u32 = 88, 0, 20;
        /// Static rate of the primary path; 0 is the port's.
        primary_rate: u8 = 91, 2, 6;
        /// Traffic class of the primary path.
        primary_traffic_class: u8 = 92, 0, 8;
        /// Hop limit of the primary path.
        primary_hop_limit: u8 = 93, 0, 8;
        /// Service level of the primary path.
        primary_sl: u8 = 94, 0, 4;
        /// The primary path stays in the subnet.
        primary_subnet_local: u8 = 94, 4, 1;
        /// Exponent of the QP's ACK timeout on the primary path.
        primary_ack_timeout: u8 = 95, 0, 5;
        /// LID of the sender on the alternate path; 0 when there is none.
        alternate_local_lid: u16 = 96, 0, 16;
        /// LID of the receiver on the alternate path.
        alternate_remote_lid: u16 = 98, 0, 16;
        /// Flow label of the alternate path.
        alternate_flow_label: u32 = 132, 0, 20;
        /// Static rate of the alternate path.
        alternate_rate: u8 = 135, 2, 6;
        /// Traffic class of the alternate path.
        alternate_traffic_class: u8 = 136, 0, 8;
        /// Hop limit of the alternate path.
        alternate_hop_limit: u8 = 137, 0, 8;
        /// Service level of the alternate path.
        alternate_sl: u8 = 138, 0, 4;
        /// The alternate path stays in the subnet.
        alternate_subnet_local: u8 = 138, 4, 1;
        /// Exponent of the QP's ACK timeout on the alternate path.
        alternate_ack_timeout: u8 = 139, 0, 5;
        /// The sender accepts suggested alternate paths.
        sap_supported: u8 = 139, 5, 1;
    }
    bytes {
        /// GID of the sender.
        primary_local_gid: 16 = 56;
        /// GID of the receiver.
        primary_remote_gid: 16 = 72;
        /// GID of the sender on the alternate path.
        alternate_local_gid: 16 = 100;
        /// GID of the receiver on the alternate path.
        alternate_remote_gid: 16 = 116;
    }
}

message! {
    /// Message receipt acknowledgment: the answer will take longer (IBTA table 107).
    Mra, attribute Mra, private 10,
    bits {
        /// The sender's name for the connection.
        local_comm_id: u32 = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_comm_id: u32 = 4, 0, 32;
        /// The message that is answered: 0 REQ, 1 REP, 2 LAP.
        message: u8 = 8, 0, 2;
        /// Exponent of the time (4.096 us times 2 to it) that the sender asks for.
        service_timeout: u8 = 9, 0, 5;
    }
    bytes {}
}

message! {
    /// Reject (IBTA table 108).
    Rej, attribute Rej, private 84,
    bits {
        /// The sender's name for the connection; 0 when it never had one.
        local_comm_id: u32 = 0, 0, 32;
        /// The receiver's name for the connection; 0 when it is not known.
        remote_comm_id: u32 = 4, 0, 32;
        /// The message that is rejected: 0 REQ, 1 REP, 2 none.
        message: u8 = 8, 0, 2;
        /// Bytes of `info` that count.
        info_len: u8 = 9, 0, 7;
        /// Why; see [`RejectReason`](super::RejectReason).
        reason: u16 = 10, 0, 16;
    }
    bytes {
        /// Additional reject information: what would have been acceptable.
        info: 72 = 12;
    }
}

message! {
    /// Reply to a connection request (IBTA table 110).
    Rep, attribute Rep, private 36,
    bits {
        /// The sender's name for the connection.
        local_comm_id: u32 = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_comm_id: u32 = 4, 0, 32;
        /// Q_Key of the sender's QP; 0 for connected services.
        local_qkey: u32 = 8, 0, 32;
        /// The sender's QP number.
        local_qpn: u32 = 12, 0, 24;
        /// Bits 23 to 16 of the vendor of the enhanced connection establishment.
        vendor_id_high: u8 = 15, 0, 8;
        /// End-to-end context of the sender; an XRC target's QP number.
        local_eecn: u32 = 16, 0, 24;
        /// Bits 15 to 8 of the vendor.
        vendor_id_middle: u8 = 19, 0, 8;
        /// The PSN with which the receiver of this REP has to start to send.
        starting_psn: u32 = 20, 0, 24;
        /// Bits 7 to 0 of the vendor.
        vendor_id_low: u8 = 23, 0, 8;
        /// RDMA READs and atomics that the sender can serve at once.
        responder_resources: u8 = 24, 0, 8;
        /// RDMA READs and atomics that the sender will have outstanding at once.
        initiator_depth: u8 = 25, 0, 8;
        /// Exponent of the time that the sender's adapter takes to acknowledge.
        target_ack_delay: u8 = 26, 0, 5;
        /// The answer about the alternate path: 0 accepted, 1 not supported, 2 rejected.
        failover_accepted: u8 = 26, 5, 2;
        /// End-to-end flow control is used.
        flow_control: u8 = 26, 7, 1;
        /// Receiver-not-ready retries for the receiver's QP; 7 is for ever.
        rnr_retry_count: u8 = 27, 0, 3;
        /// The sender's QP has a shared receive queue.
        srq: u8 = 27, 3, 1;
        /// The sender's node GUID.
        local_ca_guid: u64 = 28, 0, 64;
    }
    bytes {}
}

message! {
    /// Ready to use (IBTA table 111).
    Rtu, attribute Rtu, private 8,
    bits {
        /// The sender's name for the connection.
        local_comm_id: u32 = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_comm_id: u32 = 4, 0, 32;
    }
    bytes {}
}
