//! An id tells what it waits for, and what was seen of the other end meanwhile.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use bareverbs_core::RoceVersion;

use crate::rdma::types::id::{CmId, IdState};

/// The id that is watched: one at a time, so that a program with thousands of them does not say it thousands of times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    pub(crate) id: CmId,
    pub(crate) state: IdState,
    pub(crate) until: Duration,
}

/// An id waits for this, or has waited without getting it ([`RdmaError::Unanswered`](crate::rdma::RdmaError::Unanswered)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// A host that says that it has the address.
    Neighbour {
        /// The address.
        address: IpAddr,
        /// The VLAN of the last frame from a VLAN in which the port has no address; 0 for frames without a tag.
        other_vlan: Option<u16>,
    },
    /// A path, from subnet administration.
    Path {
        /// The LID where it is; 0 if the subnet has no manager.
        subnet_manager: u16,
    },
    /// The answer to a request for a connection or a service, from a host whose address is resolved.
    Answer {
        /// The encapsulation of the request; `None` on InfiniBand.
        roce: Option<RoceVersion>,
        /// The partition, if this port is a limited member of it.
        limited: Option<u16>,
    },
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Neighbour {
                address,
                other_vlan,
            } => {
                write!(f, "no host answers at {address}")?;
                match other_vlan {
                    None => Ok(()),
                    Some(0) => f.write_str(
                        "; frames without a VLAN tag arrive, and this port has VLANs only",
                    ),
                    Some(vlan) => write!(
                        f,
                        "; frames of VLAN {vlan} arrive, in which this port has no address"
                    ),
                }
            }
            Self::Path { subnet_manager: 0 } => f.write_str("the subnet has no manager"),
            Self::Path { subnet_manager } => write!(
                f,
                "subnet administration at LID {subnet_manager:#x} does not answer"
            ),
            Self::Answer { roce, limited } => {
                f.write_str("the other end does not answer")?;
                match roce {
                    None => {}
                    Some(version) => {
                        let (asked, other) = match version {
                            RoceVersion::V1 => (1, 2),
                            RoceVersion::V2 => (2, 1),
                        };
                        write!(
                            f,
                            "; its address is resolved, and it is asked by RoCE v{asked}, which a host with RoCE v{other} \
                             alone does not receive"
                        )?;
                    }
                }
                match limited {
                    None => Ok(()),
                    Some(pkey) => write!(
                        f,
                        "; this port is a limited member of partition {pkey:#06x}, and limited members do not reach each \
                         other (for OpenSM, \"=full\" in the list of partitions)"
                    ),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn what_was_seen_is_said() {
        let neighbour = |other_vlan| {
            Awaited::Neighbour {
                address: [10, 0, 0, 2].into(),
                other_vlan,
            }
            .to_string()
        };
        assert_eq!(neighbour(None), "no host answers at 10.0.0.2");
        assert!(neighbour(Some(7)).contains("VLAN 7"));
        assert!(neighbour(Some(0)).contains("without a VLAN tag"));
        let answer = |roce, limited| Awaited::Answer { roce, limited }.to_string();
        assert_eq!(answer(None, None), "the other end does not answer");
        let v2 = answer(Some(RoceVersion::V2), None);
        assert!(v2.contains("by RoCE v2, which a host with RoCE v1"), "{v2}");
        let limited = answer(None, Some(0x7fff));
        assert!(
            limited.contains("limited member of partition 0x7fff"),
            "{limited}"
        );
    }
}
