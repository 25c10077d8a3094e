//! The choice of WQEs that go through the register, and the fate of those that come in pieces.

use bareverbs_core::error::OpenFailure;
use bareverbs_core::{
    AhAttr, Config, CqInit, Cqs, Destination, Device, Inline, Mtu, PageChunks, QpAttr, QpCap,
    QpInitAttr, Qps, Rc, Remote, Resources, Srqs, Ud, WcOpcode,
};
use bareverbs_in_process::{Builder, World, WriteCombining, bring_up};
use connectx_model::Config as Card;
use connectx_model::fault::{CommandFault, CommandRule};

use crate::lab::{ALL, CAP, End, Lab, MS, SIGNALED, SILENT, lab, ok, pattern};
use crate::seam::Seam;

/// WQEs that the first card took from its register, doorbells of any kind that it saw, since the last call.
struct Counts(u64, u64);

impl Counts {
    fn of(world: &World) -> Self {
        let stats = world.with_model(0, |model| model.stats());
        assert_eq!((stats.blue_flame_missed, stats.bad_doorbells), (0, 0));
        Self(stats.blue_flame, stats.doorbells)
    }

    /// The counts since the last call.
    fn since(&mut self, world: &World) -> (u64, u64) {
        let now = Self::of(world);
        let came = (now.0 - self.0, now.1 - self.1);
        *self = now;
        came
    }
}

/// A send of `len` bytes inline arrives.
fn send_inline<'d>(lab: &Lab<'d>, [a, b]: &mut [End<'d, Rc>; 2], len: usize) {
    let data = pattern(len, 3);
    b.receive(1, 0, 256);
    let mut batch = a.qp.send_queue().batch();
    batch.send(2, SIGNALED, Inline(&data)).unwrap();
    drop(batch);
    ok(lab.wait(&mut b.cq), 1, WcOpcode::Recv);
    ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
    b.assert_pattern(0, len, 3);
}

#[test]
fn single_short_wqes_go_through_the_register() {
    lab(|lab| {
        let mut ends = lab.pair::<Rc>();
        let mut counts = Counts::of(lab.world);
        // One block, two, three; often enough that some WQEs lie across the ring's end.
        for n in 0..60 {
            for len in [0, 8, 44, 45, 108, 109, 128] {
                send_inline(lab, &mut ends, len);
                assert_eq!(counts.since(lab.world), (1, 1), "{n}: {len} bytes");
            }
        }
        let [mut a, b] = ends;
        a.fill(0, 4096, 5);
        let (sge, remote) = (a.sge(0, 4096), b.remote(64));
        let mut batch = a.qp.send_queue().batch();
        batch.write(1, SIGNALED, remote, sge).unwrap();
        drop(batch);
        ok(lab.wait(&mut a.cq), 1, WcOpcode::RdmaWrite);
        b.assert_pattern(64, 4096, 5);
        let mut batch = a.qp.send_queue().batch();
        batch.read(2, SIGNALED, remote, &[sge]).unwrap();
        drop(batch);
        ok(lab.wait(&mut a.cq), 2, WcOpcode::RdmaRead);
        let mut batch = a.qp.send_queue().batch();
        batch
            .fetch_add(3, SIGNALED, remote, 1, a.buffer.sge(0, 8).unwrap())
            .unwrap();
        drop(batch);
        ok(lab.wait(&mut a.cq), 3, WcOpcode::FetchAdd);
        assert_eq!(counts.since(lab.world), (3, 3));
    });
}

#[test]
fn lists_ring_a_doorbell() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let mut counts = Counts::of(lab.world);
        let mut late = 0;
        for n in 0..40 {
            for id in 0..3 {
                b.receive(id, 0, 64);
            }
            let mut batch = a.qp.send_queue().batch();
            batch.send(0, SILENT, Inline(&[1])).unwrap();
            batch.send(1, SIGNALED, Inline(&[2])).unwrap();
            batch.ring();
            // A batch that begins where the queue has to look for space gives its first one to the device at once.
            match counts.since(lab.world) {
                (0, 1) => {}
                (2, 2) => late += 1,
                other => panic!("{n}: {other:?}"),
            }
            // One more in the same batch is one by itself.
            batch.send(2, SIGNALED, Inline(&[3])).unwrap();
            drop(batch);
            for id in 0..3 {
                ok(lab.wait(&mut b.cq), id, WcOpcode::Recv);
            }
            ok(lab.wait(&mut a.cq), 1, WcOpcode::Send);
            ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
            assert_eq!(counts.since(lab.world), (1, 1), "{n}");
        }
        // Of 120 work requests in a queue of a few dozen.
        assert!(late <= 120 / a.qp.cap().max_send_wr, "{late}");
    });
}

