//! Service ID resolution for datagram QPs: SIDR_REQ and SIDR_REP (IBTA volume 1, chapter 12.11).

use super::fields::message;

message! {
    /// Service ID resolution request (IBTA table 119).
    SidrReq, attribute SidrReq, private 16,
    bits {
        /// The sender's name for the request.
        request_id: u32 = 0, 0, 32;
        /// Partition in which the service is wanted.
        pkey: u16 = 4, 0, 16;
        /// The service.
        service_id: u64 = 8, 0, 64;
    }
    bytes {}
}

message! {
    /// Reply to a service ID resolution request (IBTA table 120).
    SidrRep, attribute SidrRep, private 96,
    bits {
        /// The requester's name for the request.
        request_id: u32 = 0, 0, 32;
        /// See [`SidrStatus`](super::SidrStatus).
        status: u8 = 4, 0, 8;
        /// Bytes of `info` that count.
        info_len: u8 = 5, 0, 8;
        /// Bits 23 to 8 of the vendor of the enhanced connection establishment.
        vendor_id_high: u16 = 6, 0, 16;
        /// The QP that serves.
        qpn: u32 = 8, 0, 24;
        /// Bits 7 to 0 of the vendor.
        vendor_id_low: u8 = 11, 0, 8;
        /// The service.
        service_id: u64 = 12, 0, 64;
        /// Q_Key of the QP.
        qkey: u32 = 20, 0, 32;
    }
    bytes {
        /// Additional information, for instance where to go instead.
        info: 72 = 24;
    }
}
