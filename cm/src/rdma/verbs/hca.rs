//! The device, as the ids' verbs objects need it: its limits, and whether an object belongs to it.

use bareverbs_core::cq::CqHandle;
use bareverbs_core::pd::Pd;
use bareverbs_core::srq::SrqHandle;
use bareverbs_core::xrc::Xrcd;
use bareverbs_core::{Device, Platform};

use crate::rdma::types::error::RdmaError;
use crate::rdma::verbs::objects::{KeptInit, PdOf, XrcdOf};
use crate::rdma::verbs::owned::Objects;

/// A device and its limits.
#[derive(Debug)]
pub(crate) struct Hca<'d, P: Platform> {
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) max_responder_resources: u8,
    pub(crate) max_initiator_depth: u8,
}

impl<'d, P: Platform> Hca<'d, P> {
    /// Reads the device's limits.
    pub(crate) fn new(device: &'d Device<'d, P>) -> Self {
        let caps = &device.capabilities().hca;
        let power = |log: u8| 1u8.checked_shl(u32::from(log)).unwrap_or(128);
        Self {
            device,
            max_responder_resources: power(caps.log_max_ra_res_qp()),
            max_initiator_depth: power(caps.log_max_ra_req_qp()),
        }
    }

    /// Checks that all objects for a QP are of the id's device (rdma_create_qp(3)).
    pub(crate) fn check_device(
        &self,
        pd: Option<&'d Pd<'d, P>>,
        init: &KeptInit<'d, P>,
    ) -> Result<(), RdmaError> {
        self.is_ours("PD", pd.map(Pd::device))?;
        self.is_ours("CQ", init.send_cq.as_ref().map(CqHandle::device))?;
        self.is_ours("CQ", init.recv_cq.as_ref().map(CqHandle::device))?;
        self.is_ours("SRQ", init.srq.as_ref().map(SrqHandle::device))?;
        self.is_ours("XRC domain", init.xrcd.map(Xrcd::device))
    }

    pub(crate) fn is_ours(
        &self,
        what: &'static str,
        device: Option<&Device<'d, P>>,
    ) -> Result<(), RdmaError> {
        match device {
            Some(device) if !core::ptr::addr_eq(device, self.device) => {
                Err(RdmaError::OtherDevice(what))
            }
            _ => Ok(()),
        }
    }

    /// The PD for what is to be created on an id: the one given, or the one that the id has, or the default one.
    pub(crate) fn pd_for(
        &self,
        objects: &Objects<'d, P>,
        given: Option<&'d Pd<'d, P>>,
    ) -> Result<PdOf<'d, P>, RdmaError> {
        self.is_ours("PD", given.map(Pd::device))?;
        let own = objects
            .pd
            .as_ref()
            .or(objects.srq.as_ref().map(|srq| &srq.pd));
        Ok(match (given, own) {
            (Some(pd), _) | (None, Some(&PdOf::Given(pd))) => PdOf::Given(pd),
            (None, _) => PdOf::Default(self.device.default_pd()?),
        })
    }

    /// The domain for what is to be created on an id: the one given, or that of its SRQ, or the default one.
    pub(crate) fn xrcd_for(
        &self,
        objects: &Objects<'d, P>,
        given: Option<&'d Xrcd<'d, P>>,
    ) -> Result<XrcdOf<'d, P>, RdmaError> {
        self.is_ours("XRC domain", given.map(Xrcd::device))?;
        let own = objects.srq.as_ref().and_then(|srq| srq.xrcd());
        Ok(match (given, own) {
            (Some(xrcd), _) | (None, Some(&XrcdOf::Given(xrcd))) => XrcdOf::Given(xrcd),
            (None, _) => XrcdOf::Default(self.device.default_xrcd()?),
        })
    }
}
