//! The class of what the two ends of dynamic connections send: the priority of the VLAN, the traffic class and the flow label.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bareverbs_core::{AhAttr, AhError};
use bareverbs_core::{
    Dci, DctError, DctInitAttr, GidEntry, Inline, ModifyError, QpAttr, QpAttrMask, QpState,
    WcOpcode,
};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;
use connectx_model::link::{Cable, Link};

use crate::dc::{dct_attr, receiver, to};
use crate::lab::{ALL, CAP, Lab, SIGNALED, got, lab, ok, run};
use crate::seam::{self, Seam};

const VLAN: u16 = 0x123;
/// The GID table's entry with addresses in the VLAN.
const INDEX: u16 = 1;

/// The frames that went over the cable, with the end that sent each.
type Frames = Vec<(usize, Vec<u8>)>;

/// A cable, and the frames that went over it.
#[derive(Clone, Default)]
struct Watched(Arc<Mutex<(Cable, Frames)>>);

impl Link for Watched {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        let (cable, seen) = &mut *self.0.lock().unwrap();
        seen.push((from, frame.to_vec()));
        cable.send(from, frame, now);
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.0.lock().unwrap().0.receive(to, now, frame)
    }

    fn next_arrival(&self) -> Option<Duration> {
        self.0.lock().unwrap().0.next_arrival()
    }
}

fn address(node: usize) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, node as u16 + 1).into()
}

fn path(lab: &Lab<'_>, node: usize, sl: u8, traffic_class: u8, flow_label: u32) -> AhAttr {
    AhAttr {
        dgid: address(1 - node).into(),
        sgid_index: INDEX,
        hop_limit: 64,
        dmac: lab.sides[1 - node].mac,
        sl,
        traffic_class,
        flow_label,
        ..AhAttr::NONE
    }
}

/// Each end's own class is in what it sends, whatever the other end's is: IEEE 802.1Q's tag, and the first word of RFC 8200's
/// header.
#[test]
fn each_end_sends_in_its_own_class() {
    let watched = Watched::default();
    let world = Builder::with_link(Box::new(watched.clone()), 1)
        .function(seam::card(Card::new(1)))
        .function(seam::card(Card::new(2)))
        .stepped();
    run(&world, |lab| {
        for (node, side) in lab.sides.iter().enumerate() {
            let entry = GidEntry {
                vlan: Some(VLAN),
                ..GidEntry::roce_v2(address(node).into(), side.mac)
            };
            side.device.set_gid(INDEX, entry).unwrap();
        }
        let mut all = receiver(lab);
        let mut target = dct_attr(&all, ALL);
        (target.sgid_index, target.sl) = (INDEX as u8, 5);
        (target.traffic_class, target.flow_label) = (0x68, 0x5_4321);
        let dct = lab.sides[1].pd.create_dct(&target).unwrap();

        let ah_attr = path(lab, 0, 3, 0x88, 0x1_2345);
        let mut end = lab.end::<Dci>(0, CAP);
        let attr = QpAttr {
            ah_attr,
            ..lab.attr(0, bareverbs_core::Qpn::from_low_bits(0))
        };
        end.qp.activate(&attr).unwrap();
        let queried = end.qp.query().unwrap().attr.ah_attr;
        assert_eq!((queried.sl, queried.traffic_class), (3, 0x88));
        assert_eq!(queried.sgid_index, INDEX);
        let ah = lab.sides[0].device.create_ah(&ah_attr).unwrap();
        all.receive(3);
        let mut batch = end.qp.send_queue().batch();
        let data = Inline(&[7; 30]);
        batch.send(1, SIGNALED, to(&ah, &dct), data).unwrap();
        drop(batch);
        ok(lab.wait(&mut end.cq), 1, WcOpcode::Send);
        let _ = got(lab.wait(&mut all.cq), 3, WcOpcode::Recv);

        let seen = std::mem::take(&mut watched.0.lock().unwrap().1);
        for (from, priority, class, label) in [(0, 3, 0x88, 0x1_2345_u32), (1, 5, 0x68, 0x5_4321)] {
            let frames: Vec<_> = seen.iter().filter(|frame| frame.0 == from).collect();
            assert!(!frames.is_empty(), "{from}");
            for (_, frame) in frames {
                let tag = u16::from_be_bytes([frame[14], frame[15]]);
                assert_eq!(frame[12..14], [0x81, 0x00], "{from}");
                assert_eq!((tag >> 13, tag & 0xfff), (priority, VLAN), "{from}");
                let first = u32::from_be_bytes(frame[18..22].try_into().unwrap());
                assert_eq!(first, 6 << 28 | class << 20 | label, "{from}");
            }
        }
        // The initiator's own priority is that of its requests.
        world.with_model(0, |model| assert_eq!(model.stats().unknown_answers, 0));
    });
}

