//! The list of live objects has those that the test made and did not destroy, in the states that it moved them to.

use bareverbs_core::firmware_cmds::opcode::Opcode;
use bareverbs_core::firmware_cmds::values::{DctState, QueueState};
use bareverbs_core::qp::transition;
use bareverbs_core::{
    CqInit, Dci, Dct, DctInitAttr, DynQp, Gsi, Mtu, Qp, QpAttr, QpAttrMask, QpInitAttr, QpKind,
    QpResource, QpState, QpType, Qpn, RawPacketQp, Rc, ResourceState, Srq, SrqAttr, Uc, Ud,
    WcOpcode, XrcRecv, XrcSend,
};
use connectx_model::fault::{CommandFault, CommandRule};
use connectx_model::syndrome::Status;

use crate::dc::Draw;
use crate::lab::{Lab, SIGNALED, lab, ok};
use crate::seam::Seam;

/// Something that the list has a line for.
trait Made {
    fn kind(&self) -> QpKind;
    fn qpn(&self) -> Qpn;
    /// The state that the test moved it to.
    fn state(&self) -> QpState;
    fn go(&mut self, attr: &QpAttr, mask: QpAttrMask);
    fn shown_state(&self) -> ResourceState {
        ResourceState::Qp(self.state())
    }
}

impl<T: QpType> Made for Qp<'_, Seam, T> {
    fn kind(&self) -> QpKind {
        T::KIND
    }

    fn qpn(&self) -> Qpn {
        DynQp::qpn(self)
    }

    fn state(&self) -> QpState {
        DynQp::state(self)
    }

    fn go(&mut self, attr: &QpAttr, mask: QpAttrMask) {
        self.modify(attr, mask).expect("moved");
    }
}

impl Made for RawPacketQp<'_, Seam> {
    fn kind(&self) -> QpKind {
        QpKind::RawPacket
    }

    fn qpn(&self) -> Qpn {
        self.qpn()
    }

    fn state(&self) -> QpState {
        self.state()
    }

    fn go(&mut self, attr: &QpAttr, mask: QpAttrMask) {
        self.modify(attr, mask).expect("moved");
    }

    fn shown_state(&self) -> ResourceState {
        ResourceState::Queue(match self.state() {
            QpState::Reset | QpState::Init | QpState::Rtr => QueueState::Reset,
            QpState::Err => QueueState::Error,
            _ => QueueState::Ready,
        })
    }
}

impl Made for Dct<'_, Seam> {
    fn kind(&self) -> QpKind {
        QpKind::Dct
    }

    fn qpn(&self) -> Qpn {
        self.dctn()
    }

    fn state(&self) -> QpState {
        QpState::Rtr
    }

    fn go(&mut self, _attr: &QpAttr, _mask: QpAttrMask) {}

    fn shown_state(&self) -> ResourceState {
        ResourceState::Target(DctState::Active)
    }
}

/// With what it was given on its way.
struct Row<'d> {
    made: Box<dyn Made + 'd>,
    peer: u32,
    psns: [u32; 2],
}

impl Row<'_> {
    fn go(&mut self, lab: &Lab<'_>, draw: &mut Draw) {
        let (kind, from) = (self.made.kind(), self.made.state());
        let next = match from {
            QpState::Reset => QpState::Init,
            QpState::Init => QpState::Rtr,
            QpState::Rtr => QpState::Rts,
            _ => QpState::Reset,
        };
        let to = match draw.below(10) {
            0 => QpState::Err,
            1 => QpState::Reset,
            _ => next,
        };
        let Some(row) = transition(kind, from, to) else {
            return;
        };
        if to == QpState::Rtr {
            (self.peer, self.psns) = (
                1 + draw.below(0xff_fffe) as u32,
                [0, 1].map(|_| draw.below(1 << 24) as u32),
            );
        }
        let mut attr = lab.attr(0, Qpn::from_low_bits(self.peer));
        attr.qp_state = to;
        [attr.sq_psn, attr.rq_psn] = self.psns;
        self.made.go(&attr, row.required | QpAttrMask::STATE);
    }

    fn check(&self, shown: &QpResource) {
        let state = self.made.state();
        assert_eq!(shown.kind, Some(self.made.kind()), "{shown}");
        assert_eq!(shown.state, self.made.shown_state(), "{shown}");
        let Some(transport) = shown.transport else {
            assert!(matches!(shown.kind, Some(QpKind::Dct | QpKind::RawPacket)));
            return;
        };
        if state == QpState::Rts {
            assert_eq!(transport.sq_psn, self.psns[0], "{shown}");
        }
        let connected = matches!(
            self.made.kind(),
            QpKind::Rc | QpKind::Uc | QpKind::XrcSend | QpKind::XrcRecv
        );
        assert_eq!(transport.peer.is_some(), connected, "{shown}");
        if let (Some(peer), QpState::Rtr | QpState::Rts) = (transport.peer, state) {
            assert_eq!(peer.qpn.number(), self.peer, "{shown}");
            assert_eq!(peer.rq_psn, self.psns[1], "{shown}");
            assert_eq!(peer.path_mtu, Some(Mtu::B1024), "{shown}");
            assert_eq!(peer.dgid, lab_gid(), "{shown}");
        }
        let words = shown.to_string();
        let begin = format!("lqpn {} ", self.made.qpn().number());
        assert!(words.starts_with(&begin), "{words}");
        assert!(words.contains(&format!(" state {}", self.made.shown_state())));
    }
}

