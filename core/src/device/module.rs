//! The module or cable in the port, by what its memory says. Every byte of it is a stranger's: it comes from the maker of the
//! module.

use core::fmt;

use bareverbs_firmware_cmds::register::MciaReg;
use bareverbs_firmware_cmds::values::RegisterId;
use zerocopy::IntoBytes;

use crate::device::Device;
use crate::device::register::RegisterError;
use crate::device::temperature::Celsius;
use crate::platform::Platform;

/// Bytes of a page, with the lower half that all pages share.
const PAGE: usize = 256;
/// The most bytes that one MCIA reads, without and with `mcia_32dwords` of MCAM. This reads as much as every device can.
const STEP: usize = 48;

/// Text of a device or a module, of which nothing is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Text<N> {
    pub(crate) const fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    fn at(page: &[u8; PAGE], at: usize) -> Self {
        let mut text = [0; N];
        for (to, from) in text.iter_mut().zip(page.iter().skip(at)) {
            *to = *from;
        }
        Self(text)
    }

    /// The bytes as the module has them.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; N] {
        &self.0
    }

    /// Without what fills it up: zeros, and spaces at the end.
    fn kept(&self) -> &[u8] {
        let text = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        text.trim_ascii_end()
    }

    /// Returns `true` if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept().is_empty()
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    /// Writes a question mark for all but printable characters of ASCII.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.kept() {
            let printable = matches!(byte, b' '..=b'~');
            let character = if printable { char::from(*byte) } else { '?' };
            fmt::Write::write_char(f, character)?;
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The layout of a module's memory, by its first byte (SFF-8024, table 4-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModuleKind {
    /// 3: SFP, SFP+, SFP28 (SFF-8472).
    Sfp,
    /// 0x0c, 0x0d, 0x11: QSFP, QSFP+, QSFP28 (SFF-8636).
    Qsfp(u8),
    /// 0x18, 0x19, 0x1e: QSFP-DD, OSFP, QSFP with CMIS.
    Cmis(u8),
    /// Another number: nothing else of the memory is known.
    Unknown(u8),
}

impl ModuleKind {
    const fn of(identifier: u8) -> Self {
        match identifier {
            0x03 => Self::Sfp,
            0x0c | 0x0d | 0x11 => Self::Qsfp(identifier),
            0x18 | 0x19 | 0x1e => Self::Cmis(identifier),
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for ModuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sfp => write!(f, "SFP"),
            Self::Qsfp(0x0c) => write!(f, "QSFP"),
            Self::Qsfp(0x0d) => write!(f, "QSFP+"),
            Self::Qsfp(_) => write!(f, "QSFP28"),
            Self::Cmis(0x18) => write!(f, "QSFP-DD"),
            Self::Cmis(0x19) => write!(f, "OSFP"),
            Self::Cmis(_) => write!(f, "QSFP with CMIS"),
            Self::Unknown(number) => write!(f, "unknown ({number:#04x})"),
        }
    }
}

/// The data of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module {
    /// Its kind.
    pub kind: ModuleKind,
    /// The vendor.
    pub vendor: Text<16>,
    /// The part number.
    pub part: Text<16>,
    /// Its serial number.
    pub serial: Text<16>,
    /// The temperature, if the module says that it measures it.
    pub temperature: Option<Celsius>,
}

impl Module {
    /// From the bytes of the page, and from 256ths of a degree.
    fn new(kind: ModuleKind, page: &[u8; PAGE], [vendor, part, serial]: [usize; 3]) -> Self {
        Self {
            kind,
            vendor: Text::at(page, vendor),
            part: Text::at(page, part),
            serial: Text::at(page, serial),
            temperature: None,
        }
    }
}

/// Signed 256ths of a degree, as all three standards have them.
const fn celsius([high, low]: [u8; 2]) -> Celsius {
    Celsius(i16::from_be_bytes([high, low]) >> 5)
}

/// The choice among a module's memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleAddress {
    /// 0x50, where every module says what it is.
    Low,
    /// 0x51, where SFP modules have their measurements.
    High,
}

impl<P: Platform> Device<'_, P> {
    /// Reads the memory of the port's module (MCIA), from `offset` of a page on. Bytes 0 to 127 are the same in every page.
    pub fn read_module(
        &self,
        address: ModuleAddress,
        page: u8,
        offset: u8,
        into: &mut [u8],
    ) -> Result<(), RegisterError> {
        if usize::from(offset) + into.len() > PAGE {
            return Err(RegisterError::Argument {
                what: "a page of a module has 256 bytes",
            });
        }
        let module = self.module_number()?;
        // Each half is a memory of its own.
        let half = into.len().min(128_usize.saturating_sub(offset.into()));
        let (low, high) = into.split_at_mut(half);
        let parts = low.chunks_mut(STEP).chain(high.chunks_mut(STEP));
        let mut at = u16::from(offset);
        for part in parts {
            let size = part.len() as u16;
            let mut mcia = MciaReg::ZERO;
            mcia.set_module(module)
                .set_i2c_device_address(match address {
                    ModuleAddress::Low => 0x50,
                    ModuleAddress::High => 0x51,
                })
                .set_page_number(page)
                .set_device_address(at)
                .set_size(size);
            let mcia = self.read_offered(RegisterId::Mcia, mcia, MciaReg::as_mut_bytes)?;
            if mcia.status() != 0 {
                return Err(RegisterError::Module {
                    status: mcia.status(),
                });
            }
            for (to, from) in part.iter_mut().zip(mcia.dwords()) {
                *to = *from;
            }
            at += size;
        }
        Ok(())
    }

    /// Asks the port's module what it is. Its memory is not believed: texts are shown as [`Text`] does, and checksums are not
    /// asked for, as many cables have wrong ones.
    pub fn query_module(&self) -> Result<Module, RegisterError> {
        let mut page = [0; PAGE];
        self.read_module(ModuleAddress::Low, 0, 0, &mut page)?;
        let kind = ModuleKind::of(page[0]);
        Ok(match kind {
            ModuleKind::Sfp => {
                let mut module = Module::new(kind, &page, [20, 40, 68]);
                // Measurements are there, and need no other address.
                if page[92] & 0x44 == 0x40 {
                    let mut measured = [0; 2];
                    self.read_module(ModuleAddress::High, 0, 96, &mut measured)?;
                    module.temperature = Some(celsius(measured));
                }
                module
            }
            ModuleKind::Qsfp(_) => {
                let mut module = Module::new(kind, &page, [148, 168, 196]);
                if page[220] & 0x20 != 0 {
                    module.temperature = Some(celsius([page[22], page[23]]));
                }
                module
            }
            ModuleKind::Cmis(_) => {
                let mut module = Module::new(kind, &page, [129, 148, 166]);
                // A flat memory has no page 1, which says what is measured.
                if page[2] & 0x80 == 0 {
                    let mut monitors = [0; 1];
                    self.read_module(ModuleAddress::Low, 1, 159, &mut monitors)?;
                    if monitors[0] & 1 != 0 {
                        module.temperature = Some(celsius([page[14], page[15]]));
                    }
                }
                module
            }
            ModuleKind::Unknown(_) => Module {
                kind,
                vendor: Text([0; 16]),
                part: Text([0; 16]),
                serial: Text([0; 16]),
                temperature: None,
            },
        })
    }
}