#[test]
fn a_wqe_longer_than_the_buffer_rings_a_doorbell() {
    lab(|lab| {
        let cap = QpCap {
            max_inline_data: 300,
            ..CAP
        };
        let mut ends = lab.pair_with::<Rc>(cap, &|_| {});
        let mut counts = Counts::of(lab.world);
        // Control segment and length take 20 bytes of the buffer's 256.
        for (len, expected) in [(236, (1, 1)), (237, (0, 1))] {
            let [a, b] = &mut ends;
            let data = pattern(len, 3);
            b.receive(1, 0, 512);
            let mut batch = a.qp.send_queue().batch();
            batch.send(2, SIGNALED, Inline(&data)).unwrap();
            drop(batch);
            ok(lab.wait(&mut b.cq), 1, WcOpcode::Recv);
            ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
            b.assert_pattern(0, len, 3);
            assert_eq!(counts.since(lab.world), expected);
        }
    });
}

#[test]
fn datagrams_go_through_the_register() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Ud>();
        let other = &lab.sides[1];
        let attr = AhAttr {
            dgid: other.gid,
            dmac: other.mac,
            hop_limit: 64,
            ..AhAttr::default()
        };
        let ah = lab.sides[0].device.create_ah(&attr).expect("AH");
        let mut counts = Counts::of(lab.world);
        a.fill(0, 100, 9);
        b.receive(1, 0, 256);
        let to = Destination {
            ah: &ah,
            remote_qpn: b.qp.qpn(),
            remote_qkey: 0x1234_5678,
        };
        let sge = a.sge(0, 100);
        let mut batch = a.qp.send_queue().batch();
        batch.send_to(2, SIGNALED, to, sge).unwrap();
        drop(batch);
        ok(lab.wait(&mut b.cq), 1, WcOpcode::Recv);
        ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
        // The space for the global header comes first.
        b.assert_pattern(40, 100, 9);
        assert_eq!(counts.since(lab.world), (1, 1));
    });
}

