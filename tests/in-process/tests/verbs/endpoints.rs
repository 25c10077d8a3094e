//! Connections without a connection manager: each side passes its endpoint to the other.

use bareverbs_core::{
    AhError, Endpoint, ModifyError, QpAttr, QpAttrMask, QpState, QpType, Rc, Uc, WcOpcode,
};

use bareverbs_core::mr::OutOfRange;
use bareverbs_core::qp::Connected;

use crate::lab::{CAP, End, Lab, SIGNALED, lab, ok};

/// As the other side gets it.
fn sent(endpoint: Endpoint) -> Endpoint {
    Endpoint::from_bytes(&endpoint.to_bytes()).expect("it is whole")
}

fn connect<T: Connected>(ends: &mut [End<'_, T>; 2]) {
    let [a, b] = ends;
    let psns = [0xff_fffe, 77];
    let here = a.qp.endpoint(0, psns[0]).expect("an endpoint");
    let there = b.qp.endpoint(0, psns[1]).expect("an endpoint");
    a.qp.connect(&here, &sent(there)).expect("connected");
    b.qp.connect(&there, &sent(here)).expect("connected");
    assert_eq!([a.qp.state(), b.qp.state()], [QpState::Rts; 2]);
}

/// A WRITE of some bytes from the first end to the second one, which begin so.
fn write<'d, T: Connected>(lab: &Lab<'d>, ends: &mut [End<'d, T>; 2], first: u64) {
    let [a, b] = ends;
    a.fill(0, 5000, first);
    let local = a.buffer.slice(..5000).expect("inside");
    let mut batch = a.qp.send_queue().batch();
    batch
        .write(first, SIGNALED, b.buffer.remote(0), local)
        .expect("posted");
    drop(batch);
    ok(lab.wait(&mut a.cq), first, WcOpcode::RdmaWrite);
    while lab.world.step() {}
    b.assert_pattern(0, 5000, first);
}

#[test]
fn two_sides_connect_by_their_endpoints() {
    lab(|lab| {
        let mut ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(1, CAP)];
        connect(&mut ends);
        write(lab, &mut ends, 1);
        let queried = ends[0].qp.query().expect("attributes").attr;
        assert_eq!(
            (queried.rq_psn, queried.ah_attr.dgid),
            (77, lab.sides[1].gid)
        );
        assert!(queried.max_rd_atomic > 0);

        let mut ends = [lab.end::<Uc>(0, CAP), lab.end::<Uc>(1, CAP)];
        connect(&mut ends);
        write(lab, &mut ends, 2);
    });
}

/// Within one device, and with the link down.
#[test]
fn two_queue_pairs_of_one_device_connect() {
    lab(|lab| {
        lab.world.set_link(0, false);
        let mut ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(0, CAP)];
        connect(&mut ends);
        write(lab, &mut ends, 3);
    });
}

#[test]
fn a_queue_pair_connects_again_after_an_error() {
    lab(|lab| {
        let mut ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(1, CAP)];
        for first in 1..4 {
            connect(&mut ends);
            write(lab, &mut ends, first);
            for end in &mut ends {
                let attr = QpAttr {
                    qp_state: QpState::Err,
                    ..QpAttr::DEFAULT
                };
                end.qp.modify(&attr, QpAttrMask::STATE).expect("to ERR");
            }
        }
    });
}

#[test]
fn an_endpoint_that_cannot_be_is_refused() {
    lab(|lab| {
        let mut end = lab.end::<Rc>(0, CAP);
        let absent = end.qp.endpoint(200, 0);
        let error = AhError::NoSuchSgid { index: 200 };
        assert_eq!(absent, Err(ModifyError::Path(error)));

        let own = end.qp.endpoint(0, 1 << 24).expect("an endpoint");
        let too_large = end.qp.connect(&own, &own).expect_err("25 bits");
        assert!(
            matches!(
                too_large,
                ModifyError::Value {
                    attribute: QpAttrMask::RQ_PSN,
                    ..
                }
            ),
            "{too_large}"
        );
        assert_eq!((Rc::KIND, end.qp.state()), (Rc::KIND, QpState::Init));
    });
}

#[test]
fn slices_of_a_buffer_lie_inside() {
    lab(|lab| {
        let buffer = lab.end::<Rc>(0, CAP).buffer;
        let (len, addr) = (buffer.len(), buffer.addr());
        let at = |sge: Result<bareverbs_core::Sge, _>| {
            let sge = sge.expect("inside");
            ((sge.addr - addr) as usize, sge.length as usize)
        };
        assert_eq!(at(buffer.slice(..)), (0, len));
        assert_eq!(at(buffer.slice(3..10)), (3, 7));
        assert_eq!(at(buffer.slice(3..=10)), (3, 8));
        assert_eq!(at(buffer.slice(len..)), (len, 0));
        let size = len;
        let outside = |offset, len| Err(OutOfRange { offset, len, size });
        assert_eq!(buffer.slice(1..len + 1), outside(1, len));
        assert_eq!(buffer.slice(len + 1..), outside(len + 1, 0));
        #[expect(clippy::reversed_empty_ranges, reason = "callers may")]
        let reversed = buffer.slice(10..3);
        assert_eq!(reversed, outside(10, 0));
        assert_eq!(buffer.slice(..=usize::MAX), outside(0, usize::MAX));
        assert_eq!(buffer.remote(9).addr, addr + 9);
    });
}
