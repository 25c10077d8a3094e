//! PCI addresses as `lspci -D` and sysfs write them.

use std::fmt;
use std::str::FromStr;

/// The address of a PCI function: domain, bus, device, function.
///
/// Parsed from `0000:3b:00.1`, or `3b:00.1` for domain 0, and from nothing else: exactly two hexadecimal digits of bus
/// and device, one of function, and a domain of four to eight. Displayed as sysfs names it, with the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// The address of these parts, if `device` is below 32 and `function` below 8.
    pub const fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        if device < 32 && function < 8 {
            Some(Self {
                domain,
                bus,
                device,
                function,
            })
        } else {
            None
        }
    }

    /// The PCI domain (segment group).
    pub const fn domain(self) -> u32 {
        self.domain
    }

    /// The bus number.
    pub const fn bus(self) -> u8 {
        self.bus
    }

    /// The device number, below 32.
    pub const fn device(self) -> u8 {
        self.device
    }

    /// The function number, below 8.
    pub const fn function(self) -> u8 {
        self.function
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// An error in the text of a PCI address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParsePciAddressError {
    /// Not of the form `[domain:]bus:device.function`.
    #[error("not a PCI address: expected [domain:]bus:device.function, as in 0000:3b:00.0")]
    Form,
    /// The domain is not four to eight hexadecimal digits.
    #[error("the PCI domain is not four to eight hexadecimal digits")]
    Domain,
    /// The bus is not two hexadecimal digits.
    #[error("the PCI bus is not two hexadecimal digits")]
    Bus,
    /// The device is not two hexadecimal digits, or above 1f.
    #[error("the PCI device is not two hexadecimal digits of at most 1f")]
    Device,
    /// The function is not one digit from 0 to 7.
    #[error("the PCI function is not one digit from 0 to 7")]
    Function,
}

/// A hexadecimal number of `min` to `max` digits. `from_str_radix` alone would take a sign.
fn hex(text: &str, min: usize, max: usize) -> Option<u32> {
    let digits = (min..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

impl FromStr for PciAddress {
    type Err = ParsePciAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        use ParsePciAddressError as E;
        let (rest, function) = text.rsplit_once('.').ok_or(E::Form)?;
        let (rest, device) = rest.rsplit_once(':').ok_or(E::Form)?;
        let (domain, bus) = match rest.rsplit_once(':') {
            Some((domain, bus)) => (hex(domain, 4, 8).ok_or(E::Domain)?, bus),
            None => (0, rest),
        };
        let bus = hex(bus, 2, 2)
            .and_then(|b| u8::try_from(b).ok())
            .ok_or(E::Bus)?;
        let device = hex(device, 2, 2)
            .and_then(|d| u8::try_from(d).ok())
            .filter(|d| *d < 32)
            .ok_or(E::Device)?;
        let function = hex(function, 1, 1)
            .and_then(|n| u8::try_from(n).ok())
            .filter(|n| *n < 8)
            .ok_or(E::Function)?;
        Ok(Self {
            domain,
            bus,
            device,
            function,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_forms_are_read() {
        let address = PciAddress::new(0, 0x3b, 0, 1).unwrap();
        assert_eq!("0000:3b:00.1".parse(), Ok(address));
        assert_eq!("3b:00.1".parse(), Ok(address));
        assert_eq!("3B:00.1".parse(), Ok(address));
        assert_eq!(address.to_string(), "0000:3b:00.1");
    }

    #[test]
    fn a_wide_domain_is_read_and_written() {
        // What VMD calls its domains.
        let address: PciAddress = "10000:e1:1f.7".parse().unwrap();
        assert_eq!(
            (
                address.domain(),
                address.bus(),
                address.device(),
                address.function()
            ),
            (0x10000, 0xe1, 31, 7)
        );
        assert_eq!(address.to_string(), "10000:e1:1f.7");
    }

    #[test]
    fn anything_else_is_refused_with_the_part_that_is_wrong() {
        use ParsePciAddressError as E;
        for (text, error) in [
            ("", E::Form),
            ("3b", E::Form),
            ("3b:00", E::Form),
            ("3b.0", E::Form),
            ("mlx5_0", E::Form),
            (":3b:00.0", E::Domain),
            ("000:3b:00.0", E::Domain),
            ("000000000:3b:00.0", E::Domain),
            ("+000:3b:00.0", E::Domain),
            ("0000:0000:3b:00.0", E::Domain),
            ("00g0:3b:00.0", E::Domain),
            (" 3b:00.0", E::Bus),
            ("b:00.0", E::Bus),
            ("03b:00.0", E::Bus),
            ("+b:00.0", E::Bus),
            ("3b:0.0", E::Device),
            ("3b:20.0", E::Device),
            ("3b:-1.0", E::Device),
            ("3b:00.8", E::Function),
            ("3b:00.", E::Function),
            ("3b:00.00", E::Function),
            ("3b:00.0\n", E::Function),
            ("3b:00.a", E::Function),
            ("3b:00.٣", E::Function),
        ] {
            assert_eq!(text.parse::<PciAddress>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn parts_out_of_range_make_no_address() {
        assert_eq!(PciAddress::new(0, 0, 32, 0), None);
        assert_eq!(PciAddress::new(0, 0, 0, 8), None);
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]

        #[test]
        fn what_is_written_is_read_back(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = PciAddress::new(domain, bus, device, function).unwrap();
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = text.parse::<PciAddress>();
        }
    }
}
