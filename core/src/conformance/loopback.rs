//! Two queue pairs of one device that talk to each other, with or without a cable.

use core::time::Duration;

use super::limits::TIMEOUT;
use super::violation::{ConformanceError, Path, Violation};
use crate::device::Device;
use crate::platform::Platform;
use crate::types::ah::AhAttr;
use crate::types::port::{LinkLayer, Mtu};
use crate::types::sge::{Access, Sge};
use crate::types::wc::WcStatus;
use crate::verbs::cq::{Cq, CqInit};
use crate::verbs::pd::Pd;
use crate::verbs::qp::{
    Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType, Rc, SendData, SendFlags, SendOp,
    SendWr, transition,
};
use bareverbs_firmware_cmds::numbers::Qpn;

/// The access of the other end to memory here.
pub(super) const ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ);

/// The first one asks.
pub(super) struct Pair<'d, P: Platform> {
    asks: Qp<'d, P, Rc>,
    /// Its device answers for it.
    _answers: Qp<'d, P, Rc>,
    pub(super) cq: Cq<'d, P>,
}

impl<'d, P: Platform> Pair<'d, P> {
    /// Connected, with completions on this vector.
    pub(super) fn new(
        device: &'d Device<'d, P>,
        pd: &Pd<'d, P>,
        comp_vector: u16,
    ) -> Result<Self, ConformanceError> {
        if !device.capabilities().has_force_loopback() {
            return Err(ConformanceError::NoLoopback);
        }
        let port = device.query_port()?;
        let mtu = match port.link_layer {
            // Force loopback asks nothing of an Ethernet port.
            LinkLayer::Ethernet => Mtu::B4096,
            LinkLayer::InfiniBand => port.active_mtu,
        };
        let mut init = CqInit::new(16);
        init.comp_vector = comp_vector;
        let cq = device.create_cq(init)?;
        let create = || {
            pd.create_qp::<Rc>(&mut QpInitAttr {
                send_cq: &cq,
                recv_cq: &cq,
                srq: None,
                cap: QpCap {
                    max_send_wr: 4,
                    max_recv_wr: 1,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 0,
                },
                sq_sig_all: true,
            })
        };
        let (mut asks, mut answers) = (create()?, create()?);
        let numbers = (asks.qpn(), answers.qpn());
        connect(&mut asks, numbers.1, mtu)?;
        connect(&mut answers, numbers.0, mtu)?;
        Ok(Self {
            asks,
            _answers: answers,
            cq,
        })
    }

    /// Posts a request.
    pub(super) fn post(&mut self, op: SendOp<'_>, data: &[Sge]) -> Result<(), ConformanceError> {
        let wr = SendWr {
            wr_id: 0,
            op,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(data),
        };
        Ok(self.asks.send_queue().post(&wr)?)
    }

    /// Returns `true` if the request is done; any status but success is an error.
    pub(super) fn is_done(&mut self, path: Path) -> Result<bool, ConformanceError> {
        let Some(completion) = self.cq.poll()? else {
            return Ok(false);
        };
        let status = completion.status();
        if status != WcStatus::Success {
            let vendor_err = completion.vendor_err();
            return Err(Violation::Refused {
                path,
                status,
                vendor_err,
            }
            .into());
        }
        Ok(true)
    }

    /// Posts a request and waits for its end.
    pub(super) fn execute(
        &mut self,
        path: Path,
        op: SendOp<'_>,
        data: &[Sge],
    ) -> Result<(), ConformanceError> {
        let device = self.asks.device();
        let deadline = patient(device);
        self.post(op, data)?;
        while !self.is_done(path)? {
            if device.platform().now() >= deadline {
                let waited = TIMEOUT;
                return Err(Violation::NoCompletion { path, waited }.into());
            }
            device.platform().relax();
            device.poll()?;
        }
        Ok(())
    }
}

/// When backoff ends that begins now.
pub(super) fn patient<P: Platform>(device: &Device<'_, P>) -> Duration {
    device.platform().now().saturating_add(TIMEOUT)
}

fn connect<P: Platform>(
    qp: &mut Qp<'_, P, Rc>,
    peer: Qpn,
    mtu: Mtu,
) -> Result<(), ConformanceError> {
    let mut attr = QpAttr {
        path_mtu: mtu,
        dest_qp_num: peer,
        qp_access_flags: ACCESS,
        ah_attr: AhAttr {
            force_loopback: true,
            ..AhAttr::default()
        },
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::DEFAULT
    };
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        attr.qp_state = to;
        let required = transition(Rc::KIND, qp.state(), to).map(|row| row.required);
        qp.modify(
            &attr,
            required.unwrap_or(QpAttrMask::STATE) | QpAttrMask::STATE,
        )?;
    }
    Ok(())
}
