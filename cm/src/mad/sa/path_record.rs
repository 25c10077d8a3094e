//! PathRecord: how to get from one port to another (IBTA volume 1, chapter 15.2.5.16).

use super::record;

record! {
    /// A path between two ports (`struct ibv_path_record`).
    PathRecord,
    bits {
        /// The service that the path is for; it may decide about its quality.
        service_id: u64 = 0, 0, 64;
        /// LID of the far end.
        dlid: u16 = 40, 0, 16;
        /// LID of the near end.
        slid: u16 = 42, 0, 16;
        /// 1 for a path of raw packets.
        raw_traffic: u8 = 44, 0, 1;
        /// Flow label.
        flow_label: u32 = 44, 4, 20;
        /// Hop limit; above 0 packets need a global header.
        hop_limit: u8 = 47, 0, 8;
        /// Traffic class.
        traffic_class: u8 = 48, 0, 8;
        /// 1 if answers may come back the same way.
        reversible: u8 = 49, 0, 1;
        /// The number of paths that are wanted at most.
        numb_path: u8 = 49, 1, 7;
        /// Partition.
        pkey: u16 = 50, 0, 16;
        /// Class of the quality of service.
        qos_class: u16 = 52, 0, 12;
        /// Service level.
        sl: u8 = 53, 4, 4;
        /// The comparison of the MTU: 0 greater, 1 less, 2 equal, 3 the largest.
        mtu_selector: u8 = 54, 0, 2;
        /// Path MTU: 1 to 5 for 256 to 4096 bytes.
        mtu: u8 = 54, 2, 6;
        /// The comparison of the rate.
        rate_selector: u8 = 55, 0, 2;
        /// Static rate, in the IBTA's codes.
        rate: u8 = 55, 2, 6;
        /// The comparison of the life time.
        packet_life_time_selector: u8 = 56, 0, 2;
        /// Exponent of the packet lifetime (4.096 us times 2 to it).
        packet_life_time: u8 = 56, 2, 6;
        /// The preference among several paths; 0 is the best.
        preference: u8 = 57, 0, 8;
    }
    gids {
        /// GID of the far end.
        dgid = 8;
        /// GID of the near end.
        sgid = 24;
    }
    components {
        /// `service_id` counts.
        SERVICE_ID = 3;
        /// `dgid` counts.
        DGID = 1 << 2;
        /// `sgid` counts.
        SGID = 1 << 3;
        /// `dlid` counts.
        DLID = 1 << 4;
        /// `slid` counts.
        SLID = 1 << 5;
        /// `raw_traffic` counts.
        RAW_TRAFFIC = 1 << 6;
        /// `flow_label` counts.
        FLOW_LABEL = 1 << 8;
        /// `hop_limit` counts.
        HOP_LIMIT = 1 << 9;
        /// `traffic_class` counts.
        TRAFFIC_CLASS = 1 << 10;
        /// `reversible` counts.
        REVERSIBLE = 1 << 11;
        /// `numb_path` counts.
        NUMB_PATH = 1 << 12;
        /// `pkey` counts.
        PKEY = 1 << 13;
        /// `qos_class` counts.
        QOS_CLASS = 1 << 14;
        /// `sl` counts.
        SL = 1 << 15;
        /// `mtu_selector` counts.
        MTU_SELECTOR = 1 << 16;
        /// `mtu` counts.
        MTU = 1 << 17;
        /// `rate_selector` counts.
        RATE_SELECTOR = 1 << 18;
        /// `rate` counts.
        RATE = 1 << 19;
        /// `packet_life_time_selector` counts.
        PACKET_LIFE_TIME_SELECTOR = 1 << 20;
        /// `packet_life_time` counts.
        PACKET_LIFE_TIME = 1 << 21;
        /// `preference` counts.
        PREFERENCE = 1 << 22;
    }
}
