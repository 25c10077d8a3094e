//! Two queue pairs of one function, connected to each other.

use bareverbs_core::{
    Access, AhAttr, Cq, CqInit, Device, Gid, GidEntry, Inline, Mtu, Pd, Platform, Qp, QpAttr,
    QpAttrMask, QpCap, QpInitAttr, QpState, QpType, Rc, RoceVersion, SendFlags, WcStatus,
};

use crate::LONG;

pub(crate) const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ);

/// One of two QPs of one function, which are connected to each other.
pub(crate) struct End<'d, P: Platform> {
    pub(crate) qp: Qp<'d, P, Rc>,
    pub(crate) cq: Cq<'d, P>,
}

fn end<'d, P: Platform>(device: &'d Device<'d, P>, pd: &Pd<'d, P>) -> End<'d, P> {
    let cq = device.create_cq(CqInit::new(15)).expect("CQ");
    let mut init = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: QpCap {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 16,
        },
        sq_sig_all: true,
    };
    let qp = pd.create_qp::<Rc>(&mut init).expect("QP");
    End { qp, cq }
}

/// Two ends on one function.
pub(crate) fn pair<'d, P: Platform>(device: &'d Device<'d, P>, pd: &Pd<'d, P>) -> [End<'d, P>; 2] {
    let mut ends = [end(device, pd), end(device, pd)];
    let mac = device.mac().expect("MAC");
    let gid = Gid::link_local(mac);
    let index = match device.find_gid(&gid, RoceVersion::V2, None) {
        Some(index) => index,
        None => {
            let index = device.free_gid_index().expect("a free entry");
            let entry = GidEntry::roce_v2(gid, mac);
            device.set_gid(index, entry).expect("an address");
            index
        }
    };
    let qpns = [ends[1].qp.qpn(), ends[0].qp.qpn()];
    for (end, peer) in ends.iter_mut().zip(qpns) {
        let mut attr = QpAttr {
            path_mtu: Mtu::B1024,
            dest_qp_num: peer,
            qp_access_flags: ALL,
            ah_attr: AhAttr {
                dgid: gid,
                sgid_index: index,
                hop_limit: 64,
                dmac: mac,
                ..AhAttr::default()
            },
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            port_num: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::DEFAULT
        };
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            attr.qp_state = to;
            let row = bareverbs_core::qp::transition(Rc::KIND, end.qp.state(), to);
            let required = row.expect("a transition").required;
            end.qp
                .modify(&attr, required | QpAttrMask::STATE)
                .expect("modified");
        }
    }
    ends
}

pub(crate) fn wait<P: Platform>(device: &Device<'_, P>, cq: &mut Cq<'_, P>) -> WcStatus {
    let deadline = device.platform().now() + LONG;
    loop {
        if let Some(completion) = cq.poll().expect("the CQ works") {
            return completion.to_wc().status;
        }
        assert!(device.wait(deadline).expect("the device works"), "late");
    }
}

/// Sends from one end to the other, and compares what arrives.
pub(crate) fn send<P: Platform>(
    device: &Device<'_, P>,
    pd: &Pd<'_, P>,
    ends: &mut [End<'_, P>; 2],
    word: &[u8; 8],
) {
    let buffer = pd.alloc_buffer(64, ALL).expect("buffer");
    let sge = buffer.sge(0, 64).unwrap();
    let [a, b] = ends;
    b.qp.recv_queue().post(1, &[sge]).expect("posted");
    a.qp.send_queue()
        .batch()
        .send(1, SendFlags::SIGNALED, Inline(word))
        .expect("posted");
    for end in [a, b] {
        assert_eq!(wait(device, &mut end.cq), WcStatus::Success);
    }
    let mut arrived = [0; 8];
    buffer.copy_out(0, &mut arrived).unwrap();
    assert_eq!(&arrived, word);
}

/// Sleeps until there is a completion, and says which work request's.
pub(crate) fn sleep<P: Platform>(device: &Device<'_, P>, cq: &mut Cq<'_, P>) -> u64 {
    let deadline = device.platform().now() + LONG;
    loop {
        for arm in [true, false] {
            if let Some(completion) = cq.poll().expect("the CQ works") {
                assert_eq!(completion.to_wc().status, WcStatus::Success);
                return completion.wr_id();
            }
            if arm {
                cq.take_event();
                cq.arm(false);
            }
        }
        assert!(cq.wait_event(deadline).expect("the device works"), "late");
    }
}
