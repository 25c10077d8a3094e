//! Memory windows: what they open, for which QP, and when they are closed.

use bareverbs_core::{
    Access, LKey, Mw, MwBind, MwType, PostError, RKey, Rc, Remote, SendFlags, WcFlags, WcOpcode,
    WcStatus,
};

use crate::lab::{End, Lab, SIGNALED, got, lab, ok};
use crate::seam::Seam;

const OPEN: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);

/// A bind of part of an end's buffer.
fn bind(end: &End<'_, Rc>, window: &Mw<'_, Seam>, variant: u8, at: usize, len: u64) -> MwBind {
    MwBind {
        kind: window.kind(),
        rkey: RKey(window.rkey().0 & !0xff | u32::from(variant)),
        lkey: end.buffer.lkey(),
        addr: end.buffer.addr() + at as u64,
        len,
        access: OPEN,
    }
}

fn post_bind<'d>(lab: &Lab<'d>, end: &mut End<'d, Rc>, bind: &MwBind) -> WcStatus {
    let queue = end.qp.send_queue();
    queue.batch().bind_mw(1, SIGNALED, bind).expect("posted");
    let wc = lab.wait(&mut end.cq);
    assert_eq!(wc.wr_id, 1);
    wc.status
}

/// A write of 64 bytes by the peer, through a window.
fn write<'d>(lab: &Lab<'d>, peer: &mut End<'d, Rc>, addr: u64, rkey: RKey) -> WcStatus {
    let sge = peer.sge(0, 64);
    let remote = Remote { addr, rkey };
    let queue = peer.qp.send_queue();
    queue
        .batch()
        .write(2, SIGNALED, remote, &[sge])
        .expect("posted");
    lab.wait(&mut peer.cq).status
}

/// Often enough that the work requests, of three blocks each, lie everywhere in the ring, also across its end.
#[test]
fn a_window_of_type_1_is_bound_again_and_again() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let window = lab.sides[0].pd.alloc_mw(MwType::Type1).expect("a window");
        b.fill(0, 64, 7);
        let mut last = None;
        for round in 0..300_usize {
            let at = round % 50 * 1024;
            let bound = bind(&a, &window, round as u8, at, 64);
            assert_eq!(post_bind(lab, &mut a, &bound), WcStatus::Success);
            assert_eq!(
                write(lab, &mut b, bound.addr, bound.rkey),
                WcStatus::Success
            );
            a.assert_pattern(at, 64, 7);
            a.fill(at, 64, 8);
            last = Some(bound);
        }
        let closed = MwBind {
            addr: 0,
            len: 0,
            lkey: LKey(0),
            ..last.unwrap()
        };
        assert_eq!(post_bind(lab, &mut a, &closed), WcStatus::Success);
        let addr = last.unwrap().addr;
        assert_eq!(
            write(lab, &mut b, addr, closed.rkey),
            WcStatus::RemAccessErr
        );
    });
}

#[test]
fn a_window_opens_what_was_bound_and_no_more() {
    type Change = fn(&mut MwBind, &mut u64);
    let cases: [(&str, Change); 4] = [
        ("beyond its end", |_, addr| *addr += 1),
        ("before its beginning", |_, addr| *addr -= 1),
        ("with the key before", |bind, _| bind.rkey.0 ^= 1),
        ("what it does not allow", |bind, _| {
            bind.access = Access::REMOTE_READ;
        }),
    ];
    for (what, change) in cases {
        lab(|lab| {
            let [mut a, mut b] = lab.pair::<Rc>();
            let window = lab.sides[0].pd.alloc_mw(MwType::Type2).expect("a window");
            let mut bound = bind(&a, &window, 9, 4096, 64);
            let (mut addr, rkey) = (bound.addr, bound.rkey);
            change(&mut bound, &mut addr);
            assert_eq!(post_bind(lab, &mut a, &bound), WcStatus::Success);
            let status = write(lab, &mut b, addr, rkey);
            assert_eq!(status, WcStatus::RemAccessErr, "{what}");
        });
    }
}

