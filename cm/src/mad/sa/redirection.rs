//! Where an answer says to ask instead: the redirection of ClassPortInfo (IBTA volume 1, chapters 13.4.8.1 and 13.5.2).

use super::{SA_DATA, SaAttribute, SaHeader};
use crate::mad::{DATA, MAD_LEN, MadError, fields};

/// Offset of a field for `fields`, by its byte in ClassPortInfo and its bit there.
const fn at(byte: usize, bit: usize) -> usize {
    (SA_DATA + byte) * 8 + bit
}

const GID: usize = 8;

/// The port and the queue pair that answer instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SaRedirection {
    /// GID of the port.
    pub gid: [u8; 16],
    /// Traffic class on the way there.
    pub traffic_class: u8,
    /// Service level on the way there, 4 bits.
    pub sl: u8,
    /// Flow label on the way there, 20 bits.
    pub flow_label: u32,
    /// LID of the port; 0 where the path has to be found by the GID.
    pub lid: u16,
    /// Partition.
    pub pkey: u16,
    /// Queue pair, 24 bits.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
}

impl SaRedirection {
    pub(crate) fn read(mad: &[u8; MAD_LEN]) -> Self {
        Self {
            gid: fields::bytes::<{ SA_DATA - DATA + GID }, 16>(mad),
            traffic_class: fields::get::<{ at(24, 0) }, 8>(mad) as u8,
            sl: fields::get::<{ at(25, 0) }, 4>(mad) as u8,
            flow_label: fields::get::<{ at(25, 4) }, 20>(mad) as u32,
            lid: fields::get::<{ at(28, 0) }, 16>(mad) as u16,
            pkey: fields::get::<{ at(30, 0) }, 16>(mad) as u16,
            qpn: fields::get::<{ at(33, 0) }, 24>(mad) as u32,
            qkey: fields::get::<{ at(36, 0) }, 32>(mad) as u32,
        }
    }

    /// Writes the whole MAD: ClassPortInfo with nothing but versions and the redirection.
    ///
    /// # Errors
    /// If a value does not fit into its field.
    pub fn emit(&self, header: &SaHeader, mad: &mut [u8; MAD_LEN]) -> Result<(), MadError> {
        header.emit(SaAttribute::ClassPortInfo, mad);
        mad[SA_DATA] = mad[0];
        mad[SA_DATA + 1] = mad[2];
        mad[SA_DATA + GID..SA_DATA + GID + 16].copy_from_slice(&self.gid);
        mad[SA_DATA + 24] = self.traffic_class;
        mad[SA_DATA + 28..SA_DATA + 30].copy_from_slice(&self.lid.to_be_bytes());
        mad[SA_DATA + 30..SA_DATA + 32].copy_from_slice(&self.pkey.to_be_bytes());
        mad[SA_DATA + 36..SA_DATA + 40].copy_from_slice(&self.qkey.to_be_bytes());
        let narrow = [
            (
                "redirect_sl",
                4,
                fields::put::<{ at(25, 0) }, 4>(mad, self.sl.into()),
            ),
            (
                "redirect_flow_label",
                20,
                fields::put::<{ at(25, 4) }, 20>(mad, self.flow_label.into()),
            ),
            (
                "redirect_qpn",
                24,
                fields::put::<{ at(33, 0) }, 24>(mad, self.qpn.into()),
            ),
        ];
        match narrow.iter().find(|(.., fits)| !fits) {
            Some(&(field, bits, _)) => Err(MadError::FieldTooWide { field, bits }),
            None => Ok(()),
        }
    }
}
