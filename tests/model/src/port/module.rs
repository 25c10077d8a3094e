//! The module or cable in the port, and the card's sensors of temperature.

/// Sensors from this number on are those of modules.
pub(crate) const MODULE_SENSORS: u16 = 64;

/// The memory of a module: pages of 256 bytes, of which the lower half of those with the same address is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Bytes 0 to 127 at address 0x50.
    pub low: [u8; 128],
    /// Bytes 128 to 255 at address 0x50, by the page's number.
    pub pages: Vec<(u8, [u8; 128])>,
    /// Address 0x51, where SFP modules have their measurements.
    pub second: Option<[u8; 256]>,
}

impl Module {
    /// A passive copper cable for 100 Gb/s, QSFP28 (SFF-8636).
    #[must_use]
    pub fn copper_cable() -> Self {
        let mut low = [0; 128];
        // QSFP28, revision 2.8 of SFF-8636, one page only.
        low[..3].copy_from_slice(&[0x11, 0x08, 0x04]);
        let mut page = [0; 128];
        let mut put = |at: usize, bytes: &[u8]| {
            page[at - 128..][..bytes.len()].copy_from_slice(bytes);
        };
        // QSFP28; power class 1; connector: none, fixed cable.
        put(128, &[0x11, 0x00, 0x23]);
        // The extended compliance code says what it is.
        put(131, &[0x80]);
        // 25.5 Gb/s and more, in units of 100 Mb/s: see byte 222; 1 m of copper.
        put(140, &[0xff]);
        put(146, &[1, 0xa0]);
        put(148, b"Bareverbs       ");
        put(165, &[0x02, 0xc9, 0x00]);
        put(168, b"MODEL-CABLE-1M  ");
        put(184, b"A1");
        // Attenuation in dB at 2.5, 5, 7 and 12.9 GHz.
        put(186, &[4, 6, 8, 11]);
        // 100GBASE-CR4, 25GBASE-CR CA-L.
        put(192, &[0x0b]);
        put(196, b"BV000001        ");
        put(212, b"261125  ");
        put(222, &[103]);
        let sum = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum: u8, byte| sum.wrapping_add(*byte))
        };
        page[191 - 128] = sum(&page[..63]);
        page[223 - 128] = sum(&page[64..95]);
        Self {
            low,
            pages: vec![(0, page)],
            second: None,
        }
    }

    /// Reads from a device address on; zeros where there is nothing.
    pub(crate) fn read(&self, address: u8, page: u8, at: usize, into: &mut [u8]) -> bool {
        let none = [0; 128];
        let (low, high) = match (address, &self.second) {
            (0x50, _) => {
                let high = self.pages.iter().find(|(number, _)| *number == page);
                (&self.low[..], high.map_or(&none[..], |(_, page)| page))
            }
            (0x51, Some(second)) => second.split_at(128),
            _ => return false,
        };
        for (byte, at) in into.iter_mut().zip(at..) {
            *byte = match at {
                0..128 => low[at],
                128..256 => high[at - 128],
                _ => 0,
            };
        }
        true
    }
}

/// A sensor of temperature, in eighths of a degree Celsius.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sensor {
    /// Its number; a module's is 64 or more.
    pub number: u16,
    /// Eight bytes of text.
    pub name: [u8; 8],
    /// The temperature that it measures.
    pub temperature: i16,
    /// The most that it measured since that was enabled or reset.
    pub highest: i16,
    /// From which temperature on the driver is warned.
    pub threshold: i16,
}

impl Sensor {
    /// The one in the chip: 45 degrees, a warning from 105 degrees on.
    #[must_use]
    pub fn asic() -> Self {
        Self {
            number: 0,
            name: *b"asic\0\0\0\0",
            temperature: 45 * 8,
            highest: 45 * 8,
            threshold: 105 * 8,
        }
    }
}
