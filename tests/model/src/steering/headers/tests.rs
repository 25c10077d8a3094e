//! Frames made by hand, taken apart.

use super::*;

pub(crate) const ME: [u8; 6] = [2, 0xc9, 0, 0, 0, 1];
pub(crate) const PEER: [u8; 6] = [2, 0xc9, 0, 0, 0, 2];

/// An Ethernet frame with tags (service, TCI).
pub(crate) fn frame(to: [u8; 6], tags: &[(bool, u16)], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [to, PEER].concat();
    for &(service, tci) in tags {
        let kind: u16 = if service { 0x88a8 } else { 0x8100 };
        frame.extend(kind.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A version 4 datagram; `place` is flags and offset.
pub(crate) fn ipv4(protocol: u8, place: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0xb9, 0, 0, 0, 7];
    ip[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    ip.extend(place.to_be_bytes());
    ip.extend([61, protocol, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    ip.extend(payload);
    ip
}

pub(crate) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x6b, 0x9a, 0xbc, 0xde];
    ip.extend((payload.len() as u16).to_be_bytes());
    ip.extend([next, 62]);
    ip.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    ip.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    ip.extend(payload);
    ip
}

pub(crate) fn tcp() -> Vec<u8> {
    let mut tcp = vec![0x12, 0x34, 0x56, 0x78, 0, 0, 0, 1, 0, 0, 0, 2, 0x51, 0x42];
    tcp.resize(24, 0xdd);
    tcp
}

pub(crate) fn udp() -> Vec<u8> {
    vec![0x13, 0x88, 0x13, 0x89, 0, 12, 0, 0, 1, 2, 3, 4]
}

fn parse(frame: &[u8]) -> Headers {
    Headers::parse(frame).unwrap()
}

/// Xorshift: the same numbers from the same seed.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// A frame of random kind, cut off at times.
pub(crate) fn random_frame(rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng, from: &[u8]| from[rng.below(from.len() as u64) as usize];
    let to = [
        pick(rng, &[0, 1, 0x33]),
        0xc9,
        0,
        0,
        0,
        pick(rng, &[0, 1, 2]),
    ];
    let tags: Vec<(bool, u16)> = (0..rng.below(3))
        .map(|_| (rng.below(2) == 0, u16::from(pick(rng, &[0, 1, 2]))))
        .collect();
    let mut payload = match rng.below(3) {
        0 => tcp(),
        1 => udp(),
        _ => vec![8; 8],
    };
    if let Some(port) = payload.get_mut(3) {
        *port = pick(rng, &[1, 2, 3]);
    }
    let protocol = pick(rng, &[6, 17, 1, 58]);
    let mut frame = match rng.below(4) {
        0 => frame(to, &tags, 0x0806, &[0; 46]),
        1 => {
            let extension = pick(rng, &[0, 43, 44, 60, protocol, protocol]);
            let header = match extension {
                44 => vec![protocol, 0, 0, pick(rng, &[0, 0, 1, 8]), 0, 0, 0, 1],
                0 | 43 | 60 => vec![protocol, 0, 0, 0, 0, 0, 0, 0],
                _ => Vec::new(),
            };
            let ip = ipv6(extension, &[header, payload].concat());
            frame(to, &tags, 0x86dd, &ip)
        }
        _ => frame(
            to,
            &tags,
            0x0800,
            &ipv4(protocol, [0, 0x2000][rng.below(2) as usize], &payload),
        ),
    };
    if rng.below(8) == 0 {
        frame.truncate(rng.below(frame.len() as u64) as usize);
    }
    frame
}

#[test]
fn arp() {
    let arp = parse(&frame([0xff; 6], &[], 0x0806, &[0; 46]));
    assert_eq!(
        (arp.ethertype, arp.network, arp.transport),
        (0x0806, None, None)
    );
    let outer = arp.layer();
    assert_eq!((outer.dmac_47_16(), outer.dmac_15_0()), (u32::MAX, 0xffff));
    assert_eq!((outer.smac_47_16(), outer.smac_15_0()), (0x02c9_0000, 2));
    assert_eq!((outer.ethertype(), outer.ip_version()), (0x0806, 0));
    assert!(!outer.cvlan_tag() && !outer.svlan_tag());
}

#[test]
fn ipv4_tcp_udp_and_icmp() {
    // Padding behind the datagram belongs to nothing.
    let mut padded = frame(ME, &[], 0x0800, &ipv4(6, 0x4000, &tcp()));
    padded.extend([0xee; 9]);
    let headers = parse(&padded);
    let ip = headers.network.unwrap();
    assert_eq!((ip.offset, ip.payload, ip.end), (14, 34, 58));
    let outer = headers.layer();
    assert_eq!(
        (outer.ip_version(), outer.ip_protocol(), outer.ipv4_ihl()),
        (4, 6, 5)
    );
    assert_eq!(
        (outer.ip_dscp(), outer.ip_ecn(), outer.ttl_hoplimit()),
        (0x2e, 1, 61)
    );
    assert_eq!(
        (outer.tcp_sport(), outer.tcp_dport(), outer.tcp_flags()),
        (0x1234, 0x5678, 0x142)
    );
    assert_eq!(
        (outer.udp_sport(), outer.udp_dport(), outer.frag()),
        (0, 0, false)
    );
    assert_eq!(
        outer.src_ipv4_src_ipv6(),
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]
    );
    assert_eq!(outer.dst_ipv4_dst_ipv6()[12..], [10, 0, 0, 1]);

    let outer = parse(&frame(ME, &[], 0x0800, &ipv4(17, 0, &udp()))).layer();
    assert_eq!(
        (outer.ip_protocol(), outer.udp_sport(), outer.udp_dport()),
        (17, 5000, 5001)
    );
    assert_eq!(
        (outer.tcp_sport(), outer.tcp_dport(), outer.tcp_flags()),
        (0, 0, 0)
    );

    let icmp = parse(&frame(ME, &[], 0x0800, &ipv4(1, 0, &[8; 16])));
    assert_eq!((icmp.layer().ip_protocol(), icmp.transport), (1, None));
}

#[test]
fn fragments_have_no_ports() {
    for (place, fragment) in [
        (0x2000, true),
        (0x2005, true),
        (0x0005, true),
        (0x4000, false),
    ] {
        let headers = parse(&frame(ME, &[], 0x0800, &ipv4(17, place, &udp())));
        assert_eq!(headers.layer().frag(), fragment, "{place:#x}");
        assert_eq!(headers.transport.is_none(), fragment, "{place:#x}");
        assert_eq!(headers.layer().ip_protocol(), 17);
    }
}

#[test]
fn ipv6_and_its_extension_headers() {
    let headers = parse(&frame(ME, &[], 0x86dd, &ipv6(6, &tcp())));
    let outer = headers.layer();
    assert_eq!(
        (
            outer.ip_version(),
            outer.ip_protocol(),
            outer.ttl_hoplimit()
        ),
        (6, 6, 62)
    );
    assert_eq!(
        (outer.ip_dscp(), outer.ip_ecn(), outer.tcp_dport()),
        (0x2e, 1, 0x5678)
    );
    assert_eq!(outer.src_ipv4_src_ipv6()[15], 2);
    assert_eq!(headers.misc().outer_ipv6_flow_label(), 0xa_bcde);

    // Hop-by-hop options of 8 and destination options of 16 bytes, as in a multicast listener report and behind.
    let options = |next: u8, len: u8| {
        let mut header = vec![next, len];
        header.resize(8 + usize::from(len) * 8, 0);
        header
    };
    let chain = [options(60, 0), options(43, 1), options(58, 0), vec![143; 8]].concat();
    let report = parse(&frame(ME, &[], 0x86dd, &ipv6(0, &chain)));
    assert_eq!(report.layer().ip_protocol(), 58);
    assert_eq!(report.network.unwrap().payload, 14 + 40 + 8 + 16 + 8);

    // An authentication header is what a table asks for, not stepped over.
    let sealed = parse(&frame(ME, &[], 0x86dd, &ipv6(51, &[6; 24])));
    assert_eq!((sealed.layer().ip_protocol(), sealed.transport), (51, None));

    // A chain that is cut off stays where the cut is.
    for len in 8..chain.len() {
        let cut = parse(&frame(ME, &[], 0x86dd, &ipv6(0, &chain[..len])));
        let stop = match len {
            8..24 => 60,
            24..32 => 43,
            _ => 58,
        };
        assert_eq!(cut.layer().ip_protocol(), stop, "{len}");
    }

    let fragment = |place: u16| {
        let [high, low] = place.to_be_bytes();
        [vec![17, 0, high, low, 0, 0, 0, 1], udp()].concat()
    };
    for (place, is_fragment) in [(0, false), (1, true), (0x40, true), (0x41, true)] {
        let headers = parse(&frame(ME, &[], 0x86dd, &ipv6(44, &fragment(place))));
        assert_eq!(headers.layer().frag(), is_fragment, "{place:#x}");
        assert_eq!(headers.transport.is_none(), is_fragment, "{place:#x}");
        assert_eq!(headers.layer().ip_protocol(), 17);
    }
}

#[test]
fn tags() {
    let tagged = parse(&frame(ME, &[(false, 0xb00a)], 0x0800, &ipv4(6, 0, &tcp())));
    let outer = tagged.layer();
    assert!(outer.cvlan_tag() && !outer.svlan_tag());
    assert_eq!(
        (outer.first_prio(), outer.first_cfi(), outer.first_vid()),
        (5, true, 10)
    );
    // The type is the one behind the tags, and the headers are found there.
    assert_eq!((outer.ethertype(), outer.tcp_dport()), (0x0800, 0x5678));
    assert_eq!(tagged.misc(), Default::default());

    let double = parse(&frame(
        ME,
        &[(true, 0x2064), (false, 0xe0c8)],
        0x86dd,
        &ipv6(17, &udp()),
    ));
    let (outer, misc) = (double.layer(), double.misc());
    assert!(outer.svlan_tag() && !outer.cvlan_tag());
    assert_eq!((outer.first_prio(), outer.first_vid()), (1, 100));
    assert!(misc.outer_second_cvlan_tag() && !misc.outer_second_svlan_tag());
    assert_eq!(
        (misc.outer_second_prio(), misc.outer_second_vid()),
        (7, 200)
    );
    assert_eq!((outer.ethertype(), outer.udp_dport()), (0x86dd, 5001));

    let triple = parse(&frame(
        ME,
        &[(true, 1), (true, 2), (false, 3)],
        0x0800,
        &ipv4(6, 0, &tcp()),
    ));
    assert_eq!((triple.ethertype, triple.network), (0x8100, None));
}

#[test]
fn runts_and_contradictions() {
    let whole = [
        frame(ME, &[], 0x0800, &ipv4(6, 0, &tcp())),
        frame(
            ME,
            &[(true, 1), (false, 2)],
            0x86dd,
            &ipv6(0, &[vec![6, 1], vec![0; 14], tcp()].concat()),
        ),
        frame(
            ME,
            &[(false, 2)],
            0x86dd,
            &ipv6(44, &[vec![17, 0, 0, 0, 0, 0, 0, 0], udp()].concat()),
        ),
    ];
    for frame in &whole {
        assert!(parse(frame).transport.is_some());
        for len in 0..frame.len() {
            let parsed = Headers::parse(&frame[..len]);
            assert_eq!(parsed.is_some(), len >= 14);
            // What is cut off is not there, rather than read from somewhere else.
            if let Some(Transport { source, .. }) = parsed.and_then(|headers| headers.transport) {
                assert!([0x1234, 0x1388].contains(&source));
            }
        }
    }
    let broken = |at: usize, value: u8| {
        let mut ip = ipv4(6, 0, &tcp());
        ip[at] = value;
        parse(&frame(ME, &[], 0x0800, &ip))
    };
    // Header length below the least and beyond the datagram, another version, a total length below the header.
    assert!(broken(0, 0x44).network.is_none());
    assert!(broken(0, 0x4f).network.is_none());
    assert!(broken(0, 0x65).network.is_none());
    assert!(broken(3, 19).network.is_none());
    // A total length that leaves no space for the segment's header.
    assert!(broken(3, 39).network.is_some() && broken(3, 39).transport.is_none());
    // Longer than the frame: there is what there is.
    assert!(broken(2, 9).transport.is_some());
}

/// The data path parses headers separately for checksums and hashes: both must find the same.
#[test]
fn the_data_path_sees_the_same_headers() {
    use crate::ethernet::frame::{Transport as Seen, parse as look};
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(3);
    println!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let (mut networks, mut transports) = (0, 0);
    for round in 0..20_000 {
        let mut frame = random_frame(&mut rng);
        while rng.below(2) == 0 && !frame.is_empty() {
            let at = rng.below(frame.len().min(64) as u64) as usize;
            frame[at] ^= 1 << rng.below(8);
        }
        let what = || format!("seed {seed} round {round} frame {frame:02x?}");
        let (Some(ours), theirs) = (Headers::parse(&frame), look(&frame)) else {
            continue;
        };
        // Behind a third tag only the data path looks.
        let Some(network) = theirs.network.filter(|seen| seen.sound) else {
            continue;
        };
        if ours.ethertype == ethertype::CVLAN || ours.ethertype == ethertype::SVLAN {
            continue;
        }
        let ip = ours.network.unwrap_or_else(|| panic!("{}", what()));
        assert_eq!((ip.offset, ip.end), (network.at, network.end), "{}", what());
        assert_eq!(ip.fragment, network.fragment, "{}", what());
        if !ip.fragment {
            let seen = (network.transport, network.protocol);
            assert_eq!((ip.payload, ip.protocol), seen, "{}", what());
        }
        networks += 1;
        if let Some(seen) = theirs.transport {
            let ours = ours.transport.unwrap_or_else(|| panic!("{}", what()));
            assert_eq!(ours.tcp, matches!(seen, Seen::Tcp { .. }), "{}", what());
            assert_eq!(ip.payload, seen.at(), "{}", what());
            transports += 1;
        }
    }
    assert!(
        networks > 5000 && transports > 2000,
        "{networks} {transports}"
    );
}
