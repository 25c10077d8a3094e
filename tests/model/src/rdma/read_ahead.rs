//! Send queue blocks that are read many at a time.

use crate::bus::io::Io;
use crate::host::IommuFault;
use crate::objects::qp::{BLOCK, Qp};

/// Blocks that are read at a time: as many as the longest WQE has.
const AT_ONCE: u16 = 16;

/// Posted blocks of the QP whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    qpn: u32,
    first: u16,
    bytes: Vec<u8>,
}

impl ReadAhead {
    /// Forgets what was read: the queue may be another one by the QP's next turn.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The bytes that were read of a QP's queue from a block on.
    pub(crate) fn from(&self, qpn: u32, block: u16) -> &[u8] {
        let skip = usize::from(block.wrapping_sub(self.first)) * BLOCK as usize;
        self.bytes
            .get(skip..)
            .filter(|_| qpn == self.qpn)
            .unwrap_or_default()
    }

    /// Reads up to `posted` blocks from the next one on.
    pub(crate) fn read(
        &mut self,
        io: &mut Io<'_>,
        qpn: u32,
        qp: &Qp,
        posted: u16,
    ) -> Result<(), IommuFault> {
        (self.qpn, self.first) = (qpn, qp.sq_next);
        let mut read = |blocks: u16| {
            self.bytes.resize(usize::from(blocks) * BLOCK as usize, 0);
            qp.read_sq(io, qp.sq_next, &mut self.bytes)
        };
        let count = posted.min(AT_ONCE);
        let mut result = read(count);
        if result.is_err() && count > 1 {
            // What is wrong may be further back, and what is before it is executed first.
            result = read(1);
        }
        result.inspect_err(|_| self.bytes.clear())
    }
}
