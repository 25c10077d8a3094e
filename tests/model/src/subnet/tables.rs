//! A port's tables that a subnet manager sets: partitions, the virtual lane of each service level, arbitration.

use crate::roce::transport::pkey_matches;
use crate::subnet::datagram::{SUBNET_DATA, Status, be16};
use crate::subnet::port::DEFAULT_PKEY;

/// P_Keys in a block of the table (IBTA vol. 1, 14.2.5.7).
pub(crate) const PKEYS_PER_BLOCK: usize = 32;
/// Halves of the tables of low and of high priority (14.2.5.9).
const ARBITRATION_BLOCKS: usize = 4;

/// The tables of a port.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub(crate) pkeys: Vec<u16>,
    /// By service level, two to a byte.
    levels: [u8; 8],
    arbitration: [[u8; SUBNET_DATA]; ARBITRATION_BLOCKS],
}

impl Tables {
    /// With so many P_Keys, of which the first is the default one.
    pub(crate) fn new(pkeys: u16) -> Self {
        let mut table = vec![0; usize::from(pkeys)];
        table[0] = DEFAULT_PKEY;
        Self {
            pkeys: table,
            levels: [0x01, 0x23, 0x45, 0x67, 0x01, 0x23, 0x45, 0x67],
            arbitration: [[0; SUBNET_DATA]; ARBITRATION_BLOCKS],
        }
    }

    /// A block of P_Keys.
    pub(crate) fn pkeys(&self, block: u32, data: &mut [u8]) -> Result<(), Status> {
        let keys = self.pkeys.chunks(PKEYS_PER_BLOCK).nth(block as usize);
        let keys = keys.ok_or(Status::InvalidValue)?;
        for (place, key) in data.chunks_exact_mut(2).zip(keys) {
            place.copy_from_slice(&key.to_be_bytes());
        }
        Ok(())
    }

    /// Returns `true` if a packet with this P_Key comes from a partition of the port's (IBTA vol. 1, 10.9.3).
    pub(crate) fn admits(&self, pkey: u16) -> bool {
        self.pkeys.iter().any(|&own| pkey_matches(own, pkey))
    }

    /// Returns whether something changed.
    pub(crate) fn set_pkeys(
        &mut self,
        block: u32,
        data: &[u8; SUBNET_DATA],
    ) -> Result<bool, Status> {
        let mut blocks = self.pkeys.chunks_mut(PKEYS_PER_BLOCK);
        let keys = blocks.nth(block as usize).ok_or(Status::InvalidValue)?;
        let mut changed = false;
        for (at, key) in keys.iter_mut().enumerate() {
            let new = be16(data, at * 2);
            changed |= *key != new;
            *key = new;
        }
        Ok(changed)
    }

    pub(crate) fn levels(&self, data: &mut [u8]) {
        data[..8].copy_from_slice(&self.levels);
    }

    pub(crate) fn set_levels(&mut self, data: &[u8; SUBNET_DATA]) {
        self.levels.copy_from_slice(&data[..8]);
    }

    /// The modifier's upper half is the block, counted from 1.
    pub(crate) fn arbitration(&mut self, modifier: u32) -> Result<&mut [u8; SUBNET_DATA], Status> {
        let block = (modifier >> 16) as usize;
        block
            .checked_sub(1)
            .and_then(|block| self.arbitration.get_mut(block))
            .ok_or(Status::InvalidValue)
    }
}
