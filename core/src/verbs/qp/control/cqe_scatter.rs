//! Small messages in the entries of their completions (scatter to CQE), which saves the device a write to memory.

use bareverbs_firmware_cmds::qp::scatter;

use crate::device::in_flight::SlotClass;
use crate::platform::Platform;
use crate::types::qp::QpKind;
use crate::verbs::cq::{Cq, CqeSize};
use crate::verbs::pd::Pd;
use crate::verbs::qp::control::create::Codes;
use crate::verbs::qp::control::dct::{Dct, DctError, DctInitAttr};
use crate::verbs::qp::control::init_attr::{CreateQpError, QpInitAttr};
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::route::service::QpType;

/// Small messages that come in the entries of their completions: `cs_res` and `cs_req` of the QP context, as libmlx5 asks
/// for with `MLX5_SCATTER_TO_CQE`. Small are messages of up to 32 bytes, and of up to 64 where the CQ has entries of 128 bytes
/// ([`CqEntries`](crate::cq::CqEntries)). They are not in the buffer of the work request then;
/// [`Completion::inline_data`](crate::cq::Completion::inline_data) has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CqeScatter {
    /// Messages received, of RC and UC QPs.
    pub receives: bool,
    /// Results of READs and atomics of RC QPs whose requests report their completion; those of others go to memory.
    pub responses: bool,
}

impl<'d, P: Platform> Pd<'d, P> {
    /// As [`create_qp`](Self::create_qp), of a QP with small messages in the entries of its completions.
    ///
    /// # Errors
    ///
    /// [`CreateQpError::NoCqeScatter`] if the device (`sctr_data_cqe`) or the type of QP does not have that.
    pub fn create_qp_with_cqe_scatter<T: QpType>(
        &self,
        init: &mut QpInitAttr<'_, 'd, P>,
        which: CqeScatter,
    ) -> Result<Qp<'d, P, T>, CreateQpError> {
        let reliable = T::KIND == QpKind::Rc;
        let connected = reliable || T::KIND == QpKind::Uc;
        let offered = self.device.capabilities().hca.sctr_data_cqe();
        if !offered || !connected || which.responses && !reliable {
            return Err(CreateQpError::NoCqeScatter);
        }
        // As Linux's driver chooses (`configure_responder_scat_cqe` and `configure_requester_scat_cqe`, `mlx5/qp.c`).
        let code = |wanted, cq: &Cq<'d, P>, [short, long]: [u8; 2]| match (wanted, cq.cqe_size()) {
            (false, _) => 0,
            (true, CqeSize::Bytes64) => short,
            (true, CqeSize::Bytes128 | CqeSize::Bytes128Padded) => long,
        };
        let receives = [scatter::RECEIVES_32, scatter::RECEIVES_64];
        let responses = [scatter::RESPONSES_32, scatter::RESPONSES_64];
        let codes = Codes {
            cs_res: code(which.receives, init.recv_cq, receives),
            cs_req: code(which.responses, init.send_cq, responses),
            ..Codes::NONE
        };
        self.begin_qp(SlotClass::Ordinary, init, codes)?.wait()
    }

    /// As [`create_dct`](Self::create_dct), of a target whose messages of up to 64 bytes come in the entries of their
    /// completions: Linux's driver does that on CQs with entries of 128 bytes only (`configure_responder_scat_cqe`), where
    /// `MLX5_SCATTER_TO_CQE` is on.
    ///
    /// # Errors
    ///
    /// [`CreateQpError::NoCqeScatter`] if the device does not have that (`sctr_data_cqe`), or the CQ has short entries.
    pub fn create_dct_with_cqe_scatter(
        &self,
        init: &DctInitAttr<'_, 'd, P>,
    ) -> Result<Dct<'d, P>, DctError> {
        let offered = self.device.capabilities().hca.sctr_data_cqe();
        if !offered || init.cq.cqe_size() == CqeSize::Bytes64 {
            return Err(CreateQpError::NoCqeScatter.into());
        }
        self.create_dct_as(init, scatter::RECEIVES_64)
    }
}
