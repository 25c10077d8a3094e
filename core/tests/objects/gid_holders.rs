//! Tests that entries of the GID table which QPs and DCTs have are not free, also after they were emptied.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bareverbs_core::pd::Pd;
use bareverbs_core::qp::transition;
use bareverbs_core::{
    Access, Cq, CqInit, DctError, DctInitAttr, Device, Gid, GidEntry, ModifyError, Mtu, QpAttr,
    QpAttrMask, QpInitAttr, QpKind, QpState, Rc, Srq, SrqAttr,
};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::Status;

use crate::rig::{FakeQp, cap, pair};
use crate::support::Fake;
use crate::support::firmware::Action;

const REFUSED: Action = Action::Fail(Status::BadParameter, 0x1234);

/// Moves a QP to this state, with this entry where an address vector is asked for.
fn modify(qp: &mut FakeQp<'_, Rc>, to: QpState, sgid_index: u16) -> Result<(), ModifyError> {
    let row = transition(QpKind::Rc, qp.state(), to).unwrap();
    let mut attr = QpAttr {
        qp_state: to,
        ..QpAttr::DEFAULT
    };
    attr.ah_attr.dmac = [2; 6];
    attr.ah_attr.sgid_index = sgid_index;
    qp.modify(&attr, row.required | QpAttrMask::STATE)
}

/// Gives a QP in RESET this entry.
fn connect(qp: &mut FakeQp<'_, Rc>, sgid_index: u16) -> Result<(), ModifyError> {
    modify(qp, QpState::Init, 0).unwrap();
    modify(qp, QpState::Rtr, sgid_index)
}

fn qp<'d>(pd: &Pd<'d, &'d Fake>, cq: &Cq<'d, &'d Fake>) -> FakeQp<'d, Rc> {
    let mut init = QpInitAttr {
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        cap: cap(4, 4, 1, 0),
        sq_sig_all: true,
    };
    pd.create_qp(&mut init).unwrap()
}

fn srq<'d>(pd: &Pd<'d, &'d Fake>) -> Srq<'d, &'d Fake> {
    let mut sizes = SrqAttr {
        max_wr: 7,
        max_sge: 1,
        srq_limit: 0,
    };
    pd.create_srq(&mut sizes).unwrap()
}

/// A target with entry 0.
fn dct_attr<'a, 'd>(
    cq: &'a Cq<'d, &'d Fake>,
    srq: &'a Srq<'d, &'d Fake>,
) -> DctInitAttr<'a, 'd, &'d Fake> {
    DctInitAttr {
        cq,
        srq,
        access_key: 1,
        access: Access::empty(),
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

/// Fills entry 1, besides entry 0 which is there.
fn second_gid(device: &Device<'_, &Fake>) -> GidEntry {
    let gid = Gid::from_ipv4([10, 0, 0, 3].into());
    let entry = GidEntry::roce_v2(gid, [2, 0, 0, 0, 0, 7]);
    device.set_gid(1, entry).unwrap();
    entry
}

/// A GID table entry that is emptied under a QP is not free before the QP is reset or destroyed. A transition that the
/// firmware refuses leaves the QP with the entry that it had.
#[test]
fn a_qp_reserves_the_index_of_its_gid() {
    with_device!(|_fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let (_cq, mut qp) = pair::<Rc>(&device, &pd, cap(4, 4, 1, 0), 8, true);
        let entry = device.port_gid(0).unwrap();
        device.del_gid(0).unwrap();
        assert_eq!(device.free_gid_index(), Some(1));
        modify(&mut qp, QpState::Reset, 0).unwrap();
        assert_eq!(device.free_gid_index(), Some(0));
        device.set_gid(0, entry).unwrap();
        rig.lock().instead.push((Opcode::Init2rtrQp, REFUSED));
        assert!(connect(&mut qp, 0).is_err());
        device.del_gid(0).unwrap();
        assert_eq!(device.free_gid_index(), Some(0));
        // It has no such entry, and is given none.
        assert!(modify(&mut qp, QpState::Rtr, 0).is_err());
        assert_eq!(device.free_gid_index(), Some(0));
        device.set_gid(0, entry).unwrap();
        modify(&mut qp, QpState::Rtr, 0).unwrap();
        device.del_gid(0).unwrap();
        assert_eq!(device.free_gid_index(), Some(1));
        drop(qp);
        assert_eq!(device.free_gid_index(), Some(0));
    });
}

/// Two QPs have the same entry: the last one gives it back.
#[test]
fn an_index_is_free_when_its_last_qp_is_gone() {
    with_device!(|_fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(CqInit::new(15)).unwrap();
        let mut qps = [qp(&pd, &cq), qp(&pd, &cq)];
        for qp in &mut qps {
            connect(qp, 0).unwrap();
        }
        device.del_gid(0).unwrap();
        let [first, second] = qps;
        drop(first);
        assert_eq!(device.free_gid_index(), Some(1));
        drop(second);
        assert_eq!(device.free_gid_index(), Some(0));
        let _ = &rig;
    });
}

