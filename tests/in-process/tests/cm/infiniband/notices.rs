//! The manager's use of subnet administration beside paths and groups: reports, and tables.

use std::time::Duration;

use bareverbs_cm::mad::sa::{PathRecord, Trap};
use bareverbs_cm::rdma::{self, Subnet as _, *};
use bareverbs_cm::sa::{
    Config, QuestionSlot, ReportSlot, Standing, SubscriptionSlot, Subscriptions, TableReader,
};
use bareverbs_in_process::subnet::{Datagram, Subnet};
use bareverbs_in_process::{ModelPlatform, World};

use super::support::*;
use crate::keep::keep;
use crate::support::Random;

type Watchful =
    WithSaUser<SubnetAdministration<'static>, (Subscriptions<'static>, TableReader<'static>)>;

struct Node {
    world: World,
    subnet: Subnet,
    cm: RdmaCm<'static, 'static, ModelPlatform, Watchful>,
}

impl Node {
    fn new(seed: u64) -> Self {
        let (builder, subnet) = subnet(2, seed);
        let world = builder.stepped();
        let paths = keep(SubnetResources::<Questions<4>, Paths<4>, Members<4>>::new());
        let resolver = WithSaUser {
            resolver: SubnetAdministration::new(Config::new(1), paths.storage()),
            user: (
                Subscriptions::new(
                    Config::new(2),
                    keep([QuestionSlot::EMPTY; 2]),
                    keep([SubscriptionSlot::EMPTY; 2]),
                    keep([ReportSlot::EMPTY; 4]),
                ),
                TableReader::new(Config::new(3), keep([0; 1000])),
            ),
        };
        let storage = keep(rdma::Resources::<Ids<ModelPlatform, 4>, Channels<1>>::new());
        let config = rdma::Config {
            gsi_depth: 64,
            ..rdma::Config::new(seed)
        };
        let cm = RdmaCm::new(device(&world, 0), resolver, config, storage.storage()).expect("QP1");
        Self { world, subnet, cm }
    }

    fn run(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            self.cm.poll(self.cm.now()).unwrap();
            self.world.step();
            self.world.advance(MS / 2);
        }
    }

    fn subscribe(&mut self) {
        let now = self.cm.now();
        let subscriptions = &mut self.cm.resolver_mut().user.0;
        subscriptions.subscribe(now, Trap::GidOutOfService).unwrap();
        self.run(20 * MS);
        let standing = self
            .cm
            .resolver_mut()
            .user
            .0
            .standing(Trap::GidOutOfService);
        assert_eq!(standing, Some(Standing::Active));
    }

    fn path(&mut self, seq: u64) -> Option<PathRecord> {
        let now = self.cm.now();
        let query = PathQuery {
            sgid: gid(0).0,
            dgid: gid(1).0,
            pkey: 0xffff,
            service_id: 7,
            traffic_class: 0,
        };
        let attempt = Attempt {
            seq,
            until: now + SECOND,
        };
        let found = self.cm.resolver_mut().find_path(now, &query, attempt);
        found.unwrap()
    }

    /// The numbers of questions for paths, and of reports that were answered.
    fn counts(&self) -> (usize, usize) {
        self.subnet.with(|state| {
            let count = |method, attribute| {
                let same = |mad: &&Datagram| (mad[3], mad[17]) == (method, attribute);
                state.questions.iter().filter(same).count()
            };
            (count(0x01, 0x35), count(0x86, 0x02))
        })
    }
}

/// Trap 65, as in IBTA volume 1, 13.4.8.2 and 14.2.5.1.
fn gone(transaction: u8, gid: [u8; 16]) -> Datagram {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 3, 2, 6]);
    (mad[15], mad[17]) = (transaction, 2);
    mad[56..62].copy_from_slice(&[0x83, 0, 0, 4, 0, 65]);
    mad[72..88].copy_from_slice(&gid);
    mad
}

#[test]
fn a_path_to_a_gid_that_is_gone_is_not_kept() {
    let mut node = Node::new(1);
    node.subscribe();
    assert_eq!(node.path(1), None);
    node.run(20 * MS);
    assert!(node.path(1).is_some());
    assert_eq!(node.counts(), (1, 0));
    // Another port's GID changes nothing.
    node.subnet.with(|state| state.tell(&gone(1, gid(2).0)));
    node.run(20 * MS);
    assert!(node.path(2).is_some());
    assert_eq!(node.counts(), (1, 1));
    node.subnet.with(|state| state.tell(&gone(2, gid(1).0)));
    node.run(20 * MS);
    let subscriptions = &mut node.cm.resolver_mut().user.0;
    let reports: Vec<_> = std::iter::from_fn(|| subscriptions.next_report()).collect();
    assert_eq!(
        reports.iter().map(|notice| notice.gid).collect::<Vec<_>>(),
        [gid(2).0, gid(1).0]
    );
    assert_eq!(node.path(3), None);
    node.run(20 * MS);
    assert_eq!(node.counts(), (2, 2));
    assert!(node.path(3).is_some());
}

/// Drawn reports and segments come through QP1. The manager goes on, and the table ends by its deadline.
#[test]
fn drawn_messages_of_subnet_administration() {
    for seed in 0..20 {
        let mut draws = Random(seed);
        let mut node = Node::new(seed);
        node.subscribe();
        let now = node.cm.now();
        let reader = &mut node.cm.resolver_mut().user.1;
        reader
            .ask(now, &PathRecord::ZERO, 0, now + SECOND / 10)
            .unwrap();
        node.run(2 * MS);
        let asked = node
            .subnet
            .with(|state| state.questions.last().copied())
            .unwrap();
        for _ in 0..100 {
            let mut mad = if draws.below(3) == 0 {
                gone(draws.below(4) as u8, gid(1).0)
            } else {
                asked
            };
            if mad[3] == 0x12 {
                mad[3] = 0x92;
                mad[24..28].copy_from_slice(&[1, 1, 1 | (draws.below(4) as u8 * 2), 0]);
                (mad[31], mad[35], mad[45]) = (draws.below(12) as u8, draws.below(256) as u8, 8);
            }
            if draws.below(2) == 0 {
                mad[draws.below(256)] = draws.below(256) as u8;
            }
            node.subnet.with(|state| state.tell(&mad));
            node.run(MS);
        }
        node.run(SECOND / 5);
        assert!(
            node.cm
                .resolver_mut()
                .user
                .1
                .table::<PathRecord>()
                .is_some()
        );
        assert_eq!(node.path(1), None);
        node.run(20 * MS);
        assert!(node.path(1).is_some());
    }
}
