//! Bus numbers and addresses for PCI functions where there is no firmware that gave them any.

// UNSAFETY: writes to configuration space, which changes what functions do.
#![expect(unsafe_code)]

use core::ops::{Range, RangeInclusive};

use pci_types::{CommandRegister, ConfigRegionAccess, HeaderType, PciAddress, PciHeader};

use crate::error::{MachineError, Place};

/// Addresses that a host bridge passes on to its functions, at the same place for both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Windows {
    /// Below 4 GiB.
    pub(crate) low: Range<u64>,
    /// Above 4 GiB, for 64-bit BARs alone. Behind bridges it is for prefetchable ones.
    pub(crate) high: Range<u64>,
}

/// Of the header of a function.
const BARS: u16 = 0x10;
const BAR_IO: u32 = 1;
const BAR_64: u32 = 1 << 2;
const BAR_PREFETCHABLE: u32 = 1 << 3;
const BAR_FLAGS: u32 = 0xf;
/// Of the header of a bridge: bus numbers, and windows by their first and last address.
const BUSES: u16 = 0x18;
const IO_WINDOW: u16 = 0x1c;
const LOW_WINDOW: u16 = 0x20;
const HIGH_WINDOW: u16 = 0x24;
const HIGH_WINDOW_START: u16 = 0x28;
const HIGH_WINDOW_END: u16 = 0x2c;
/// A bridge's windows are whole MiB.
const GRAIN: u64 = 1 << 20;
/// A window that ends before it begins.
const CLOSED: u32 = 0x0000_fff0;

/// The functions on a bus.
pub(crate) fn functions(
    config: &impl ConfigRegionAccess,
    bus: u8,
) -> impl Iterator<Item = PciAddress> {
    (0..32).flat_map(move |device| {
        let first = PciHeader::new(PciAddress::new(0, bus, device, 0));
        let there = first.id(config).0 != u16::MAX;
        let many = there && first.has_multiple_functions(config);
        let count = if many { 8 } else { u8::from(there) };
        let all = (0..count).map(move |function| PciAddress::new(0, bus, device, function));
        all.filter(move |at| PciHeader::new(*at).id(config).0 != u16::MAX)
    })
}

/// Numbers all buses from the first of a host bridge on, gives each function its addresses, and lets bridges pass them on.
/// Endpoints do not decode them yet.
pub(crate) fn assign(
    config: &impl ConfigRegionAccess,
    buses: &RangeInclusive<u8>,
    windows: &Windows,
) -> Result<(), MachineError> {
    let mut assignment = Assignment {
        config,
        last_bus: *buses.start(),
        buses,
        low: windows.low.clone(),
        high: windows.high.clone(),
    };
    assignment.bus(*buses.start())
}

struct Assignment<'a, C> {
    config: &'a C,
    buses: &'a RangeInclusive<u8>,
    /// The bus that was numbered last.
    last_bus: u8,
    /// The parts of the windows that are still free.
    low: Range<u64>,
    high: Range<u64>,
}

