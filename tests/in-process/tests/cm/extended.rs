//! The extended attributes of `rdma_create_qp_ex`.

use crate::keep::keep;
use crate::pair::*;
use bareverbs_cm::rdma::*;
use bareverbs_core::CqInit;

#[test]
fn what_a_qp_has_is_accepted() {
    let mut pair = Pair::new();
    let listener = pair.listener();
    let ours = pair.client();
    pair.cms[0].connect(ours, None).unwrap();
    let theirs = pair.expect(1, EventType::ConnectRequest).id;
    let device = pair.cms[1].device();
    let pd = keep(device.alloc_pd().unwrap());
    let ops = send_ops::SEND
        | send_ops::SEND_WITH_INV
        | send_ops::RDMA_WRITE_WITH_IMM
        | send_ops::RDMA_READ
        | send_ops::ATOMIC_FETCH_AND_ADD;
    let mut init = QpInitEx {
        init: qp(),
        pd: Some(pd),
        xrcd: None,
        extended: &[
            ExtendedAttribute::SendOps(ops),
            ExtendedAttribute::CreateFlags(0),
            ExtendedAttribute::MaxTsoHeader(0),
        ],
    };
    pair.cms[1].create_qp_ex(theirs, &mut init).unwrap();
    assert!(init.init.cap.max_send_wr >= 8);
    assert_eq!(pair.cms[1].pd(theirs).unwrap().pdn(), pd.pdn());
    pair.cms[1].accept(theirs, None).unwrap();
    pair.expect(0, EventType::Established);
    pair.expect(1, EventType::Established);
    pair.say((0, ours), (1, theirs), b"hello");
    pair.cms[1].destroy_id(theirs).unwrap();
    pair.cms[1].destroy_id(listener).unwrap();
}

/// Each attribute that no QP here has is refused by its name, and nothing is created.
#[test]
fn what_no_qp_has_is_refused() {
    let mut pair = Pair::new();
    let mut bound = |port_space| {
        let cm = &mut pair.cms[0];
        let id = cm.create_id(None, 0, port_space).unwrap();
        cm.bind_addr(id, address(0, 0)).unwrap();
        id
    };
    let (stream, datagrams) = (bound(PortSpace::Tcp), bound(PortSpace::Udp));
    let cases = [
        (stream, ExtendedAttribute::SendOps(send_ops::TSO)),
        (
            stream,
            ExtendedAttribute::SendOps(send_ops::SEND | send_ops::LOCAL_INV),
        ),
        (stream, ExtendedAttribute::SendOps(send_ops::BIND_MW)),
        (stream, ExtendedAttribute::SendOps(send_ops::FLUSH)),
        (stream, ExtendedAttribute::SendOps(send_ops::ATOMIC_WRITE)),
        (stream, ExtendedAttribute::SendOps(1 << 40)),
        (datagrams, ExtendedAttribute::SendOps(send_ops::RDMA_WRITE)),
        (
            datagrams,
            ExtendedAttribute::SendOps(send_ops::SEND_WITH_INV),
        ),
        (stream, ExtendedAttribute::CreateFlags(1 << 1)),
        (stream, ExtendedAttribute::MaxTsoHeader(18)),
        (stream, ExtendedAttribute::IndirectionTable),
        (stream, ExtendedAttribute::RxHash),
        (datagrams, ExtendedAttribute::SourceQpn(7)),
    ];
    let before = pair.world.with_model(0, |model| model.objects());
    for (id, attribute) in cases {
        let mut init = QpInitEx {
            init: qp(),
            pd: None,
            xrcd: None,
            extended: &[ExtendedAttribute::SendOps(send_ops::SEND), attribute],
        };
        let error = pair.cms[0].create_qp_ex(id, &mut init).unwrap_err();
        assert_eq!(error, RdmaError::UnsupportedAttribute(attribute));
        assert_eq!(error.errno(), errno::EOPNOTSUPP);
        assert!(error.to_string().contains(&attribute.to_string()));
        assert_eq!(pair.world.with_model(0, |model| model.objects()), before);
    }
    // The ids are none the worse for it.
    for id in [stream, datagrams] {
        pair.cms[0].create_qp(id, None, &mut qp()).unwrap();
    }
}

/// rdma_create_qp(3): the PD, and with it CQs and SRQ, have to be of the id's device. All of them of another one went unseen.
#[test]
fn objects_of_another_device_are_refused() {
    let mut pair = Pair::new();
    let other = pair.cms[1].device();
    let pd = keep(other.alloc_pd().unwrap());
    let cq = keep(other.create_cq(CqInit::new(16)).unwrap());
    let mut attr = SrqAttr {
        max_wr: 8,
        max_sge: 1,
        ..SrqAttr::default()
    };
    let srq = keep(pd.create_srq(&mut attr).unwrap());
    let own_pd = keep(pair.cms[0].device().alloc_pd().unwrap());
    let cm = &mut pair.cms[0];
    let id = cm.create_id(None, 0, PortSpace::Tcp).unwrap();
    cm.bind_addr(id, address(0, 0)).unwrap();
    let with_cqs = || QpInit {
        send_cq: Some(&*cq),
        recv_cq: Some(&*cq),
        ..qp()
    };
    let refused = |what| Err(RdmaError::OtherDevice(what));
    assert_eq!(cm.create_qp(id, Some(pd), &mut with_cqs()), refused("PD"));
    assert_eq!(cm.create_qp(id, Some(pd), &mut qp()), refused("PD"));
    for own in [None, Some(&*own_pd)] {
        assert_eq!(cm.create_qp(id, own, &mut with_cqs()), refused("CQ"));
    }
    let mut with_srq = QpInit {
        srq: Some(srq.handle()),
        ..qp()
    };
    assert_eq!(cm.create_qp(id, None, &mut with_srq), refused("SRQ"));
    assert_eq!(cm.create_srq(id, Some(pd), &mut attr), refused("PD"));
    assert_eq!(RdmaError::OtherDevice("PD").errno(), errno::EINVAL);
    // A listener of rdma_create_ep keeps none of it either.
    let passive = AddrInfo::hints(true);
    let here = getaddrinfo(Some("10.0.0.1"), Some("7175"), Some(&passive)).unwrap();
    let in_use = cm.ids_in_use();
    let listener = cm.create_ep(&here, Some(pd), Some(&mut with_cqs()));
    assert_eq!(listener, refused("PD").map(|()| id));
    assert_eq!(cm.ids_in_use(), in_use);
    cm.create_qp(id, Some(own_pd), &mut qp()).unwrap();
}
