//! The tables that Linux's network driver builds: VLAN, L2, traffic type, TIRs; and frames on their way through them.

use crate::lab::*;
use bareverbs_firmware_cmds::flow::{QueryFlowGroupIn, QueryFlowTableIn, QueryFteIn};
use bareverbs_firmware_cmds::hca::TeardownHcaIn;
use bareverbs_firmware_cmds::tir::DestroyTirIn;
use connectx_model::{ObjectKind, Syndrome};

const MAC: [u8; 6] = [2, 0xc9, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0xc9, 0, 0, 0, 2];
const BROADCAST: [u8; 6] = [0xff; 6];

/// Traffic types in the order of their rules: (name, IP version, protocol).
const TYPES: [(&str, u8, u8); 11] = [
    ("tcp4", 4, 6),
    ("tcp6", 6, 6),
    ("udp4", 4, 17),
    ("udp6", 6, 17),
    ("ah4", 4, 51),
    ("ah6", 6, 51),
    ("esp4", 4, 50),
    ("esp6", 6, 50),
    ("ip4", 4, 0),
    ("ip6", 6, 0),
    ("any", 0, 0),
];

fn set_dmac(set: &mut bareverbs_firmware_cmds::flow::FteMatchSetLyr24, mac: [u8; 6]) {
    let [a, b, c, d, e, f] = mac;
    set.set_dmac_47_16(u32::from_be_bytes([a, b, c, d]))
        .set_dmac_15_0(u16::from_be_bytes([e, f]));
}

struct Tables {
    lab: Lab,
    anchor: u32,
    ttc: u32,
    l2: u32,
    vlan: u32,
    groups: Vec<(u32, u32)>,
    tirs: Vec<u32>,
    counters: Vec<u32>,
    /// Entries, so that they can be deleted.
    entries: Vec<(u32, u32)>,
    /// The groups on one VLAN of either kind, and those on any.
    vlan_groups: [u32; 4],
}

/// First indexes of the groups of the VLAN table.
const VLAN_GROUPS: [(u32, u32); 5] = [
    (0, 4095),
    (4096, 8191),
    (8192, 8193),
    (8194, 8194),
    (8195, 8195),
];

impl Tables {
    fn build() -> Self {
        Self::build_on(Lab::new())
    }

    fn build_on(mut lab: Lab) -> Self {
        let anchor = lab.table(57, 0, 0);
        lab.set_root(anchor).unwrap();
        let ttc = lab.table(12, 7, anchor);
        lab.set_root(ttc).unwrap();
        let l2 = lab.table(11, 16, anchor);
        lab.set_root(l2).unwrap();
        let vlan = lab.table(10, 16, anchor);
        lab.set_root(vlan).unwrap();
        let mut tables = Self {
            lab,
            anchor,
            ttc,
            l2,
            vlan,
            groups: Vec::new(),
            tirs: Vec::new(),
            counters: Vec::new(),
            entries: Vec::new(),
            vlan_groups: [0; 4],
        };
        tables.build_ttc();
        tables.build_l2();
        tables.build_vlan();
        tables
    }

    fn group(
        &mut self,
        table: u32,
        range: (u32, u32),
        criteria: impl FnOnce(&mut bareverbs_firmware_cmds::flow::FteMatchSetLyr24),
    ) -> u32 {
        let group = self.lab.group(table, range, criteria);
        self.groups.push((table, group));
        group
    }

    fn set(&mut self, rule: Rule) {
        self.entries.push((rule.table, rule.index));
        self.lab.set(&rule).unwrap();
    }

