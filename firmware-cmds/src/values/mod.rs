//! The meanings of the numbers in small fields.
//!
//! A setter takes the number (`qpc.set_state(QpState::Init.number())`); a number that came from the device goes through
//! `from_number`, which gives `None` for an undefined number.

mod capability;
mod flags;

pub use self::capability::*;
pub use self::flags::*;

use crate::numbered::numbered;

macro_rules! values {
    ($( $(#[$meta:meta])* $Name:ident: $T:ident { $($variants:tt)* } )*) => {$(
        numbered! {
            $(#[$meta])*
            pub enum $Name: $T, plain { $($variants)* }
            /// Every value.
            const ALL;
            /// The value with this number.
            #[inline]
            fn from_number;
            /// Its usual name.
            fn name;
            /// The number in the field.
            #[inline]
            fn number;
        }

        impl core::fmt::Display for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    )*};
}

mod header;
mod reset;

pub use self::header::*;
pub use self::reset::*;

values! {
    /// State of a queue pair, `qpc.state`.
    QpState: u8 {
        /// Does nothing.
        Reset = 0, "RESET";
        /// May be given receive requests.
        Init = 1, "INIT";
        /// Ready to receive.
        Rtr = 2, "RTR";
        /// Ready to send.
        Rts = 3, "RTS";
        /// The send queue is in error.
        SqError = 4, "SQER";
        /// The send queue is drained, or draining.
        SqDrained = 5, "SQD";
        /// Everything is flushed.
        Error = 6, "ERR";
        /// The send queue is draining.
        SqDraining = 7, "SQ_DRAINING";
        /// Suspended.
        Suspended = 9, "SUSPENDED";
    }

    /// Service type of a queue pair, `qpc.st`.
    QpServiceType: u8 {
        /// Reliable connection.
        Rc = 0x0, "RC";
        /// Unreliable connection.
        Uc = 0x1, "UC";
        /// Unreliable datagram.
        Ud = 0x2, "UD";
        /// Extended reliable connection.
        Xrc = 0x3, "XRC";
        /// Packets with headers by the sender.
        Mlx = 0x4, "MLX";
        /// Initiator of dynamic connections.
        Dci = 0x5, "DCI";
        /// Target of dynamic connections.
        Dct = 0x6, "DCT";
        /// Subnet management.
        Qp0 = 0x7, "QP0";
        /// General services.
        Qp1 = 0x8, "QP1";
        /// Raw Ethernet.
        RawEthertype = 0x9, "RAW_ETHERTYPE";
        /// Raw IPv6.
        RawIpv6 = 0xa, "RAW_IPV6";
        /// Sniffer.
        Sniffer = 0xb, "SNIFFER";
        /// Memory key updates.
        RegUmr = 0xc, "REG_UMR";
        /// Time synchronisation.
        Ptp1588 = 0xd, "PTP_1588";
        /// Synchronous memory key updates.
        SyncUmr = 0xe, "SYNC_UMR";
    }

    /// State of a target of dynamic connections, `dctc.state`.
    DctState: u8 {
        /// Takes requests.
        Active = 0, "ACTIVE";
        /// Takes no new ones, and answers those that it has.
        Draining = 1, "DRAINING";
        /// May be destroyed.
        Drained = 2, "DRAINED";
    }

    /// Path migration state, `qpc.pm_state`.
    PathMigration: u8 {
        /// Armed.
        Armed = 0, "ARMED";
        /// To be armed again.
        Rearm = 1, "REARM";
        /// Migrated; also what is given where there is no alternate path.
        Migrated = 3, "MIGRATED";
    }

    /// Where a queue pair's receive requests come from, `qpc.rq_type`.
    RqType: u8 {
        /// Its own queue.
        Regular = 0, "REGULAR";
        /// A shared receive queue.
        Srq = 1, "SRQ";
        /// A cyclic receive queue.
        Cyclic = 2, "CRQ";
        /// Nowhere.
        ZeroSize = 3, "ZERO_SIZE_RQ";
    }

    /// Path MTU, `qpc.mtu`, in the code of the InfiniBand architecture.
    Mtu: u8 {
        /// 256 bytes.
        B256 = 1, "256";
        /// 512 bytes.
        B512 = 2, "512";
        /// 1024 bytes.
        B1024 = 3, "1024";
        /// 2048 bytes.
        B2048 = 4, "2048";
        /// 4096 bytes.
        B4096 = 5, "4096";
    }

    /// Atomicity, `qpc.atomic_mode`.
    AtomicMode: u8 {
        /// No atomics.
        None = 0, "NONE";
        /// 8 bytes, atomic among accesses through this device.
        IbSpec = 1, "IB_COMP";
        /// 8 bytes; host memory too.
        Cx = 2, "CX";
        /// 8 bytes, extended.
        Bytes8 = 3, "8B";
        /// 16 bytes.
        Bytes16 = 4, "16B";
        /// 32 bytes.
        Bytes32 = 5, "32B";
        /// 64 bytes.
        Bytes64 = 6, "64B";
        /// 128 bytes.
        Bytes128 = 7, "128B";
        /// 256 bytes.
        Bytes256 = 8, "256B";
    }

    /// Time stamp format, `qpc.ts_format`.
    TimestampFormat: u8 {
        /// The device's free running clock.
        FreeRunning = 0, "FREE_RUNNING";
        /// The device's default.
        Default = 1, "DEFAULT";
        /// The real-time clock.
        RealTime = 2, "REAL_TIME";
    }

    /// The translation of a memory key, `mkc.access_mode_1_0` (and `access_mode_4_2` above it).
    MkeyAccessMode: u8 {
        /// Addresses are bus addresses.
        Pa = 0, "PA";
        /// A list of pages.
        Mtt = 1, "MTT";
        /// A list of pieces of other keys, of any length.
        Klms = 2, "KLMS";
        /// A list of pieces of other keys, all of one length.
        Ksm = 3, "KSM";
        /// Interconnect context memory.
        SwIcm = 4, "SW_ICM";
        /// Memory on the device.
        Memic = 5, "MEMIC";
    }

    /// The port's link layer, `cmd_hca_cap.port_type`.
    PortType: u8 {
        /// InfiniBand.
        InfiniBand = 0, "IB";
        /// Ethernet.
        Ethernet = 1, "ETHERNET";
    }

    /// MANAGE_PAGES `op_mod`.
    ManagePages: u16 {
        /// The driver has no page to give.
        CannotGive = 0, "CANT_GIVE";
        /// The driver gives pages.
        Give = 1, "GIVE";
        /// The driver takes pages back.
        Take = 2, "TAKE";
    }

    /// QUERY_PAGES `op_mod`.
    QueryPages: u16 {
        /// Pages to boot.
        Boot = 1, "BOOT";
        /// Pages to initialise.
        Init = 2, "INIT";
        /// Pages to go on.
        Regular = 3, "REGULAR";
    }

    /// TEARDOWN_HCA `profile`.
    Teardown: u16 {
        /// Wait until everything is down.
        Graceful = 0, "GRACEFUL_CLOSE";
        /// Abandon what is outstanding.
        Force = 1, "FORCE_CLOSE";
        /// Stop accessing host memory, and no more.
        PrepareFast = 2, "PREPARE_FAST_TEARDOWN";
    }

    /// The purpose of a flow table, the `table_type` of its commands.
    FlowTableType: u8 {
        /// Packets that the function receives.
        NicReceive = 0, "NIC_RX";
        /// Packets that it sends.
        NicTransmit = 1, "NIC_TX";
        /// Packets that leave a virtual port of the embedded switch.
        EgressAcl = 2, "ESW_EGRESS_ACL";
        /// Packets that enter one.
        IngressAcl = 3, "ESW_INGRESS_ACL";
        /// The embedded switch's forwarding.
        Fdb = 4, "FDB";
        /// A copy of what is received.
        SnifferReceive = 5, "SNIFFER_RX";
        /// A copy of what is sent.
        SnifferTransmit = 6, "SNIFFER_TX";
        /// RDMA packets that the function receives.
        RdmaReceive = 7, "RDMA_RX";
        /// RDMA packets that it sends.
        RdmaTransmit = 8, "RDMA_TX";
        /// Choice of the port in link aggregation.
        PortSelection = 9, "PORT_SEL";
    }

    /// Where packets go that no entry of a flow table takes, `flow_table_context.table_miss_action`.
    FlowTableMiss: u8 {
        /// Where the table's kind has it: nowhere for [`FlowTableType::NicReceive`], the QPs for
        /// [`FlowTableType::RdmaReceive`].
        Default = 0, "DEFAULT";
        /// To another table.
        Forward = 1, "FORWARD";
        /// To the tables of another domain: RDMA's packets to those of [`FlowTableType::NicReceive`].
        SwitchDomain = 2, "SWITCH_DOMAIN";
    }

    /// Where an entry of a flow table sends packets, `dest_format_struct.destination_type`.
    FlowDestination: u8 {
        /// A virtual port of the embedded switch.
        Vport = 0, "VPORT";
        /// Another table.
        FlowTable = 1, "FLOW_TABLE";
        /// A TIR.
        Tir = 2, "TIR";
        /// A sampler.
        FlowSampler = 6, "FLOW_SAMPLER";
        /// The cable.
        Uplink = 8, "UPLINK";
        /// A table of another kind.
        TableType = 10, "TABLE_TYPE";
    }

    /// State of a send or receive queue, `sqc.state` and `rqc.state`.
    QueueState: u8 {
        /// Does nothing.
        Reset = 0, "RST";
        /// Works.
        Ready = 1, "RDY";
        /// Everything is flushed.
        Error = 3, "ERR";
    }

    /// The way from a TIR to its receive queue, `tirc.disp_type`.
    TirDispatch: u8 {
        /// There is one.
        Direct = 0, "DIRECT";
        /// By a hash, in a table.
        Indirect = 1, "INDIRECT";
    }

    /// Group of capabilities, in the `op_mod` of QUERY_HCA_CAP and SET_HCA_CAP: see [`CapabilityGroup::query`].
    CapabilityGroup: u16 {
        /// [`crate::caps::HcaCap`].
        General = 0x00, "GENERAL";
        /// Ethernet offloads.
        EthernetOffloads = 0x01, "ETHERNET_OFFLOADS";
        /// On-demand paging.
        Odp = 0x02, "ODP";
        /// [`crate::caps::AtomicCaps`].
        Atomic = 0x03, "ATOMIC";
        /// [`crate::caps::RoceCap`].
        Roce = 0x04, "ROCE";
        /// IPoIB offloads.
        IpoibOffloads = 0x05, "IPOIB_OFFLOADS";
        /// Enhanced IPoIB offloads.
        IpoibEnhancedOffloads = 0x06, "IPOIB_ENHANCED_OFFLOADS";
        /// Flow tables.
        FlowTable = 0x07, "FLOW_TABLE";
        /// Flow tables of the embedded switch.
        EswitchFlowTable = 0x08, "ESWITCH_FLOW_TABLE";
        /// Embedded switch.
        Eswitch = 0x09, "ESWITCH";
        /// Vector calculation.
        VectorCalc = 0x0b, "VECTOR_CALC";
        /// Quality of service.
        Qos = 0x0c, "QOS";
        /// Debugging.
        Debug = 0x0d, "DEBUG";
        /// Memory on the device.
        DeviceMemory = 0x0f, "DEV_MEM";
        /// TLS offload.
        Tls = 0x11, "TLS";
        /// Emulation of virtio devices.
        VdpaEmulation = 0x13, "VDPA_EMULATION";
        /// Device events.
        DeviceEvent = 0x14, "DEV_EVENT";
        /// IPsec offload.
        Ipsec = 0x15, "IPSEC";
        /// Header split and aggregation.
        Shampo = 0x1d, "SHAMPO";
        /// MACsec offload.
        Macsec = 0x1f, "MACSEC";
        /// The second general group: [`crate::caps::HcaCap2`].
        General2 = 0x20, "GENERAL_2";
        /// Port selection.
        PortSelection = 0x25, "PORT_SELECTION";
        /// Advanced virtualisation.
        AdvancedVirtualization = 0x26, "ADV_VIRTUALIZATION";
    }

    /// Register that ACCESS_REG reads or writes.
    RegisterId: u16 {
        /// Trust state: [`crate::register::QptsReg`].
        Qpts = 0x4002, "QPTS";
        /// Bandwidth of traffic classes: [`crate::register::QetcReg`].
        Qetcr = 0x4005, "QETCR";
        /// Traffic class of a priority: [`crate::register::QtctReg`].
        Qtct = 0x400a, "QTCT";
        /// Priority of each DSCP: [`crate::register::QpdpmReg`].
        Qpdpm = 0x4013, "QPDPM";
        /// Capability mask of these: [`crate::register::QcamReg`].
        Qcam = 0x4019, "QCAM";
        /// Port capabilities.
        Pcap = 0x5001, "PCAP";
        /// Lanes of the module: [`crate::register::PmlpReg`].
        Pmlp = 0x5002, "PMLP";
        /// Largest packet: [`crate::register::PmtuReg`].
        Pmtu = 0x5003, "PMTU";
        /// Type and speed: [`crate::register::PtysReg`].
        Ptys = 0x5004, "PTYS";
        /// Administrative and operational state: [`crate::register::PaosReg`].
        Paos = 0x5006, "PAOS";
        /// Flow control: [`crate::register::PfccReg`].
        Pfcc = 0x5007, "PFCC";
        /// Counters: [`crate::register::PpcntReg`].
        Ppcnt = 0x5008, "PPCNT";
        /// Virtual lanes: [`crate::register::PvlcReg`].
        Pvlc = 0x500f, "PVLC";
        /// Forward error correction: [`crate::register::PplmReg`].
        Pplm = 0x5023, "PPLM";
        /// Port capability mask: [`crate::register::PcamReg`].
        Pcam = 0x507f, "PCAM";
        /// Description of the node, 64 bytes.
        NodeDescription = 0x6001, "NODE_DESC";
        /// Byte order of the host: [`crate::register::RegisterHostEndianness`].
        HostEndianness = 0x7004, "HOST_ENDIANNESS";
        /// The list of temperature sensors: [`crate::register::MtcapReg`].
        Mtcap = 0x9009, "MTCAP";
        /// A sensor of temperature: [`crate::register::MtmpReg`].
        Mtmp = 0x900a, "MTMP";
        /// The memory of a cable or module: [`crate::register::MciaReg`].
        Mcia = 0x9014, "MCIA";
        /// Reset of the firmware: [`crate::register::MfrlReg`].
        Mfrl = 0x9028, "MFRL";
        /// Counters of the PCI Express link: [`crate::register::MpcntReg`].
        Mpcnt = 0x9051, "MPCNT";
        /// Management capability mask: [`crate::register::McamReg`].
        Mcam = 0x907f, "MCAM";
        /// Timeouts of the device: [`crate::register::DtorReg`].
        Dtor = 0xc00e, "DTOR";
    }

    /// ACCESS_REG `op_mod`.
    AccessRegister: u16 {
        /// Write.
        Write = 0, "WRITE";
        /// Read.
        Read = 1, "READ";
    }

    /// State of a vport, `query_vport_state_out.state`.
    VportState: u8 {
        /// Down.
        Down = 0, "DOWN";
        /// Up.
        Up = 1, "UP";
        /// Follows the uplink.
        Follow = 2, "FOLLOW";
    }

    /// State of an InfiniBand port, `hca_vport_context.vport_state`.
    PortState: u8 {
        /// No change (as a request).
        NoChange = 0, "NOP";
        /// Down.
        Down = 1, "DOWN";
        /// The link is up.
        Initialize = 2, "INIT";
        /// Configured.
        Armed = 3, "ARMED";
        /// In use.
        Active = 4, "ACTIVE";
        /// Temporarily without a link.
        ActiveDefer = 5, "ACTIVE_DEFER";
    }

    /// Administrative and operational state of a port, in [`crate::register::PaosReg`].
    PortAdminState: u8 {
        /// Up.
        Up = 1, "UP";
        /// Down.
        Down = 2, "DOWN";
        /// Up once.
        UpOnce = 3, "UP_ONCE";
        /// Disabled.
        Disabled = 4, "DISABLED";
    }

    /// Version of RoCE, `roce_addr_layout.roce_version`; a bit of `roce_cap.roce_version` each.
    RoceVersion: u8 {
        /// In Ethernet frames.
        V1 = 0, "RoCE v1";
        /// In UDP datagrams.
        V2 = 2, "RoCE v2";
    }

    /// Network protocol of a RoCE address, `roce_addr_layout.roce_l3_type`.
    RoceL3Type: u8 {
        /// IPv4; the GID is `::ffff:a.b.c.d`.
        Ipv4 = 0, "IPv4";
        /// IPv6, also for RoCE v1.
        Ipv6 = 1, "IPv6";
    }

    /// Size of a CQE, `cqc.cqe_sz`.
    CqeSize: u8 {
        /// 64 bytes.
        Bytes64 = 0, "64";
        /// 128 bytes.
        Bytes128 = 1, "128";
        /// 64 bytes at the end of every 128.
        Bytes128Padded = 2, "128_PAD";
    }

    /// Status of a CQ, `cqc.status`.
    CqStatus: u8 {
        /// Working.
        Ok = 0x0, "OK";
        /// It overflowed.
        Overflow = 0x9, "CQ_OVERFLOW";
        /// Its memory could not be written.
        WriteFail = 0xa, "CQ_WRITE_FAIL";
    }

    /// State of a CQ, `cqc.st`.
    CqState: u8 {
        /// Armed for solicited completions.
        SolicitedArmed = 0x6, "SOLICITED_NOTIFICATION_REQUEST_ARMED";
        /// Armed.
        Armed = 0x9, "NOTIFICATION_REQUEST_ARMED";
        /// It raised its event.
        Fired = 0xa, "FIRED";
    }

    /// From when a CQ's moderation period counts, `cqc.cq_period_mode`.
    CqPeriodMode: u8 {
        /// From the last event.
        FromEqe = 0, "START_FROM_EQE";
        /// From the last completion.
        FromCqe = 1, "START_FROM_CQE";
    }

    /// MODIFY_CQ `op_mod`.
    ModifyCq: u16 {
        /// Changes fields.
        Modify = 0, "MODIFY_CQ";
        /// Changes the buffer.
        Resize = 1, "RESIZE_CQ";
    }

    /// State of an EQ, `eqc.st`.
    EqState: u8 {
        /// Armed.
        Armed = 0x9, "ARMED";
        /// It raised its interrupt.
        Fired = 0xa, "FIRED";
    }

    /// Status of an EQ, `eqc.status`.
    EqStatus: u8 {
        /// Working.
        Ok = 0x0, "OK";
        /// Its memory could not be written.
        WriteFailure = 0xa, "EQ_WRITE_FAILURE";
    }

    /// State of a shared receive queue, `srqc.state` and `xrc_srqc.state`.
    SrqState: u8 {
        /// Working.
        Good = 0, "GOOD";
        /// In error.
        Error = 1, "ERROR";
    }

    /// State of a receive memory pool, `rmpc.state`.
    RmpState: u8 {
        /// Working.
        Ready = 1, "RDY";
        /// In error.
        Error = 3, "ERR";
    }

    /// Kind of a work queue, `wq.wq_type`.
    WqType: u8 {
        /// Linked list: what shared receive queues are.
        LinkedList = 0, "LINKED_LIST";
        /// Ring.
        Cyclic = 1, "CYCLIC";
        /// Linked list of strides.
        LinkedListStriding = 2, "LINKED_LIST_STRIDING_RQ";
        /// Ring of strides.
        CyclicStriding = 3, "CYCLIC_STRIDING_RQ";
    }

    /// ARM_RQ `op_mod`.
    ArmRq: u16 {
        /// A shared receive queue.
        Srq = 1, "SRQ";
        /// An extended receive queue.
        Xrq = 2, "XRQ";
    }

    /// ARM_XRC_SRQ `op_mod`.
    ArmXrcSrq: u16 {
        /// An XRC shared receive queue.
        XrcSrq = 1, "XRC_SRQ";
    }

    /// Kind of address list in the NIC vport context, `allowed_list_type`.
    AllowedList: u8 {
        /// Own unicast addresses.
        CurrentUc = 0, "CURRENT_UC_MAC_ADDRESS";
        /// Multicast addresses.
        CurrentMc = 1, "CURRENT_MC_MAC_ADDRESS";
        /// VLANs.
        Vlan = 2, "VLAN_LIST";
    }

    /// The headers that must be inlined into a send WQE, `nic_vport_context.min_wqe_inline_mode`.
    InlineMode: u8 {
        /// Nothing.
        None = 0, "NONE";
        /// The Ethernet header.
        L2 = 1, "L2";
        /// The network header too.
        Ip = 2, "IP";
        /// The transport header too.
        TcpUdp = 3, "TCP_UDP";
    }

    /// Signatures in use on the command interface, `cmd_hca_cap.cmdif_checksum`.
    CmdifChecksum: u8 {
        /// Only the entry's.
        Disabled = 0, "DISABLED";
        /// Those of the blocks too.
        Enabled = 3, "ENABLED";
    }
}

impl Mtu {
    /// In bytes.
    #[must_use]
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The one with so many bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            256 => Some(Self::B256),
            512 => Some(Self::B512),
            1024 => Some(Self::B1024),
            2048 => Some(Self::B2048),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }
}

impl MkeyAccessMode {
    /// The low part, for `access_mode_1_0`.
    #[must_use]
    pub const fn low(self) -> u8 {
        self as u8 & 3
    }

    /// The high part, for `access_mode_4_2`.
    #[must_use]
    pub const fn high(self) -> u8 {
        self as u8 >> 2
    }

    /// From both parts.
    #[must_use]
    pub const fn from_parts(high: u8, low: u8) -> Option<Self> {
        Self::from_number((high & 7) << 2 | low & 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_is_the_code_of_the_architecture() {
        for mtu in Mtu::ALL {
            assert_eq!(Mtu::from_bytes(mtu.bytes()), Some(*mtu));
        }
        assert_eq!(Mtu::B4096.bytes(), 4096);
        assert_eq!(Mtu::from_number(0), None);
    }

    #[test]
    fn access_mode_parts() {
        for mode in MkeyAccessMode::ALL {
            assert_eq!(
                MkeyAccessMode::from_parts(mode.high(), mode.low()),
                Some(*mode)
            );
        }
        assert_eq!(
            (MkeyAccessMode::Memic.high(), MkeyAccessMode::Memic.low()),
            (1, 1)
        );
    }

    #[test]
    fn states_round_trip() {
        for number in 0..=255 {
            if let Some(state) = QpState::from_number(number) {
                assert_eq!(state.number(), number);
            }
        }
        assert_eq!(QpState::from_number(8), None);
        assert_eq!(QpServiceType::from_number(8), Some(QpServiceType::Qp1));
    }
}
