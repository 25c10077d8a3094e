//! The contents of a flattened device tree (Devicetree Specification 0.4; the bindings are named where they are used).

use core::ops::{Range, RangeInclusive};

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Cells, FdtStringListIterator, Node, Property, ToCellInt};

use crate::assign::Windows;
use crate::error::MachineError;
use crate::physical::Memory;

/// A longer tree is none.
const LONGEST: usize = 1 << 20;
/// Magic number and length, which the tree begins with.
const MAGIC: [u8; 4] = [0xd0, 0x0d, 0xfe, 0xed];
const HEADER: usize = 40;

/// The tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceTree<'m>(Fdt<'m>);

/// A PCI host bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostBridge {
    /// Where the configuration space of bus 0 would be.
    pub(crate) ecam: u64,
    /// The buses that it has.
    pub(crate) buses: RangeInclusive<u8>,
    /// Addresses for functions.
    pub(crate) windows: Windows,
}

/// An interrupt controller of Arm's second generation, and what raises interrupts there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interrupts {
    /// The distributor's registers.
    pub(crate) distributor: Range<u64>,
    /// The processor interface's.
    pub(crate) interface: Range<u64>,
    /// Those of what makes interrupts of the host bridge's messages (GICv2m).
    pub(crate) messages: Range<u64>,
    /// The virtual timer's interrupt.
    pub(crate) timer: u32,
}

impl<'m> DeviceTree<'m> {
    /// The tree at an address.
    pub(crate) fn read(memory: &'m impl Memory, address: u64) -> Result<Self, MachineError> {
        let none = MachineError::NoDeviceTree;
        let header = memory.bytes(address, HEADER).ok_or(none)?;
        let length = header[4..].first_chunk().ok_or(none)?;
        let length = u32::from_be_bytes(*length) as usize;
        if !header.starts_with(&MAGIC) || length > LONGEST {
            return Err(none);
        }
        let bytes = memory.bytes(address, length).ok_or(none)?;
        Fdt::new(bytes).map(Self).map_err(|_| none)
    }

    /// The command line; empty if there is none, or if it is no text.
    pub(crate) fn command_line(&self) -> &'m str {
        self.chosen("bootargs").unwrap_or_default()
    }

    /// The memory that there is.
    pub(crate) fn ram(&self) -> impl Iterator<Item = Range<u64>> + 'm {
        let root = self.0.root();
        let nodes = root.children().filter(|node| {
            let kind = node.property("device_type");
            kind.is_some_and(|kind| kind.value() == b"memory\0") && is_okay(node)
        });
        nodes.flat_map(registers)
    }

    /// Where the serial port is that the console is to be on, if it is a PL011.
    pub(crate) fn serial(&self) -> Option<u64> {
        let path = self.chosen("stdout-path")?;
        // Behind a colon is how it is to be set.
        let path = path.split(':').next()?;
        let node = self.0.find_node(path)?;
        let port = node
            .is_compatible("arm,pl011")
            .then(|| registers(node).next());
        Some(port??.start)
    }

    /// The PCI host bridge ("PCI bus binding to IEEE 1275", "generic PCI host controller").
    pub(crate) fn pci(&self) -> Result<HostBridge, MachineError> {
        let missing = MachineError::NoTree("PCI host bridge");
        let node = self.host_bridge().ok_or(missing)?;
        // Else the caches would have to be cleaned or invalidated around every access of a device.
        if node.property("dma-coherent").is_none() {
            return Err(MachineError::NotCoherent);
        }
        let ecam = registers(node).next().ok_or(missing)?.start;
        let buses = match words(&node, "bus-range") {
            Some([first, last]) => {
                let bus = |number: u32| u8::try_from(number).map_err(|_| missing);
                bus(first)?..=bus(last)?
            }
            None => 0..=u8::MAX,
        };
        Ok(HostBridge {
            ecam,
            buses,
            windows: windows(&node).ok_or(missing)?,
        })
    }

    /// The interrupt controller ("ARM Generic Interrupt Controller", "ARM architected timer"), if it is of the kind that is
    /// known here, and takes the host bridge's messages.
    pub(crate) fn interrupts(&self) -> Option<Interrupts> {
        let root = self.0.root();
        let kinds = ["arm,cortex-a15-gic", "arm,gic-400"];
        let controller = root
            .children()
            .find(|node| kinds.iter().any(|kind| node.is_compatible(kind)))?;
        let mut parts = registers(controller);
        let bridge = self.host_bridge()?;
        let parent = match (words(&bridge, "msi-map"), words(&bridge, "msi-parent")) {
            // The first function, the controller, its first number, how many.
            (Some([_, parent, _, _]), _) | (None, Some([parent])) => parent,
            _ => return None,
        };
        let messages = controller.children().find(|node| {
            node.is_compatible("arm,gic-v2m-frame") && node.phandle() == Ok(Some(parent))
        })?;
        let timer = root
            .children()
            .find(|node| node.is_compatible("arm,armv8-timer"))?;
        // Kind, number, and how it is triggered, for the secure, the non-secure, and the virtual timer.
        let [_, _, _, _, _, _, 1, timer, _] = words(&timer, "interrupts")? else {
            return None;
        };
        Some(Interrupts {
            distributor: parts.next()?,
            interface: parts.next()?,
            messages: registers(messages).next()?,
            // The processor's own begin at 16, and are 16.
            timer: (timer < 16).then_some(16 + timer)?,
        })
    }

    fn host_bridge(&self) -> Option<FdtNode<'m>> {
        let kind = |node: &FdtNode<'_>| node.is_compatible("pci-host-ecam-generic");
        let mut bridges = self.0.root().children().filter(kind);
        bridges.find(is_okay)
    }

    /// A text that the boot loader chose.
    fn chosen(&self, name: &str) -> Option<&'m str> {
        let property = self.0.find_node("/chosen")?.property(name)?;
        let mut text = property.value_as::<FdtStringListIterator<'m>>().ok()?;
        text.next()
    }
}

