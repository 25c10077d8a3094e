//! What the modelled card is: identity, capabilities, how much memory it wants, how it starts.

use bareverbs_firmware_cmds::caps::{
    AtomicCaps, EthernetOffloadCaps, FlowTableNicCap, HcaCap, RoceCap,
};
use core::time::Duration;

/// Who looks after the MSI-X table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MsixMode {
    /// The host does (vfio-pci, vfio-user): every vector reaches [`Host::interrupt`](crate::Host::interrupt).
    HostManaged,
    /// The table and the pending bits in BAR 0 and the enable and mask bits in configuration space decide.
    Table,
}

/// What the port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortType {
    /// RoCE over Ethernet.
    Ethernet,
    /// InfiniBand, with the virtual port answering for the subnet manager.
    InfiniBand,
}

/// What a function is to its card.
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
    /// What it is to its card.
    pub function: FunctionKind,
    /// Firmware revision: major, minor, sub-minor.
    pub firmware: (u16, u16, u16),
    /// Board identification, as QUERY_ADAPTER gives it.
    pub board_id: [u8; 16],
    /// What the port speaks.
    pub port_type: PortType,
    /// The port's local identifier, if it is an InfiniBand port.
    pub lid: u16,
    /// The local identifier of the subnet's manager.
    pub sm_lid: u16,
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
    /// Whether the cable is plugged in at power-on.
    pub link_up: bool,
    /// ISSI levels offered: bit 0, bit 1.
    pub supported_issi: u32,
    /// Binary logarithm of the number of command slots.
    pub log_cmdq_size: u8,
    /// Binary logarithm of the distance between command slots.
    pub log_cmdq_stride: u8,
    /// Size of BAR 0.
    pub bar_size: u64,
    /// Number of MSI-X vectors.
    pub msix_vectors: u16,
    /// Who looks after the MSI-X table.
    pub msix_mode: MsixMode,
    /// Pages that the firmware wants before it answers anything else.
    pub boot_pages: u32,
    /// Pages that the firmware wants before INIT_HCA.
    pub init_pages: u32,
    /// How many pages it asks for at a time when it runs out later; 0 makes it fail with "no resources" instead.
    pub page_chunk: u32,
    /// QUERY_CQ does not tell of completions that the host has not taken, as its counters may lag behind.
    pub cq_counters_lag: bool,
    /// How long the `initializing` bit stays set after power-on and reset.
    pub boot_time: Duration,
    /// For how long the registers with the command queue's address give the former address back after a write.
    pub latch_time: Duration,
    /// The way to the card combines writes to send registers, and a line that is not full waits for that long. For
    /// emulated machines, which do not; those that do hand bursts to [`Model::bar_write`](crate::Model::bar_write).
    pub combining: Option<Duration>,
    /// How long a command takes at least.
    pub command_time: Duration,
    /// Whether set bits that no known field covers make a command fail. The vendor's newer drivers may set fields that this
    /// model does not know.
    pub strict: bool,
    /// General capabilities at power-on.
    pub general: HcaCap,
    /// The best that SET_HCA_CAP can ask for.
    pub general_max: HcaCap,
    /// RoCE capabilities at power-on.
    pub roce: RoceCap,
    /// The best that SET_HCA_CAP can ask for.
    pub roce_max: RoceCap,
    /// Atomic capabilities at power-on.
    pub atomic: AtomicCaps,
    /// What Ethernet queues can do, if there are any.
    pub ethernet: EthernetOffloadCaps,
    /// What flow tables can do, if there are any.
    pub flow_table: FlowTableNicCap,
}