/// Of the lab's second side.
fn lab_gid() -> bareverbs_core::Gid {
    bareverbs_core::Gid::from_ipv4([10, 0, 0, 2].into())
}

fn listed(lab: &Lab<'_>) -> Vec<QpResource> {
    let all: Result<Vec<_>, _> = lab.sides[0].device.live_qps().collect();
    all.expect("queried")
}

#[test]
fn what_is_listed_is_what_was_made() {
    for seed in [1, 2, 3] {
        lab(|lab| drawn(lab, seed));
    }
}

fn drawn(lab: &Lab<'_>, seed: u64) {
    let side = &lab.sides[0];
    let (device, pd) = (side.device, &side.pd);
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    assert_eq!(listed(lab), []);
    let raw = device.alloc_ethernet_domain().unwrap();
    let xrcd = device.open_xrcd().unwrap();
    let mut cqs = [0, 1].map(|_| device.create_cq(CqInit::new(63)).unwrap());
    let mut sizes = SrqAttr {
        max_wr: 4,
        max_sge: 1,
        srq_limit: 0,
    };
    let srq: Srq<'_, Seam> = pd.create_srq(&mut sizes).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    {
        let mut rows: Vec<Row<'_>> = Vec::new();
        let mut gsi = None;
        for _ in 0..800 {
            match draw.below(10) {
                0 if rows.len() < 6 => {
                    let which = draw.below(9);
                    if which == 3 && gsi.is_some() {
                        continue;
                    }
                    let mut init = QpInitAttr::new(&cqs[0], 4);
                    init.recv_cq = &cqs[draw.below(2)];
                    if draw.below(2) == 0 && matches!(which, 0 | 2) {
                        init.srq = Some(&srq);
                    }
                    let made: Box<dyn Made + '_> = match which {
                        0 => Box::new(pd.create_qp::<Rc>(&mut init).unwrap()),
                        1 => Box::new(pd.create_qp::<Uc>(&mut init).unwrap()),
                        2 => Box::new(pd.create_qp::<Ud>(&mut init).unwrap()),
                        3 => Box::new(pd.create_qp::<Gsi>(&mut init).unwrap()),
                        4 => Box::new(pd.create_qp::<XrcSend>(&mut init).unwrap()),
                        5 => Box::new(xrcd.create_qp().unwrap() as Qp<'_, Seam, XrcRecv>),
                        6 => Box::new(pd.create_qp::<Dci>(&mut init).unwrap()),
                        7 => Box::new(pd.create_dct(&target(&cqs[1], &srq)).unwrap()),
                        _ => Box::new(raw.create_raw_packet_qp(pd, &mut init).unwrap()),
                    };
                    if which == 3 {
                        gsi = Some(made.qpn());
                    }
                    let srqn = init.srq.map(Srq::srqn);
                    let shown = listed(lab);
                    let line = shown
                        .iter()
                        .find(|line| (line.kind, line.qpn) == (Some(made.kind()), made.qpn()));
                    let expected = if which == 7 { Some(srq.srqn()) } else { srqn };
                    assert_eq!(line.expect("listed").srqn, expected);
                    rows.push(Row {
                        made,
                        peer: 0,
                        psns: [0; 2],
                    });
                }
                1 if !rows.is_empty() => {
                    let gone = rows.swap_remove(draw.below(rows.len()));
                    if gsi == Some(gone.made.qpn()) && gone.made.kind() == QpKind::Gsi {
                        gsi = None;
                    }
                    drop(gone);
                    // Its slot comes free, or not yet.
                    if draw.below(2) == 0 {
                        for cq in &mut cqs {
                            assert!(cq.poll().unwrap().is_none());
                        }
                    }
                }
                _ if !rows.is_empty() => {
                    let at = draw.below(rows.len());
                    rows[at].go(lab, &mut draw);
                    seen.insert(format!(
                        "{:?} {:?}",
                        rows[at].made.kind(),
                        rows[at].made.state()
                    ));
                }
                _ => {}
            }
            let shown = listed(lab);
            assert_eq!(shown.len(), rows.len(), "{shown:#?}");
            for row in &rows {
                let same = |line: &&QpResource| {
                    line.qpn == row.made.qpn() && line.kind == Some(row.made.kind())
                };
                let mut lines = shown.iter().filter(same);
                row.check(lines.next().expect("listed"));
                assert_eq!(lines.next(), None);
            }
            // Targets are among the model's QPs, raw packet QPs are queues to it.
            let counted = |row: &&Row<'_>| row.made.kind() != QpKind::RawPacket;
            let objects = lab.world.with_model(0, |model| model.objects());
            assert_eq!(objects.qps, rows.iter().filter(counted).count());
        }
    }
    // All types came to where packets go, or as far as they go.
    for kind in ["Rc", "Uc", "Ud", "XrcSend", "XrcRecv", "Dci", "RawPacket"] {
        assert!(seen.contains(&format!("{kind} Rts")), "{kind} in {seen:?}");
    }
    for cq in &mut cqs {
        assert!(cq.poll().unwrap().is_none());
    }
    assert_eq!(listed(lab), []);
}

