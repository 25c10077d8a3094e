//! The verbs objects of an id, and what they are made from.

use bareverbs_core::Platform;
use bareverbs_core::cq::{Cq, CqHandle};
use bareverbs_core::pd::Pd;
use bareverbs_core::qp::{Qp, QpCap, QpType, Rc};
use bareverbs_core::srq::{Srq, SrqAttr, SrqHandle};
use bareverbs_core::xrc::Xrcd;

use crate::rdma::types::extended::ExtendedAttribute;

/// The attributes of a new QP (`struct ibv_qp_init_attr`, as `rdma_create_qp` takes it): CQs are optional.
///
/// # Sizes
///
/// `cap` is what is asked for, and afterwards what the QP has, which may be more. By default that is one send and one
/// receive of one piece each. A receive queue is at least 64 bytes long, and an entry for one piece takes 16, so that this
/// default comes back as 4 receives; a longer queue has a power of two of them. rdma-core rounds up in the same way. A
/// program that posts fewer receives than its peer sends therefore finds out late: as RNR NAKs at the peer
/// (`RnrRetryExcErr` there, unless it retries for ever), and not as an error of `post_recv`.
///
/// # One for many
///
/// The lifetimes are those of CQs and SRQ. Without those an init may be `'static`, and do for any manager:
///
/// ```
/// use bareverbs_cm::rdma::{AddrInfo, CmId, QpInit, RdmaCm, RdmaError, Resolver};
/// use bareverbs_core::Platform;
///
/// struct Client<P: Platform + 'static> {
///     server: AddrInfo,
///     queues: QpInit<'static, 'static, P>,
/// }
///
/// impl<P: Platform + 'static> Client<P> {
///     fn open<R: Resolver>(&mut self, cm: &mut RdmaCm<'_, '_, P, R>) -> Result<CmId, RdmaError> {
///         cm.create_ep(&self.server, None, Some(&mut self.queues))
///     }
/// }
/// ```
#[derive(Debug)]
pub struct QpInit<'a, 'd, P: Platform> {
    /// The CQ for sends; one of `cap.max_send_wr` entries is made if there is none.
    pub send_cq: Option<&'a Cq<'d, P>>,
    /// The CQ for receives; one of `cap.max_recv_wr` entries is made if there is none, or as large as the SRQ.
    pub recv_cq: Option<&'a Cq<'d, P>>,
    /// The SRQ to receive from; the id's own ([`create_srq`](crate::rdma::RdmaCm::create_srq)) if there is none.
    pub srq: Option<SrqHandle<'d, P>>,
    /// Sizes: asked for, then given.
    pub cap: QpCap,
    /// Let every send make a completion.
    pub sq_sig_all: bool,
}

impl<P: Platform> Default for QpInit<'_, '_, P> {
    fn default() -> Self {
        Self {
            send_cq: None,
            recv_cq: None,
            srq: None,
            cap: QpCap {
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: false,
        }
    }
}

impl<'a, 'd, P: Platform> QpInit<'a, 'd, P> {
    /// For so many sends and receives, each of one piece.
    pub fn with_queues(sends: u32, receives: u32) -> Self {
        let mut init = Self::default();
        init.cap.max_send_wr = sends;
        init.cap.max_recv_wr = receives;
        init
    }

    /// The default, with this CQ for receives: one CQ for many ids.
    pub fn with_recv_cq(cq: &'a Cq<'d, P>) -> Self {
        Self {
            recv_cq: Some(cq),
            ..Self::default()
        }
    }
}

/// The same by handles: what a listener keeps for its connections.
#[derive(Debug)]
pub(crate) struct KeptInit<'d, P: Platform> {
    pub(crate) send_cq: Option<CqHandle<'d, P>>,
    pub(crate) recv_cq: Option<CqHandle<'d, P>>,
    pub(crate) srq: Option<SrqHandle<'d, P>>,
    pub(crate) xrcd: Option<&'d Xrcd<'d, P>>,
    pub(crate) cap: QpCap,
    pub(crate) sq_sig_all: bool,
}

impl<P: Platform> Clone for KeptInit<'_, P> {
    fn clone(&self) -> Self {
        Self {
            send_cq: self.send_cq.clone(),
            recv_cq: self.recv_cq.clone(),
            srq: self.srq.clone(),
            ..*self
        }
    }
}

