//! MCMemberRecord: a port's membership of a multicast group (IBTA volume 1, chapter 15.2.5.17).

use super::record;

/// The membership of a port in a group: bits of [`McMemberRecord::join_state`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum JoinState {
    /// Sends and receives, and the group exists as long as it has such members.
    FullMember = 1,
    /// Sends only, and keeps the group alive all the same.
    SendOnlyFullMember = 8,
}

record! {
    /// A port's membership of a multicast group.
    McMemberRecord,
    bits {
        /// The group's Q_Key.
        qkey: u32 = 32, 0, 32;
        /// The group's LID.
        mlid: u16 = 36, 0, 16;
        /// The comparison of the MTU: 0 greater, 1 less, 2 equal, 3 the largest.
        mtu_selector: u8 = 38, 0, 2;
        /// MTU: 1 to 5 for 256 to 4096 bytes.
        mtu: u8 = 38, 2, 6;
        /// Traffic class.
        traffic_class: u8 = 39, 0, 8;
        /// Partition.
        pkey: u16 = 40, 0, 16;
        /// The comparison of the rate.
        rate_selector: u8 = 42, 0, 2;
        /// Static rate, in the IBTA's codes.
        rate: u8 = 42, 2, 6;
        /// The comparison of the life time.
        packet_life_time_selector: u8 = 43, 0, 2;
        /// Exponent of the packet lifetime (4.096 us times 2 to it).
        packet_life_time: u8 = 43, 2, 6;
        /// Service level.
        sl: u8 = 44, 0, 4;
        /// Flow label.
        flow_label: u32 = 44, 4, 20;
        /// Hop limit.
        hop_limit: u8 = 47, 0, 8;
        /// Scope of the group's GID.
        scope: u8 = 48, 0, 4;
        /// The membership of the port in the group, or the one that it requests: bits of [`JoinState`].
        join_state: u8 = 48, 4, 4;
        /// 1 if another party may do this for the port.
        proxy_join: u8 = 49, 0, 1;
    }
    gids {
        /// The group's GID.
        mgid = 0;
        /// GID of the port.
        port_gid = 16;
    }
    components {
        /// `mgid` counts.
        MGID = 1 << 0;
        /// `port_gid` counts.
        PORT_GID = 1 << 1;
        /// `qkey` counts.
        QKEY = 1 << 2;
        /// `mlid` counts.
        MLID = 1 << 3;
        /// `mtu_selector` counts.
        MTU_SELECTOR = 1 << 4;
        /// `mtu` counts.
        MTU = 1 << 5;
        /// `traffic_class` counts.
        TRAFFIC_CLASS = 1 << 6;
        /// `pkey` counts.
        PKEY = 1 << 7;
        /// `rate_selector` counts.
        RATE_SELECTOR = 1 << 8;
        /// `rate` counts.
        RATE = 1 << 9;
        /// `packet_life_time_selector` counts.
        PACKET_LIFE_TIME_SELECTOR = 1 << 10;
        /// `packet_life_time` counts.
        PACKET_LIFE_TIME = 1 << 11;
        /// `sl` counts.
        SL = 1 << 12;
        /// `flow_label` counts.
        FLOW_LABEL = 1 << 13;
        /// `hop_limit` counts.
        HOP_LIMIT = 1 << 14;
        /// `scope` counts.
        SCOPE = 1 << 15;
        /// `join_state` counts.
        JOIN_STATE = 1 << 16;
        /// `proxy_join` counts.
        PROXY_JOIN = 1 << 17;
    }
}
