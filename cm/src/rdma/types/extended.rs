//! Attributes of QPs beyond `struct ibv_qp_init_attr`.

use core::fmt;

use super::id::IdType;

/// Operations of a send queue (`enum ibv_qp_create_send_ops_flags`), with their values.
pub mod send_ops {
    #![expect(missing_docs, reason = "the names say it")]
    pub const RDMA_WRITE: u64 = 1 << 0;
    pub const RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
    pub const SEND: u64 = 1 << 2;
    pub const SEND_WITH_IMM: u64 = 1 << 3;
    pub const RDMA_READ: u64 = 1 << 4;
    pub const ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
    pub const ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
    pub const LOCAL_INV: u64 = 1 << 7;
    pub const BIND_MW: u64 = 1 << 8;
    pub const SEND_WITH_INV: u64 = 1 << 9;
    pub const TSO: u64 = 1 << 10;
    pub const FLUSH: u64 = 1 << 11;
    pub const ATOMIC_WRITE: u64 = 1 << 12;
}

/// Operations of QPs on a datagram id.
const DATAGRAM_OPS: u64 = send_ops::SEND | send_ops::SEND_WITH_IMM;
/// And on one for unreliable connections.
const UNRELIABLE_OPS: u64 = DATAGRAM_OPS | send_ops::RDMA_WRITE | send_ops::RDMA_WRITE_WITH_IMM;
/// And on one for connections.
const RELIABLE_OPS: u64 = UNRELIABLE_OPS
    | send_ops::RDMA_READ
    | send_ops::ATOMIC_CMP_AND_SWP
    | send_ops::ATOMIC_FETCH_AND_ADD
    | send_ops::SEND_WITH_INV;

/// An attribute that only `struct ibv_qp_init_attr_ex` has, beside the domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtendedAttribute {
    /// `IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`: operations ([`send_ops`]) that the application is going to post. A QP has all
    /// of its transport in any case; one that it has not is refused.
    SendOps(u64),
    /// `IBV_QP_INIT_ATTR_CREATE_FLAGS`: none exists here. 0 is accepted.
    CreateFlags(u32),
    /// `IBV_QP_INIT_ATTR_MAX_TSO_HEADER`: raw packet QPs only, which do not exist here. 0 is accepted.
    MaxTsoHeader(u16),
    /// `IBV_QP_INIT_ATTR_IND_TABLE`: raw packet QPs only.
    IndirectionTable,
    /// `IBV_QP_INIT_ATTR_RX_HASH`: raw packet QPs only.
    RxHash,
    /// `source_qpn`, with the flag `IBV_QP_CREATE_SOURCE_QPN`: IPoIB's underlay QPs only, which do not exist here.
    SourceQpn(u32),
}

impl ExtendedAttribute {
    pub(crate) const fn is_supported(self, id_type: IdType) -> bool {
        match self {
            Self::SendOps(ops) => {
                let possible = match id_type {
                    IdType::Ud => DATAGRAM_OPS,
                    IdType::Uc => UNRELIABLE_OPS,
                    IdType::Rc | IdType::XrcSend => RELIABLE_OPS,
                    IdType::XrcRecv => 0,
                };
                ops & !possible == 0
            }
            Self::CreateFlags(flags) => flags == 0,
            Self::MaxTsoHeader(len) => len == 0,
            Self::IndirectionTable | Self::RxHash | Self::SourceQpn(_) => false,
        }
    }
}

impl fmt::Display for ExtendedAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SendOps(ops) => write!(f, "all of the send operations {ops:#x}"),
            Self::CreateFlags(flags) => write!(f, "the creation flags {flags:#x}"),
            Self::MaxTsoHeader(len) => write!(f, "{len} bytes of headers for segmentation"),
            Self::IndirectionTable => f.write_str("an indirection table"),
            Self::RxHash => f.write_str("a receive hash"),
            Self::SourceQpn(qpn) => write!(f, "the source QPN {qpn:#x}"),
        }
    }
}
