//! Two cards on one cable, with their drivers, for tests of verbs: after each test, nothing may be left.

use std::time::Duration;

use bareverbs_core::{
    Access, AhAttr, Buffer, Config, Cq, CqInit, Cqs, Device, FlightRecorder, Gid, LinkLayer, Mtu,
    PageChunks, Pd, Qp, QpAttr, QpCap, QpInitAttr, QpType, Qps, Rc, Record, RecvWr, Remote,
    Resources, SendFlags, Sge, Srq, Srqs, Wc, WcOpcode, WcStatus,
};
use bareverbs_in_process::{Builder, World, bring_up};
use connectx_model::Config as Card;
use connectx_model::Objects;
use connectx_model::link::Cable;

use crate::seam::{self, Seam};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) type Card0<'d> = Device<'d, Seam>;

/// The two sides.
pub(crate) struct Lab<'d> {
    pub(crate) world: &'d World,
    pub(crate) sides: [Side<'d>; 2],
}

/// One card with a PD.
pub(crate) struct Side<'d> {
    pub(crate) device: &'d Card0<'d>,
    pub(crate) pd: Pd<'d, Seam>,
    pub(crate) gid: Gid,
    pub(crate) mac: [u8; 6],
}

/// A QP with its own CQ and a buffer.
pub(crate) struct End<'d, T: QpType> {
    pub(crate) qp: Qp<'d, Seam, T>,
    pub(crate) cq: Cq<'d, Seam>,
    pub(crate) buffer: Buffer<'d, Seam>,
}

pub(crate) const CAP: QpCap = QpCap {
    max_send_wr: 32,
    max_recv_wr: 32,
    max_send_sge: 4,
    max_recv_sge: 4,
    max_inline_data: 128,
};