/// The model counts requests of another priority than their initiator's, as it is not known what a card does with them.
#[test]
fn an_initiator_of_another_priority_is_seen() {
    lab(|lab| {
        let mut all = receiver(lab);
        let dct = lab.sides[1].pd.create_dct(&dct_attr(&all, ALL)).unwrap();
        let mut end = crate::dc::initiator(lab);
        let mut path = lab.attr(0, bareverbs_core::Qpn::from_low_bits(0)).ah_attr;
        path.sl = 3;
        let ah = lab.sides[0].device.create_ah(&path).unwrap();
        all.receive(3);
        let mut batch = end.qp.send_queue().batch();
        let data = Inline(&[7; 30]);
        batch.send(1, SIGNALED, to(&ah, &dct), data).unwrap();
        drop(batch);
        ok(lab.wait(&mut end.cq), 1, WcOpcode::Send);
        lab.world
            .with_model(0, |model| assert_eq!(model.stats().unknown_answers, 1));
        let _ = got(lab.wait(&mut all.cq), 3, WcOpcode::Recv);
    });
}

/// An initiator takes what `modify_dci_qp_is_ok` takes: an address vector on the way to RTR, the RNR timer on the way to RTS and
/// in RTS.
#[test]
fn the_attributes_that_linux_takes_are_taken() {
    lab(|lab| {
        let mut end = lab.end::<Dci>(0, CAP);
        let mut attr = lab.attr(0, bareverbs_core::Qpn::from_low_bits(0));
        // Its own path leads nowhere: it needs no next hop.
        (attr.ah_attr.dmac, attr.ah_attr.sl) = ([0; 6], 6);
        use QpAttrMask as M;
        let steps = [
            (QpState::Init, M::PKEY_INDEX | M::PORT),
            (QpState::Rtr, M::PATH_MTU | M::AV),
            (
                QpState::Rts,
                M::TIMEOUT
                    | M::RETRY_CNT
                    | M::RNR_RETRY
                    | M::SQ_PSN
                    | M::MAX_QP_RD_ATOMIC
                    | M::MIN_RNR_TIMER,
            ),
            (QpState::Rts, M::MIN_RNR_TIMER),
            (QpState::Rts, M::empty()),
        ];
        for (qp_state, mask) in steps {
            let attr = QpAttr { qp_state, ..attr };
            end.qp.modify(&attr, mask | M::STATE).unwrap();
        }
        assert_eq!(end.qp.query().unwrap().attr.ah_attr.sl, 6);
        let mut other = lab.end::<Dci>(0, CAP);
        attr.ah_attr.sgid_index = 9;
        let refused = other.qp.activate(&attr);
        let index = ModifyError::Path(AhError::NoSuchSgid { index: 9 });
        assert_eq!(refused, Err(index));
    });
}

/// Values that do not fit into a target's context are refused by name.
#[test]
fn a_target_s_class_is_checked() {
    lab(|lab| {
        let all = receiver(lab);
        let pd = &lab.sides[1].pd;
        let refused = |change: &dyn Fn(&mut DctInitAttr<'_, '_, Seam>)| {
            let mut attr = dct_attr(&all, ALL);
            change(&mut attr);
            match pd.create_dct(&attr) {
                Err(DctError::Path(AhError::Value { field, .. })) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(&|attr| attr.flow_label = 1 << 20), "flow_label");
        assert_eq!(refused(&|attr| attr.sl = 16), "sl");
    });
}