impl Config {
    /// A RoCE card whose addresses are all derived from `unit`, so that two cards on one cable differ.
    #[must_use]
    pub fn new(unit: u8) -> Self {
        let mac = [0x02, 0xc9, 0x00, 0x00, 0x00, unit];
        let guid = 0x0002_c903_0000_0000 | u64::from(unit) << 8;
        let (general, general_max) = general();
        let (roce, roce_max) = roce();
        Self {
            vendor_id: 0x15b3,
            device_id: 0x1017,
            function: FunctionKind::Physical,
            firmware: (16, 35, 4030),
            board_id: *b"BRV_0000000001\0\0",
            port_type: PortType::Ethernet,
            lid: u16::from(unit).max(1),
            sm_lid: 1,
            mac,
            node_guid: guid,
            port_guid: guid | 1,
            system_image_guid: guid,
            mtu: 4200,
            link_up: true,
            supported_issi: 0b10,
            log_cmdq_size: 5,
            log_cmdq_stride: 6,
            bar_size: 32 << 20,
            msix_vectors: 16,
            msix_mode: MsixMode::HostManaged,
            boot_pages: 16,
            init_pages: 8,
            page_chunk: 8,
            cq_counters_lag: false,
            boot_time: Duration::from_millis(1),
            latch_time: Duration::ZERO,
            combining: None,
            command_time: Duration::ZERO,
            strict: true,
            general,
            general_max,
            roce,
            roce_max,
            atomic: atomic(),
            ethernet: ethernet(),
            flow_table: flow_table(),
        }
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
    /// The kinds of a card's functions have neighbouring device IDs (`mlx5_core_pci_table`). Its pages come from the driver
    /// of the physical function (`mlx5_wait_for_pages` of `MLX5_VF`), and it has fewer vectors and a smaller BAR.
    #[must_use]
    pub fn virtual_function(mut self) -> Self {
        self.function = FunctionKind::Virtual;
        self.device_id += 1;
        self.bar_size = 1 << 20;
        self.msix_vectors = 12;
        self.boot_pages = 0;
        self.init_pages = 0;
        for caps in [&mut self.general, &mut self.general_max] {
            caps.set_vport_group_manager(false);
        }
        self
    }

    /// The same function before anyone gave its virtual port addresses: the MAC is zero, and with it the GUIDs, which the
    /// driver of the physical function derives from it (`node_guid_gen_from_mac`).
    #[must_use]
    pub fn without_addresses(mut self) -> Self {
        self.mac = [0; 6];
        self.node_guid = 0;
        self.port_guid = 0;
        self
    }

    /// Whether this is a virtual function.
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
            caps.set_port_type(0).set_roce(false).set_ib_virt(true);
        }
        this
    }
}

/// General capabilities: (current, maximum).
fn general() -> (HcaCap, HcaCap) {
    let mut cap = HcaCap::ZERO;
    cap.set_log_max_srq_sz(15)
        .set_log_max_qp_sz(15)
        .set_log_max_qp(18)
        .set_log_max_srq(16)
        .set_log_max_cq_sz(22)
        .set_log_max_cq(16)
        .set_log_max_eq_sz(22)
        .set_log_max_mkey(24)
        .set_log_max_eq(5)
        .set_max_indirection(4)
        .set_log_max_mrw_sz(64)
        .set_log_max_klm_list_size(16)
        .set_log_max_ra_req_qp(4)
        .set_log_max_ra_res_qp(4)
        .set_gid_table_size(0)
        .set_out_of_seq_cnt(true)
        .set_retransmission_q_counters(true)
        .set_enhanced_error_q_counters(true)
        .set_max_qp_cnt(255)
        .set_vport_counters(true)
        .set_pkey_table_size(0)
        .set_local_ca_ack_delay(15)
        .set_port_type(1)
        .set_num_ports(1)
        .set_log_max_msg(30)
        .set_cqe_version(1)
        .set_roce(true)
        .set_atomic(true)
        .set_cq_oi(true)
        .set_cq_resize(true)
        .set_cq_moderation(true)
        .set_block_lb_mc(true)
        .set_imaicl(true)
        .set_qkv(true)
        .set_pkv(true)
        .set_xrc(true)
        .set_ud(true)
        .set_uc(true)
        .set_rc(true)
        .set_fl_rc_qp_when_roce_disabled(true)
        .set_log_pg_sz(12)
        .set_driver_version(true)
        .set_log_bf_reg_size(9)
        .set_max_wqe_sz_sq(1024)
        .set_max_wqe_sz_rq(512)
        .set_max_qp_mcg(240)
        .set_log_max_mcg(13)
        .set_log_max_transport_domain(16)
        .set_log_max_pd(16)
        .set_log_max_xrcd(16)
        .set_eth_net_offloads(true)
        .set_nic_flow_table(true)
        .set_max_flow_counter_15_0(0x8000)
        .set_flow_counter_bulk_alloc(0x0f)
        .set_log_max_flow_counter_bulk(10)
        .set_log_max_sq(16)
        .set_log_max_tis(16)
        .set_log_max_tir(16)
        .set_log_max_rqt(16)
        .set_log_max_rqt_size(11)
        .set_log_max_tis_per_sq(0)
        .set_log_max_current_uc_list(7)
        .set_log_max_current_mc_list(11)
        .set_log_max_vlan_list(12)
        .set_modify_rq_counter_set_id(true)
        .set_log_max_rq(16)
        .set_log_max_rmp(16)
        .set_basic_cyclic_rcv_wqe(true)
        .set_log_max_wq_sz(15)
        .set_max_num_eqs(32)
        .set_device_frequency_mhz(1000)
        .set_device_frequency_khz(1_000_000);
    // cq_period_mode_modify, which came after Linux 6.1: without, the network driver leaves moderation alone.
    cap.0[0x44] |= 1 << 4;
    let mut max = cap;
    // Mailbox signatures are off until the driver asks for them.
    max.set_cmdif_checksum(3).set_log_uar_page_sz(4);
    (cap, max)
}