impl<C: ConfigRegionAccess> Assignment<'_, C> {
    fn bus(&mut self, bus: u8) -> Result<(), MachineError> {
        for at in functions(self.config, bus) {
            let mut header = PciHeader::new(at);
            header.update_command(self.config, |command| {
                command.difference(CommandRegister::MEMORY_ENABLE | CommandRegister::IO_ENABLE)
            });
            match header.header_type(self.config) {
                HeaderType::Endpoint => self.bars(at, 6)?,
                HeaderType::PciPciBridge => {
                    self.bars(at, 2)?;
                    self.bridge(at)?;
                    header.update_command(self.config, |command| {
                        let on =
                            CommandRegister::MEMORY_ENABLE | CommandRegister::BUS_MASTER_ENABLE;
                        command.union(on)
                    });
                }
                _ => log::warn!("{}: a function of unknown kind", Place(at)),
            }
        }
        Ok(())
    }

    /// Everything behind a bridge.
    fn bridge(&mut self, at: PciAddress) -> Result<(), MachineError> {
        let bus = self.last_bus.checked_add(1);
        let bus = bus.filter(|bus| self.buses.contains(bus));
        let bus = bus.ok_or(MachineError::NoRoom(at))?;
        self.last_bus = bus;
        let kept = self.read(at, BUSES) & 0xff00_0000;
        let numbers =
            |last: u8| kept | u32::from(last) << 16 | u32::from(bus) << 8 | u32::from(at.bus());
        // All buses behind it are found with the highest number.
        self.write(at, BUSES, numbers(*self.buses.end()));
        let low = round(&mut self.low, at)?;
        let high = round(&mut self.high, at)?;
        self.bus(bus)?;
        self.write(at, BUSES, numbers(self.last_bus));
        let low = low..round(&mut self.low, at)?;
        let high = high..round(&mut self.high, at)?;

        self.write(at, IO_WINDOW, CLOSED & 0xffff);
        self.write(at, LOW_WINDOW, window(&low));
        self.write(at, HIGH_WINDOW, window(&high));
        if !high.is_empty() {
            self.write(at, HIGH_WINDOW_START, (high.start >> 32) as u32);
            self.write(at, HIGH_WINDOW_END, ((high.end - 1) >> 32) as u32);
            // It says so if it has 64 bits.
            if self.read(at, HIGH_WINDOW) & 0xf != 1 {
                return Err(MachineError::NoRoom(at));
            }
        }
        Ok(())
    }

    /// A function's BARs, as far as they are memory.
    fn bars(&mut self, at: PciAddress, count: u16) -> Result<(), MachineError> {
        let mut bars = (0..count).map(|bar| BARS + 4 * bar);
        while let Some(bar) = bars.next() {
            let flags = self.read(at, bar);
            if flags & BAR_IO != 0 {
                continue;
            }
            // It keeps those bits that it can decode.
            self.write(at, bar, u32::MAX);
            let low = self.read(at, bar) & !BAR_FLAGS;
            let mask = match flags & BAR_64 != 0 {
                false if low == 0 => continue,
                false => u64::from(low) | 0xffff_ffff << 32,
                true => {
                    let upper = bars.next().ok_or(MachineError::NoBar(at))?;
                    self.write(at, upper, u32::MAX);
                    u64::from(self.read(at, upper)) << 32 | u64::from(low)
                }
            };
            let size = mask.wrapping_neg();
            if !size.is_power_of_two() {
                return Err(MachineError::NoBar(at));
            }
            let wide = flags & (BAR_64 | BAR_PREFETCHABLE) == BAR_64 | BAR_PREFETCHABLE;
            let window = if wide && !self.high.is_empty() {
                &mut self.high
            } else {
                &mut self.low
            };
            let address = take(window, size).ok_or(MachineError::NoRoom(at))?;
            self.write(at, bar, address as u32);
            if flags & BAR_64 != 0 {
                self.write(at, bar + 4, (address >> 32) as u32);
            }
        }
        Ok(())
    }

    fn read(&self, at: PciAddress, offset: u16) -> u32 {
        // SAFETY: a register of the header of a function that is there.
        unsafe { self.config.read(at, offset) }
    }

    fn write(&self, at: PciAddress, offset: u16, value: u32) {
        // SAFETY: as above; the function decodes nothing meanwhile, and no driver uses it yet.
        unsafe { self.config.write(at, offset, value) };
    }
}

/// Takes a piece, as aligned as it is large, off a window.
fn take(window: &mut Range<u64>, size: u64) -> Option<u64> {
    let start = window.start.checked_next_multiple_of(size)?;
    let end = start.checked_add(size).filter(|end| *end <= window.end)?;
    window.start = end;
    Some(start)
}

/// Goes on to the next address that a bridge's window may begin or end with. Of a window that there is not, nothing is left.
fn round(window: &mut Range<u64>, at: PciAddress) -> Result<u64, MachineError> {
    if window.is_empty() {
        return Ok(window.start);
    }
    let start = window.start.checked_next_multiple_of(GRAIN);
    let start = start.filter(|start| *start <= window.end);
    window.start = start.ok_or(MachineError::NoRoom(at))?;
    Ok(window.start)
}

