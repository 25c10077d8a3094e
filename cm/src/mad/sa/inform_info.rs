//! InformInfo: a subscription to notices (IBTA volume 1, chapters 13.4.8.3 and 15.2.5.12).

use super::record;

record! {
    /// A subscription to notices.
    InformInfo,
    bits {
        /// First LID of those that the notices are about; [`InformInfo::ALL_LIDS`] for all.
        lid_range_begin: u16 = 16, 0, 16;
        /// Last LID of those that the notices are about.
        lid_range_end: u16 = 18, 0, 16;
        /// 1 unless the notices are a vendor's own.
        is_generic: u8 = 22, 0, 8;
        /// 1 to subscribe, 0 to end it.
        subscribe: u8 = 23, 0, 8;
        /// The urgency, as in [`Notice::kind`](super::Notice::kind); all ones for any.
        kind: u16 = 24, 0, 16;
        /// The trap, as in [`Notice::trap`](super::Notice::trap); all ones for any.
        trap: u16 = 26, 0, 16;
        /// The QP that gets the reports.
        qpn: u32 = 28, 0, 24;
        /// Exponent of the longest time (4.096 us times 2 to it) to the answer to a report.
        response_time: u8 = 31, 3, 5;
        /// Type of who tells, as in [`Notice::producer`](super::Notice::producer); all ones for any.
        producer: u32 = 33, 0, 24;
    }
    gids {
        /// The GID that the notices are about; zero to go by LIDs.
        gid = 0;
    }
    components {}
}

impl InformInfo {
    /// Value of [`InformInfo::lid_range_begin`]: the notices may be about all ports.
    pub const ALL_LIDS: u16 = 0xffff;
}

record! {
    /// A subscription and whose it is.
    InformInfoRecord,
    bits {
        /// Number among the port's subscriptions.
        subscriber_enum: u16 = 16, 0, 16;
        /// First LID of those that the notices are about; [`InformInfo::ALL_LIDS`] for all.
        lid_range_begin: u16 = 40, 0, 16;
        /// Last LID of those that the notices are about.
        lid_range_end: u16 = 42, 0, 16;
        /// 1 unless the notices are a vendor's own.
        is_generic: u8 = 46, 0, 8;
        /// 1 to subscribe, 0 to end it.
        subscribe: u8 = 47, 0, 8;
        /// The urgency, as in [`Notice::kind`](super::Notice::kind); all ones for any.
        kind: u16 = 48, 0, 16;
        /// The trap, as in [`Notice::trap`](super::Notice::trap); all ones for any.
        trap: u16 = 50, 0, 16;
        /// The QP that gets the reports.
        qpn: u32 = 52, 0, 24;
        /// Exponent of the longest time (4.096 us times 2 to it) to the answer to a report.
        response_time: u8 = 55, 3, 5;
        /// Type of who tells, as in [`Notice::producer`](super::Notice::producer); all ones for any.
        producer: u32 = 57, 0, 24;
    }
    gids {
        /// GID of the port that has subscribed.
        subscriber_gid = 0;
        /// The GID that the notices are about; zero where it goes by LIDs.
        gid = 24;
    }
    components {
        /// `subscriber_gid` counts.
        SUBSCRIBER_GID = 1 << 0;
        /// `subscriber_enum` counts.
        SUBSCRIBER_ENUM = 1 << 1;
    }
}
