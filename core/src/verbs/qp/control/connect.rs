//! Connecting a QP without a connection manager: what the two sides exchange by other means, and the transitions from
//! RESET to RTS (IBTA vol. 1, 10.3.1; `ibv_rc_pingpong` of rdma-core does the same by hand).

use bareverbs_firmware_cmds::numbers::Qpn;

use crate::platform::Platform;
use crate::types::ah::{AhAttr, AhError};
use crate::types::gid::{Gid, Mac};
use crate::types::port::Mtu;
use crate::types::qp::{QpKind, QpState};
use crate::types::sge::Access;
use crate::verbs::qp::control::attr::QpAttr;
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::control::states::{QpAttrMask, TransitionError, transition};
use crate::verbs::qp::route::service::{Connected, QpType};

/// READs and atomics that a connection has outstanding at most, if both devices can.
const MAX_RD_ATOMIC: u32 = 16;
/// RNR NAK timer: 0.64 ms (IBTA vol. 1, table 45), as `ibv_rc_pingpong` has it.
const MIN_RNR_TIMER: u8 = 12;
/// Local ACK timeout: 4.096 µs × 2^14, 67 ms.
const TIMEOUT: u8 = 14;
/// Retries: the maximum for a timeout, and without limit for a receiver that is not ready.
const RETRIES: u8 = 7;

/// One side of a connection, as the peer needs it: the addresses of its port and its QP. [`Qp::endpoint`] makes it;
/// programs send it to each other by other means, such as TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The QP's number.
    pub qpn: Qpn,
    /// The first packet sequence number that it sends, 24 bits.
    pub psn: u32,
    /// The port's GID, from which packets are sent. Zero on InfiniBand, where the LID is enough.
    pub gid: Gid,
    /// Index of that GID in the port's table. The peer has no use for it.
    pub sgid_index: u16,
    /// The port's MAC address (RoCE). A router's in between is for the caller to fill in.
    pub mac: Mac,
    /// The port's LID (InfiniBand).
    pub lid: u16,
    /// The port's MTU.
    pub mtu: Mtu,
    /// READs and atomics that its device can have outstanding, as requester and as responder.
    pub max_rd_atomic: u8,
}

impl Endpoint {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const LEN: usize = 36;

    /// As it can be sent to the peer: all fields in their order, big-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.qpn.number().to_be_bytes());
        bytes[4..8].copy_from_slice(&self.psn.to_be_bytes());
        bytes[8..24].copy_from_slice(&self.gid.0);
        bytes[24..26].copy_from_slice(&self.sgid_index.to_be_bytes());
        bytes[26..32].copy_from_slice(&self.mac);
        bytes[32..34].copy_from_slice(&self.lid.to_be_bytes());
        bytes[34] = self.mtu.number();
        bytes[35] = self.max_rd_atomic;
        bytes
    }

    /// From what the peer has sent. `None`, if a field is out of its range.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        let (qpn, psn) = (
            u32::from_be_bytes([a, b, c, d]),
            u32::from_be_bytes([e, f, g, h]),
        );
        let (gid, rest) = rest.split_first_chunk()?;
        let (sgid_index, rest) = rest.split_first_chunk()?;
        let (&mac, rest) = rest.split_first_chunk()?;
        let &[lid_high, lid_low, mtu, max_rd_atomic] = rest else {
            return None;
        };
        (qpn < 1 << 24 && psn < 1 << 24).then_some(())?;
        Some(Self {
            qpn: Qpn::from_low_bits(qpn),
            psn,
            gid: Gid(*gid),
            sgid_index: u16::from_be_bytes(*sgid_index),
            mac,
            lid: u16::from_be_bytes([lid_high, lid_low]),
            mtu: Mtu::from_number(mtu)?,
            max_rd_atomic,
        })
    }
}

impl<P: Platform, T: QpType> Qp<'_, P, T> {
    /// Takes the QP from any state over RESET, INIT and RTR to RTS (`ibv_modify_qp` three or four times). Of `attr` each
    /// transition takes the attributes that it requires, and no others.
    ///
    /// # Errors
    ///
    /// Those of the transition that failed, in which case the QP stays in the state before it.
    pub fn bring_to_rts(&mut self, attr: &QpAttr) -> Result<(), ModifyError> {
        let mut attr = *attr;
        for to in [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts] {
            let from = self.state();
            if (from, to) == (QpState::Reset, QpState::Reset) {
                continue;
            }
            let Some(row) = transition(T::KIND, from, to) else {
                let none = TransitionError::NoSuchTransition { from, to };
                return Err(ModifyError::Transition(none));
            };
            attr.qp_state = to;
            self.modify(&attr, row.required | QpAttrMask::STATE)?;
        }
        Ok(())
    }
}