pub(crate) const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// Runs a test in virtual time; `card` may change the cards.
pub(crate) fn lab_with(card: impl Fn(Card) -> Card, test: impl FnOnce(&Lab<'_>)) {
    let world = Builder::new()
        .function(card(seam::card(Card::new(1))))
        .function(card(seam::card(Card::new(2))))
        .stepped();
    run(&world, test);
}

/// Runs a test in virtual time.
pub(crate) fn lab(test: impl FnOnce(&Lab<'_>)) {
    lab_with(|card| card, test);
}

/// Runs a test in virtual time, with this seed for what the cable may do to frames.
pub(crate) fn bad_cable(seed: u64, test: impl FnOnce(&Lab<'_>)) {
    let builder = Builder::with_link(Box::new(Cable::new()), seed);
    let world = builder
        .function(seam::card(Card::new(1)))
        .function(seam::card(Card::new(2)))
        .stepped();
    run(&world, test);
}

pub(crate) fn run(world: &World, test: impl FnOnce(&Lab<'_>)) {
    run_on(world, LinkLayer::Ethernet, test);
}

/// The same on ports of a link layer; those of InfiniBand get no addresses.
pub(crate) fn run_on(world: &World, link_layer: LinkLayer, test: impl FnOnce(&Lab<'_>)) {
    let ethernet = link_layer == LinkLayer::Ethernet;
    let mut resources = [
        Box::new(Resources::<Qps<16>, Cqs<16>, Srqs<4>, PageChunks<256>>::new()),
        Box::new(Resources::<Qps<16>, Cqs<16>, Srqs<4>, PageChunks<256>>::new()),
    ];
    let recorders = [const { FlightRecorder::<[Record; 64]>::new() }; 2];
    let before = [0, 1].map(|node| world.accounting(node));
    {
        let [first, second] = &mut resources;
        let open = |node: usize, storage| {
            let address = [10, 0, 0, node as u8 + 1].into();
            let platform = seam::platform(world, node);
            if ethernet {
                bring_up(platform, Config::DEFAULT, storage, &[address])
            } else {
                Device::open(platform, Config::DEFAULT, storage).expect("bring-up")
            }
        };
        let devices = [
            open(0, first.storage().record(&recorders[0])),
            open(1, second.storage().record(&recorders[1])),
        ];
        {
            let side = |node: usize| Side {
                device: &devices[node],
                pd: devices[node].alloc_pd().expect("PD"),
                gid: Gid::from_ipv4([10, 0, 0, node as u8 + 1].into()),
                mac: if ethernet {
                    devices[node].mac().expect("MAC")
                } else {
                    [0; 6]
                },
            };
            test(&Lab {
                world,
                sides: [side(0), side(1)],
            });
        }
        for device in devices {
            device.close().expect("closed");
        }
    }
    for node in [0, 1] {
        assert_eq!(
            world.take_faults(node),
            [],
            "function {node} reached beyond its memory"
        );
        assert_eq!(
            world.accounting(node),
            before[node],
            "function {node} leaked"
        );
        world.with_model(node, |model| {
            assert_eq!(model.objects(), Objects::default(), "function {node}");
            assert!(
                model.leaks().is_empty(),
                "function {node}: {:?}",
                model.leaks()
            );
        });
    }
}

impl<'d> Lab<'d> {
    pub(crate) fn end<T: QpType>(&self, node: usize, cap: QpCap) -> End<'d, T> {
        self.end_with(node, cap, 127, None)
    }

    /// A QP in RESET with a CQ of `cqe` entries and a buffer of 64 KiB.
    pub(crate) fn end_with<T: QpType>(
        &self,
        node: usize,
        cap: QpCap,
        cqe: u32,
        srq: Option<&Srq<'d, Seam>>,
    ) -> End<'d, T> {
        self.end_by(node, cap, cqe, srq, |pd, init| {
            pd.create_qp(init).expect("QP")
        })
    }

    /// The same with a QP that is made in a way of its own.
    pub(crate) fn end_by<T: QpType>(
        &self,
        node: usize,
        cap: QpCap,
        cqe: u32,
        srq: Option<&Srq<'d, Seam>>,
        create: impl FnOnce(&Pd<'d, Seam>, &mut QpInitAttr<'_, 'd, Seam>) -> Qp<'d, Seam, T>,
    ) -> End<'d, T> {
        let side = &self.sides[node];
        let cq = side.device.create_cq(CqInit::new(cqe)).expect("CQ");
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq,
            cap,
            sq_sig_all: false,
        };
        let qp = create(&side.pd, &mut init);
        let access = self.access(node);
        let buffer = side.pd.alloc_buffer(1 << 16, access).expect("buffer");
        End { qp, cq, buffer }
    }

    /// All that the card can grant.
    pub(crate) fn access(&self, node: usize) -> Access {
        let mut access = ALL;
        let atomics = self.sides[node].device.capabilities().has_atomics();
        access.set(Access::REMOTE_ATOMIC, atomics);
        access
    }

    /// Attributes of a connection from `node` to the other side, without the state.
    pub(crate) fn attr(&self, node: usize, remote_qpn: bareverbs_core::Qpn) -> QpAttr {
        let other = &self.sides[1 - node];
        QpAttr {
            path_mtu: Mtu::B1024,
            qkey: 0x1234_5678,
            rq_psn: 0xff_fff0,
            sq_psn: 0xff_fff0,
            dest_qp_num: remote_qpn,
            qp_access_flags: self.access(node),
            ah_attr: AhAttr {
                dgid: other.gid,
                sgid_index: 0,
                hop_limit: 64,
                dmac: other.mac,
                ..AhAttr::default()
            },
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            port_num: 1,
            timeout: 10,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::DEFAULT
        }
    }

    /// Moves a QP to RTS; what `change` does to the attributes counts.
    pub(crate) fn to_rts<T: QpType>(
        &self,
        qp: &mut Qp<'d, Seam, T>,
        node: usize,
        remote: bareverbs_core::Qpn,
        change: &dyn Fn(&mut QpAttr),
    ) {
        let mut attr = self.attr(node, remote);
        change(&mut attr);
        qp.bring_to_rts(&attr).expect("connected");
    }

    /// Two connected ends.
    pub(crate) fn pair<T: QpType>(&self) -> [End<'d, T>; 2] {
        self.pair_with(CAP, &|_| {})
    }

    pub(crate) fn pair_with<T: QpType>(
        &self,
        cap: QpCap,
        change: &dyn Fn(&mut QpAttr),
    ) -> [End<'d, T>; 2] {
        let mut ends = [self.end::<T>(0, cap), self.end::<T>(1, cap)];
        self.connect(&mut ends, change);
        ends
    }

    pub(crate) fn connect<T: QpType>(
        &self,
        ends: &mut [End<'d, T>; 2],
        change: &dyn Fn(&mut QpAttr),
    ) {
        let qpns = [ends[0].qp.qpn(), ends[1].qp.qpn()];
        for node in [0, 1] {
            self.to_rts(&mut ends[node].qp, node, qpns[1 - node], change);
        }
    }

    /// Polls a CQ until there is a completion; both cards run meanwhile.
    #[track_caller]
    pub(crate) fn wait(&self, cq: &mut Cq<'d, Seam>) -> Wc {
        self.try_wait(cq, 20_000 * MS).expect("a completion")
    }

    pub(crate) fn try_wait(&self, cq: &mut Cq<'d, Seam>, limit: Duration) -> Option<Wc> {
        let end = self.world.now() + limit;
        loop {
            if let Some(completion) = cq.poll().expect("the CQ works") {
                return Some(completion.to_wc());
            }
            for side in &self.sides {
                side.device.poll().expect("the device works");
            }
            if self.world.now() >= end {
                return None;
            }
            if !self.world.step() {
                // Virtual time advances only while a thread waits.
                self.world.advance(Duration::from_micros(20));
            }
        }
    }

    /// Lets everything happen that happens within this time.
    pub(crate) fn pause(&self, time: Duration) {
        self.world.advance(time);
        for side in &self.sides {
            side.device.poll().expect("the device works");
        }
    }
}

impl<T: QpType> End<'_, T> {
    pub(crate) fn sge(&self, offset: usize, len: usize) -> Sge {
        self.buffer.sge(offset, len).expect("inside the buffer")
    }

    pub(crate) fn remote(&self, offset: usize) -> Remote {
        Remote {
            addr: self.buffer.addr() + offset as u64,
            rkey: self.buffer.rkey(),
        }
    }

    pub(crate) fn receive(&mut self, wr_id: u64, offset: usize, len: usize) {
        let sges = [self.sge(offset, len)];
        self.qp
            .recv_queue()
            .post_list(&[RecvWr { wr_id, sges: &sges }])
            .expect("within the buffer");
    }

    pub(crate) fn fill(&self, offset: usize, len: usize, seed: u64) {
        self.buffer
            .copy_in(offset, &pattern(len, seed))
            .expect("inside the buffer");
    }

    #[track_caller]
    pub(crate) fn assert_pattern(&self, offset: usize, len: usize, seed: u64) {
        let mut data = vec![0; len];
        self.buffer
            .copy_out(offset, &mut data)
            .expect("inside the buffer");
        assert!(
            data == pattern(len, seed),
            "{len} bytes at {offset} are not pattern {seed}"
        );
    }
}

/// Bytes computed from their offset and a seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| {
            let mixed = (at ^ seed.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed >> 56) as u8
        })
        .collect()
}

