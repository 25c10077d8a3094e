//! Vendor options of QPs that are the application's own.

mod cm_pair;

use std::net::{IpAddr, SocketAddr};

use bareverbs_cm::rdma::*;
use cm_pair::*;

const OURS: Ece = Ece {
    vendor_id: 0x02c9,
    options: 0x1000_0001,
};
const THEIRS: Ece = Ece {
    vendor_id: 0xfe_dcba,
    options: 0x8765_4321,
};

fn listener(pair: &mut Pair, port_space: PortSpace) {
    let id = pair.cms[1]
        .create_id(Some(pair.channels[1]), 0, port_space)
        .unwrap();
    let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
    pair.cms[1].bind_addr(id, any).unwrap();
    pair.cms[1].listen(id, 2).unwrap();
}

/// Asks with `ece`; the own id, and the one that was asked.
fn ask(pair: &mut Pair, port_space: PortSpace, ece: Ece) -> (CmId, CmId) {
    let id = pair.cms[0]
        .create_id(Some(pair.channels[0]), 5, port_space)
        .unwrap();
    pair.cms[0]
        .resolve_addr(id, None, address(1, PORT), SECOND)
        .unwrap();
    pair.expect(0, EventType::AddrResolved);
    pair.cms[0].resolve_route(id, SECOND).unwrap();
    pair.expect(0, EventType::RouteResolved);
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
    listener(&mut pair, PortSpace::Tcp);
    let (ours, theirs) = ask(&mut pair, PortSpace::Tcp, OURS);
    assert_eq!(pair.cms[1].get_remote_ece(theirs), Ok(OURS));
    assert_eq!(pair.cms[0].get_remote_ece(ours), Ok(Ece::NONE));
    pair.cms[1].set_local_ece(theirs, THEIRS).unwrap();
    pair.cms[1].accept(theirs, Some(&own_qp(0x12))).unwrap();
    pair.expect(0, EventType::ConnectResponse);
    assert_eq!(pair.cms[0].get_remote_ece(ours), Ok(THEIRS));

    // A service's answer has room for them, a question has not.
    listener(&mut pair, PortSpace::Udp);
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
    listener(&mut pair, PortSpace::Tcp);
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
