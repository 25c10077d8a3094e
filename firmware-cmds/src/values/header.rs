//! The changes of headers, and the fields that can be changed.

use crate::numbered::numbered;

values! {
    /// The kind of change of a header's field, `set_action_in.action_type`.
    HeaderAction: u8 {
        /// Replaces bits.
        Set = 1, "SET";
        /// Adds to it.
        Add = 2, "ADD";
        /// Replaces bits by another field's.
        Copy = 3, "COPY";
    }

    /// Fields of headers that can be changed, `set_action_in.field`.
    HeaderField: u16 {
        /// Source MAC address, bits 47 to 16.
        Smac47_16 = 0x1, "OUT_SMAC_47_16";
        /// Source MAC address, bits 15 to 0.
        Smac15_0 = 0x2, "OUT_SMAC_15_0";
        /// Type behind the tags.
        Ethertype = 0x3, "OUT_ETHERTYPE";
        /// Destination MAC address, bits 47 to 16.
        Dmac47_16 = 0x4, "OUT_DMAC_47_16";
        /// Destination MAC address, bits 15 to 0.
        Dmac15_0 = 0x5, "OUT_DMAC_15_0";
        /// DSCP of either version of IP.
        IpDscp = 0x6, "OUT_IP_DSCP";
        /// TCP's flags.
        TcpFlags = 0x7, "OUT_TCP_FLAGS";
        /// TCP's source port.
        TcpSport = 0x8, "OUT_TCP_SPORT";
        /// TCP's destination port.
        TcpDport = 0x9, "OUT_TCP_DPORT";
        /// Time to live of IPv4.
        IpTtl = 0xa, "OUT_IP_TTL";
        /// UDP's source port.
        UdpSport = 0xb, "OUT_UDP_SPORT";
        /// UDP's destination port.
        UdpDport = 0xc, "OUT_UDP_DPORT";
        /// Source address of IPv6, bits 127 to 96.
        Sipv6_127_96 = 0xd, "OUT_SIPV6_127_96";
        /// Source address of IPv6, bits 95 to 64.
        Sipv6_95_64 = 0xe, "OUT_SIPV6_95_64";
        /// Source address of IPv6, bits 63 to 32.
        Sipv6_63_32 = 0xf, "OUT_SIPV6_63_32";
        /// Source address of IPv6, bits 31 to 0.
        Sipv6_31_0 = 0x10, "OUT_SIPV6_31_0";
        /// Destination address of IPv6, bits 127 to 96.
        Dipv6_127_96 = 0x11, "OUT_DIPV6_127_96";
        /// Destination address of IPv6, bits 95 to 64.
        Dipv6_95_64 = 0x12, "OUT_DIPV6_95_64";
        /// Destination address of IPv6, bits 63 to 32.
        Dipv6_63_32 = 0x13, "OUT_DIPV6_63_32";
        /// Destination address of IPv6, bits 31 to 0.
        Dipv6_31_0 = 0x14, "OUT_DIPV6_31_0";
        /// Source address of IPv4.
        Sipv4 = 0x15, "OUT_SIPV4";
        /// Destination address of IPv4.
        Dipv4 = 0x16, "OUT_DIPV4";
        /// VLAN of the outer tag.
        FirstVid = 0x17, "OUT_FIRST_VID";
        /// Hop limit of IPv6.
        Ipv6HopLimit = 0x47, "OUT_IPV6_HOPLIMIT";
    }
}