    fn build_ttc(&mut self) {
        let ttc = self.ttc;
        let l4 = self.group(ttc, (0, 13), |set| {
            set.set_ip_version(0xf).set_ip_protocol(0xff);
        });
        let l3 = self.group(ttc, (14, 15), |set| {
            set.set_ip_version(0xf);
        });
        let any = self.group(ttc, (16, 16), |_| ());
        for (at, (_, version, protocol)) in (0..).zip(TYPES) {
            let (group, index) = match (version, protocol) {
                (0, _) => (any, 16),
                (_, 0) => (l3, 14 + at - 8),
                _ => (l4, at),
            };
            let tir = self.lab.tir();
            let counter = self.lab.counter();
            self.tirs.push(tir);
            self.counters.push(counter);
            self.set(
                Rule::new(ttc, group, index, &[to_tir(tir)])
                    .value(|set| {
                        set.set_ip_version(version).set_ip_protocol(protocol);
                    })
                    .counted(counter),
            );
        }
    }

    fn build_l2(&mut self) {
        let (l2, ttc) = (self.l2, self.ttc);
        let full = self.group(l2, (0, 32767), |set| set_dmac(set, BROADCAST));
        let all_multicast = self.group(l2, (32768, 32768), |set| set_dmac(set, [1, 0, 0, 0, 0, 0]));
        self.group(l2, (32769, 32769), |_| ());
        for (index, mac) in [
            BROADCAST,
            MAC,
            [0x33, 0x33, 0, 0, 0, 1],
            [1, 0, 0x5e, 0, 0, 1],
        ]
        .into_iter()
        .enumerate()
        {
            self.set(
                Rule::new(l2, full, index as u32, &[to_table(ttc)]).value(|set| set_dmac(set, mac)),
            );
        }
        assert_eq!(all_multicast, full + 1);
    }

    fn build_vlan(&mut self) {
        let (vlan, l2) = (self.vlan, self.l2);
        let c_vid = self.group(vlan, VLAN_GROUPS[0], |set| {
            set.set_cvlan_tag(true).set_first_vid(0xfff);
        });
        let s_vid = self.group(vlan, VLAN_GROUPS[1], |set| {
            set.set_svlan_tag(true).set_first_vid(0xfff);
        });
        let c_any = self.group(vlan, VLAN_GROUPS[2], |set| {
            set.set_cvlan_tag(true);
        });
        let s_any = self.group(vlan, VLAN_GROUPS[3], |set| {
            set.set_svlan_tag(true);
        });
        self.group(vlan, VLAN_GROUPS[4], |_| ());
        self.vlan_groups = [c_vid, s_vid, c_any, s_any];
        // Untagged, and VLAN 0: what the driver has before a VLAN is added.
        self.set(Rule::new(vlan, c_any, 8192, &[to_table(l2)]));
        self.add_vlan(0);
    }

    fn add_vlan(&mut self, vid: u16) {
        let rule = Rule::new(
            self.vlan,
            self.vlan_groups[0],
            u32::from(vid),
            &[to_table(self.l2)],
        );
        self.set(rule.value(|set| {
            set.set_cvlan_tag(true).set_first_vid(vid);
        }));
    }

    /// Returns the type that a frame was counted as; `None` if it went nowhere.
    fn walk(&mut self, frame: &[u8]) -> Option<&'static str> {
        let before: Vec<_> = self.totals();
        self.lab.receive(frame);
        let after = self.totals();
        let mut hit = None;
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            if before != after {
                assert!(hit.is_none(), "counted twice: {frame:02x?}");
                let grown = (after.0 - before.0, after.1 - before.1);
                assert_eq!(grown, (1, frame.len() as u64));
                hit = Some(TYPES[at].0);
            }
        }
        hit
    }

    fn totals(&mut self) -> Vec<(u64, u64)> {
        let counters = self.counters.clone();
        let total = counters.iter().map(|&counter| self.lab.counted(counter));
        total.collect()
    }

    /// Everything back, as the driver does it.
    fn take_down(&mut self) {
        for (table, index) in std::mem::take(&mut self.entries) {
            self.lab.delete(table, index).unwrap();
        }
        for (table, group) in std::mem::take(&mut self.groups).into_iter().rev() {
            self.lab.destroy_group(table, group).unwrap();
        }
        // Each root gives way to the next table before it goes; the last one just goes.
        self.lab.set_root(self.l2).unwrap();
        self.lab.destroy_table(self.vlan).unwrap();
        self.lab.set_root(self.ttc).unwrap();
        self.lab.destroy_table(self.l2).unwrap();
        self.lab.set_root(self.anchor).unwrap();
        self.lab.destroy_table(self.ttc).unwrap();
        self.lab.destroy_table(self.anchor).unwrap();
        for &counter in &self.counters {
            let mut free = bareverbs_firmware_cmds::flow::DeallocFlowCounterIn::new();
            free.set_flow_counter_id(counter);
            self.lab.node.command(&free).unwrap();
        }
        for &tir in &self.tirs {
            self.lab.node.command(&destroy_tir(tir)).unwrap();
        }
    }
}