/// Returns `true` if a node is of use: it is, unless it says otherwise.
fn is_okay(node: &FdtNode<'_>) -> bool {
    let status = node.property("status");
    status.is_none_or(|status| matches!(status.value(), b"okay\0" | b"ok\0"))
}

/// A node's ranges of addresses, those of no length left out.
fn registers(node: FdtNode<'_>) -> impl Iterator<Item = Range<u64>> {
    let ranges = node.reg().ok().flatten().into_iter().flatten();
    ranges.filter_map(|range| {
        let start = range.address::<u64>().ok()?;
        let end = start.checked_add(range.size::<u64>().ok()?)?;
        (start < end).then_some(start..end)
    })
}

/// The first 32-bit numbers of a property, if it has so many.
fn words<const N: usize>(node: &FdtNode<'_>, name: &str) -> Option<[u32; N]> {
    let property = node.property(name)?;
    let (words, _) = property.value().as_chunks::<4>();
    Some(words.first_chunk::<N>()?.map(u32::from_be_bytes))
}

/// A host bridge's windows: the first of either kind that is at the same place for the processor. One that is missing is
/// empty.
fn windows(node: &FdtNode<'_>) -> Option<Windows> {
    let mut windows = Windows {
        low: 0..0,
        high: 0..0,
    };
    // What it is and where for PCI; where for the processor; how long.
    let ranges = node.property("ranges")?;
    for [child, parent, length] in ranges.as_prop_encoded_array([3, 2, 2]).ok()? {
        let child = number::<u128>(child)?;
        let (flags, start) = ((child >> 64) as u32, child as u64);
        let end = start.checked_add(number(length)?)?;
        let window = match (flags >> 24 & 3, end > 1 << 32) {
            // I/O ports, which are not needed.
            (0 | 1, _) => continue,
            (_, false) => &mut windows.low,
            (_, true) => &mut windows.high,
        };
        if window.is_empty() && number::<u64>(parent)? == start {
            *window = start..end;
        }
    }
    Some(windows)
}

