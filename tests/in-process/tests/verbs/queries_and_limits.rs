//! The firmware's answers to queries of a QP, and the limit on the number of QPs.

use bareverbs_core::{Access, CqInit, Mtu, QpInitAttr, QpState, Rc, Ud};

use crate::lab::{CAP, lab};

/// The firmware's answer to a query is what was set.
#[test]
fn queries() {
    lab(|lab| {
        let [mut a, b] = lab.pair::<Rc>();
        let queried = a.qp.query().unwrap();
        let set = lab.attr(0, b.qp.qpn());
        let attr = queried.attr;
        assert_eq!(
            (attr.qp_state, attr.path_mtu, attr.dest_qp_num),
            (QpState::Rts, set.path_mtu, b.qp.qpn())
        );
        assert_eq!(
            (
                attr.timeout,
                attr.retry_cnt,
                attr.rnr_retry,
                attr.min_rnr_timer
            ),
            (10, 7, 7, 1)
        );
        assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (4, 4));
        assert_eq!(
            (attr.qp_access_flags, attr.pkey_index, attr.port_num),
            (set.qp_access_flags - Access::LOCAL_WRITE, 0, 1)
        );
        assert_eq!(
            (attr.ah_attr.dgid, attr.ah_attr.dmac, attr.ah_attr.hop_limit),
            (set.ah_attr.dgid, set.ah_attr.dmac, 64)
        );
        assert_eq!(queried.cap, a.qp.cap());
        drop(b);
    });
}

/// Linux's mlx5_ib writes 4096 bytes into the context of UD QPs (`__mlx5_ib_modify_qp`).
#[test]
fn datagrams_have_the_largest_path_mtu() {
    lab(|lab| {
        let [mut a, _b] = lab.pair::<Ud>();
        assert_eq!(a.qp.query().unwrap().path_mtu, Some(Mtu::B4096));
        let mut unconnected = lab.end::<Rc>(0, CAP);
        let queried = unconnected.qp.query().unwrap();
        assert_eq!((queried.path_mtu, queried.attr.path_mtu), (None, Mtu::B256));
    });
}

#[test]
fn limits_are_the_storages() {
    lab(|lab| {
        let side = &lab.sides[0];
        let cq = side.device.create_cq(CqInit::new(4)).unwrap();
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: CAP,
            sq_sig_all: true,
        };
        let mut qps = Vec::new();
        while let Ok(qp) = side.pd.create_qp::<Rc>(&mut init) {
            qps.push(qp);
        }
        assert_eq!(qps.len(), 16);
        qps.clear();
        side.pd
            .create_qp::<Rc>(&mut init)
            .expect("a slot is free again");
    });
}
