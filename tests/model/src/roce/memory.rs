//! Walking scatter/gather lists, and how access errors surface.

use super::codes::Nak;
use super::env::{AccessError, Domain, Env, Segment, SendWork, Syndrome};

/// Reads `out.len()` bytes of a message from byte `offset` on. Behind the message's end nothing is written.
pub(super) fn gather(
    env: &mut dyn Env,
    work: &SendWork,
    offset: u64,
    mut out: &mut [u8],
) -> Result<(), AccessError> {
    let mut skip = offset;
    for segment in &work.segments {
        let len = u64::from(segment.len());
        if skip >= len {
            skip -= len;
            continue;
        }
        let take = (len - skip).min(out.len() as u64) as usize;
        let (now, later) = out.split_at_mut(take);
        match *segment {
            Segment::Memory { lkey, addr, .. } => env.gather(lkey, addr.wrapping_add(skip), now)?,
            Segment::Inline { start, .. } => {
                let start = start as usize + skip as usize;
                let bytes = work
                    .inline_data
                    .get(start..start + take)
                    .ok_or(AccessError::Range)?;
                now.copy_from_slice(bytes);
            }
        }
        skip = 0;
        out = later;
        if out.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Writes a part of a message to the place of its byte `offset`. What does not fit is left out: the caller has checked.
pub(super) fn scatter(
    env: &mut dyn Env,
    domain: Domain,
    segments: &[Segment],
    offset: u64,
    mut data: &[u8],
) -> Result<(), AccessError> {
    let mut skip = offset;
    for segment in segments {
        let len = u64::from(segment.len());
        if skip >= len {
            skip -= len;
            continue;
        }
        let take = (len - skip).min(data.len() as u64) as usize;
        let (now, later) = data.split_at(take);
        match *segment {
            Segment::Memory { lkey, addr, .. } => {
                env.scatter(domain, lkey, addr.wrapping_add(skip), now)?
            }
            // Inline data is in the WQE: there is nothing to write to.
            Segment::Inline { .. } => return Err(AccessError::Rights),
        }
        skip = 0;
        data = later;
        if data.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Why a responder gives up on a request, and how both sides learn it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// The NAK that the peer gets.
    pub(super) nak: Nak,
    /// The status with which the receive WQE in use ends.
    pub(super) local: Syndrome,
}

impl Fault {
    pub(super) const INVALID_REQUEST: Fault = Fault {
        nak: Nak::InvalidRequest,
        local: Syndrome::RemoteInvalidRequest,
    };

    /// A receive buffer is too short: the message was invalid for the sender, the length wrong for the receiver.
    pub(super) const TOO_LONG: Fault = Fault {
        nak: Nak::InvalidRequest,
        local: Syndrome::LocalLength,
    };

    /// A local failure of the responder.
    pub(super) fn local(local: Syndrome) -> Fault {
        Fault {
            nak: Nak::RemoteOperation,
            local,
        }
    }

    /// The peer's access was refused. An IOMMU fault is not the peer's fault.
    pub(super) fn remote(error: AccessError) -> Fault {
        Fault {
            nak: match error {
                AccessError::Fault => Nak::RemoteOperation,
                _ => Nak::RemoteAccess,
            },
            local: Syndrome::LocalAccess,
        }
    }
}
