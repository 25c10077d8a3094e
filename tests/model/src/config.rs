//! The configuration of the modelled card: identity, capabilities, how much memory it requires, how it starts.

use crate::port::module::{Module, Sensor};
use crate::quirks::Quirks;
use bareverbs_firmware_cmds::caps::{
    AtomicCaps, DeviceMemCap, EthernetOffloadCaps, FlowTableNicCap, HcaCap, HcaCap2, RoceCap,
};
use core::time::Duration;
use std::fs::File;
use std::sync::Arc;

/// The owner of the MSI-X table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MsixMode {
    /// The host does (vfio-pci, vfio-user): every vector reaches [`Host::interrupt`](crate::Host::interrupt).
    HostManaged,
    /// The table and the pending bits in BAR 0 and the enable and mask bits in configuration space decide.
    Table,
}

/// The port's link layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortType {
    /// RoCE over Ethernet.
    Ethernet,
    /// InfiniBand, with the virtual port answering for the subnet manager.
    InfiniBand,
}

/// The kind of a function on its card.
///
/// A virtual function is shown as vfio-pci presents it, and as the vendor's driver for Linux expects it
/// (`MLX5_PCI_DEV_IS_VF`): it drives its own objects and its own virtual port, and nothing that belongs to the card. The
/// physical function beside it, which would switch it on and look after it, is not part of the model: what it would have
/// set is configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// The card itself, or one of its ports.
    Physical,
    /// One of those that SR-IOV makes of a physical one.
    Virtual,
}