fn roce() -> (RoceCap, RoceCap) {
    let mut cap = RoceCap::ZERO;
    cap.set_l3_type(0x6)
        .set_roce_version(0x5)
        .set_r_roce_dest_udp_port(4791)
        .set_r_roce_max_src_udp_port(0xffff)
        .set_r_roce_min_src_udp_port(0xc000)
        .set_roce_address_table_size(128)
        // NVIDIA's dump of a card of these years (the manual of mlx5ctl) has both.
        .set_fl_rc_qp_when_roce_disabled(true)
        .set_fl_rc_qp_when_roce_enabled(true);
    let mut max = cap;
    max.set_sw_r_roce_src_udp_port(true);
    (cap, max)
}

/// The offloads that Linux's network driver insists on, and those that cost nothing more.
fn ethernet() -> EthernetOffloadCaps {
    let mut cap = EthernetOffloadCaps::ZERO;
    cap.set_csum_cap(true)
        .set_self_lb_en_modifiable(true)
        .set_vlan_cap(true)
        .set_wqe_vlan_insert(true)
        .set_max_lso_cap(18)
        // No headers have to come inline.
        .set_wqe_inline_mode(2)
        .set_rss_ind_tbl_cap(11);
    cap
}

/// Flow tables for what is received, and nothing else.
fn flow_table() -> FlowTableNicCap {
    let mut cap = FlowTableNicCap::ZERO;
    cap.flow_table_properties_nic_receive_mut()
        .set_ft_support(true)
        // With these four the vendor's driver has tables for several purposes one after the other.
        .set_modify_root(true)
        .set_flow_modify_en(true)
        .set_identified_miss_table_mode(true)
        .set_flow_table_modify(true)
        // It goes up to level 68 then.
        .set_max_ft_level(255)
        .set_flow_counter(true)
        .set_log_max_flow_counter(1)
        .set_log_max_ft_size(22)
        .set_log_max_ft_num(16)
        .set_log_max_destination(8)
        .set_log_max_flow(20);
    // What can be matched: addresses, types, tags, fragments, protocols, ports and flags.
    cap.flow_table_properties_nic_receive_mut()
        .ft_field_support_mut()[..3]
        .copy_from_slice(&[0xff, 0xef, 0xfe]);
    cap.set_nic_rx_multi_path_tirs(true)
        .set_nic_rx_multi_path_tirs_fts(true);
    cap
}

fn atomic() -> AtomicCaps {
    let mut cap = AtomicCaps::ZERO;
    cap.set_supported_atomic_req_8B_endianness_mode_1(true)
        .set_atomic_operations(0x3)
        .set_atomic_size_qp(0x8);
    cap
}