#[test]
fn a_window_of_type_2_is_bound_once_and_closed_by_invalidation() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let window = lab.sides[0].pd.alloc_mw(MwType::Type2).expect("a window");
        // Closed by its owner.
        let bound = bind(&a, &window, 1, 0, 4096);
        assert_eq!(post_bind(lab, &mut a, &bound), WcStatus::Success);
        assert_eq!(
            write(lab, &mut b, bound.addr, bound.rkey),
            WcStatus::Success
        );
        let queue = a.qp.send_queue();
        queue
            .batch()
            .local_inv(3, SIGNALED, bound.rkey)
            .expect("posted");
        ok(lab.wait(&mut a.cq), 3, WcOpcode::LocalInv);
        // Both built call by call, so that the second one has no doorbell of its own.
        let bound = bind(&a, &window, 6, 0, 4096);
        let mut open = a.qp.send_queue().open();
        open.bind_mw(8, SIGNALED, &bound);
        open.local_inv(9, SIGNALED, bound.rkey);
        open.complete().expect("posted");
        drop(open);
        ok(lab.wait(&mut a.cq), 8, WcOpcode::BindMw);
        ok(lab.wait(&mut a.cq), 9, WcOpcode::LocalInv);
        // Bound again, and closed by the peer.
        let bound = bind(&a, &window, 2, 0, 4096);
        assert_eq!(post_bind(lab, &mut a, &bound), WcStatus::Success);
        a.receive(4, 8192, 64);
        let sge = b.sge(0, 8);
        let queue = b.qp.send_queue();
        queue
            .batch()
            .send_inv(5, SIGNALED, bound.rkey, &[sge])
            .expect("posted");
        ok(lab.wait(&mut b.cq), 5, WcOpcode::Send);
        let received = got(lab.wait(&mut a.cq), 4, WcOpcode::Recv);
        assert!(received.flags.contains(WcFlags::WITH_INV));
        // Closed by a bind to nothing, in each of the two ways to post, and by one more when it is closed.
        for (variant, open) in [(10, false), (20, true)] {
            let bound = bind(&a, &window, variant, 0, 4096);
            assert_eq!(post_bind(lab, &mut a, &bound), WcStatus::Success);
            let closed = bind(&a, &window, variant + 1, 0, 0);
            if open {
                let mut open = a.qp.send_queue().open();
                open.bind_mw(7, SIGNALED, &closed);
                open.complete().expect("posted");
                drop(open);
                ok(lab.wait(&mut a.cq), 7, WcOpcode::BindMw);
            } else {
                assert_eq!(post_bind(lab, &mut a, &closed), WcStatus::Success);
            }
            let again = bind(&a, &window, variant + 2, 0, 0);
            assert_eq!(post_bind(lab, &mut a, &again), WcStatus::Success);
        }
        // Bound, so that it cannot be bound.
        let bound = bind(&a, &window, 3, 0, 4096);
        assert_eq!(post_bind(lab, &mut a, &bound), WcStatus::Success);
        let again = bind(&a, &window, 4, 0, 64);
        assert_eq!(post_bind(lab, &mut a, &again), WcStatus::MwBindErr);
    });
}

#[test]
fn only_the_qp_that_has_bound_a_window_of_type_2_uses_it() {
    lab(|lab| {
        let [mut a, _b] = lab.pair::<Rc>();
        let [mut other, peer] = lab.pair::<Rc>();
        let window = lab.sides[0].pd.alloc_mw(MwType::Type2).expect("a window");
        let bound = bind(&a, &window, 1, 0, 4096);
        assert_eq!(post_bind(lab, &mut a, &bound), WcStatus::Success);
        let queue = other.qp.send_queue();
        queue
            .batch()
            .local_inv(6, SIGNALED, bound.rkey)
            .expect("posted");
        assert_eq!(lab.wait(&mut other.cq).status, WcStatus::MwBindErr);
        // Its own QP is in error now; a third one is not.
        drop(peer.qp);
        let [_third, mut peer] = lab.pair::<Rc>();
        assert_eq!(
            write(lab, &mut peer, bound.addr, bound.rkey),
            WcStatus::RemAccessErr
        );
    });
}

#[test]
fn what_no_device_binds_is_not_posted() {
    lab(|lab| {
        let [mut a, _b] = lab.pair::<Rc>();
        let window = lab.sides[0].pd.alloc_mw(MwType::Type2).expect("a window");
        let too_long = bind(&a, &window, 1, 0, (1 << 31) + 1);
        let queue = a.qp.send_queue();
        assert_eq!(
            queue.batch().bind_mw(1, SendFlags::empty(), &too_long),
            Err(PostError::Unsupported)
        );
        window.dealloc().map_err(|(_, error)| error).expect("gone");
    });
}