/// Everything about a card that is decided before it is plugged in.
#[derive(Debug, Clone)]
pub struct Config {
    /// PCI vendor.
    pub vendor_id: u16,
    /// PCI device; ConnectX-5 by default.
    pub device_id: u16,
    /// PCI device of the card's virtual functions.
    pub virtual_device_id: u16,
    /// The kind of function.
    pub function: FunctionKind,
    /// `true` if it is the physical function of a SmartNIC's own cores (ECPF). Its commands about functions name it with
    /// `embedded_cpu_function`; function 0 without that bit is the host's physical function.
    pub embedded_cpu: bool,
    /// `true` if configuration space has the vendor-specific capability, through which the drivers of a card's physical
    /// functions lock each other out.
    pub vendor_specific_capability: bool,
    /// Firmware revision: major, minor, sub-minor.
    pub firmware: (u16, u16, u16),
    /// Board identification, as QUERY_ADAPTER gives it.
    pub board_id: [u8; 16],
    /// The kind of device, as the health buffer names it (`hw_id`).
    pub hw_id: u32,
    /// The port's link layer.
    pub port_type: PortType,
    /// The port's local identifier, if it is an InfiniBand port.
    pub lid: u16,
    /// The local identifier of the subnet's manager.
    pub sm_lid: u16,
    /// `true` if an InfiniBand port awaits a subnet manager: it begins without a local identifier, and in the state
    /// Initialize. Without that it is as if one had been there before.
    pub subnet_managed: bool,
    /// `true` if the firmware's agent answers a subnet manager also where the driver has QP0. No document says which way
    /// cards have it: Linux's driver answers at its QP0, by MAD_IFC, and iPXE's tells the firmware nothing of what a manager
    /// sets (`golan_inform_sma`).
    pub subnet_agent: bool,
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// Node GUID.
    pub node_guid: u64,
    /// Port GUID.
    pub port_guid: u64,
    /// System image GUID.
    pub system_image_guid: u64,
    /// Ethernet MTU of the port: payload of the largest frame. RoCE path MTUs must fit below it.
    pub mtu: u16,
    /// `true` if the cable is plugged in at power-on.
    pub link_up: bool,
    /// The port's administrative state at power-on. Where it is down the firmware waits for a driver to raise the port; for
    /// a virtual function the host has taken its port down.
    pub admin_up: bool,
    /// ISSI levels offered: bit 0, bit 1.
    pub supported_issi: u32,
    /// Binary logarithm of the number of command slots.
    pub log_cmdq_size: u8,
    /// Binary logarithm of the distance between command slots.
    pub log_cmdq_stride: u8,
    /// Size of BAR 0.
    pub bar_size: u64,
    /// Speed of the PCI Express link as its registers code it: 1 is 2.5 GT/s, 2 is 5, 3 is 8, 4 is 16, 5 is 32.
    pub pcie_speed: u8,
    /// Width of the PCI Express link.
    pub pcie_lanes: u8,
    /// Number of MSI-X vectors.
    pub msix_vectors: u16,
    /// The owner of the MSI-X table.
    pub msix_mode: MsixMode,
    /// Pages that the firmware requires before it executes other commands.
    pub boot_pages: u32,
    /// Pages that the firmware requires before INIT_HCA.
    pub init_pages: u32,
    /// The number of pages that it asks for at a time when it runs out later; 0 makes it fail with "no resources" instead.
    pub page_chunk: u32,
    /// QUERY_CQ does not count completions that the host has not polled, as its counters may lag behind.
    pub cq_counters_lag: bool,
    /// The real-time clock when the card is switched on, since its epoch, on cards that have one.
    pub real_time: Duration,
    /// The number of the first UAR, which is its page in BAR 0. The pages before are the init segment, the clock and the MSI-X
    /// table, and on some cards more.
    pub first_uar: u32,
    /// The number of the first event queue.
    pub first_eqn: u32,
    /// Other functions share the InfiniBand port's LID, as the virtual ones of some cards do: what comes is for this one if a
    /// global header names its GID, and `grh_required` of its virtual port says so. Subnet management is the port's.
    pub grh_required: bool,
    /// The headers of each packet that Ethernet send requests carry inline at least: `min_wqe_inline_mode` of the virtual
    /// port, which counts if `wqe_inline_mode` of the Ethernet capabilities is 1. 0 none, 1 the Ethernet header, 2 up to the
    /// IP header, 3 up to the TCP or UDP header.
    pub min_wqe_inline_mode: u8,
    /// The memory of the module or cable in the port, if it has one.
    pub module: Option<Module>,
    /// Sensors of temperature.
    pub sensors: Vec<Sensor>,
    /// The time that the `initializing` bit stays set after power-on and reset.
    pub boot_time: Duration,
    /// For how long the registers with the command queue's address give the former address back after a write.
    pub latch_time: Duration,
    /// The way to the card combines writes to send registers, and a line that is not full waits for that long. For
    /// emulated machines, which do not; those that do hand bursts to [`Model::bar_write`](crate::Model::bar_write).
    pub combining: Option<Duration>,
    /// The key that ends the scatter list of a receive WQE, where the capability of that name is set.
    pub terminate_scatter_list_mkey: u32,
    /// The time that a command takes at least.
    pub command_time: Duration,
    /// `true` if set bits that no known field covers make a command fail. The vendor's newer drivers may set fields that this
    /// model does not know.
    pub strict: bool,
    /// A request whose answer is not known, as no driver in the field makes it, stops the firmware: health syndrome 1 with
    /// `ext_synd` 0x1002. Otherwise it is only counted, in [`Stats::unknown_answers`](crate::Stats::unknown_answers).
    pub unknown_answers_are_fatal: bool,
    /// The device's use of the freedom that the interface leaves it.
    pub quirks: Quirks,
    /// General capabilities at power-on.
    pub general: HcaCap,
    /// The best that SET_HCA_CAP can ask for.
    pub general_max: HcaCap,
    /// More general capabilities, if there are any.
    pub general_2: HcaCap2,
    /// RoCE capabilities at power-on.
    pub roce: RoceCap,
    /// The best that SET_HCA_CAP can ask for.
    pub roce_max: RoceCap,
    /// Atomic capabilities at power-on.
    pub atomic: AtomicCaps,
    /// The capabilities of Ethernet queues, if there are any.
    pub ethernet: EthernetOffloadCaps,
    /// The capabilities of flow tables, if there are any.
    pub flow_table: FlowTableNicCap,
    /// The memory on the device, if there is any.
    pub device_memory: DeviceMemCap,
    /// The number of its pages of 4 KiB, from its start on, that other functions of the card hold.
    pub memic_held: u32,
    /// The file that has the memory on the device, for others to map; without one the model has it itself.
    pub memic_file: Option<Arc<File>>,
}

