//! Streams of an initiator of dynamic connections: requests of one stream are carried out in order, and a request that fails
//! takes only those of its own stream with it.

use core::fmt;

use bareverbs_firmware_cmds::qp::{QpcExt, Rts2rtsQpIn};
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::ControlFlags;
use zerocopy::IntoBytes;

use crate::device::TailIn;
use crate::device::in_flight::SlotClass;
use crate::platform::Platform;
use crate::types::streams::DciStreams;
use crate::verbs::pd::Pd;
use crate::verbs::qp::control::create::Codes;
use crate::verbs::qp::control::init_attr::{CreateQpError, QpInitAttr};
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::queue::open_batch::OpenBatch;
use crate::verbs::qp::queue::send::{Batch, SendQueue};
use crate::verbs::qp::route::service::Dci;

/// Why there is no initiator with streams. (An error of its own, so that programs without streams do not carry its text.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DciError {
    /// The device does not have so many streams.
    Streams {
        /// Streams that the device has.
        most: Option<DciStreams>,
    },
    /// There is no QP.
    Create(CreateQpError),
}

impl fmt::Display for DciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Streams { most: None } => f.write_str("the device does not have streams"),
            Self::Streams { most: Some(most) } => write!(
                f,
                "the device has 2^{} streams, of which 2^{} may be in error",
                most.log_concurrent, most.log_errored
            ),
            Self::Create(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for DciError {}

/// The bits of a control segment's second word that name the stream, as they lie in memory.
fn bits(stream: u16) -> u64 {
    let mut word = ControlFlags(0);
    word.set_dci_stream_channel_id(stream);
    word.to_memory()
}

impl<'d, P: Platform> Pd<'d, P> {
    /// As [`create_qp`](Self::create_qp), of an initiator with streams: `mlx5dv_create_qp` with
    /// `MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS`.
    ///
    /// With `log_errored` above 0, completions do not tell whether the whole initiator is in error:
    /// [`DynQp::state`](crate::DynQp::state) is that of the last modify, and [`Qp::query`] asks the device.
    ///
    /// # Errors
    ///
    /// [`DciError::Streams`] if the device does not have so many.
    pub fn create_dci_with_streams(
        &self,
        init: &mut QpInitAttr<'_, 'd, P>,
        streams: DciStreams,
    ) -> Result<Qp<'d, P, Dci>, DciError> {
        let most = self.device.capabilities().dci_streams();
        let offered = most.is_some_and(|most| {
            streams.log_concurrent <= most.log_concurrent && streams.log_errored <= most.log_errored
        });
        if !offered {
            return Err(DciError::Streams { most });
        }
        let codes = Codes {
            streams,
            ..Codes::NONE
        };
        let begun = self.begin_qp(SlotClass::Ordinary, init, codes);
        begun.and_then(|qp| qp.wait()).map_err(DciError::Create)
    }
}

impl<P: Platform> Qp<'_, P, Dci> {
    /// Ends the error of a stream, whose requests have all completed: `mlx5dv_dci_stream_id_reset`. The device refuses it for
    /// a stream that is not in error.
    pub fn reset_stream(&mut self, stream: u16) -> Result<(), ModifyError> {
        if self.qp.object.is_modifying() {
            return Err(ModifyError::UnderWay);
        }
        let mut command = Rts2rtsQpIn::new();
        command
            .set_qpc_ext(true)
            .set_qpn(self.qp.object.qpn.number())
            .set_opt_param_mask_95_32(QpcExt::OPT_DCI_STREAM_CHANNEL_ID);
        let mut extension = QpcExt::ZERO;
        extension.set_dci_stream_channel_id(stream);
        let tail = TailIn::Bytes(extension.as_bytes());
        self.qp
            .object
            .device
            .execute_with(&command, tail, &mut [])
            .map_err(ModifyError::Command)?;
        Ok(())
    }
}

impl<P: Platform> SendQueue<'_, P, Dci> {
    /// The stream of the requests that are posted from now on, 0 at first: `stream_id` of `mlx5dv_wr_set_dc_addr_stream`.
    pub fn set_stream(&mut self, stream: u16) {
        self.always = self.always & !bits(u16::MAX) | bits(stream);
    }
}

impl<P: Platform> Batch<'_, '_, P, Dci> {
    /// As [`SendQueue::set_stream`], between two requests.
    pub fn set_stream(&mut self, stream: u16) {
        self.queue.set_stream(stream);
    }
}

impl<P: Platform> OpenBatch<'_, '_, P, Dci> {
    /// As [`SendQueue::set_stream`], before the operation.
    pub fn set_stream(&mut self, stream: u16) {
        self.queue.set_stream(stream);
    }
}