fn number<T>(cells: Cells<'_>) -> Option<T>
where
    T: Default + From<u32> + core::ops::Shl<usize, Output = T> + core::ops::BitOr<Output = T>,
{
    cells.to_int().ok()
}

#[cfg(test)]
mod tests {
    use dtoolkit::model::{DeviceTree as Model, DeviceTreeNode, DeviceTreeProperty};

    use super::*;
    use crate::physical::Fake;

    const AT: u64 = 0x1000;

    /// I/O ports, and memory of either kind.
    const RANGES: [[u32; 7]; 3] = [
        [0x100_0000, 0, 0, 0, 0x3eff_0000, 0, 0x1_0000],
        [0x200_0000, 0, 0x1000_0000, 0, 0x1000_0000, 0, 0x2eff_0000],
        [0x300_0000, 0x80, 0, 0x80, 0, 0x80, 0],
    ];

    fn property(name: &str, value: &[u8]) -> DeviceTreeProperty {
        DeviceTreeProperty::new(name, value).unwrap()
    }

    fn numbers(name: &str, numbers: &[u32]) -> DeviceTreeProperty {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
        property(name, &bytes)
    }

    fn node<const N: usize>(name: &str, properties: [DeviceTreeProperty; N]) -> DeviceTreeNode {
        let mut node = DeviceTreeNode::new(name).unwrap();
        for property in properties {
            node.add_property(property);
        }
        node
    }

    /// The device tree of QEMU's `virt` machine, as far as it is read here, and some memory more.
    fn virt() -> Model {
        let mut tree = Model::new();
        let two = [
            numbers("#address-cells", &[2]),
            numbers("#size-cells", &[2]),
        ];
        for property in two.clone() {
            tree.root.add_property(property);
        }
        let memory = |name: &str, start: [u32; 2], status: &[u8]| {
            let reg = [start[0], start[1], 0, 0x1000_0000];
            let kind = property("device_type", b"memory\0");
            node(
                name,
                [kind, numbers("reg", &reg), property("status", status)],
            )
        };
        tree.root
            .add_child(memory("memory@40000000", [0, 0x4000_0000], b"okay\0"));
        tree.root
            .add_child(memory("memory@60000000", [0, 0x6000_0000], b"disabled\0"));
        tree.root
            .add_child(memory("memory@100000000", [1, 0], b"ok\0"));
        tree.root.add_child(node(
            "pcie@10000000",
            [
                property("compatible", b"pci-host-ecam-generic\0"),
                numbers("reg", &[0x40, 0x1000_0000, 0, 0x1000_0000]),
                numbers("bus-range", &[0, 0xff]),
                numbers("#address-cells", &[3]),
                numbers("#size-cells", &[2]),
                numbers("ranges", &RANGES.concat()),
                numbers("msi-map", &[0, 0x8003, 0, 0x1_0000]),
                property("dma-coherent", b""),
            ],
        ));
        tree.root.add_child(node(
            "pl011@9000000",
            [
                property("compatible", b"arm,pl011\0arm,primecell\0"),
                numbers("reg", &[0, 0x900_0000, 0, 0x1000]),
            ],
        ));
        let mut controller = node(
            "intc@8000000",
            [
                property("compatible", b"arm,cortex-a15-gic\0"),
                numbers(
                    "reg",
                    &[0, 0x800_0000, 0, 0x1_0000, 0, 0x801_0000, 0, 0x1_0000],
                ),
            ],
        );
        for property in two {
            controller.add_property(property);
        }
        controller.add_child(node(
            "v2m@8020000",
            [
                property("compatible", b"arm,gic-v2m-frame\0"),
                numbers("reg", &[0, 0x802_0000, 0, 0x1000]),
                numbers("phandle", &[0x8003]),
            ],
        ));
        tree.root.add_child(controller);
        tree.root.add_child(node(
            "timer",
            [
                property("compatible", b"arm,armv8-timer\0arm,armv7-timer\0"),
                numbers("interrupts", &[1, 13, 4, 1, 14, 4, 1, 11, 4, 1, 10, 4]),
            ],
        ));
        tree.root.add_child(node(
            "chosen",
            [
                property("stdout-path", b"/pl011@9000000:115200\0"),
                property("bootargs", b"server address=10.0.0.2\0"),
            ],
        ));
        tree
    }

    fn memory(tree: &Model) -> Fake {
        let bytes = tree.to_dtb();
        let mut memory = Fake(vec![0; 0x2000 + bytes.len()]);
        memory.put(AT, &bytes);
        memory
    }

    /// The tree of QEMU, with one property changed, or gone.
    fn changed(node: &str, name: &str, value: Option<&[u8]>) -> Fake {
        let mut tree = virt();
        let node = tree.find_node_mut(node).unwrap();
        assert!(node.remove_property(name).is_some(), "{name}");
        if let Some(value) = value {
            node.add_property(property(name, value));
        }
        memory(&tree)
    }

    #[test]
    fn the_device_tree_is_read() {
        let memory = memory(&virt());
        let tree = DeviceTree::read(&memory, AT).unwrap();
        assert_eq!(tree.command_line(), "server address=10.0.0.2");
        let ram: Vec<_> = tree.ram().collect();
        // What is disabled is not there.
        assert_eq!(
            ram,
            [0x4000_0000..0x5000_0000, 0x1_0000_0000..0x1_1000_0000]
        );
        assert_eq!(tree.serial(), Some(0x900_0000));
        let bridge = tree.pci().unwrap();
        assert_eq!((bridge.ecam, bridge.buses), (0x40_1000_0000, 0..=255));
        assert_eq!(bridge.windows.low, 0x1000_0000..0x3eff_0000);
        assert_eq!(bridge.windows.high, 0x80_0000_0000..0x100_0000_0000);
        let interrupts = tree.interrupts().unwrap();
        assert_eq!(interrupts.distributor, 0x800_0000..0x801_0000);
        assert_eq!(interrupts.interface, 0x801_0000..0x802_0000);
        assert_eq!(interrupts.messages, 0x802_0000..0x802_1000);
        assert_eq!(interrupts.timer, 27);
    }

    #[test]
    fn no_tree() {
        let mut memory = memory(&virt());
        let read = |memory: &Fake, at| DeviceTree::read(memory, at).map(|tree| tree.ram().count());
        for nowhere in [0, 8, AT + 4, 1 << 40, u64::MAX] {
            assert_eq!(read(&memory, nowhere), Err(MachineError::NoDeviceTree));
        }
        // A length that is none, or of more than there is.
        for length in [0, 39, 40, 0x10_0000, u32::MAX] {
            memory.put(AT + 4, &length.to_be_bytes());
            assert_eq!(
                read(&memory, AT),
                Err(MachineError::NoDeviceTree),
                "{length}"
            );
        }
    }

    #[test]
    fn no_byte_of_a_tree_makes_it_panic() {
        let memory = memory(&virt());
        let length = virt().to_dtb().len();
        for at in (0..length).map(|at| AT as usize + at) {
            for value in [0, 1, 4, 0x7f, 0xff] {
                let mut memory = Fake(memory.0.clone());
                memory.0[at] = value;
                let Ok(tree) = DeviceTree::read(&memory, AT) else {
                    continue;
                };
                let _ = (tree.command_line(), tree.ram().count(), tree.serial());
                let _ = (tree.pci(), tree.interrupts());
            }
        }
    }

    #[test]
    fn devices_that_miss_the_caches_are_refused() {
        let memory = changed("/pcie@10000000", "dma-coherent", None);
        let tree = DeviceTree::read(&memory, AT).unwrap();
        assert_eq!(tree.pci(), Err(MachineError::NotCoherent));
    }

    #[test]
    fn a_host_bridge_of_another_kind() {
        for (name, value) in [
            ("compatible", Some(&b"pci-host-cam-generic\0"[..])),
            ("reg", None),
            ("ranges", Some(&[0; 12])),
            ("bus-range", Some(&[0, 0, 1, 0, 0, 0, 1, 1])),
        ] {
            let memory = changed("/pcie@10000000", name, value);
            let tree = DeviceTree::read(&memory, AT).unwrap();
            let found = tree.pci();
            assert_eq!(
                found,
                Err(MachineError::NoTree("PCI host bridge")),
                "{name}"
            );
        }
    }

    #[test]
    fn addresses_that_differ_for_the_processor_are_no_window() {
        let mut ranges = [0u32; 14];
        ranges[..7].copy_from_slice(&[0x200_0000, 0, 0, 0, 0x1000_0000, 0, 0x1000_0000]);
        ranges[7..].copy_from_slice(&[0x200_0000, 0, 0x4000_0000, 0, 0x4000_0000, 0, 0x1000]);
        let ranges: Vec<u8> = ranges.iter().flat_map(|n| n.to_be_bytes()).collect();
        let memory = changed("/pcie@10000000", "ranges", Some(&ranges));
        let windows = DeviceTree::read(&memory, AT)
            .unwrap()
            .pci()
            .unwrap()
            .windows;
        assert_eq!(windows.low, 0x4000_0000..0x4000_1000);
        assert!(windows.high.is_empty());
    }

    #[test]
    fn an_interrupt_controller_of_another_kind() {
        for (node, name, value) in [
            ("/intc@8000000", "compatible", Some(&b"arm,gic-v3\0"[..])),
            ("/intc@8000000", "reg", Some(&[0; 16])),
            ("/intc@8000000/v2m@8020000", "phandle", Some(&[0, 0, 0, 1])),
            ("/pcie@10000000", "msi-map", None),
            ("/timer", "interrupts", Some(&[0; 48])),
        ] {
            let memory = changed(node, name, value);
            let tree = DeviceTree::read(&memory, AT).unwrap();
            assert_eq!(tree.interrupts(), None, "{node} {name}");
        }
    }

    #[test]
    fn a_console_that_is_no_pl011_and_a_command_line_that_is_no_text() {
        let memory = changed("/pl011@9000000", "compatible", Some(b"ns16550a\0"));
        assert_eq!(DeviceTree::read(&memory, AT).unwrap().serial(), None);
        let memory = changed("/chosen", "bootargs", Some(b"\xff\xfe\0"));
        assert_eq!(DeviceTree::read(&memory, AT).unwrap().command_line(), "");
    }
}
