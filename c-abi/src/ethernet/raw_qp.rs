//! Raw packet QPs as the driver has them, with the number of rules that lead to each.

use bareverbs_node::verbs::{EthernetDomain, QpInitHandles, RawPacketQp};

use crate::process::failure::Result;
use crate::process::hca::P;
use crate::verbs::pd::PdObject;

/// A raw packet QP.
pub(crate) struct RawQp {
    pub(crate) qp: RawPacketQp<'static, P>,
    /// Rules that send frames to it.
    pub(crate) rules: u32,
}

impl RawQp {
    pub(crate) fn create(
        pd: &PdObject,
        domain: &EthernetDomain<'static, P>,
        init: &mut QpInitHandles<'static, P>,
    ) -> Result<Self> {
        let qp = domain.create_raw_packet_qp_by_handles(&pd.pd, init)?;
        Ok(Self { qp, rules: 0 })
    }

    /// Destroys it. What the firmware does not give up stays with the device.
    pub(crate) fn destroy(self) {
        if let Err(error) = self.qp.destroy() {
            log::error!("a raw packet QP: {error}");
        }
    }
}
