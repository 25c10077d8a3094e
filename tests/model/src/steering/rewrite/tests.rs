//! Changed frames against frames that were made with the changed values, checksums included.

use super::super::headers::tests::Rng;
use super::*;
use crate::ethernet::{checksum, frame};
use bareverbs_firmware_cmds::values::HeaderField::*;

/// A field's value, and what sets it.
type Field<'a> = (u32, Box<dyn FnOnce(u32) + 'a>);

/// The parts of a frame.
#[derive(Clone)]
struct Parts {
    destination: [u8; 6],
    source: [u8; 6],
    vlan: Option<u16>,
    dscp: u8,
    ttl: u8,
    addresses: [u32; 8],
    v6: bool,
    tcp: bool,
    ports: [u16; 2],
    flags: u16,
    length: usize,
}

impl Parts {
    fn random(rng: &mut Rng) -> Self {
        let mut word = || rng.below(1 << 32) as u32;
        Self {
            destination: [2, 0, 0, 0, 0, word() as u8],
            source: [2, 0, 0, 0, 1, word() as u8],
            vlan: (word() & 1 == 0).then(|| word() as u16),
            dscp: word() as u8 & 0x3f,
            ttl: word() as u8,
            addresses: core::array::from_fn(|_| word()),
            v6: word() & 1 == 0,
            tcp: word() & 1 == 0,
            ports: [word() as u16, word() as u16],
            flags: word() as u16 & 0x1ff,
            length: word() as usize & 0x3f,
        }
    }

    /// The frame, with right checksums.
    fn frame(&self) -> Vec<u8> {
        let mut frame = [self.destination, self.source].concat();
        if let Some(tci) = self.vlan {
            frame.extend([0x81, 0]);
            frame.extend(tci.to_be_bytes());
        }
        let header: usize = if self.tcp { 20 } else { 8 };
        let body = (header + self.length) as u16;
        let protocol = if self.tcp { 6 } else { 17 };
        let addresses = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_be_bytes()).collect()
        };
        if self.v6 {
            frame.extend([0x86, 0xdd]);
            frame.extend((6 << 28 | u32::from(self.dscp) << 22 | 0x1_2345).to_be_bytes());
            frame.extend(body.to_be_bytes());
            frame.extend([protocol, self.ttl]);
            frame.extend(addresses(&self.addresses));
        } else {
            frame.extend([8, 0, 0x45, self.dscp << 2 | 1]);
            frame.extend((20 + body).to_be_bytes());
            frame.extend([0, 7, 0x40, 0, self.ttl, protocol, 0, 0]);
            frame.extend(addresses(&self.addresses[..2]));
        }
        frame.extend(self.ports.iter().flat_map(|port| port.to_be_bytes()));
        if self.tcp {
            frame.extend([0, 0, 0, 1, 0, 0, 0, 2]);
            frame.extend((0x5000 | self.flags).to_be_bytes());
            frame.extend([0x10, 0, 0, 0, 0, 0]);
        } else {
            frame.extend(body.to_be_bytes());
            frame.extend([0, 0]);
        }
        frame.extend((0..self.length).map(|byte| byte as u8 ^ 0x5a));
        let parsed = frame::parse(&frame);
        checksum::fill(&mut frame, &parsed, true, true);
        frame
    }

    /// The field, if the frame has it; and what sets it.
    fn field(&mut self, field: HeaderField) -> Option<Field<'_>> {
        fn bytes(bytes: &mut [u8]) -> Field<'_> {
            let fold = |word: u32, byte: &u8| word << 8 | u32::from(*byte);
            let old = bytes.iter().fold(0, fold);
            let set = move |value: u32| {
                let at = 4 - bytes.len();
                bytes.copy_from_slice(&value.to_be_bytes()[at..]);
            };
            (old, Box::new(set))
        }
        fn short(word: &mut u16) -> Field<'_> {
            (
                u32::from(*word),
                Box::new(move |value| *word = value as u16),
            )
        }
        let (v6, tcp) = (self.v6, self.tcp);
        let addresses = &mut self.addresses;
        let address = move |version: bool, at: usize| {
            let word = (version == v6).then(move || &mut addresses[at]);
            word.map(|word| -> Field<'_> { (*word, Box::new(move |value| *word = value)) })
        };
        match field {
            Dmac47_16 => Some(bytes(&mut self.destination[..4])),
            Dmac15_0 => Some(bytes(&mut self.destination[4..])),
            Smac47_16 => Some(bytes(&mut self.source[..4])),
            Smac15_0 => Some(bytes(&mut self.source[4..])),
            FirstVid => self.vlan.as_mut().map(|tci| {
                let old = *tci;
                let set = move |value: u32| *tci = old & 0xf000 | value as u16;
                (u32::from(old & 0xfff), Box::new(set) as Box<_>)
            }),
            IpDscp => Some(bytes(core::slice::from_mut(&mut self.dscp))),
            IpTtl => (!v6).then(|| bytes(core::slice::from_mut(&mut self.ttl))),
            Ipv6HopLimit => v6.then(|| bytes(core::slice::from_mut(&mut self.ttl))),
            Sipv4 => address(false, 0),
            Dipv4 => address(false, 1),
            Sipv6_127_96 => address(true, 0),
            Sipv6_95_64 => address(true, 1),
            Sipv6_63_32 => address(true, 2),
            Sipv6_31_0 => address(true, 3),
            Dipv6_127_96 => address(true, 4),
            Dipv6_95_64 => address(true, 5),
            Dipv6_63_32 => address(true, 6),
            Dipv6_31_0 => address(true, 7),
            TcpSport => tcp.then(|| short(&mut self.ports[0])),
            TcpDport => tcp.then(|| short(&mut self.ports[1])),
            UdpSport => (!tcp).then(|| short(&mut self.ports[0])),
            UdpDport => (!tcp).then(|| short(&mut self.ports[1])),
            TcpFlags => tcp.then(|| short(&mut self.flags)),
            // Frames of another type would not be parsed.
            Ethertype => None,
        }
    }
}