/// One card, of which `test` sees what the driver made of it.
fn alone(
    card: Card,
    platform: impl Fn(&World) -> Seam,
    test: impl FnOnce(&World, &Device<'_, Seam>),
) {
    let world = Builder::new().function(card).stepped();
    let mut resources = Box::new(Resources::<Qps<4>, Cqs<4>, Srqs<0>, PageChunks<256>>::new());
    let platform = platform(&world);
    let device = bring_up(
        platform.clone(),
        Config::DEFAULT,
        resources.storage(),
        &[[10, 0, 0, 1].into()],
    );
    test(&world, &device);
    device.close().expect("closed");
    assert_eq!(platform.page(), None, "uncached again");
    assert_eq!(world.with_model(0, |model| model.objects().uars), 0);
    assert_eq!(world.with_model(0, |model| model.leaks().len()), 0);
}

/// Doorbell pages that the driver has, and whether one is write-combining.
fn pages(world: &World, device: &Device<'_, Seam>) -> (usize, bool) {
    let pages = world.with_model(0, |model| model.objects().uars);
    (pages, device.platform().page().is_some())
}

#[test]
fn the_page_is_taken_only_where_it_is_of_use() {
    let new = |world: &World| WriteCombining::new(world.platform(0));
    let refusing = |world: &World| WriteCombining::refusing(world.platform(0));
    let card = Card::new(1).with_blue_flame();
    alone(card.clone(), new, |world, device| {
        assert_eq!(pages(world, device), (2, true));
    });
    alone(card.clone(), refusing, |world, device| {
        assert_eq!(pages(world, device), (1, false));
    });
    // Without BlueFlame, and with registers so small that the doorbell would be in BlueFlame's.
    alone(Card::new(1), new, |world, device| {
        assert_eq!(pages(world, device), (1, false));
    });
    let mut small = card;
    small.general.set_log_bf_reg_size(8);
    alone(small, new, |world, device| {
        assert_eq!(pages(world, device), (1, false));
    });
}

/// The second page is checked as the first one is, and has to be another.
#[test]
fn a_page_that_cannot_be_is_an_error() {
    const ALLOC_UAR: u16 = 0x802;
    // The pages are 8 and 9: page 8 once more, one far outside, and the page of the init segment.
    for (at, with, value) in [(11, 1, 8), (9, 0xff, 0xff_0009), (11, 9, 0)] {
        let world = Builder::new()
            .function(Card::new(1).with_blue_flame())
            .stepped();
        let mut resources = Box::new(Resources::<Qps<4>, Cqs<4>, Srqs<0>, PageChunks<256>>::new());
        let platform = WriteCombining::new(world.platform(0));
        let rule = CommandRule {
            skip: 1,
            ..CommandRule::next(ALLOC_UAR, CommandFault::Corrupt { at, with })
        };
        world.with_model(0, |model| model.faults_mut().commands.push(rule));
        let opened = Device::open(platform.clone(), Config::DEFAULT, resources.storage());
        let field = "uar";
        let failure = OpenFailure::Value { field, value };
        assert_eq!(opened.err().map(|error| error.failure), Some(failure));
        assert_eq!(platform.page(), None);
    }
}

/// The page is uncached again also when the function is taken down because it failed.
#[test]
fn the_page_is_given_back_by_a_card_that_vanished() {
    let world = Builder::new()
        .function(Card::new(1).with_blue_flame())
        .stepped();
    let mut resources = Box::new(Resources::<Qps<4>, Cqs<4>, Srqs<0>, PageChunks<256>>::new());
    let platform = WriteCombining::new(world.platform(0));
    let config = Config::DEFAULT;
    let device = bring_up(platform.clone(), config, resources.storage(), &[]);
    assert!(platform.page().is_some());
    world.with_model(0, connectx_model::Model::vanish);
    device.close().expect_err("it is gone");
    assert_eq!(platform.page(), None);
}

/// A write to a separate connection in force loopback, over a platform on which nothing is combined, or which refuses:
/// the same bytes arrive, fetched.
#[test]
fn what_comes_in_pieces_is_fetched() {
    let platforms: [(fn(_) -> _, _); 3] = [
        (WriteCombining::new, 20),
        (WriteCombining::in_pieces, 0),
        (WriteCombining::refusing, 0),
    ];
    for (platform, expected) in platforms {
        let card = Card::new(1).with_blue_flame();
        let platform = |world: &World| platform(world.platform(0));
        alone(card, platform, |world, device| {
            let pd = device.alloc_pd().expect("PD");
            let mut cq = device.create_cq(CqInit::new(15)).expect("CQ");
            let mut init = QpInitAttr {
                send_cq: &cq,
                recv_cq: &cq,
                srq: None,
                cap: CAP,
                sq_sig_all: false,
            };
            let mut qp = pd.create_qp::<Rc>(&mut init).expect("QP");
            let mut attr = QpAttr {
                dest_qp_num: qp.qpn(),
                qp_access_flags: ALL,
                path_mtu: Mtu::B1024,
                timeout: 10,
                ..QpAttr::DEFAULT
            };
            attr.ah_attr.force_loopback = true;
            qp.bring_to_rts(&attr).expect("connected");
            let buffer = pd.alloc_buffer(4096, ALL).expect("buffer");
            let remote = Remote {
                addr: buffer.addr(),
                rkey: buffer.rkey(),
            };
            for n in 0..20 {
                let data = pattern(5 * n + 1, n as u64);
                let mut batch = qp.send_queue().batch();
                batch.write(1, SIGNALED, remote, Inline(&data)).unwrap();
                drop(batch);
                while cq.poll().expect("the CQ works").is_none() {
                    world.advance(MS / 50);
                }
                let mut found = vec![0; data.len()];
                buffer.copy_out(0, &mut found).expect("inside");
                assert_eq!(found, data);
            }
            let stats = world.with_model(0, |model| model.stats());
            assert_eq!((stats.blue_flame, stats.doorbells), (expected, 20));
        });
    }
}