/// A QP that the firmware does not destroy still sends from its entry. Its slot is another QP's next, which has an entry of
/// its own and gives back no other.
#[test]
fn a_qp_that_stays_with_the_device_keeps_its_index() {
    with_device!(|_fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(CqInit::new(15)).unwrap();
        second_gid(&device);
        let mut stays = qp(&pd, &cq);
        connect(&mut stays, 0).unwrap();
        rig.lock().instead.push((Opcode::DestroyQp, REFUSED));
        drop(stays);
        device.del_gid(0).unwrap();
        assert_eq!(device.free_gid_index(), Some(2));
        for _ in 0..5 {
            let mut next = qp(&pd, &cq);
            assert_eq!(device.free_gid_index(), Some(2));
            connect(&mut next, 1).unwrap();
        }
        assert_eq!(device.free_gid_index(), Some(2));
        device.del_gid(1).unwrap();
        assert_eq!(device.free_gid_index(), Some(1));
    });
}

/// A target keeps its index if the firmware says neither that it has drained nor that it is gone, and if the command that creates
/// it has no answer.
#[test]
fn a_target_that_stays_with_the_device_keeps_its_index() {
    for created in [false, true] {
        with_device!(|_fake, rig, device| {
            let pd = device.alloc_pd().unwrap();
            let cq = device.create_cq(CqInit::new(15)).unwrap();
            let srq = srq(&pd);
            second_gid(&device);
            if !created {
                rig.lock().instead.push((Opcode::CreateDct, Action::Drop));
            }
            let dct = pd.create_dct(&dct_attr(&cq, &srq));
            assert_eq!(dct.is_ok(), created);
            drop(dct);
            device.del_gid(0).unwrap();
            let mut next = qp(&pd, &cq);
            connect(&mut next, 1).unwrap();
            drop(next);
            assert_eq!(device.free_gid_index(), Some(2));
        });
    }
}

/// A target that there is not, as the firmware refused it or its entry is empty, has no entry.
#[test]
fn a_target_that_is_refused_reserves_nothing() {
    with_device!(|_fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(CqInit::new(15)).unwrap();
        let srq = srq(&pd);
        rig.lock().instead.push((Opcode::CreateDct, REFUSED));
        let refused = pd.create_dct(&dct_attr(&cq, &srq)).unwrap_err();
        assert!(matches!(refused, DctError::Command(_)), "{refused}");
        device.del_gid(0).unwrap();
        assert_eq!(device.free_gid_index(), Some(0));
        let refused = pd.create_dct(&dct_attr(&cq, &srq)).unwrap_err();
        assert!(matches!(refused, DctError::Path(_)), "{refused}");
        assert_eq!(device.free_gid_index(), Some(0));
    });
}

/// A transition without an answer may have happened, or happen yet: both the entry that it gives and the one that an
/// earlier such transition has given stay reserved.
#[test]
fn a_transition_without_an_answer_keeps_its_index() {
    with_device!(|_fake, rig, device| {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(CqInit::new(15)).unwrap();
        second_gid(&device);
        let mut qp = qp(&pd, &cq);
        rig.lock().instead.push((Opcode::Init2rtrQp, Action::Drop));
        let late = connect(&mut qp, 0).unwrap_err();
        assert!(
            matches!(late, ModifyError::Command(error) if error.may_still_happen()),
            "{late}"
        );
        device.del_gid(0).unwrap();
        assert_eq!(device.free_gid_index(), Some(2));
        modify(&mut qp, QpState::Rtr, 1).unwrap();
        device.del_gid(1).unwrap();
        assert_eq!(device.free_gid_index(), Some(2));
        // The second one has had its answer, and its entry is free once the QP is.
        drop(qp);
        assert_eq!(device.free_gid_index(), Some(1));
    });
}

/// The entry is reserved from before the firmware has the command: another thread that empties it meanwhile finds no place
/// for another address there.
#[test]
fn an_index_is_reserved_while_its_command_is_under_way() {
    let later = || Action::After(Duration::from_millis(1), Box::new(Action::Normal));
    for target in [false, true] {
        with_device!(|fake, rig, device| {
            let pd = device.alloc_pd().unwrap();
            let cq = device.create_cq(CqInit::new(15)).unwrap();
            let srq = srq(&pd);
            let mut qp = qp(&pd, &cq);
            let opcode = if target {
                Opcode::CreateDct
            } else {
                Opcode::Init2rtrQp
            };
            rig.lock().instead.push((opcode, later()));
            let (under_way, wait) = channel();
            let (found, free) = channel();
            // The thread that waits for the command lets the other one go first.
            let waits = Mutex::new(Some(free));
            let owner = thread::current().id();
            let posted = rig.clone();
            fake.lock().on_relax = Some(Arc::new(move |_: &Fake| {
                let is_posted = || !posted.lock().instead.iter().any(|(at, _)| *at == opcode);
                if thread::current().id() == owner
                    && is_posted()
                    && let Some(free) = waits.lock().unwrap().take()
                {
                    under_way.send(()).unwrap();
                    assert_eq!(free.recv(), Ok(Some(1)));
                }
            }));
            let device = &device;
            thread::scope(|scope| {
                scope.spawn(move || {
                    wait.recv().unwrap();
                    device.del_gid(0).unwrap();
                    found.send(device.free_gid_index()).unwrap();
                });
                if target {
                    let dct = pd.create_dct(&dct_attr(&cq, &srq)).unwrap();
                    assert_eq!(device.free_gid_index(), Some(1));
                    drop(dct);
                } else {
                    connect(&mut qp, 0).unwrap();
                    assert_eq!(device.free_gid_index(), Some(1));
                }
                fake.lock().on_relax = None;
            });
        });
    }
}