pub(crate) const SIGNALED: SendFlags = SendFlags::SIGNALED;
pub(crate) const SILENT: SendFlags = SendFlags::empty();

/// Lengths around the edges of packets (path MTU 1024).
pub(crate) const LENGTHS: [usize; 10] = [0, 1, 3, 4, 255, 1023, 1024, 1025, 4096, 20_001];

#[track_caller]
pub(crate) fn got(wc: Wc, wr_id: u64, opcode: WcOpcode) -> Wc {
    assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success), "{wc:?}");
    assert_eq!(wc.opcode, opcode, "{wc:?}");
    wc
}

/// Checks the same as [`got`], where nothing else of the completion matters.
pub(crate) fn ok(wc: Wc, wr_id: u64, opcode: WcOpcode) {
    let _ = got(wc, wr_id, opcode);
}

#[track_caller]
pub(crate) fn flushed(lab: &Lab<'_>, end: &mut End<'_, Rc>, ids: &[u64]) {
    for &id in ids {
        let wc = next(lab, end);
        assert_eq!((wc.wr_id, wc.status), (id, WcStatus::WrFlushErr));
    }
}

#[track_caller]
fn next<T: bareverbs_core::QpType>(lab: &Lab<'_>, end: &mut End<'_, T>) -> Wc {
    let limit = lab.world.now() + 20_000 * MS;
    loop {
        if let Some(completion) = end.cq.poll().expect("the CQ works") {
            return completion.to_wc();
        }
        assert!(lab.world.now() < limit, "no completion");
        lab.pause(MS / 50);
    }
}