/// The lower half of a bridge's window.
fn window(range: &Range<u64>) -> u32 {
    if range.is_empty() {
        return CLOSED;
    }
    let (first, last) = (range.start as u32, (range.end - 1) as u32);
    first >> 16 & 0xfff0 | last & 0xfff0_0000
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A function: where it is, and its header, of which the bits of `writable` can be written.
    struct Function {
        /// The bridge that it is behind, by its place in the list.
        behind: Option<usize>,
        device: u8,
        header: RefCell<[u32; 16]>,
        writable: [u32; 16],
    }

    impl Function {
        fn new(behind: Option<usize>, device: u8, kind: u32) -> Self {
            let mut header = [0; 16];
            header[0] = 0x1017_15b3;
            header[3] = kind << 16;
            let mut writable = [0; 16];
            writable[1] = 0xffff;
            let header = RefCell::new(header);
            Self {
                behind,
                device,
                header,
                writable,
            }
        }

        fn endpoint(behind: Option<usize>, device: u8) -> Self {
            Self::new(behind, device, 0)
        }

        fn bridge(behind: Option<usize>, device: u8) -> Self {
            let mut bridge = Self::new(behind, device, 1);
            bridge.writable[6..12].copy_from_slice(&[
                0xffff_ffff,
                0xf0f0,
                0xfff0_fff0,
                0xfff0_fff0,
                u32::MAX,
                u32::MAX,
            ]);
            // 64 bits.
            bridge.header.borrow_mut()[9] = 0x0001_0001;
            bridge
        }

        fn bar(mut self, bar: usize, size: u64, flags: u32) -> Self {
            let mask = size.wrapping_neg();
            self.header.borrow_mut()[4 + bar] = flags;
            self.writable[4 + bar] = mask as u32 & !0xf;
            if flags & BAR_64 != 0 {
                self.writable[5 + bar] = (mask >> 32) as u32;
            }
            self
        }

        fn address(&self, bar: usize) -> u64 {
            let header = self.header.borrow();
            let (low, high) = (header[4 + bar], header[5 + bar]);
            let high = if low & BAR_64 != 0 { high } else { 0 };
            u64::from(high) << 32 | u64::from(low & !0xf)
        }
    }

    /// Configuration space, in which functions behind bridges are reached by the bridges' bus numbers.
    struct Fake(Vec<Function>);

    impl Fake {
        fn find(&self, at: PciAddress) -> Option<&Function> {
            let mut bus = (0, None);
            while bus.0 != at.bus() {
                let next = self.0.iter().enumerate().find_map(|(index, bridge)| {
                    let header = bridge.header.borrow();
                    let [_, secondary, last, _] = header[6].to_le_bytes();
                    let leads = header[3] >> 16 == 1 && (secondary..=last).contains(&at.bus());
                    (bridge.behind == bus.1 && leads && secondary > bus.0)
                        .then_some((secondary, Some(index)))
                });
                bus = next?;
            }
            let there = |function: &&Function| {
                function.behind == bus.1 && function.device == at.device() && at.function() == 0
            };
            self.0.iter().find(there)
        }

        fn word(&self, function: usize, word: usize) -> u32 {
            self.0[function].header.borrow()[word]
        }
    }

    impl ConfigRegionAccess for Fake {
        unsafe fn read(&self, at: PciAddress, offset: u16) -> u32 {
            let found = self.find(at);
            found.map_or(u32::MAX, |found| {
                found.header.borrow()[usize::from(offset / 4)]
            })
        }

        unsafe fn write(&self, at: PciAddress, offset: u16, value: u32) {
            if let Some(found) = self.find(at) {
                let word = usize::from(offset / 4);
                let mask = found.writable[word];
                let register = &mut found.header.borrow_mut()[word];
                *register = *register & !mask | value & mask;
            }
        }
    }

    const MIB: u64 = 1 << 20;
    const PREFETCHABLE: u32 = BAR_64 | BAR_PREFETCHABLE;

    fn windows() -> Windows {
        Windows {
            low: 0x1000_0000..0x2000_0000,
            high: 0x80_0000_0000..0x81_0000_0000,
        }
    }

    /// An endpoint at the root; a bridge with a card behind it, and a second bridge with another one; an empty bridge.
    fn machine() -> Fake {
        Fake(vec![
            Function::endpoint(None, 0)
                .bar(0, 0x1000, 0)
                .bar(1, 64, BAR_IO),
            Function::bridge(None, 1).bar(0, 0x4000, 0),
            Function::endpoint(Some(1), 0).bar(0, 32 * MIB, PREFETCHABLE),
            Function::bridge(Some(1), 3),
            Function::endpoint(Some(3), 0)
                .bar(0, 8 << 30, PREFETCHABLE)
                .bar(2, 2 * MIB, BAR_64)
                .bar(5, 0x2000, 0),
            Function::bridge(None, 2),
        ])
    }

    #[test]
    fn buses_are_numbered_depth_first() {
        let machine = machine();
        let windows = Windows {
            high: 0x80_0000_0000..0x100_0000_0000,
            ..windows()
        };
        assign(&machine, &(0..=255), &windows).unwrap();
        // Primary, secondary, last.
        for (bridge, numbers) in [(1, 0x02_01_00), (3, 0x02_02_01), (5, 0x03_03_00)] {
            assert_eq!(machine.word(bridge, 6), numbers, "{bridge}");
        }
        // Endpoints wait for their driver.
        let commands = [0, 1, 2, 3, 4, 5].map(|index| machine.word(index, 1));
        assert_eq!(commands, [0, 6, 0, 6, 0, 6]);
    }

    #[test]
    fn bars_are_where_bridges_pass_them_on() {
        let machine = machine();
        let windows = Windows {
            high: 0x80_0000_0000..0x100_0000_0000,
            ..windows()
        };
        assign(&machine, &(0..=255), &windows).unwrap();
        let address = |function: usize, bar| machine.0[function].address(bar);
        assert_eq!(address(0, 0), 0x1000_0000);
        assert_eq!(address(1, 0), 0x1000_4000);
        assert_eq!(address(2, 0), 0x80_0000_0000);
        assert_eq!(address(4, 0), 0x82_0000_0000);
        // The second bridge's window begins with a MiB, the BAR is as aligned as it is large.
        assert_eq!(address(4, 2), 0x1020_0000);
        assert_eq!(address(4, 5), 0x1040_0000);
        // The first bridge passes on what the second does, and its own card's.
        assert_eq!(machine.word(1, 8), 0x1040_1010);
        assert_eq!(machine.word(3, 8), 0x1040_1010);
        assert_eq!(
            [9, 10, 11].map(|word| machine.word(1, word)),
            [0xfff1_0001, 0x80, 0x83]
        );
        assert_eq!(
            [9, 10, 11].map(|word| machine.word(3, word)),
            [0xfff1_0201, 0x80, 0x83]
        );
        // Nothing is behind the last.
        assert_eq!(machine.word(5, 8), CLOSED);
        assert_eq!(machine.word(5, 9), CLOSED | 0x1_0001);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let low = Windows {
            low: 0..0,
            ..windows()
        };
        let high = Windows {
            high: 0x80_0000_0000..0x80_4000_0000,
            ..windows()
        };
        for (what, windows, function) in [
            ("no low window", low, (0, 0)),
            ("a small high window", high, (2, 0)),
        ] {
            let found = assign(&machine(), &(0..=255), &windows);
            let (bus, device) = function;
            let at = PciAddress::new(0, bus, device, 0);
            assert_eq!(found, Err(MachineError::NoRoom(at)), "{what}");
        }
        let found = assign(&machine(), &(0..=1), &windows());
        let second = PciAddress::new(0, 1, 3, 0);
        assert_eq!(found, Err(MachineError::NoRoom(second)), "bus numbers");
    }

    #[test]
    fn a_bridge_of_32_bits_passes_no_high_address_on() {
        let mut machine = machine();
        machine.0.truncate(3);
        machine.0[1].header.borrow_mut()[9] = 0;
        let bridge = PciAddress::new(0, 0, 1, 0);
        let found = assign(&machine, &(0..=255), &windows());
        assert_eq!(found, Err(MachineError::NoRoom(bridge)));
        // Without high addresses all of it is below 4 GiB.
        let low = Windows {
            high: 0..0,
            ..windows()
        };
        machine.0[1].header.borrow_mut()[6] = 0;
        assign(&machine, &(0..=255), &low).unwrap();
        assert_eq!(machine.0[2].address(0), 0x1200_0000);
    }

    #[test]
    fn bars_of_no_size() {
        for (bar, size, flags) in [(0, 0x3000, 0), (5, 0x1000, BAR_64)] {
            let mut function = Function::endpoint(None, 4);
            function.header.borrow_mut()[4 + bar] = flags;
            function.writable[4 + bar] = (size as u32).wrapping_neg() & 0xffff_5000;
            let found = assign(&Fake(vec![function]), &(0..=255), &windows());
            let at = PciAddress::new(0, 0, 4, 0);
            assert_eq!(found, Err(MachineError::NoBar(at)), "BAR {bar}");
        }
    }
}
