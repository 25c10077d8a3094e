//! Other rights for a region whose keys stay: a UMR work request, on a QP that is there for that only.

use std::time::{Duration, Instant};

use bareverbs_node::verbs::{
    Access, AhAttr, CqInit, LinkLayer, MkeyInitAttr, Mr, Mtu, Platform, QpAttr, QpCap, QpInitAttr,
    Rc, SendFlags, WcStatus,
};

use crate::process::failure::{Errno, Result};
use crate::process::hca::P;
use crate::verbs::pd::PdObject;

/// The time that the device may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The rights that a UMR can change.
const RIGHTS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

/// Gives a region of the domain other rights.
///
/// # Errors
/// EOPNOTSUPP if its keys cannot stay, and whatever else is in the way: then it has to be registered anew.
pub(crate) fn change_access(pd: &PdObject, mr: &mut Mr<'static, P>, access: Access) -> Result<()> {
    let device = pd.hca.device;
    let capabilities = device.capabilities();
    let others = mr.access().symmetric_difference(access).difference(RIGHTS);
    // A connection to itself, of which no packet is ever sent, asks nothing of the network.
    if !others.is_empty()
        || !capabilities.has_memory_windows()
        || !capabilities.has_force_loopback()
    {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut cq = device.create_cq(CqInit::new(4))?;
    let mut qp = pd.pd.create_qp::<Rc>(&mut QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: QpCap {
            max_send_wr: 1,
            max_send_sge: 1,
            max_inline_data: MkeyInitAttr::space(0),
            ..QpCap::default()
        },
        sq_sig_all: true,
    })?;
    let path_mtu = match capabilities.link_layer() {
        LinkLayer::Ethernet => Mtu::B4096,
        LinkLayer::InfiniBand => device.query_port()?.active_mtu,
    };
    qp.bring_to_rts(&QpAttr {
        path_mtu,
        dest_qp_num: qp.qpn(),
        ah_attr: AhAttr {
            force_loopback: true,
            ..AhAttr::default()
        },
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::DEFAULT
    })?;
    qp.send_queue()
        .batch()
        .rereg_access(0, SendFlags::SIGNALED, mr, access)?;
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(found) = cq.poll()? {
            break found.status();
        }
        if Instant::now() > end {
            return Err(Errno::ETIMEDOUT);
        }
        device.platform().relax();
    };
    match status {
        WcStatus::Success => Ok(()),
        status => {
            log::error!("rights of a region: {status:?}");
            Err(Errno::EIO)
        }
    }
}