fn destroy_tir(tir: u32) -> DestroyTirIn {
    let mut destroy = DestroyTirIn::new();
    destroy.set_tirn(tir);
    destroy
}

fn frame(to: [u8; 6], tags: &[(u16, u16)], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [to, PEER].concat();
    for (kind, tci) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![
        0x45,
        0,
        0,
        20 + payload.len() as u8,
        0,
        0,
        0,
        0,
        64,
        protocol,
    ];
    ip.extend([0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    ip.extend(payload);
    ip
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
    ip.extend([0xfe; 32]);
    ip.extend(payload);
    ip
}

const C: u16 = 0x8100;
const S: u16 = 0x88a8;

#[test]
fn frames_find_their_traffic_type() {
    let mut tables = Tables::build();
    let segment = [0x11; 24];
    for (name, version, protocol) in TYPES {
        let frame = match (version, protocol) {
            (4, 0) => frame(MAC, &[], 0x0800, &ipv4(1, &segment)),
            (4, _) => frame(MAC, &[], 0x0800, &ipv4(protocol, &segment)),
            (6, 0) => frame(MAC, &[], 0x86dd, &ipv6(58, &segment)),
            (6, _) => frame(MAC, &[], 0x86dd, &ipv6(protocol, &segment)),
            _ => frame(MAC, &[], 0x0806, &[0; 28]),
        };
        assert_eq!(tables.walk(&frame), Some(name));
    }
    let arp = |to| frame(to, &[], 0x0806, &[0; 28]);
    assert_eq!(tables.walk(&arp(BROADCAST)), Some("any"));
    // Multicast that was asked for, and that was not.
    assert_eq!(tables.walk(&arp([0x33, 0x33, 0, 0, 0, 1])), Some("any"));
    assert_eq!(tables.walk(&arp([0x33, 0x33, 0, 0, 0, 2])), None);
    // Neighbour discovery behind hop-by-hop options.
    let report = [vec![58, 0, 5, 2, 0, 0, 0, 0], vec![143; 16]].concat();
    let mld = frame([0x33, 0x33, 0, 0, 0, 1], &[], 0x86dd, &ipv6(0, &report));
    assert_eq!(tables.walk(&mld), Some("ip6"));
    // Fragments of a datagram stay together, the first as well.
    for place in [0x20, 0x01] {
        let mut ip = ipv4(17, &segment);
        ip[6] = place;
        assert_eq!(tables.walk(&frame(MAC, &[], 0x0800, &ip)), Some("udp4"));
    }
    // Frames to another MAC, runts, and an empty one.
    assert_eq!(tables.walk(&arp(PEER)), None);
    for len in 0..60 {
        let hit = tables.walk(&arp(MAC)[..len]);
        assert_eq!(hit, (len >= 14).then_some("any"), "{len}");
    }
}

#[test]
fn vlans_are_let_through_one_by_one() {
    let mut tables = Tables::build();
    let tagged = |tags: &[(u16, u16)]| frame(MAC, tags, 0x0800, &ipv4(6, &[0x11; 24]));
    assert_eq!(tables.walk(&tagged(&[])), Some("tcp4"));
    assert_eq!(tables.walk(&tagged(&[(C, 0xe000)])), Some("tcp4"));
    assert_eq!(tables.walk(&tagged(&[(C, 10)])), None);
    tables.add_vlan(10);
    // With any priority.
    assert_eq!(tables.walk(&tagged(&[(C, 0xf00a)])), Some("tcp4"));
    assert_eq!(tables.walk(&tagged(&[(C, 10), (C, 20)])), Some("tcp4"));
    // The driver's rule for untagged frames asks for no customer's tag, and means none at all.
    assert_eq!(tables.walk(&tagged(&[(S, 10)])), None);
    assert_eq!(tables.walk(&tagged(&[(S, 7), (C, 10)])), None);
    let any_service = Rule::new(
        tables.vlan,
        tables.vlan_groups[3],
        8194,
        &[to_table(tables.l2)],
    );
    tables.set(any_service.value(|set| {
        set.set_svlan_tag(true);
    }));
    assert_eq!(tables.walk(&tagged(&[(S, 10)])), Some("tcp4"));
    assert_eq!(tables.walk(&tagged(&[(S, 7), (C, 11)])), Some("tcp4"));
    assert_eq!(tables.walk(&tagged(&[(C, 11)])), None);
}

/// `ip link set promisc on`: a table before all others that sends everything to the traffic types; and all multicast.
#[test]
fn promiscuous_and_all_multicast() {
    let mut tables = Tables::build();
    let unknown = frame(PEER, &[(C, 99)], 0x0806, &[0; 28]);
    let group = frame([0x33, 0x33, 0, 0, 0, 2], &[], 0x0806, &[0; 28]);
    let all_multicast = tables.groups[4].1;
    let rule = Rule::new(tables.l2, all_multicast, 32768, &[to_table(tables.ttc)]);
    assert_eq!(tables.walk(&group), None);
    tables.set(rule.value(|set| set_dmac(set, [1, 0, 0, 0, 0, 0])));
    assert_eq!(tables.walk(&group), Some("any"));
    assert_eq!(tables.walk(&unknown), None);

    let (vlan, ttc) = (tables.vlan, tables.ttc);
    let promiscuous = tables.lab.table(9, 0, vlan);
    tables.lab.set_root(promiscuous).unwrap();
    let everything = tables.lab.group(promiscuous, (0, 0), |_| ());
    // Still empty: it misses to the VLANs.
    assert_eq!(tables.walk(&unknown), None);
    assert_eq!(tables.walk(&group), Some("any"));
    tables
        .lab
        .set(&Rule::new(promiscuous, everything, 0, &[to_table(ttc)]))
        .unwrap();
    assert_eq!(tables.walk(&unknown), Some("any"));
    let busy = tables.lab.destroy_table(vlan);
    assert_eq!(busy, Err(refused(Syndrome::FlowTableGroups)));
    tables.lab.delete(promiscuous, 0).unwrap();
    tables.lab.destroy_group(promiscuous, everything).unwrap();
    let busy = tables.lab.destroy_table(promiscuous);
    assert_eq!(busy, Err(refused(Syndrome::FlowTableRoot)));
    tables.lab.set_root(vlan).unwrap();
    tables.lab.destroy_table(promiscuous).unwrap();
    assert_eq!(tables.walk(&unknown), None);
}

#[test]
fn what_was_built_can_be_asked_for() {
    let mut tables = Tables::build();
    let mut query = QueryFlowTableIn::new();
    query.set_table_id(tables.l2);
    let answer = tables.lab.node.command(&query).unwrap();
    let context = answer.flow_table_context();
    assert_eq!((context.level(), context.log_size()), (11, 16));
    assert_eq!(
        (context.table_miss_action(), context.table_miss_id()),
        (MISS_FORWARD, tables.anchor)
    );
    let (table, group) = tables.groups[0];
    let mut query = QueryFlowGroupIn::new();
    query.set_table_id(table).set_group_id(group);
    let answer = tables.lab.node.command(&query).unwrap();
    assert_eq!(
        (answer.start_flow_index(), answer.end_flow_index()),
        (0, 13)
    );
    let criteria = answer.match_criteria().outer_headers();
    assert_eq!((criteria.ip_version(), criteria.ip_protocol()), (0xf, 0xff));
    assert_eq!(
        (answer.match_criteria_enable(), criteria.ethertype()),
        (1, 0)
    );

    let mut query = QueryFteIn::new();
    query.set_table_id(tables.ttc).set_flow_index(3);
    let (answer, lists) = tables.lab.node.command_with(&query, &[], 16).unwrap();
    let context = answer.flow_context();
    let value = context.match_value().outer_headers();
    assert_eq!((value.ip_version(), value.ip_protocol()), (6, 17));
    assert_eq!(
        (context.group_id(), context.action()),
        (group, FORWARD | COUNT)
    );
    assert_eq!(context.destination_list_size(), 1);
    assert_eq!(context.flow_counter_list_size(), 1);
    assert_eq!(lists[..8], to_tir(tables.tirs[3]).0);
    assert_eq!(lists[8..12], tables.counters[3].to_be_bytes());
    // A caller without space for the lists gets the context alone, one with too little space an error.
    assert!(tables.lab.node.command_with(&query, &[], 0).is_ok());
    let short = tables.lab.node.command_with(&query, &[], 8).map(drop);
    assert_eq!(short, Err(refused(Syndrome::FteOutputShort)));
}

#[test]
fn all_comes_down_without_a_trace() {
    let mut tables = Tables::build();
    let tir = tables.tirs[5];
    let busy = tables.lab.node.command(&destroy_tir(tir)).map(drop);
    assert_eq!(busy, Err(refused(Syndrome::TirBusy)));
    tables.take_down();
    tables.lab.node.command(&TeardownHcaIn::new()).unwrap();
    let flow = [
        ObjectKind::FlowTable,
        ObjectKind::FlowGroup,
        ObjectKind::FlowCounter,
        ObjectKind::Tir,
    ];
    let leaks = tables.lab.node.model.leaks();
    assert!(
        !leaks.iter().any(|leak| flow.contains(&leak.kind)),
        "{leaks:?}"
    );
}

#[test]
fn what_is_left_behind_is_reported() {
    let mut tables = Tables::build();
    tables.lab.node.command(&TeardownHcaIn::new()).unwrap();
    let leaks = tables.lab.node.model.leaks();
    let count = |kind| leaks.iter().filter(|leak| leak.kind == kind).count();
    assert_eq!(count(ObjectKind::FlowTable), 4);
    assert_eq!(count(ObjectKind::FlowGroup), 11);
    assert_eq!(count(ObjectKind::FlowCounter), TYPES.len());
}

/// Without `modify_root` no command sets the root: frames start at the lowest level.
#[test]
fn the_lowest_level_is_the_root_by_default() {
    let mut lab = Lab::new();
    let (upper, tir) = (lab.table(5, 0, 0), lab.tir());
    let counters = [lab.counter(), lab.counter()];
    for (table, counter) in [(upper, counters[0]), (lab.table(3, 0, 0), counters[1])] {
        let group = lab.group(table, (0, 0), |_| ());
        lab.set(&Rule::new(table, group, 0, &[to_tir(tir)]).counted(counter))
            .unwrap();
    }
    lab.receive(&[0; 60]);
    assert_eq!(counters.map(|counter| lab.counted(counter).0), [0, 1]);
    lab.set_root(upper).unwrap();
    lab.receive(&[0; 60]);
    assert_eq!(counters.map(|counter| lab.counted(counter).0), [1, 1]);
}
