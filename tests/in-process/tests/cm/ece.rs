//! Vendor options of QPs that are the application's own.

use crate::pair::*;
use bareverbs_cm::rdma::*;

const OURS: Ece = Ece {
    vendor_id: 0x02c9,
    options: 0x1000_0001,
};
const THEIRS: Ece = Ece {
    vendor_id: 0xfe_dcba,
    options: 0x8765_4321,
};

/// Asks with `ece`; the own id, and the one that was asked.
fn ask(pair: &mut Pair, port_space: PortSpace, ece: Ece) -> (CmId, CmId) {
    let id = pair.resolved(port_space);
    pair.cms[0].set_local_ece(id, ece).unwrap();
    pair.cms[0].connect(id, Some(&own_qp(0x11))).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    (id, theirs)
}

fn own_qp(qp_num: u32) -> ConnParam<'static> {
    ConnParam {
        qp_num,
        ..ConnParam::default()
    }
}

#[test]
fn options_go_both_ways() {
    let mut pair = Pair::new();
    pair.listener_of(PortSpace::Tcp, 2);
    let (ours, theirs) = ask(&mut pair, PortSpace::Tcp, OURS);
    assert_eq!(pair.cms[1].get_remote_ece(theirs), Ok(OURS));
    assert_eq!(pair.cms[0].get_remote_ece(ours), Ok(Ece::NONE));
    pair.cms[1].set_local_ece(theirs, THEIRS).unwrap();
    pair.cms[1].accept(theirs, Some(&own_qp(0x12))).unwrap();
    pair.expect(0, EventType::ConnectResponse);
    assert_eq!(pair.cms[0].get_remote_ece(ours), Ok(THEIRS));

    // A SIDR_REP has fields for them, a SIDR_REQ has not.
    pair.listener_of(PortSpace::Udp, 2);
    let (ours, theirs) = ask(&mut pair, PortSpace::Udp, OURS);
    assert_eq!(pair.cms[1].get_remote_ece(theirs), Ok(Ece::NONE));
    pair.cms[1].set_local_ece(theirs, THEIRS).unwrap();
    pair.cms[1].accept(theirs, Some(&own_qp(0x12))).unwrap();
    pair.expect(0, EventType::Established);
    assert_eq!(pair.cms[0].get_remote_ece(ours), Ok(THEIRS));
}

#[test]
fn options_are_refused() {
    let mut pair = Pair::new();
    pair.listener_of(PortSpace::Tcp, 2);
    let (_, theirs) = ask(&mut pair, PortSpace::Tcp, OURS);
    pair.cms[1].reject_ece(theirs, b"no").unwrap();
    let refused = pair.expect(0, EventType::Rejected);
    assert_eq!(refused.status, 35);
    assert_eq!(&refused.private_data()[..2], b"no");

    let id = pair.client();
    let error = pair.cms[0].set_local_ece(id, OURS).unwrap_err();
    assert_eq!((error, error.errno()), (RdmaError::QpExists, errno::EINVAL));
    assert_eq!(pair.cms[0].get_remote_ece(id), Err(RdmaError::QpExists));
    pair.cms[0].destroy_qp(id).unwrap();
    for vendor_id in [0, 1 << 24] {
        let ece = Ece {
            vendor_id,
            options: 1,
        };
        let error = pair.cms[0].set_local_ece(id, ece).unwrap_err();
        assert_eq!(error.errno(), errno::EINVAL);
    }
}
