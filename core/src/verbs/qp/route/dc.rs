//! Work requests of an initiator of dynamic connections: each names the target that it is for, in an address vector behind
//! the control segment.

use crate::memory::send_ring::Wqe;
use crate::platform::Platform;
use crate::types::ah::AddressHandle;
use crate::types::qp::QpState;
use crate::verbs::qp::control::attr::QpAttr;
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::control::states::QpAttrMask;
use crate::verbs::qp::queue::open_batch::OpenBatch;
use crate::verbs::qp::queue::send::{Batch, SendQueue};
use crate::verbs::qp::queue::wr::{PostError, SendWr};
use crate::verbs::qp::route::segments::{Route, RouteOf};
use crate::verbs::qp::route::service::Dci;
use bareverbs_firmware_cmds::numbers::Qpn;
use bareverbs_firmware_cmds::word::Word;
use bareverbs_firmware_cmds::wqe::DcKeyWord;

/// Where a work request of an initiator goes: what `mlx5dv_wr_set_dc_addr` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcTarget<'a> {
    /// The path.
    pub ah: &'a AddressHandle,
    /// The target's number, [`Dct::dctn`](crate::Dct::dctn).
    pub dctn: Qpn,
    /// Its access key.
    pub access_key: u64,
}

impl DcTarget<'_> {
    /// In the form in which work requests carry it, for a target that many go to.
    #[must_use]
    #[inline]
    pub fn prepare(&self) -> DcAddress {
        let [mac, grh, high, low] = self.ah.rest;
        let key = DcKeyWord(self.access_key).to_memory();
        let path = self.ah.path.to(self.dctn).to_memory();
        DcAddress([key, path, mac, grh, high, low])
    }
}

/// A [`DcTarget`] as work requests carry it: the whole address vector (`struct mlx5_wqe_av`), as it lies in memory. A plain
/// value: nothing in the device stands behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcAddress([u64; 6]);

/// Destination of an initiator's work request: a [`DcTarget`], or a [`DcAddress`] that was made of one.
pub trait DcRoute: RouteOf<Dci> + Copy {}

impl Route for DcTarget<'_> {
    const SIZE: usize = 48;

    #[inline(always)]
    fn put(self, wqe: Wqe<'_>) {
        wqe.put(16, DcKeyWord(self.access_key), self.ah.path.to(self.dctn));
        // The address vector's latter part is kept in memory order.
        wqe.put_words::<32, 4>(self.ah.rest);
    }
}

impl RouteOf<Dci> for DcTarget<'_> {}
impl DcRoute for DcTarget<'_> {}

impl Route for &DcAddress {
    const SIZE: usize = 48;

    #[inline(always)]
    fn put(self, wqe: Wqe<'_>) {
        wqe.put_words::<16, 6>(self.0);
    }
}

impl RouteOf<Dci> for &DcAddress {}
impl DcRoute for &DcAddress {}

impl<P: Platform> Qp<'_, P, Dci> {
    /// Moves a new initiator to RTS, as `ibv_modify_qp` does in three steps. It has no peer; what counts of `attr` are port,
    /// P_Key index, path MTU, timeout, retries, the first PSN, how many READs and atomics may be outstanding, and of
    /// [`ah_attr`](QpAttr::ah_attr) the GID table entry and the service level and traffic class: the device schedules what the
    /// initiator sends by these, whatever the address handles of its work requests say.
    pub fn activate(&mut self, attr: &QpAttr) -> Result<(), ModifyError> {
        let steps = [
            (QpState::Init, QpAttrMask::PKEY_INDEX | QpAttrMask::PORT),
            (QpState::Rtr, QpAttrMask::PATH_MTU | QpAttrMask::AV),
            (
                QpState::Rts,
                QpAttrMask::TIMEOUT
                    | QpAttrMask::RETRY_CNT
                    | QpAttrMask::RNR_RETRY
                    | QpAttrMask::SQ_PSN
                    | QpAttrMask::MAX_QP_RD_ATOMIC,
            ),
        ];
        for (qp_state, mask) in steps {
            let attr = QpAttr { qp_state, ..*attr };
            self.modify(&attr, mask | QpAttrMask::STATE)?;
        }
        Ok(())
    }
}

impl<P: Platform> SendQueue<'_, P, Dci> {
    /// Posts one work request for a target and rings the doorbell: `ibv_wr_start` to `ibv_wr_complete` with
    /// `mlx5dv_wr_set_dc_addr`.
    pub fn post_dc(&mut self, to: impl DcRoute, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.batch().push_dc(to, wr)
    }
}

impl<P: Platform> Batch<'_, '_, P, Dci> {
    /// Posts a work request that is known only at run time.
    pub fn push_dc(&mut self, to: impl DcRoute, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.push_to(to, wr)
    }
}

impl<P: Platform> OpenBatch<'_, '_, P, Dci> {
    /// Names the receiver of the request at hand: `mlx5dv_wr_set_dc_addr`.
    #[inline(always)]
    pub fn set_dc_addr(&mut self, to: impl DcRoute) {
        self.set_route(to);
    }
}
