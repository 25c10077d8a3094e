//! Parameters of a connection, and the sizes of private data.

use crate::mad::{CmaHeader, Rej, Rep, SidrRep};

/// The Q_Key of all datagrams between ids (`RDMA_UDP_QKEY`).
pub const UDP_QKEY: u32 = 0x0123_4567;

/// The most private data that `connect` takes: what a REQ has beside the RDMA CM's header. InfiniBand's addresses need no header,
/// so that there are 36 bytes more.
pub const CONNECT_PRIVATE_DATA_MAX: usize = CmaHeader::REQ_PRIVATE_DATA_MAX;
/// The most private data that `connect` takes on an id for datagrams.
pub const UD_CONNECT_PRIVATE_DATA_MAX: usize = CmaHeader::SIDR_REQ_PRIVATE_DATA_MAX;
/// The most private data that `accept` and `reject` take on an id for datagrams.
pub const UD_ACCEPT_PRIVATE_DATA_MAX: usize = SidrRep::PRIVATE_DATA_MAX;
/// The most private data that `accept` takes.
pub const ACCEPT_PRIVATE_DATA_MAX: usize = Rep::PRIVATE_DATA_MAX;
/// The most private data that `reject` takes.
pub const REJECT_PRIVATE_DATA_MAX: usize = Rej::PRIVATE_DATA_MAX;

/// In [`ConnParam`]: as much as the device can (`RDMA_MAX_RESP_RES`, `RDMA_MAX_INIT_DEPTH`).
pub const DEVICE_MAX: u8 = 0xff;

/// The parameters of a connection (`struct rdma_conn_param`). Of this, datagrams only have private data and `qp_num`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnParam<'a> {
    /// For the other end's application.
    pub private_data: &'a [u8],
    /// RDMA READs and atomics of the other end to serve at once; [`DEVICE_MAX`] for as many as possible.
    pub responder_resources: u8,
    /// RDMA READs and atomics to have outstanding at once; [`DEVICE_MAX`] for as many as possible.
    pub initiator_depth: u8,
    /// Hardware flow control is available.
    pub flow_control: bool,
    /// Number of times to repeat unacknowledged data, 0 to 7. Ignored by `accept`: the connecting side decides.
    pub retry_count: u8,
    /// Number of times that the other end is to repeat when no receive is posted here, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// The QP has a shared receive queue. Only without a QP on the id.
    pub srq: bool,
    /// The QP's number. Only without a QP on the id.
    pub qp_num: u32,
}

impl Default for ConnParam<'_> {
    /// librdmacm's values for a missing parameter.
    fn default() -> Self {
        Self {
            private_data: &[],
            responder_resources: DEVICE_MAX,
            initiator_depth: DEVICE_MAX,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qp_num: 0,
        }
    }
}

/// Arguments of `connect` or `accept`, apart from the private data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) depths: Depths,
    pub(crate) flow_control: bool,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    /// Only without a QP on the id.
    pub(crate) srq: bool,
    pub(crate) qp_num: u32,
}

impl Asked {
    pub(crate) fn new(param: &ConnParam<'_>, depths: Depths) -> Self {
        Self {
            depths,
            flow_control: param.flow_control,
            // The wire has three bits for them.
            retry_count: param.retry_count.min(7),
            rnr_retry_count: param.rnr_retry_count.min(7),
            srq: param.srq,
            qp_num: param.qp_num,
        }
    }
}

/// Depths of READs and atomics that `connect` or `accept` decided on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depths {
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}