impl Config {
    /// The values that no card's file has.
    pub(crate) fn nothing() -> Self {
        Self {
            vendor_id: 0x15b3,
            device_id: 0,
            virtual_device_id: 0,
            function: FunctionKind::Physical,
            embedded_cpu: false,
            vendor_specific_capability: false,
            firmware: (0, 0, 0),
            board_id: [0; 16],
            hw_id: 0,
            port_type: PortType::Ethernet,
            lid: 1,
            sm_lid: 1,
            subnet_managed: false,
            subnet_agent: false,
            mac: [0; 6],
            node_guid: 0,
            port_guid: 0,
            system_image_guid: 0,
            mtu: 4200,
            link_up: true,
            admin_up: true,
            supported_issi: 0,
            log_cmdq_size: 0,
            log_cmdq_stride: 0,
            bar_size: 0,
            pcie_speed: 0,
            pcie_lanes: 0,
            msix_vectors: 0,
            msix_mode: MsixMode::HostManaged,
            boot_pages: 0,
            init_pages: 0,
            page_chunk: 8,
            cq_counters_lag: false,
            real_time: Duration::from_secs(1_700_000_000),
            first_uar: 0,
            first_eqn: 0,
            grh_required: false,
            min_wqe_inline_mode: 0,
            module: Some(Module::copper_cable()),
            sensors: vec![Sensor::asic()],
            boot_time: Duration::from_millis(1),
            latch_time: Duration::ZERO,
            combining: None,
            terminate_scatter_list_mkey: 0x100,
            command_time: Duration::ZERO,
            strict: true,
            unknown_answers_are_fatal: false,
            quirks: Quirks::default(),
            general: HcaCap::ZERO,
            general_max: HcaCap::ZERO,
            general_2: HcaCap2::ZERO,
            roce: RoceCap::ZERO,
            roce_max: RoceCap::ZERO,
            atomic: AtomicCaps::ZERO,
            ethernet: EthernetOffloadCaps::ZERO,
            flow_table: FlowTableNicCap::ZERO,
            device_memory: DeviceMemCap::ZERO,
            memic_held: 0,
            memic_file: None,
        }
    }

    /// The same card with addresses derived from `unit`.
    #[must_use]
    pub fn with_unit(mut self, unit: u16) -> Self {
        let guid = 0x0002_c903_0000_0000 | u64::from(unit) << 8;
        let [high, low] = unit.to_be_bytes();
        self.lid = unit.max(1);
        self.mac = [0x02, 0xc9, 0x00, 0x00, high, low];
        self.node_guid = guid;
        self.port_guid = guid | 1;
        self.system_image_guid = guid;
        self
    }

    /// The same card without what a network driver needs: RDMA only.
    #[must_use]
    pub fn without_netdev(mut self) -> Self {
        for caps in [&mut self.general, &mut self.general_max] {
            caps.set_eth_net_offloads(false).set_nic_flow_table(false);
        }
        self
    }

    /// The same card with BlueFlame, which it only has where the way to it may combine writes: the vendor's drivers test
    /// for that when they see it.
    #[must_use]
    pub fn with_blue_flame(mut self) -> Self {
        for caps in [&mut self.general, &mut self.general_max] {
            caps.set_bf(true);
        }
        self
    }

    /// A virtual function of the same card, with the addresses that its physical function's driver gave it.
    ///
    /// Its device ID is another one (`mlx5_core_pci_table`). Its pages come from the driver
    /// of the physical function (`mlx5_wait_for_pages` of `MLX5_VF`), and it has fewer vectors and a smaller BAR.
    #[must_use]
    pub fn virtual_function(mut self) -> Self {
        self.function = FunctionKind::Virtual;
        self.embedded_cpu = false;
        self.vendor_specific_capability = false;
        self.device_id = self.virtual_device_id;
        self.bar_size = 1 << 20;
        self.msix_vectors = 12;
        self.boot_pages = 0;
        self.init_pages = 0;
        for caps in [&mut self.general, &mut self.general_max] {
            // What the physical function has in its BAR is not in this one.
            caps.set_vport_group_manager(false).set_device_memory(false);
            // Traffic classes are the port's. Linux's driver sets them when it starts, of any function that offers it
            // (`mlx5e_ets_init`).
            caps.set_ets(false).set_qos(false);
        }
        self
    }

    /// The same function before its virtual port was given addresses: the MAC is zero, and with it the GUIDs, which the
    /// driver of the physical function derives from it (`node_guid_gen_from_mac`).
    #[must_use]
    pub fn without_addresses(mut self) -> Self {
        self.mac = [0; 6];
        self.node_guid = 0;
        self.port_guid = 0;
        self
    }

    /// Returns `true` if this is a virtual function.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.function == FunctionKind::Virtual
    }

    /// The same card with an InfiniBand port.
    #[must_use]
    pub fn infiniband(self) -> Self {
        let mut this = self.without_netdev();
        this.port_type = PortType::InfiniBand;
        for caps in [&mut this.general, &mut this.general_max] {
            caps.set_port_type(0)
                .set_roce(false)
                .set_ib_virt(true)
                // QPs for the datagrams of QP1 in other partitions than the first.
                .set_set_deth_sqpn(true);
        }
        this
    }
}
