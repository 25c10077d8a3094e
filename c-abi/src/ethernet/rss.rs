//! QPs whose frames a hash of their headers spreads over receive queues: `ibv_create_qp_ex` with `IBV_QP_INIT_ATTR_RX_HASH`
//! and `IBV_QP_INIT_ATTR_IND_TABLE`.
//!
//! What is refused, and with which errno, is what Linux's driver and rdma-core's library for mlx5 refuse
//! (`create_rss_raw_qp_tir`).

// UNSAFETY: reads structures of C, and keeps a pointer to an object of C.
#![expect(unsafe_code)]

use std::slice;

use bareverbs_node::verbs::qp::QueriedQp;
use bareverbs_node::verbs::{
    EthernetTarget, HashFields, HashFunction, HashedPackets, ModifyError, QpAttr, QpAttrMask,
    QpState, Qpn, RssHash,
};

use crate::abi::numbers::*;
use crate::abi::objects::{ibv_qp_init_attr_ex, ibv_rx_hash_conf};
use crate::ethernet::work_queue::{self, TableObject};
use crate::process::failure::{Errno, Result};
use crate::process::hca::P;
use crate::verbs::context::ContextObject;

/// Fields of the headers that go into a hash.
pub(crate) const FIELDS: u64 = IPV4 | IPV6 | TCP | UDP;

const IPV4: u64 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
const IPV6: u64 = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
const TCP: u64 = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
const UDP: u64 = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;

/// A QP that hashes, and has no queues of its own.
pub(crate) struct RssQp {
    pub(crate) target: EthernetTarget<'static, P>,
    /// Where it finds its queues. The table cannot be destroyed before the QP.
    table: *const TableObject,
    /// Rules that send frames to it.
    pub(crate) rules: u32,
}

impl RssQp {
    /// Creates it.
    ///
    /// # Safety
    /// The table and the key in `attr` are there.
    pub(crate) unsafe fn create(
        context: &ContextObject,
        attr: &ibv_qp_init_attr_ex,
    ) -> Result<Self> {
        let both = IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE;
        if attr.qp_type != IBV_QPT_RAW_PACKET {
            return Err(Errno::EOPNOTSUPP);
        }
        let cap = &attr.cap;
        let queues = cap.max_send_wr | cap.max_recv_wr | cap.max_recv_sge;
        if attr.comp_mask & both != both || queues != 0 || !attr.srq.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller promises that the table and the key in `attr` are there.
        let object = unsafe { work_queue::table(attr.rwq_ind_tbl) }?;
        context.check_owner(object.c.context)?;
        // SAFETY: the caller promises that the table and the key in `attr` are there.
        let hash = unsafe { hash(&attr.rx_hash_conf) }?;
        let domain = context.frames.domain(context.hca.device)?;
        let target = match hash {
            Some(hash) => domain.create_hashed_target(&object.table, &hash)?,
            // Nothing to tell queues apart by.
            None if object.table.size() == 1 => domain.create_target(object.first)?,
            None => return Err(Errno::EINVAL),
        };
        object.users.add();
        Ok(Self {
            target,
            table: object,
            rules: 0,
        })
    }

    /// The number that Linux's driver gives to all of them.
    pub(crate) fn qpn(&self) -> Qpn {
        Qpn::from_low_bits(0)
    }

    pub(crate) fn state(&self) -> QpState {
        QpState::Reset
    }

    pub(crate) fn modify(
        &mut self,
        _: &QpAttr,
        attribute: QpAttrMask,
    ) -> std::result::Result<(), ModifyError> {
        Err(ModifyError::Unsupported { attribute })
    }

    pub(crate) fn query(&mut self) -> std::result::Result<QueriedQp, ModifyError> {
        let attribute = QpAttrMask::STATE;
        Err(ModifyError::Unsupported { attribute })
    }

    /// Destroys it. What the firmware does not give up stays with the device, and the table with it.
    pub(crate) fn destroy(self) {
        match self.target.destroy() {
            // SAFETY: the table cannot be destroyed while the QP is among its users.
            Ok(()) => unsafe { (*self.table).users.remove() },
            Err(error) => log::error!("a QP that hashes: {error}"),
        }
    }
}

/// The hash; `None` for none.
///
/// # Safety
/// The key has as many bytes as it says.
unsafe fn hash(conf: &ibv_rx_hash_conf) -> Result<Option<RssHash>> {
    if conf.rx_hash_fields_mask & !FIELDS != 0 || conf.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ
    {
        return Err(Errno::EOPNOTSUPP);
    }
    let len = usize::from(conf.rx_hash_key_len);
    if len != RssHash::PUBLIC_KEY.len() || conf.rx_hash_key.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller promises that the key has as many bytes as it says.
    let key = unsafe { slice::from_raw_parts(conf.rx_hash_key, len) };
    let mask = conf.rx_hash_fields_mask;
    let has = |fields: u64| mask & fields != 0;
    if has(IPV4) && has(IPV6) || has(TCP) && has(UDP) {
        return Err(Errno::EINVAL);
    }
    let mut fields = HashFields::empty();
    for (field, of) in [
        (
            HashFields::SOURCE_ADDRESS,
            IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_SRC_IPV6,
        ),
        (
            HashFields::DESTINATION_ADDRESS,
            IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_DST_IPV6,
        ),
        (
            HashFields::SOURCE_PORT,
            IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP,
        ),
        (
            HashFields::DESTINATION_PORT,
            IBV_RX_HASH_DST_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP,
        ),
    ] {
        fields.set(field, has(of));
    }
    if fields.is_empty() {
        return Ok(None);
    }
    let packets = match (has(IPV6), has(TCP), has(UDP)) {
        (false, false, false) => HashedPackets::Ipv4,
        (false, _, true) => HashedPackets::UdpIpv4,
        (false, true, _) => HashedPackets::TcpIpv4,
        (true, false, false) => HashedPackets::Ipv6,
        (true, _, true) => HashedPackets::UdpIpv6,
        (true, true, _) => HashedPackets::TcpIpv6,
    };
    Ok(Some(RssHash {
        packets,
        fields,
        function: HashFunction::Toeplitz,
        key: key.try_into().map_err(|_| Errno::EINVAL)?,
        symmetric: true,
    }))
}
