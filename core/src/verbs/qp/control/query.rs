//! Asking the firmware for a QP's attributes.

use bareverbs_firmware_cmds::numbers::Qpn;
use bareverbs_firmware_cmds::qp::{Ads, QueryQpIn};

use crate::platform::Platform;
use crate::types::ah::AhAttr;
use crate::types::gid::Gid;
use crate::types::port::{LinkLayer, Mtu};
use crate::types::qp::QpState;
use crate::types::rate::StaticRate;
use crate::types::sge::Access;
use crate::verbs::qp::control::attr::{PathMigState, QpAttr, QueriedQp};
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::object::QpObject;
use crate::verbs::qp::control::states::QpAttrMask;

impl<P: Platform> QpObject<'_, P> {
    pub(crate) fn query(&mut self) -> Result<QueriedQp, ModifyError> {
        let mut command = QueryQpIn::new();
        command.set_qpn(self.qpn.number());
        let out = self.device.execute(&command)?;
        let qpc = out.qpc();
        let Some(qp_state) = QpState::from_qpc(qpc.state()) else {
            return Err(ModifyError::Value {
                attribute: QpAttrMask::CUR_STATE,
                value: qpc.state().into(),
                limit: 7,
            });
        };
        if qp_state != self.state && self.state != QpState::Reset && qp_state != QpState::Reset {
            self.enter(qp_state);
        }
        let path = qpc.primary_address_path();
        let mut access = Access::empty();
        access.set(Access::REMOTE_WRITE, qpc.rwe());
        access.set(Access::REMOTE_READ, qpc.rre());
        access.set(Access::REMOTE_ATOMIC, qpc.rae());
        let alternate = qpc.secondary_address_path();
        let roce = self.device.capabilities().link_layer() == LinkLayer::Ethernet;
        let path_mtu = Mtu::from_number(qpc.mtu());
        let attr = QpAttr {
            qp_state,
            cur_qp_state: qp_state,
            path_mtu: path_mtu.unwrap_or(Mtu::B256),
            qkey: qpc.q_key(),
            rq_psn: qpc.next_rcv_psn(),
            sq_psn: qpc.next_send_psn(),
            dest_qp_num: Qpn::from_low_bits(qpc.remote_qpn()),
            qp_access_flags: access,
            ah_attr: from_path(path, roce),
            pkey_index: path.pkey_index(),
            max_rd_atomic: 1 << qpc.log_sra_max(),
            max_dest_rd_atomic: 1 << qpc.log_rra_max(),
            min_rnr_timer: qpc.min_rnr_nak(),
            port_num: path.vhca_port_num(),
            timeout: path.ack_timeout(),
            retry_cnt: qpc.retry_count(),
            rnr_retry: qpc.rnr_retry(),
            alt_ah_attr: from_path(alternate, roce),
            alt_pkey_index: alternate.pkey_index(),
            alt_port_num: alternate.vhca_port_num(),
            alt_timeout: alternate.ack_timeout(),
            path_mig_state: PathMigState::from_qpc(qpc.pm_state()),
        };
        Ok(QueriedQp {
            attr,
            path_mtu,
            cap: self.sizes.cap,
            sq_sig_all: self.sq_sig_all,
            sq_draining: qpc.state() == 7,
        })
    }
}

fn from_path(path: &Ads, roce: bool) -> AhAttr {
    AhAttr {
        dgid: Gid(*path.rgid_rip()),
        sgid_index: path.src_addr_index().into(),
        hop_limit: path.hop_limit(),
        traffic_class: path.tclass(),
        flow_label: path.flow_label(),
        sl: if roce { path.eth_prio() } else { path.sl() },
        static_rate: StaticRate::from_device(path.stat_rate()),
        dmac: path.rmac(),
        dlid: path.rlid(),
        src_path_bits: path.mlid(),
        port_num: path.vhca_port_num(),
        force_loopback: path.fl(),
    }
}
