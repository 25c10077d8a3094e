//! Enhanced connection establishment: the vendor's options that ride in REQ, REP and SIDR_REP.

use super::{MAD_LEN, Rep, Req, SidrRep};

/// A vendor and its options: the vendor's number in fields that the IBTA had left free, the options in the header's
/// attribute modifier. Vendor 0 means that there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ece {
    /// Vendor identifier, of 24 bits.
    pub vendor_id: u32,
    /// The options, whose meaning is the vendor's.
    pub options: u32,
}

impl Ece {
    /// No options.
    pub const NONE: Self = Self {
        vendor_id: 0,
        options: 0,
    };

    /// Writes the options into a MAD whose message has been written; the vendor is in the message's own fields.
    #[inline]
    pub fn write_options(self, mad: &mut [u8; MAD_LEN]) {
        mad[20..24].copy_from_slice(&self.options.to_be_bytes());
    }
}

impl Req<'_> {
    /// The requester's options; `modifier` is that of the header.
    #[inline]
    pub const fn ece(&self, modifier: u32) -> Ece {
        Ece {
            vendor_id: self.vendor_id,
            options: modifier,
        }
    }
}

impl Rep<'_> {
    /// The replier's options; `modifier` is that of the header.
    #[inline]
    pub const fn ece(&self, modifier: u32) -> Ece {
        Ece {
            vendor_id: u32::from_be_bytes([
                0,
                self.vendor_id_high,
                self.vendor_id_middle,
                self.vendor_id_low,
            ]),
            options: modifier,
        }
    }
}

impl SidrRep<'_> {
    /// The service's options; `modifier` is that of the header. Linux loses the upper eight bits of the vendor here, on
    /// the sending side.
    #[inline]
    pub const fn ece(&self, modifier: u32) -> Ece {
        Ece {
            vendor_id: (self.vendor_id_high as u32) << 8 | self.vendor_id_low as u32,
            options: modifier,
        }
    }

    /// The additional information that counts.
    pub fn additional_info(&self) -> &[u8] {
        &self.info[..usize::from(self.info_len).min(self.info.len())]
    }
}