impl<P: Platform, T: Connected> Qp<'_, P, T> {
    /// This side of a connection, for the peer: on the port's GID `sgid_index` (0 is the first address), with `psn` as
    /// the first packet sequence number (24 bits), which should differ from that of the last connection of this QP number.
    ///
    /// # Errors
    ///
    /// [`ModifyError::Path`] if the GID table has no such entry, or the firmware's error.
    pub fn endpoint(&self, sgid_index: u16, psn: u32) -> Result<Endpoint, ModifyError> {
        let device = self.device();
        let port = device.query_port()?;
        let (gid, mac) = match device.port_gid(sgid_index) {
            Some(entry) => (entry.gid, entry.mac),
            // The subnet manager fills the table.
            None if device.gid_table_len() == 0 => (Gid::ZERO, port.mac),
            None => return Err(ModifyError::Path(AhError::NoSuchSgid { index: sgid_index })),
        };
        let caps = &device.capabilities().hca;
        let log_depth = caps.log_max_ra_req_qp().min(caps.log_max_ra_res_qp());
        let depth = 1_u32.checked_shl(log_depth.into()).unwrap_or(MAX_RD_ATOMIC);
        Ok(Endpoint {
            qpn: self.qpn(),
            psn,
            gid,
            sgid_index,
            mac,
            lid: port.lid,
            mtu: port.active_mtu,
            max_rd_atomic: depth.min(MAX_RD_ATOMIC) as u8,
        })
    }

    /// Connects this side to the other one: RESET to RTS. `own` is what [`endpoint`](Self::endpoint) made and the peer
    /// was sent, `peer` what that side has sent. The path MTU and the READs outstanding are the smaller of both sides'.
    ///
    /// The peer may READ, WRITE and do atomics, as far as the keys of memory regions allow. Between two RC QPs on
    /// the same GID, packets stay inside the device ([`force_loopback`](AhAttr::force_loopback)) where it can do that. What
    /// else there is to choose, [`bring_to_rts`](Self::bring_to_rts) takes.
    ///
    /// # Errors
    ///
    /// Those of the transition that failed, in which case the QP stays in the state before it.
    pub fn connect(&mut self, own: &Endpoint, peer: &Endpoint) -> Result<(), ModifyError> {
        let device = self.device();
        let capabilities = device.capabilities();
        let mut access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        access.set(Access::REMOTE_ATOMIC, capabilities.has_atomics());
        let inside = own.gid == peer.gid && !own.gid.is_zero();
        let reads = own.max_rd_atomic.min(peer.max_rd_atomic);
        let attr = QpAttr {
            path_mtu: if own.mtu.number() < peer.mtu.number() {
                own.mtu
            } else {
                peer.mtu
            },
            rq_psn: peer.psn,
            sq_psn: own.psn,
            dest_qp_num: peer.qpn,
            qp_access_flags: access,
            ah_attr: AhAttr {
                dgid: peer.gid,
                sgid_index: own.sgid_index,
                hop_limit: 64,
                dmac: peer.mac,
                dlid: peer.lid,
                force_loopback: inside
                    && T::KIND == QpKind::Rc
                    && capabilities.has_force_loopback(),
                ..AhAttr::default()
            },
            max_rd_atomic: reads,
            max_dest_rd_atomic: reads,
            min_rnr_timer: MIN_RNR_TIMER,
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RETRIES,
            ..QpAttr::DEFAULT
        };
        self.bring_to_rts(&attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_comes_back_from_its_bytes() {
        let endpoint = Endpoint {
            qpn: Qpn::from_low_bits(0x12_3456),
            psn: 0xff_fffe,
            gid: Gid::from_ipv4([192, 0, 2, 1].into()),
            sgid_index: 0x0102,
            mac: [2, 0xc9, 0, 0, 0, 1],
            lid: 0x0304,
            mtu: Mtu::B1024,
            max_rd_atomic: 16,
        };
        let bytes = endpoint.to_bytes();
        assert_eq!(Endpoint::from_bytes(&bytes), Some(endpoint));
        // The peer is not trusted.
        for (index, value) in [(0, 1), (4, 1), (34, 0), (34, 6)] {
            let mut wrong = bytes;
            wrong[index] = value;
            assert_eq!(Endpoint::from_bytes(&wrong), None, "byte {index}");
        }
    }
}
