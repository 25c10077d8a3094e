//! UD QPs whose datagrams have QP1 for their source: management datagrams in other partitions than QP1's own.
//!
//! QP1 has one P_Key index, as all QPs have, and sends in the partition at that index. Where the device can put another
//! number into the DETH (`set_deth_sqpn`), a UD QP per partition sends instead, and the answers go to QP1, which receives in
//! all partitions of the port. Linux does the same (`drivers/infiniband/hw/mlx5/gsi.c`, `create_gsi_ud_qp`).

use core::fmt;

use bareverbs_firmware_cmds::command::{Command, EmptyOut};
use bareverbs_firmware_cmds::qp::Rst2initQpIn;
use zerocopy::IntoBytes;

use crate::device::TailIn;
use crate::device::in_flight::{InFlight, SlotClass};
use crate::platform::Platform;
use crate::types::error::{CommandError, CommandFailure, Millis};
use crate::types::qp::QpState;
use crate::verbs::pd::Pd;
use crate::verbs::qp::control::attr::QpAttr;
use crate::verbs::qp::control::create::Codes;
use crate::verbs::qp::control::init_attr::{CreateQpError, QpInitAttr};
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::object::{Transit, UnderWay};
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::control::states::QpAttrMask;
use crate::verbs::qp::queue::send::SendQueue;
use crate::verbs::qp::route::service::Ud;

/// The number in the DETH of its datagrams.
const GSI_QPN: u32 = 1;
/// The Q_Key of QP1 (IBTA volume 1, 10.2.5).
const GSI_QKEY: u32 = 0x8001_0000;

/// Why there is no such QP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GsiSourceError {
    /// The device always sends a QP's own number (`set_deth_sqpn` is not there).
    NotOffered,
    /// The QP could not be created.
    Create(CreateQpError),
}

impl fmt::Display for GsiSourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered => f.write_str("the device sends no datagrams in QP1's name"),
            Self::Create(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for GsiSourceError {}

/// A UD QP that sends as QP1, in the partition at one index of the port's table. It receives nothing.
pub struct GsiSource<'d, P: Platform> {
    qp: Qp<'d, P, Ud>,
    pkey_index: u16,
    /// It has to go through RESET first.
    restarts: bool,
}

impl<'d, P: Platform> Pd<'d, P> {
    /// Creates a QP that sends as QP1; [`GsiSource::start`] has it work.
    ///
    /// # Errors
    /// [`GsiSourceError::NotOffered`] on devices without `set_deth_sqpn`, and those of [`create_qp`](Self::create_qp).
    pub fn create_gsi_source(
        &self,
        init: &mut QpInitAttr<'_, 'd, P>,
    ) -> Result<GsiSource<'d, P>, GsiSourceError> {
        if !self.device.capabilities().hca.set_deth_sqpn() {
            return Err(GsiSourceError::NotOffered);
        }
        let codes = Codes {
            deth_sqpn: GSI_QPN as u8,
            ..Codes::NONE
        };
        let qp = self
            .begin_qp(SlotClass::Ordinary, init, codes)
            .and_then(|begun| begun.wait())
            .map_err(GsiSourceError::Create)?;
        Ok(GsiSource {
            qp,
            pkey_index: 0,
            restarts: false,
        })
    }
}

impl<'d, P: Platform> GsiSource<'d, P> {
    /// Has it send in the partition at this index of the port's table, and waits for nothing:
    /// [`try_finish_start`](Self::try_finish_start) says when it does. What was on its way is lost.
    pub fn start(&mut self, pkey_index: u16) {
        self.pkey_index = pkey_index;
        self.restarts = true;
    }

    /// Checks whether it sends now; `None` while the firmware has not answered. Meanwhile the device has to be
    /// [polled](crate::Device::poll).
    pub fn try_finish_start(&mut self) -> Option<Result<(), ModifyError>> {
        loop {
            if let Err(error) = self.qp.try_finish_modify()? {
                return Some(Err(error));
            }
            let state = self.qp.qp.object.state;
            let to = match state {
                _ if self.restarts && state != QpState::Reset => QpState::Reset,
                QpState::Reset => QpState::Init,
                QpState::Init => QpState::Rtr,
                QpState::Rtr => QpState::Rts,
                _ => return Some(Ok(())),
            };
            self.restarts = false;
            let attr = QpAttr {
                qp_state: to,
                ..QpAttr::DEFAULT
            };
            let started = match to {
                QpState::Init => self.start_init(),
                QpState::Rts => self
                    .qp
                    .start_modify(&attr, QpAttrMask::STATE | QpAttrMask::SQ_PSN),
                _ => self.qp.start_modify(&attr, QpAttrMask::STATE),
            };
            match started {
                Ok(()) => {}
                Err(ModifyError::Command(error)) if error.failure.is_queue_full() => {
                    self.restarts |= to == QpState::Reset;
                    return None;
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// RESET → INIT, which is when the device takes the number, as Linux gives it (`__mlx5_ib_modify_qp`).
    fn start_init(&mut self) -> Result<(), ModifyError> {
        let object = &mut self.qp.qp.object;
        let attr = QpAttr {
            pkey_index: self.pkey_index,
            port_num: 1,
            qkey: GSI_QKEY,
            ..QpAttr::DEFAULT
        };
        let mask = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY;
        let mut command = Rst2initQpIn::new();
        object.describe(command.qpc_mut(), &attr, mask, QpState::Reset)?;
        command.qpc_mut().set_deth_sqpn(GSI_QPN);
        command.set_qpn(object.qpn.number());
        let mut flight = InFlight::Idle;
        object.device.begin(
            &mut flight,
            SlotClass::Begun,
            Rst2initQpIn::OPCODE,
            command.as_bytes(),
            TailIn::None,
            EmptyOut::SIZE,
        )?;
        if !flight.is_posted() {
            return Err(ModifyError::Command(CommandError {
                opcode: Rst2initQpIn::OPCODE,
                op_mod: 0,
                failure: CommandFailure::QueueFull { waited: Millis(0) },
            }));
        }
        object.under_way = UnderWay::Modify(Transit {
            flight,
            to: QpState::Init,
            port: 1,
            access: object.access,
            responder_depth: object.responder_depth,
            sgid: None,
        });
        Ok(())
    }

    /// Its send queue, which takes nothing before it is started.
    pub fn send_queue(&mut self) -> &mut SendQueue<'d, P, Ud> {
        self.qp.send_queue()
    }

    /// Ends what is in flight.
    ///
    /// # Errors
    /// As [`Qp::modify`].
    pub fn stop(&mut self) -> Result<(), ModifyError> {
        let attr = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::DEFAULT
        };
        self.qp.modify(&attr, QpAttrMask::STATE)
    }
}

impl<P: Platform> fmt::Debug for GsiSource<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GsiSource")
            .field("qp", &self.qp)
            .field("pkey_index", &self.pkey_index)
            .finish_non_exhaustive()
    }
}
