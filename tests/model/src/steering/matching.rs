//! The criteria of groups: masks over fields in words, so that a group's entries are found by hashing.

use crate::steering::Direction;
use crate::steering::headers::{self, Headers};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::flow::{FteMatchParam, FteMatchSetLyr24, FteMatchSetMisc};

/// The outer headers, the miscellaneous parameters and the inner headers, as they stand in commands.
pub(crate) type Fields = [u64; WORDS];

const WORDS: usize = 24;
/// Where the miscellaneous parameters begin, and the inner headers.
const MISC: usize = 8;
const INNER: usize = 16;

/// Sections of the match parameters that groups can use, as bits of `match_criteria_enable`.
pub(crate) const OUTER_HEADERS: u8 = 1 << 0;
pub(crate) const MISC_PARAMETERS: u8 = 1 << 1;
pub(crate) const INNER_HEADERS: u8 = 1 << 2;

fn words(outer: &FteMatchSetLyr24, misc: &FteMatchSetMisc, inner: &FteMatchSetLyr24) -> Fields {
    let mut words = [0; WORDS];
    let (outer, inner) = (outer.0.as_chunks().0, inner.0.as_chunks().0);
    let bytes = outer.iter().chain(misc.0.as_chunks().0).chain(inner);
    for (word, bytes) in words.iter_mut().zip(bytes) {
        *word = u64::from_be_bytes(*bytes);
    }
    words
}

/// The fields of a frame, and of what is in a tunnel.
pub(crate) fn of_frame(headers: &Headers, inner: Option<&Headers>) -> Fields {
    let inside = inner.map_or(FteMatchSetLyr24::ZERO, Headers::layer);
    words(&headers.layer(), &headers.misc(), &inside)
}

/// Adds what RDMA's tables match beside the headers: the opcode and the QP of the base transport header (IBTA 9.2), and the
/// QP that sends.
pub(crate) fn add_transport(fields: &mut Fields, frame: &[u8], headers: &Headers, qpn: u32) {
    let Some(transport) = headers::base_transport(frame, headers) else {
        return;
    };
    let mut misc = FteMatchSetMisc::ZERO;
    misc.set_source_sqn(qpn)
        .set_bth_opcode(transport.opcode)
        .set_bth_dst_qp(transport.destination_qp);
    let added = words(&FteMatchSetLyr24::ZERO, &misc, &FteMatchSetLyr24::ZERO);
    for (field, added) in fields.iter_mut().zip(added) {
        *field |= added;
    }
}

/// The fields in a command, which must be all that is there.
pub(crate) fn of_command(param: &FteMatchParam) -> Result<Fields, Syndrome> {
    if param.0[0xc0..].iter().any(|&byte| byte != 0) {
        return Err(Syndrome::FlowField);
    }
    Ok(words(
        param.outer_headers(),
        param.misc_parameters(),
        param.inner_headers(),
    ))
}

/// Back into a command's answer.
pub(crate) fn to_command(fields: &Fields, param: &mut FteMatchParam) {
    for (bytes, word) in param.0.as_chunks_mut().0.iter_mut().zip(fields) {
        *bytes = word.to_be_bytes();
    }
}

/// Every bit that [`of_frame`] can set, and [`add_transport`] for RDMA's tables, whose packets have nothing inside.
fn matchable(direction: Direction) -> Fields {
    let mut outer = FteMatchSetLyr24::ZERO;
    outer
        .set_smac_47_16(u32::MAX)
        .set_smac_15_0(u16::MAX)
        .set_ethertype(u16::MAX)
        .set_dmac_47_16(u32::MAX)
        .set_dmac_15_0(u16::MAX)
        .set_first_prio(7)
        .set_first_cfi(true)
        .set_first_vid(0xfff)
        .set_ip_protocol(u8::MAX)
        .set_ip_dscp(0x3f)
        .set_ip_ecn(3)
        .set_cvlan_tag(true)
        .set_svlan_tag(true)
        .set_frag(true)
        .set_ip_version(0xf)
        .set_tcp_flags(0x1ff)
        .set_tcp_sport(u16::MAX)
        .set_tcp_dport(u16::MAX)
        .set_ipv4_ihl(0xf)
        .set_ttl_hoplimit(u8::MAX)
        .set_udp_sport(u16::MAX)
        .set_udp_dport(u16::MAX);
    *outer.src_ipv4_src_ipv6_mut() = [0xff; 16];
    *outer.dst_ipv4_dst_ipv6_mut() = [0xff; 16];
    let mut misc = FteMatchSetMisc::ZERO;
    misc.set_outer_second_cvlan_tag(true)
        .set_outer_second_svlan_tag(true)
        .set_outer_second_prio(7)
        .set_outer_second_cfi(true)
        .set_outer_second_vid(0xfff)
        .set_outer_ipv6_flow_label(0xf_ffff);
    if !direction.is_rdma() {
        return words(&outer, &misc, &outer);
    }
    misc.set_bth_opcode(u8::MAX).set_bth_dst_qp(0xff_ffff);
    if direction == Direction::RdmaTransmit {
        misc.set_source_sqn(0xff_ffff);
    }
    words(&outer, &misc, &FteMatchSetLyr24::ZERO)
}