fn target<'a, 'd>(
    cq: &'a bareverbs_core::Cq<'d, Seam>,
    srq: &'a Srq<'d, Seam>,
) -> DctInitAttr<'a, 'd, Seam> {
    DctInitAttr {
        cq,
        srq,
        access_key: 5,
        access: bareverbs_core::Access::empty(),
        path_mtu: Mtu::B1024,
        sgid_index: 0,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        sl: 0,
        min_rnr_timer: 1,
        pkey_index: 0,
    }
}

/// Packets, requests and completions of known numbers.
#[test]
fn counters_follow_the_traffic() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        // 5 messages of 3 packets each (path MTU 1024).
        for id in 0..5 {
            b.receive(id, 0, 4096);
            let sge = a.sge(0, 2500);
            a.qp.send_queue()
                .batch()
                .send(id, SIGNALED, &[sge])
                .unwrap();
            ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
            ok(lab.wait(&mut b.cq), id, WcOpcode::Recv);
        }
        let first = 0xff_fff0;
        let next = (first + 15) & 0xff_ffff;
        for (side, end, other) in [(0, &a, &b), (1, &b, &a)] {
            let device = lab.sides[side].device;
            let qps: Vec<_> = device.live_qps().map(Result::unwrap).collect();
            let [line] = &qps[..] else {
                panic!("{qps:?}");
            };
            let transport = line.transport.unwrap();
            let peer = transport.peer.unwrap();
            assert_eq!((line.qpn, peer.qpn), (end.qp.qpn(), other.qp.qpn()));
            let (sent, received) = if side == 0 {
                (next, first)
            } else {
                (first, next)
            };
            assert_eq!((transport.sq_psn, peer.rq_psn), (sent, received), "{line}");
            let done = if side == 0 { (5, 0) } else { (0, 5) };
            assert_eq!((transport.sq.1, transport.rq.1), done, "{line}");
            assert_eq!((transport.sq.0, transport.rq.0), done, "{line}");
            assert_eq!(peer.retries.0, 7);
            assert_eq!(transport.send_cqn, end.cq.cqn());
            let cqs: Vec<_> = device.live_cqs().map(Result::unwrap).collect();
            let [cq] = &cqs[..] else {
                panic!("{cqs:?}");
            };
            assert_eq!((cq.cqn, cq.entries, cq.users), (end.cq.cqn(), 128, 2));
            assert_eq!((cq.producer, cq.failed), (5, false), "{cq}");
            assert!(cq.consumer <= 5, "{cq}");
        }
    });
}

/// One that the firmware does not answer for is an error, and the others follow.
#[test]
fn a_refusal_is_of_one_object() {
    lab(|lab| {
        let ends = [
            lab.end::<Rc>(0, crate::lab::CAP),
            lab.end::<Rc>(0, crate::lab::CAP),
        ];
        let refused = CommandFault::Fail {
            status: Status::InternalError,
            syndrome: 0x1234,
        };
        let rule = CommandRule::next(Opcode::QueryQp.number(), refused);
        lab.world
            .with_model(0, |model| model.faults_mut().commands.push(rule));
        let lines: Vec<_> = lab.sides[0].device.live_qps().collect();
        assert_eq!(lines.len(), 2);
        lines[0].unwrap_err();
        assert_eq!(lines[1].unwrap().qpn, ends[1].qp.qpn());
    });
}