fn set(field: HeaderField, offset: u8, length: u8, data: u32) -> [u8; EACH] {
    let mut action = SetActionIn::ZERO;
    action
        .set_action_type(1)
        .set_field(field.number())
        .set_offset(offset)
        .set_length(length)
        .set_data(data);
    action.0
}

fn add(field: HeaderField, data: u32) -> [u8; EACH] {
    let mut action = AddActionIn::ZERO;
    action
        .set_action_type(2)
        .set_field(field.number())
        .set_data(data);
    action.0
}

fn apply(actions: &[[u8; EACH]], frame: &mut [u8]) {
    let rewrite = Rewrite::new(Direction::Receive, actions.as_flattened()).unwrap();
    let headers = Headers::parse(frame).unwrap();
    rewrite.apply(frame, &headers);
}

#[test]
fn changed_frames_are_those_with_the_changed_values() {
    let mut rng = Rng::new(16);
    for _ in 0..4000 {
        let mut parts = Parts::random(&mut rng);
        let mut frame = parts.frame();
        let mut actions = Vec::new();
        for _ in 0..=rng.below(4) {
            let field = HeaderField::ALL[rng.below(HeaderField::ALL.len() as u64) as usize];
            let wide = width(field);
            if field == Ethertype {
                continue;
            }
            let (action, change): (_, Box<dyn Fn(u32) -> u32>) = if rng.below(2) == 0 {
                let value = rng.below(1 << wide) as u32;
                let sum =
                    move |old: u32| ((u64::from(old) + u64::from(value)) % (1 << wide)) as u32;
                (add(field, value), Box::new(sum))
            } else {
                let offset = rng.below(u64::from(wide)) as u32;
                let length = 1 + rng.below(u64::from(wide - offset)) as u32;
                let value = rng.below(1 << length) as u32;
                let bits = move |old: u32| {
                    let replaced = |bit: u32| (offset..offset + length).contains(&bit);
                    (0..32).fold(0, |word, bit| {
                        let from = if replaced(bit) {
                            value >> (bit - offset)
                        } else {
                            old >> bit
                        };
                        word | (from & 1) << bit
                    })
                };
                (
                    set(field, offset as u8, length as u8 & 0x1f, value),
                    Box::new(bits),
                )
            };
            actions.push(action);
            if let Some((old, write)) = parts.field(field) {
                write(change(old));
            }
        }
        apply(&actions, &mut frame);
        assert_eq!(frame, parts.frame(), "{actions:x?}");
    }
}