impl<'d, P: Platform> QpInit<'_, 'd, P> {
    pub(crate) fn keep(&self) -> KeptInit<'d, P> {
        KeptInit {
            send_cq: self.send_cq.map(Cq::handle),
            recv_cq: self.recv_cq.map(Cq::handle),
            srq: self.srq.clone(),
            xrcd: None,
            cap: self.cap,
            sq_sig_all: self.sq_sig_all,
        }
    }
}

/// The verbs objects of an id, for work without the manager: none of it takes a lock.
#[derive(Debug)]
pub struct Endpoint<'a, 'd, P: Platform, T: QpType = Rc> {
    /// The QP.
    pub qp: &'a mut Qp<'d, P, T>,
    /// The CQ for sends, if the manager made it.
    pub send_cq: Option<&'a mut Cq<'d, P>>,
    /// The CQ for receives, if the manager made it.
    pub recv_cq: Option<&'a mut Cq<'d, P>>,
}

/// The SRQ of an id.
#[derive(Debug)]
pub(crate) struct IdSrq<'d, P: Platform> {
    // In the order in which they have to be destroyed.
    pub(crate) srq: Srq<'d, P>,
    pub(crate) pd: PdOf<'d, P>,
    /// One for XRC has it.
    pub(crate) xrcd: Option<XrcdOf<'d, P>>,
    /// The id's own QP receives from it.
    pub(crate) own_qp: bool,
}

impl<'d, P: Platform> IdSrq<'d, P> {
    pub(crate) fn xrcd(&self) -> Option<&XrcdOf<'d, P>> {
        self.xrcd.as_ref()
    }
}

/// All attributes of a new SRQ (`struct ibv_srq_init_attr_ex`). Its type is that of the id: XRC for
/// [`IdType::XrcRecv`](crate::rdma::IdType::XrcRecv).
#[derive(Debug)]
pub struct SrqInit<'a, 'd, P: Platform> {
    /// Sizes: asked for, then given.
    pub attr: SrqAttr,
    /// The PD; the id's or the default one if there is none.
    pub pd: Option<&'d Pd<'d, P>>,
    /// For XRC the domain; the default one if there is none.
    pub xrcd: Option<&'d Xrcd<'d, P>>,
    /// For XRC the CQ; one of `attr.max_wr` entries is made if there is none, with events on.
    pub cq: Option<&'a Cq<'d, P>>,
}

impl<P: Platform> SrqInit<'_, '_, P> {
    /// An SRQ of these sizes.
    pub const fn new(attr: SrqAttr) -> Self {
        Self {
            attr,
            pd: None,
            xrcd: None,
            cq: None,
        }
    }
}

/// The protection domain of an id.
#[derive(Debug)]
pub(crate) enum PdOf<'d, P: Platform> {
    /// A share of the device's default one.
    Default(Pd<'d, P>),
    /// The caller's object.
    Given(&'d Pd<'d, P>),
}

impl<'d, P: Platform> PdOf<'d, P> {
    pub(crate) fn get(&self) -> &Pd<'d, P> {
        match self {
            Self::Default(pd) => pd,
            Self::Given(pd) => pd,
        }
    }
}

/// The XRC domain of an id.
#[derive(Debug)]
pub(crate) enum XrcdOf<'d, P: Platform> {
    /// A share of the device's default one.
    Default(Xrcd<'d, P>),
    /// The caller's object.
    Given(&'d Xrcd<'d, P>),
}

impl<'d, P: Platform> XrcdOf<'d, P> {
    pub(crate) fn get(&self) -> &Xrcd<'d, P> {
        match self {
            Self::Default(xrcd) => xrcd,
            Self::Given(xrcd) => xrcd,
        }
    }
}

/// All attributes of a new QP (`struct ibv_qp_init_attr_ex`).
#[derive(Debug)]
pub struct QpInitEx<'a, 'd, P: Platform> {
    /// Attributes that [`create_qp`](crate::rdma::RdmaCm::create_qp) takes as well.
    pub init: QpInit<'a, 'd, P>,
    /// The PD; the id's or the default one if there is none.
    pub pd: Option<&'d Pd<'d, P>>,
    /// The XRC domain of a target; that of the id's SRQ or the default one if there is none.
    pub xrcd: Option<&'d Xrcd<'d, P>>,
    /// The rest.
    pub extended: &'a [ExtendedAttribute],
}

impl<P: Platform> Default for QpInitEx<'_, '_, P> {
    fn default() -> Self {
        Self {
            init: QpInit::default(),
            pd: None,
            xrcd: None,
            extended: &[],
        }
    }
}
