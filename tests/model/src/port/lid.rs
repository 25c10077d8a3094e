//! InfiniBand's local identifiers, and the MAC addresses that carry them.
//!
//! Nothing standard carries InfiniBand's link layer over a cable that takes Ethernet frames, so two models agree between
//! themselves: a packet travels as RoCE v1 does, its local identifiers and service level as MAC addresses, and a packet
//! without a global header has addresses there that no port has, `::LID`.

/// Local identifiers from here on are of multicast groups.
const FIRST_MULTICAST_LID: u16 = 0xc000;
/// Addresses the port at the other end of the cable: used by management datagrams with a directed route.
pub(crate) const PERMISSIVE_LID: u16 = 0xffff;

/// The InfiniBand destination of an address vector.
pub(crate) struct LocalDestination<'a> {
    pub(crate) lid: u16,
    /// The path bits, which choose the source among the port's own identifiers.
    pub(crate) path_bits: u8,
    pub(crate) service_level: u8,
    /// The destination's GID, if there is to be a global header.
    pub(crate) gid: Option<&'a [u8; 16]>,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
}

/// The sender's attributes in a completion, besides its QP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalSource {
    pub(crate) lid: u16,
    pub(crate) service_level: u8,
    pub(crate) global: bool,
}

/// Returns `true` if an identifier is that of a multicast group.
pub(crate) fn group(lid: u16) -> bool {
    (FIRST_MULTICAST_LID..PERMISSIVE_LID).contains(&lid)
}

/// Returns `true` if an identifier is that of a port.
pub(crate) fn unicast(lid: u16) -> bool {
    (1..FIRST_MULTICAST_LID).contains(&lid)
}

/// The address that carries a local identifier and a service level.
pub(crate) fn mac(lid: u16, service_level: u8) -> [u8; 6] {
    let [high, low] = lid.to_be_bytes();
    let group = u8::from(group(lid));
    [0x02 | group, 0x1b, 0, service_level, high, low]
}

/// The local identifier and service level in such an address.
pub(crate) fn lid(mac: [u8; 6]) -> Option<(u16, u8)> {
    let [0x02 | 0x03, 0x1b, 0, service_level, high, low] = mac else {
        return None;
    };
    Some((u16::from_be_bytes([high, low]), service_level))
}

/// The substitute for the GID in a packet without a global header.
pub(crate) fn local(lid: u16) -> [u8; 16] {
    u128::from(lid).to_be_bytes()
}

/// Returns `true` if an address is such a substitute.
pub(crate) fn without_global(address: &[u8; 16]) -> bool {
    address[..14] == [0; 14]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_carry_local_identifiers() {
        assert_eq!(lid(mac(0x1234, 5)), Some((0x1234, 5)));
        assert_eq!(lid(mac(0xc001, 0)), Some((0xc001, 0)));
        assert_eq!(mac(0xbfff, 0)[0] & 1, 0);
        assert_eq!(mac(0xc000, 0)[0] & 1, 1);
        assert_eq!(mac(PERMISSIVE_LID, 0)[0] & 1, 0);
        assert_eq!(lid([0x02, 0xc9, 0, 0, 0, 1]), None);
        assert_eq!(lid([0xff; 6]), None);
    }
}