#[test]
fn wrong_checksums_stay_wrong_and_absent_ones_absent() {
    let mut rng = Rng::new(17);
    let mut parts = Parts::random(&mut rng);
    (parts.v6, parts.tcp, parts.vlan) = (false, false, None);
    let mut wrong = parts.frame();
    wrong[24] ^= 1;
    wrong[40] ^= 1;
    let mut absent = parts.frame();
    absent[40..42].fill(0);
    for frame in [&mut wrong, &mut absent] {
        apply(&[set(Dipv4, 0, 0, 0x0a00_0001), add(IpTtl, 0xff)], frame);
    }
    let verdict = checksum::check(&wrong, &frame::parse(&wrong));
    assert!(!verdict.network_ok && !verdict.transport_ok);
    assert_eq!(absent[40..42], [0, 0]);
    assert!(checksum::check(&absent, &frame::parse(&absent)).transport_ok);
}

#[test]
fn the_type_behind_tags() {
    let mut parts = Parts::random(&mut Rng::new(18));
    parts.vlan = Some(5);
    let mut frame = parts.frame();
    apply(&[set(Ethertype, 0, 16, 0x88b5)], &mut frame);
    assert_eq!(frame[12..18], [0x81, 0, 0, 5, 0x88, 0xb5]);
}

/// Frames that are cut off anywhere lose nothing else.
#[test]
fn short_frames() {
    let mut rng = Rng::new(19);
    for _ in 0..2000 {
        let whole = Parts::random(&mut rng).frame();
        let mut frame = whole[..14 + rng.below(whole.len() as u64 - 14) as usize].to_vec();
        let field = HeaderField::ALL[rng.below(HeaderField::ALL.len() as u64) as usize];
        let before = frame.clone();
        apply(&[add(field, 0)], &mut frame);
        assert_eq!(frame, before);
    }
}

#[test]
fn actions_that_are_refused() {
    let refused = |action: [u8; EACH]| Rewrite::new(Direction::Receive, &action).unwrap_err();
    let with = |change: &dyn Fn(&mut SetActionIn)| {
        let mut action = SetActionIn(set(IpTtl, 0, 8, 1));
        change(&mut action);
        action.0
    };
    let kind = |kind| {
        with(&|action| {
            action.set_action_type(kind);
        })
    };
    for other in [0, 3, 4, 15] {
        assert_eq!(refused(kind(other)), Syndrome::RewriteAction);
    }
    // A sum has neither a place nor a length.
    assert_eq!(refused(kind(2)), Syndrome::RewriteAction);
    let reserved = with(&|action| action.0[2] |= 0x80);
    assert_eq!(refused(reserved), Syndrome::RewriteAction);
    let field = |number| {
        with(&|action| {
            action.set_field(number);
        })
    };
    for unknown in [0, 0x18, 0x49, 0xfff] {
        assert_eq!(refused(field(unknown)), Syndrome::RewriteField);
    }
    for beyond in [
        set(IpTtl, 0, 9, 1),
        set(IpTtl, 1, 8, 1),
        set(IpTtl, 0, 0, 1),
        set(IpTtl, 0, 4, 16),
        add(IpTtl, 256),
    ] {
        assert_eq!(refused(beyond), Syndrome::RewriteRange);
    }
    assert_eq!(refused(set(Sipv4, 1, 0, 1)), Syndrome::RewriteRange);
}