/// The bits that say which kind of tag there is: customer's and service's, of the first, of the second, and of the first
/// inside of a tunnel.
fn tag_kinds() -> [(Fields, Fields); 3] {
    let kind = |customer: bool| {
        let mut layer = FteMatchSetLyr24::ZERO;
        layer.set_cvlan_tag(customer).set_svlan_tag(!customer);
        layer
    };
    let (no_layer, no_misc) = (FteMatchSetLyr24::ZERO, FteMatchSetMisc::ZERO);
    let first = |customer: bool| words(&kind(customer), &no_misc, &no_layer);
    let inner = |customer: bool| words(&no_layer, &no_misc, &kind(customer));
    let second = |customer: bool| {
        let mut misc = FteMatchSetMisc::ZERO;
        misc.set_outer_second_cvlan_tag(customer)
            .set_outer_second_svlan_tag(!customer);
        words(&no_layer, &misc, &no_layer)
    };
    [
        (first(true), first(false)),
        (second(true), second(false)),
        (inner(true), inner(false)),
    ]
}

fn meet(a: &Fields, b: &Fields) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

/// A group's criteria.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mask {
    bits: Fields,
    /// The words that are not zero, by their places.
    used: Vec<(usize, u64)>,
    /// The bits that a frame must not have.
    absent: Vec<(usize, u64)>,
}

impl Mask {
    /// Criteria from a command.
    pub(crate) fn new(
        direction: Direction,
        enable: u8,
        criteria: &FteMatchParam,
    ) -> Result<Self, Syndrome> {
        if enable & !(OUTER_HEADERS | MISC_PARAMETERS | INNER_HEADERS) != 0 {
            return Err(Syndrome::FlowGroupCriteria);
        }
        let bits = of_command(criteria)?;
        let (outer, misc, inner) = (&bits[..MISC], &bits[MISC..INNER], &bits[INNER..]);
        let disabled = |section: u8, words: &[u64]| {
            enable & section == 0 && words.iter().any(|&word| word != 0)
        };
        if disabled(OUTER_HEADERS, outer)
            || disabled(MISC_PARAMETERS, misc)
            || disabled(INNER_HEADERS, inner)
        {
            return Err(Syndrome::FlowGroupMask);
        }
        if bits
            .iter()
            .zip(matchable(direction))
            .any(|(asked, can)| asked & !can != 0)
        {
            return Err(Syndrome::FlowField);
        }
        // A group that asks for one kind of tag only sees frames without the other: asked for and not set means that there
        // is no tag at all, as drivers have it for untagged frames.
        let mut absent = Vec::new();
        for (customer, service) in tag_kinds() {
            match (meet(&bits, &customer), meet(&bits, &service)) {
                (true, false) => absent.extend(nonzero(&service)),
                (false, true) => absent.extend(nonzero(&customer)),
                _ => {}
            }
        }
        Ok(Self {
            bits,
            used: nonzero(&bits).collect(),
            absent,
        })
    }

    pub(crate) fn bits(&self) -> &Fields {
        &self.bits
    }

    /// Returns `true` if an entry's value asks for nothing that the group does not look at.
    pub(crate) fn covers(&self, value: &Fields) -> bool {
        value
            .iter()
            .zip(&self.bits)
            .all(|(value, mask)| value & !mask == 0)
    }

    /// The key by which entries are found; `None` if no entry of the group can match.
    pub(crate) fn key<'k>(&self, of: &Fields, key: &'k mut Vec<u64>) -> Option<&'k [u64]> {
        if self.absent.iter().any(|&(at, bits)| of[at] & bits != 0) {
            return None;
        }
        key.clear();
        key.extend(self.used.iter().map(|&(at, mask)| of[at] & mask));
        Some(key)
    }

    /// The key under which an entry is filed.
    pub(crate) fn filed(&self, value: &Fields) -> Box<[u64]> {
        self.used
            .iter()
            .map(|&(at, mask)| value[at] & mask)
            .collect()
    }
}

fn nonzero(fields: &Fields) -> impl Iterator<Item = (usize, u64)> {
    fields
        .iter()
        .copied()
        .enumerate()
        .filter(|&(_, word)| word != 0)
}
