//! Why a command was refused: the status that drivers act upon, and a separate syndrome for every place that refuses.

/// Command status, with the values of the vendor's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0x00,
    /// The firmware failed.
    InternalError = 0x01,
    /// No such command, or not now.
    BadOp = 0x02,
    /// A parameter is invalid.
    BadParam = 0x03,
    /// Not in this state of the function.
    BadSystemState = 0x04,
    /// No such object.
    BadResource = 0x05,
    /// The object is in use.
    ResourceBusy = 0x06,
    /// The answer is not there yet.
    NotReady = 0x07,
    /// A limit is exceeded.
    Limit = 0x08,
    /// The object is in the wrong state.
    BadResourceState = 0x09,
    /// An index is out of range.
    BadIndex = 0x0a,
    /// Nothing left.
    NoResources = 0x0f,
    /// The QP is in the wrong state.
    BadQpState = 0x10,
    /// A management packet is invalid.
    BadPacket = 0x30,
    /// Too many CQEs outstanding for the new size.
    BadSize = 0x40,
    /// Input too short.
    BadInputLength = 0x50,
    /// Output too short.
    BadOutputLength = 0x51,
}

impl Status {
    /// Every one.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::InternalError,
        Self::BadOp,
        Self::BadParam,
        Self::BadSystemState,
        Self::BadResource,
        Self::ResourceBusy,
        Self::NotReady,
        Self::Limit,
        Self::BadResourceState,
        Self::BadIndex,
        Self::NoResources,
        Self::BadQpState,
        Self::BadPacket,
        Self::BadSize,
        Self::BadInputLength,
        Self::BadOutputLength,
    ];
}

macro_rules! syndromes {
    ($($Name:ident = $value:literal, $Status:ident, $text:literal;)*) => {
        /// One place that refuses a command.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Syndrome {
            $(#[doc = $text] $Name = $value,)*
        }

        impl Syndrome {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$Name),*];

            /// The status that goes with it.
            #[must_use]
            pub const fn status(self) -> Status {
                match self { $(Self::$Name => Status::$Status,)* }
            }

            /// The description of the error.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$Name => $text,)* }
            }
        }
    };
}

// The compiler refuses two variants of one value, which is what keeps every place distinct. The low 16 bits below 0x1000
// belong to unknown opcodes, which are reported as themselves.
syndromes! {
    InputShort = 0x0001_0001, BadInputLength, "the input is shorter than the command's fixed part";
    OutputShort = 0x0001_0002, BadOutputLength, "the output is shorter than the answer's fixed part";
    ReservedSet = 0x0001_0003, BadParam, "a bit is set that no known field covers";
    UidNotZero = 0x0001_0004, BadParam, "a user context that was never created";
    NotEnabled = 0x0001_0005, BadSystemState, "the command needs ENABLE_HCA first";
    NotInitialized = 0x0001_0006, BadSystemState, "the command needs INIT_HCA first";
    OtherFunction = 0x0001_0008, BadParam, "another function is named, which this one does not manage";
    OtherUser = 0x0001_000c, BadResource, "an object of another user";
    NoContextMemory = 0x0001_0009, NoResources, "no page left for the object's context and none to be had";
    ContextLost = 0x0001_000a, InternalError, "a page given to the firmware does not hold what the firmware wrote";
    ContextUnreachable = 0x0001_000b, InternalError, "a page given to the firmware cannot be reached";

    AlreadyEnabled = 0x0002_0001, BadSystemState, "ENABLE_HCA twice";
    DisableWhileInitialized = 0x0002_0002, BadSystemState, "DISABLE_HCA before TEARDOWN_HCA";
    InitTwice = 0x0002_0003, BadSystemState, "INIT_HCA twice";
    InitWithoutPages = 0x0002_0004, BadSystemState, "INIT_HCA before all pages were given";
    InitWithoutCommandQueue = 0x0002_0005, BadSystemState, "the command queue has no address";
    TeardownProfile = 0x0002_0006, BadParam, "TEARDOWN_HCA with a profile that is not supported";
    IssiUnsupported = 0x0002_0007, BadParam, "SET_ISSI to a level that is not offered";
    IssiTooLate = 0x0002_0008, BadSystemState, "SET_ISSI after INIT_HCA";
    IssiQueryUnsupported = 0x0002_0009, BadOp, "this firmware predates QUERY_ISSI";
    DriverVersionUnsupported = 0x0002_000a, BadOp, "SET_DRIVER_VERSION without its capability";
    VuidUnsupported = 0x0002_000b, BadOp, "QUERY_VUID without its capability";
    VuidOutputShort = 0x0002_000c, BadOutputLength, "no space for the function's universal identifier";

    PagesOpMod = 0x0003_0001, BadParam, "MANAGE_PAGES or QUERY_PAGES with an op_mod that does not exist";
    PagesListShort = 0x0003_0002, BadInputLength, "fewer addresses than input_num_entries says";
    PagesUnaligned = 0x0003_0003, BadParam, "a page address that is not a multiple of 4 KiB";
    PagesTwice = 0x0003_0004, BadParam, "a page that was given before";
    PagesOutputShort = 0x0003_0005, BadOutputLength, "no space for the addresses of the pages taken back";
    PagesUnreachable = 0x0003_0006, BadParam, "a page that the device cannot reach";
    PagesVirtual = 0x0003_0007, BadOp, "MANAGE_PAGES by a virtual function, whose pages the physical function's driver gives";

    CapType = 0x0004_0001, BadParam, "a capability group that does not exist";
    CapTooLate = 0x0004_0002, BadSystemState, "SET_HCA_CAP after INIT_HCA";
    CapReadOnly = 0x0004_0003, BadParam, "SET_HCA_CAP of a group that cannot be set";
    CapBeyondMax = 0x0004_0004, BadParam, "SET_HCA_CAP beyond the maximum";
    CapInputShort = 0x0004_0005, BadInputLength, "the capability image is too short";
    CapOutputShort = 0x0004_0006, BadOutputLength, "no space for the capability image";

    RegisterUnknown = 0x0005_0001, BadParam, "a register that does not exist";
    RegisterReadOnly = 0x0005_0002, BadParam, "a register that cannot be written";
    RegisterShort = 0x0005_0003, BadInputLength, "the register's data is too short";
    RegisterOutputShort = 0x0005_0004, BadOutputLength, "no space for the register's data";
    RegisterPort = 0x0005_0005, BadIndex, "a register of a port that does not exist";
    RegisterOpMod = 0x0005_0006, BadParam, "ACCESS_REG with an op_mod that does not exist";
    RegisterMtu = 0x0005_0007, BadParam, "an MTU beyond the port's maximum";
    RegisterValue = 0x0005_0009, BadParam, "a value that the register does not take";
    RegisterIndex = 0x0005_000a, BadIndex, "a sensor that does not exist";
    CongestionNotAllowed = 0x0005_000b, BadOp, "congestion control is not offered";
    CongestionProtocol = 0x0005_000c, BadParam, "a part of congestion control that does not exist";
    CongestionSelect = 0x0005_000d, BadParam, "a parameter of congestion control that does not exist";
    CongestionPriority = 0x0005_000e, BadParam, "congestion control of a priority that does not exist";
    RegisterVirtual = 0x0005_0008, BadOp, "a register that a virtual function cannot write";

    UarExhausted = 0x0006_0001, NoResources, "no UAR left";
    UarUnknown = 0x0006_0002, BadResource, "DEALLOC_UAR of a UAR that is not allocated";
    UarBusy = 0x0006_0003, ResourceBusy, "DEALLOC_UAR of a UAR that a queue uses";
    PdExhausted = 0x0006_0004, NoResources, "no protection domain left";
    PdUnknown = 0x0006_0005, BadResource, "DEALLOC_PD of a domain that is not allocated";
    PdBusy = 0x0006_0006, ResourceBusy, "DEALLOC_PD of a domain that is in use";
    TdExhausted = 0x0006_0007, NoResources, "no transport domain left";
    TdUnknown = 0x0006_0008, BadResource, "DEALLOC_TRANSPORT_DOMAIN of a domain that is not allocated";
    TdBusy = 0x0006_000f, ResourceBusy, "DEALLOC_TRANSPORT_DOMAIN of a domain that is in use";
    XrcdExhausted = 0x0006_0009, NoResources, "no XRC domain left";
    XrcdUnknown = 0x0006_000a, BadResource, "DEALLOC_XRCD of a domain that is not allocated";
    XrcdBusy = 0x0006_000b, ResourceBusy, "DEALLOC_XRCD of a domain that is in use";
    XrcdUnsupported = 0x0006_0010, BadOp, "an XRC domain without the capability for XRC";
    CounterExhausted = 0x0006_000c, NoResources, "no queue counter left";
    CounterUnknown = 0x0006_000d, BadResource, "a queue counter that is not allocated";
    CounterBusy = 0x0006_000e, ResourceBusy, "DEALLOC_Q_COUNTER of a counter that a QP uses";

    EqExhausted = 0x0007_0001, NoResources, "no event queue left";
    EqSize = 0x0007_0002, BadParam, "CREATE_EQ with an impossible size";
    EqUar = 0x0007_0003, BadResource, "CREATE_EQ on a UAR that is not allocated";
    EqVector = 0x0007_0004, BadIndex, "CREATE_EQ on an interrupt vector that does not exist";
    EqPages = 0x0007_0005, BadInputLength, "CREATE_EQ with too few page addresses";
    EqPageSize = 0x0007_0006, BadParam, "CREATE_EQ with an impossible page size";
    EqPageUnaligned = 0x0007_000d, BadParam, "an event queue in pages that do not start at multiples of the page size";
    EqUnknown = 0x0007_0007, BadResource, "an event queue that does not exist";
    EqBusy = 0x0007_0008, ResourceBusy, "DESTROY_EQ of a queue that completion queues report to";
    EqEventNotOffered = 0x0007_000c, BadParam, "an event type that the capabilities do not offer";
    EqEventTaken = 0x0007_0009, BadParam, "an event type that another event queue has";
    EqState = 0x0007_000b, BadParam, "CREATE_EQ with status, state or counters set";

    CqExhausted = 0x0008_0001, NoResources, "no completion queue left";
    CqSize = 0x0008_0002, BadParam, "CREATE_CQ with an impossible size";
    CqUar = 0x0008_0003, BadResource, "CREATE_CQ on a UAR that is not allocated";
    CqEq = 0x0008_0004, BadResource, "a completion queue on an event queue that does not exist";
    CqPages = 0x0008_0005, BadInputLength, "CREATE_CQ with too few page addresses";
    CqPageSize = 0x0008_0006, BadParam, "CREATE_CQ with an impossible page size";
    CqPageUnaligned = 0x0008_001e, BadParam, "a completion queue in pages that do not start at multiples of the page size";
    CqEntrySize = 0x0008_0007, BadParam, "CREATE_CQ with an entry size that does not exist";
    CqUnknown = 0x0008_0008, BadResource, "a completion queue that does not exist";
    CqBusy = 0x0008_0009, ResourceBusy, "DESTROY_CQ of a queue that is in use";
    CqRecord = 0x0008_000a, BadParam, "a doorbell record that is missing, misaligned or out of reach";
    CqIgnoreOverrun = 0x0008_000b, BadParam, "ignore-overrun without its capability";
    CqModifyFields = 0x0008_000c, BadParam, "MODIFY_CQ of fields that cannot be modified";
    CqModifyOpMod = 0x0008_000d, BadParam, "MODIFY_CQ with an op_mod that does not exist";
    CqModerationUnsupported = 0x0008_000e, BadOp, "moderation without its capability";
    CqResizeUnsupported = 0x0008_000f, BadOp, "resize without its capability";
    CqResizeSize = 0x0008_0010, BadParam, "resize to an impossible size";
    CqResizePages = 0x0008_0011, BadInputLength, "resize with too few page addresses";
    CqResizePageSize = 0x0008_0012, BadParam, "resize with an impossible page size";
    CqResizePageUnaligned = 0x0008_001f, BadParam, "a resized completion queue in pages that do not start at multiples of the page size";
    CqResizeOutstanding = 0x0008_0013, BadSize, "more CQEs outstanding than fit the new size";
    CqResizeState = 0x0008_0014, BadResourceState, "resize of a queue in error";
    CqCompression = 0x0008_0016, BadParam, "CQE compression without its capability";
    CqCompressionFormat = 0x0008_0020, BadParam, "a format or layout of compressed CQEs that is not offered";
    CqUmem = 0x0008_0017, BadResource, "user memory that was never created, or of another user";
    CqResizeFields = 0x0008_0019, BadParam, "a resize without a size or with fields that a resize does not have";
    CqPeriodMode = 0x0008_001a, BadParam, "moderation from the last completion on without its capability";
    CqSolicitedBreak = 0x0008_001b, BadParam, "solicited completions that end moderation without the capability";
    CqRemapUnsupported = 0x0008_001c, BadOp, "MODIFY_CQ to another event queue without the capability";
    CqModifyOverrun = 0x0008_001d, BadParam, "MODIFY_CQ to ignore-overrun without its capability";
    CqApu = 0x0008_0041, BadParam, "CREATE_CQ for an APU, which is not offered";
    CqState = 0x0008_0018, BadParam, "CREATE_CQ with status, state or counters set";

    MkeyExhausted = 0x0009_0001, NoResources, "no memory key left";
    MkeyPd = 0x0009_0002, BadResource, "CREATE_MKEY in a protection domain that is not allocated";
    MkeyMode = 0x0009_0003, BadParam, "CREATE_MKEY with an access mode that is not supported";
    MkeyPageSize = 0x0009_0004, BadParam, "CREATE_MKEY with an impossible page size";
    MkeyList = 0x0009_0005, BadInputLength, "CREATE_MKEY with fewer translations than translations_octword_actual_size says";
    MkeyShort = 0x0009_0006, BadParam, "CREATE_MKEY with fewer translations than its range needs";
    MkeyUnaligned = 0x0009_0007, BadParam, "CREATE_MKEY with a translation that is not aligned to its page size";
    MkeyUnknown = 0x0009_0008, BadResource, "a memory key that does not exist";
    MkeyWraps = 0x0009_000a, BadParam, "CREATE_MKEY of a range that wraps around the address space";
    MkeyUmem = 0x0009_000b, BadResource, "user memory that was never created, or of another user";
    MkeyQp = 0x0009_000c, BadResource, "CREATE_MKEY bound to a QP that does not exist";
    MkeySize = 0x0009_000d, BadParam, "translations_octword_actual_size beyond translations_octword_size";
    MkeyLength = 0x0009_000e, Limit, "CREATE_MKEY of a range beyond log_max_mrw_sz";
    MkeyMemic = 0x0009_000f, BadParam, "CREATE_MKEY of device memory that is not allocated";
    MemicNone = 0x000f_0001, BadOp, "ALLOC_MEMIC on a device without device memory";
    MemicSize = 0x000f_0002, BadParam, "ALLOC_MEMIC of no bytes, or of no multiple of the unit";
    MemicAlignment = 0x000f_0003, BadParam, "ALLOC_MEMIC beyond log_max_memic_addr_alignment";
    MemicRange = 0x000f_0004, BadParam, "ALLOC_MEMIC in a range outside the device memory's part of the BAR";
    MemicWideRange = 0x000f_0008, BadParam, "ALLOC_MEMIC in a range that is not the pages which the memory takes";
    MemicExhausted = 0x000f_0005, NoResources, "no device memory left in the range";
    MemicUnknown = 0x000f_0006, BadResource, "DEALLOC_MEMIC of what was not allocated so";
    MemicBusy = 0x000f_0007, ResourceBusy, "DEALLOC_MEMIC of device memory that memory keys name";

    QpExhausted = 0x000a_0001, NoResources, "no QP left";
    QpType = 0x000a_0002, BadParam, "CREATE_QP of a type that is not supported";
    QpPd = 0x000a_0003, BadResource, "CREATE_QP in a protection domain that is not allocated";
    QpSendCq = 0x000a_0004, BadResource, "CREATE_QP with a send CQ that does not exist";
    QpReceiveCq = 0x000a_0005, BadResource, "CREATE_QP with a receive CQ that does not exist";
    QpUar = 0x000a_0006, BadResource, "CREATE_QP on a UAR that is not allocated";
    QpSrq = 0x000a_0007, BadResource, "CREATE_QP with a shared receive queue that does not exist";
    QpXrcd = 0x000a_0008, BadResource, "CREATE_QP in an XRC domain that is not allocated";
    QpPages = 0x000a_0009, BadInputLength, "CREATE_QP with too few page addresses";
    QpPageSize = 0x000a_000a, BadParam, "CREATE_QP with an impossible page size";
    QpPageUnaligned = 0x000a_002b, BadParam, "a QP in pages that do not start at multiples of the page size";
    QpSize = 0x000a_000b, Limit, "CREATE_QP with a queue beyond the largest";
    QpRecord = 0x000a_000c, BadParam, "a doorbell record that is missing, misaligned or out of reach";
    QpReceiveType = 0x000a_000d, BadParam, "CREATE_QP with an rq_type that does not exist";
    QpUmem = 0x000a_000e, BadResource, "user memory that was never created, or of another user";
    QpGsiTaken = 0x000a_000f, ResourceBusy, "CREATE_QP of a second QP1 on the port";
    QpForceLoopback = 0x000a_0028, BadParam, "force loopback without its capability, or of a QP that is not RC";
    QpSmiTaken = 0x000a_0027, ResourceBusy, "CREATE_QP of a second QP0 on the port";
    QpUnknown = 0x000a_0010, BadResource, "a QP that does not exist";
    QpTransition = 0x000a_0011, BadQpState, "a transition that the QP's state does not allow";
    QpOptMask = 0x000a_0012, BadParam, "opt_param_mask with bits that are undefined for this transition";
    QpTypeChanged = 0x000a_0013, BadParam, "a transition with another QP type";
    QpPort = 0x000a_0014, BadParam, "a port that does not exist";
    QpStaticRate = 0x000a_0031, BadParam, "a static rate that the device does not have (stat_rate_support)";
    QpPkey = 0x000a_0015, BadIndex, "a P_Key index beyond the table";
    QpMtu = 0x000a_0016, BadParam, "a path MTU that does not exist or that the port cannot carry";
    QpMessageSize = 0x000a_0017, BadParam, "log_msg_max beyond the largest message";
    QpSourceAddress = 0x000a_0018, BadIndex, "a source address index beyond the table";
    QpNoAddress = 0x000a_0019, BadParam, "a source address index whose entry is empty";
    QpReadAtomic = 0x000a_001a, Limit, "more outstanding READs and atomics than the device has";
    QpEce = 0x000a_001b, BadParam, "enhanced connection establishment without its capability";
    QpRemoteNumber = 0x000a_001c, BadParam, "a remote QP number that cannot be";
    QpMulticast = 0x000a_001d, ResourceBusy, "DESTROY_QP of a QP that is attached to a multicast group";
    QpStateGiven = 0x000a_001e, BadParam, "CREATE_QP with a state other than RESET";
    QpCounter = 0x000a_001f, BadResource, "a queue counter that is not allocated";
    QpModifyPd = 0x000a_0022, BadResource, "a transition with a protection domain that is not allocated";
    QpModifySendCq = 0x000a_0023, BadResource, "a transition with a send CQ that does not exist";
    QpModifyReceiveCq = 0x000a_0024, BadResource, "a transition with a receive CQ that does not exist";
    QpMigration = 0x000a_0025, BadParam, "a migration state that the driver does not set: ARMED, or another one without an alternate path";
    QpInputNumber = 0x000a_0026, BadParam, "CREATE_QP asking for a QP number";
    QpStride = 0x000a_0029, Limit, "CREATE_QP with receive WQEs beyond max_wqe_sz_rq";
    QpAtomic = 0x000a_002a, BadParam, "atomics of the peer without their capability";
    QpStreams = 0x000a_002c, BadParam, "CREATE_QP with more streams than a DCI can have, or of another service";
    QpExtension = 0x000a_002f, BadParam, "RTS2RTS_QP with an extension that is cut off, has fields that cannot be changed, or has no capability";
    QpStreamSound = 0x000a_0030, BadResourceState, "RTS2RTS_QP for a stream of a DCI that is not in error";
    QpScatter = 0x000a_002e, BadParam, "small messages in completions without the capability, of a service without them, or larger than the entries";
    QpAlternatePath = 0x000a_002d, BadParam, "an alternate path where there are none, or to no port";

    SrqExhausted = 0x000b_0001, NoResources, "no shared receive queue left";
    SrqPd = 0x000b_0002, BadResource, "a shared receive queue in a protection domain that is not allocated";
    SrqSize = 0x000b_0003, Limit, "a shared receive queue beyond the largest";
    SrqPages = 0x000b_0004, BadInputLength, "a shared receive queue with too few page addresses";
    SrqPageSize = 0x000b_0005, BadParam, "a shared receive queue with an impossible page size";
    SrqPageUnaligned = 0x000b_0017, BadParam, "a shared receive queue in pages that do not start at multiples of the page size";
    SrqRecord = 0x000b_0006, BadParam, "a doorbell record that is missing, misaligned or out of reach";
    SrqUnknown = 0x000b_0007, BadResource, "a shared receive queue that does not exist";
    SrqBusy = 0x000b_0008, ResourceBusy, "a shared receive queue that QPs use";
    SrqKind = 0x000b_0009, BadParam, "a shared receive queue of another kind";
    SrqLimit = 0x000b_000a, BadParam, "a limit beyond the queue's size";
    SrqLevel = 0x000b_000b, BadSystemState, "this kind of shared receive queue belongs to another ISSI level";
    SrqXrcd = 0x000b_000c, BadResource, "an XRC shared receive queue in an XRC domain that is not allocated";
    SrqCq = 0x000b_000d, BadResource, "an XRC shared receive queue with a CQ that does not exist";
    SrqStride = 0x000b_000e, BadParam, "a shared receive queue with an impossible stride";
    SrqType = 0x000b_000f, BadParam, "a work queue type that is not supported";
    SrqUmem = 0x000b_0010, BadResource, "user memory that was never created, or of another user";
    SrqState = 0x000b_0011, BadParam, "a shared receive queue that does not start READY";
    SrqModifyFields = 0x000b_0012, BadParam, "MODIFY_RMP of fields that cannot be modified";
    SrqWqeSize = 0x000b_0014, Limit, "a shared receive queue with WQEs beyond max_wqe_sz_rq";
    SrqXrcUnsupported = 0x000b_0015, BadOp, "an XRC shared receive queue without the capability for XRC";
    SrqCyclic = 0x000b_0016, BadParam, "a cyclic shared receive queue without its capability";
    SrqOpMod = 0x000b_0013, BadParam, "ARM_RQ with an op_mod that is not supported";

    DctUnsupported = 0x001f_0001, BadOp, "CREATE_DCT without the capability for dynamic connections";
    DctStateGiven = 0x001f_0002, BadParam, "CREATE_DCT with a state or a count";
    DctScatter = 0x001f_0003, BadParam, "CREATE_DCT with data scattered into CQEs that do not have the space, or without the capability";
    DctPd = 0x001f_0004, BadResource, "CREATE_DCT in a protection domain that is not allocated";
    DctCq = 0x001f_0005, BadResource, "CREATE_DCT with a CQ that does not exist";
    DctSrq = 0x001f_0006, BadResource, "CREATE_DCT with a shared receive queue that does not exist";
    DctUnknown = 0x001f_0007, BadResource, "a DCT that does not exist";
    DctNotActive = 0x001f_0008, BadResourceState, "DRAIN_DCT twice";
    DctNotDrained = 0x001f_0009, BadResourceState, "DESTROY_DCT of a DCT that is not drained";

    RoceIndex = 0x000c_0001, BadIndex, "a RoCE address index beyond the table";
    RoceVersion = 0x000c_0002, BadParam, "a RoCE version that is not supported";
    RoceType = 0x000c_0003, BadParam, "an address whose type does not fit it";
    RocePort = 0x000c_0004, BadParam, "a RoCE address of a port that does not exist";
    RoceDisabled = 0x000c_0005, BadOp, "RoCE addresses on a port without RoCE";
    RoceVlan = 0x000c_0006, BadParam, "a VLAN that cannot be";
    VportNumber = 0x000c_0007, BadIndex, "a virtual port that does not exist";
    VportOpMod = 0x000c_0008, BadParam, "a virtual port type that does not exist";
    VportFields = 0x000c_0009, BadParam, "MODIFY_NIC_VPORT_CONTEXT of fields that cannot be modified";
    VportMtu = 0x000c_000a, BadParam, "an MTU that the port cannot carry";
    VportGidIndex = 0x000c_000b, BadIndex, "a GID index beyond the table";
    VportPkeyIndex = 0x000c_000c, BadIndex, "a P_Key index beyond the table";
    VportGidOutput = 0x000c_000d, BadOutputLength, "no space for the GIDs";
    VportPkeyOutput = 0x000c_000e, BadOutputLength, "no space for the P_Keys";
    VportWrongLink = 0x000c_000f, BadOp, "a command of the other link layer";
    VportPort = 0x000c_0010, BadIndex, "a port that does not exist";
    VportHcaFields = 0x000c_001b, BadParam, "MODIFY_HCA_VPORT_CONTEXT of fields that cannot be modified";
    VportCounterOpMod = 0x000c_001c, BadParam, "QUERY_VPORT_COUNTER of counters that there are not";
    RoceNotEnabled = 0x000c_0011, BadSystemState, "RoCE is not enabled on the virtual port";
    GroupQp = 0x000c_0012, BadResource, "a multicast group for a QP that does not exist";
    GroupQpType = 0x000c_0013, BadParam, "a multicast group for a QP that is no datagram QP";
    GroupAddress = 0x000c_0014, BadParam, "a multicast group whose address is no multicast address";
    GroupTwice = 0x000c_0015, BadResourceState, "ATTACH_TO_MCG twice";
    GroupUnknown = 0x000c_0016, BadResource, "DETACH_FROM_MCG of a QP that is not attached";
    GroupFull = 0x000c_0017, Limit, "no multicast group left";
    MadUnsupported = 0x000c_0018, BadOp, "MAD_IFC on a port whose virtual port answers instead";
    MadPort = 0x000c_0019, BadIndex, "MAD_IFC for a port that does not exist";
    MadOpMod = 0x000c_0030, BadParam, "MAD_IFC with an op_mod that is not supported";
    MadClass = 0x000c_0031, BadParam, "MAD_IFC of a management class that has no agent here";
    VportListType = 0x000c_001d, BadParam, "a list of addresses of a type that does not exist";
    VportListSize = 0x000c_001e, Limit, "a list of addresses beyond the largest";
    L2TableUnsupported = 0x000c_0080, BadOp, "an L2 table where the port has one physical function";
    L2TableIndex = 0x000c_0081, BadIndex, "an index beyond the L2 table";
    L2TableAddress = 0x000c_0082, BadParam, "SET_L2_TABLE_ENTRY with no address of one function";
    L2TableEmpty = 0x000c_0083, BadResource, "DELETE_L2_TABLE_ENTRY where there is none";
    VxlanUnsupported = 0x000c_0084, BadOp, "ports of VXLAN without their capability";
    VxlanFull = 0x000c_0085, NoResources, "ADD_VXLAN_UDP_DPORT of more ports than the card keeps";
    VxlanUnknown = 0x000c_0086, BadParam, "DELETE_VXLAN_UDP_DPORT of a port that is not VXLAN's";
    VportListInput = 0x000c_001f, BadInputLength, "a list of addresses shorter than allowed_list_size says";
    VportListOutput = 0x000c_0020, BadOutputLength, "no space for the list of addresses";
    VportVirtual = 0x000c_0021, BadOp, "addresses of a virtual port that only the function which manages it can set";

    TisExhausted = 0x000d_0001, NoResources, "no TIS left";
    TisDomain = 0x000d_0002, BadResource, "CREATE_TIS in a transport domain that is not allocated";
    TisFeature = 0x000d_0003, BadParam, "a TIS with a feature that is not supported";
    TisPriority = 0x000d_0004, BadParam, "a TIS with a priority that does not exist";
    TisUnknown = 0x000d_0005, BadResource, "a TIS that does not exist";
    TisBusy = 0x000d_0006, ResourceBusy, "DESTROY_TIS of a TIS that send queues use";
    TirExhausted = 0x000d_0007, NoResources, "no TIR left";
    TirDomain = 0x000d_0008, BadResource, "CREATE_TIR in a transport domain that is not allocated";
    TirFeature = 0x000d_0009, BadParam, "a TIR with a feature that is not supported";
    TirHash = 0x000d_000a, BadParam, "a hash that does not exist, or of a TIR that does not hash";
    TirQueue = 0x000d_000b, BadResource, "CREATE_TIR with a receive queue that does not exist";
    TirTable = 0x000d_000c, BadResource, "CREATE_TIR with a table of receive queues that does not exist";
    TirType = 0x000d_000d, BadParam, "CREATE_TIR of a type that does not exist";
    TirUnknown = 0x000d_000e, BadResource, "a TIR that does not exist";
    TirBusy = 0x000d_000f, ResourceBusy, "DESTROY_TIR of a TIR that flow table entries lead to";
    RqtExhausted = 0x000d_0010, NoResources, "no table of receive queues left";
    RqtType = 0x000d_0011, BadParam, "a table of queues of a type that is not supported";
    RqtSize = 0x000d_0012, BadParam, "a table of receive queues with an impossible size";
    RqtList = 0x000d_0013, BadInputLength, "fewer receive queues than rqt_actual_size says";
    RqtQueue = 0x000d_0014, BadResource, "a table with a receive queue that does not exist";
    RqtUnknown = 0x000d_0015, BadResource, "a table of receive queues that does not exist";
    RqtBusy = 0x000d_0016, ResourceBusy, "DESTROY_RQT of a table that TIRs use";
    RqtOutput = 0x000d_0017, BadOutputLength, "no space for the table's queue numbers";
    SqExhausted = 0x000d_0018, NoResources, "no send queue left";
    SqState = 0x000d_0019, BadParam, "CREATE_SQ with a state other than RST";
    SqFeature = 0x000d_001a, BadParam, "CREATE_SQ with a feature that is not supported";
    SqUmem = 0x000d_001b, BadResource, "user memory that was never created, or of another user";
    SqType = 0x000d_001c, BadParam, "CREATE_SQ with a work queue type that is not supported";
    SqSize = 0x000d_001d, Limit, "CREATE_SQ with a queue beyond the largest";
    SqCq = 0x000d_001e, BadResource, "CREATE_SQ with a CQ that does not exist";
    SqPd = 0x000d_001f, BadResource, "CREATE_SQ in a protection domain that is not allocated";
    SqUar = 0x000d_0020, BadResource, "CREATE_SQ on a UAR that is not allocated";
    SqTis = 0x000d_0021, BadResource, "CREATE_SQ with a TIS that does not exist";
    SqRecord = 0x000d_0022, BadParam, "a doorbell record that is missing, misaligned or out of reach";
    SqPages = 0x000d_0023, BadInputLength, "CREATE_SQ with too few page addresses";
    SqPageSize = 0x000d_0024, BadParam, "CREATE_SQ with an impossible page size";
    SqPageUnaligned = 0x000d_0040, BadParam, "a send queue in pages that do not start at multiples of the page size";
    SqUnknown = 0x000d_0025, BadResource, "a send queue that does not exist";
    SqRawTx = 0x000d_0071, BadParam, "CREATE_SQ by a user without the capability to send raw packets";
    SqModifyFields = 0x000d_0026, BadParam, "MODIFY_SQ of fields that cannot be modified";
    SqCurrentState = 0x000d_0027, BadResourceState, "MODIFY_SQ of a queue that is in another state";
    SqNextState = 0x000d_0028, BadParam, "MODIFY_SQ to a state that does not follow";
    RqExhausted = 0x000d_002a, NoResources, "no receive queue left";
    RqState = 0x000d_002b, BadParam, "CREATE_RQ with a state other than RST";
    RqFeature = 0x000d_002c, BadParam, "CREATE_RQ with a feature that is not supported";
    RqUmem = 0x000d_002d, BadResource, "user memory that was never created, or of another user";
    RqType = 0x000d_002e, BadParam, "CREATE_RQ with a work queue type that is not supported";
    RqSize = 0x000d_002f, Limit, "CREATE_RQ with a queue beyond the largest";
    RqCq = 0x000d_0030, BadResource, "CREATE_RQ with a CQ that does not exist";
    RqWqeSize = 0x000d_003f, Limit, "CREATE_RQ with WQEs beyond max_wqe_sz_rq";
    RqPd = 0x000d_0031, BadResource, "CREATE_RQ in a protection domain that is not allocated";
    RqPool = 0x000d_0032, BadResource, "CREATE_RQ on a receive memory pool that does not exist";
    RqCounter = 0x000d_0033, BadResource, "a queue counter that is not allocated";
    RqStrides = 0x000d_0042, BadParam, "CREATE_RQ with fewer strides in a WQE than the card does";
    RqStride = 0x000d_0034, BadParam, "CREATE_RQ with an impossible stride";
    RqRecord = 0x000d_0035, BadParam, "a doorbell record that is missing, misaligned or out of reach";
    RqPages = 0x000d_0036, BadInputLength, "CREATE_RQ with too few page addresses";
    RqPageSize = 0x000d_0037, BadParam, "CREATE_RQ with an impossible page size";
    RqPageUnaligned = 0x000d_0041, BadParam, "a receive queue in pages that do not start at multiples of the page size";
    RqUnknown = 0x000d_0038, BadResource, "a receive queue that does not exist";
    RqBusy = 0x000d_0039, ResourceBusy, "DESTROY_RQ of a queue that frames are sent to";
    RqModifyFields = 0x000d_003a, BadParam, "MODIFY_RQ of fields that cannot be modified";
    RqCurrentState = 0x000d_003b, BadResourceState, "MODIFY_RQ of a queue that is in another state";
    RqNextState = 0x000d_003c, BadParam, "MODIFY_RQ to a state that does not follow";
    RqPostedEarly = 0x000d_0072, BadResourceState, "MODIFY_RQ from RST to RDY with something posted";

    FlowUnsupported = 0x0010_0001, BadOp, "flow tables without their capability";
    FlowTableType = 0x0010_0002, BadParam, "flow tables of a type that there is not";
    FlowOpMod = 0x0010_0003, BadParam, "a command of flow steering with an op_mod that does not exist";
    FlowTableLevel = 0x0010_0004, BadParam, "CREATE_FLOW_TABLE on a level beyond the highest";
    FlowTableSize = 0x0010_0005, BadParam, "CREATE_FLOW_TABLE with more entries than a table can have";
    FlowTableFeature = 0x0010_0006, BadParam, "CREATE_FLOW_TABLE with something that the capabilities do not offer";
    FlowTableExhausted = 0x0010_0007, NoResources, "no flow table left";
    FlowTableUnknown = 0x0010_0008, BadResource, "a flow table that does not exist";
    FlowTableGroups = 0x0010_0009, ResourceBusy, "DESTROY_FLOW_TABLE of a table that has groups";
    FlowTableBusy = 0x0010_000a, ResourceBusy, "DESTROY_FLOW_TABLE of a table that entries or misses lead to";
    FlowTableRoot = 0x0010_000b, ResourceBusy, "DESTROY_FLOW_TABLE of the root while there are other tables";
    FlowMissAction = 0x0010_000c, BadParam, "a miss action that does not exist, or a table for misses without the action";
    FlowMissTable = 0x0010_000d, BadResource, "misses to a table that does not exist";
    FlowMissLevel = 0x0010_000e, BadParam, "misses to a table that is not on a higher level";
    FlowModifyFields = 0x0010_000f, BadParam, "MODIFY_FLOW_TABLE of fields that cannot be modified";
    FlowRootUnsupported = 0x0010_0010, BadOp, "SET_FLOW_TABLE_ROOT without its capability";
    FlowRootQp = 0x0010_0011, BadParam, "SET_FLOW_TABLE_ROOT for a QP";

    FlowGroupType = 0x0011_0001, BadParam, "CREATE_FLOW_GROUP of a type that is not supported";
    FlowGroupCriteria = 0x0011_0002, BadParam, "CREATE_FLOW_GROUP on a section of the match parameters that is not supported";
    FlowGroupMask = 0x0011_0003, BadParam, "CREATE_FLOW_GROUP with criteria in a section that is not enabled";
    FlowField = 0x0011_0004, BadParam, "a flow group or entry on a field that cannot be matched";
    FlowGroupRange = 0x0011_0005, BadIndex, "CREATE_FLOW_GROUP beyond its table, or that ends before it begins";
    FlowGroupOverlap = 0x0011_0006, BadParam, "CREATE_FLOW_GROUP over another group";
    FlowGroupExhausted = 0x0011_0007, NoResources, "no flow group left";
    FlowGroupUnknown = 0x0011_0008, BadResource, "a flow group that its table does not have";
    FlowGroupBusy = 0x0011_0009, ResourceBusy, "DESTROY_FLOW_GROUP of a group that has entries";

    FteIndex = 0x0012_0001, BadIndex, "SET_FLOW_TABLE_ENTRY at an index beyond its group";
    FteValue = 0x0012_0002, BadParam, "SET_FLOW_TABLE_ENTRY with a value that its group's criteria do not cover";
    FteExhausted = 0x0012_0003, NoResources, "no flow table entry left";
    FteUnknown = 0x0012_0004, BadResource, "a flow table entry that does not exist";
    FteOccupied = 0x0012_0005, BadResourceState, "SET_FLOW_TABLE_ENTRY where there is one, without modifying it";
    FteModifyUnsupported = 0x0012_0006, BadOp, "modification of a flow table entry without its capability";
    FteModifyFields = 0x0012_0007, BadParam, "modify_enable_mask without a modification, or with fields that cannot be modified";
    FteModifyValue = 0x0012_0008, BadParam, "modification of what a flow table entry matches";
    FteAction = 0x0012_0009, BadParam, "SET_FLOW_TABLE_ENTRY with an action that is not supported, with none or with two that exclude each other";
    FteFeature = 0x0012_000a, BadParam, "SET_FLOW_TABLE_ENTRY with something that the capabilities do not offer";
    FteDestinations = 0x0012_000b, BadParam, "destinations without the action that needs them, or the action without";
    FteDestinationLimit = 0x0012_000c, Limit, "more destinations than an entry can have";
    FteDestinationType = 0x0012_000d, BadParam, "a destination of a type that is not supported";
    FteDestinationFeature = 0x0012_000e, BadParam, "a destination with something that the capabilities do not offer";
    FteListShort = 0x0012_000f, BadInputLength, "fewer destinations and counters than their list sizes say";
    FteTable = 0x0012_0010, BadResource, "a destination table that does not exist";
    FteTableLevel = 0x0012_0011, BadParam, "a destination table that is not on a higher level";
    FteTir = 0x0012_0012, BadResource, "a destination TIR that does not exist";
    FteMultiPath = 0x0012_0013, BadParam, "several TIRs, or TIRs and tables, without the capability";
    FteIgnoreLevel = 0x0012_0014, BadParam, "ignore_flow_level without its capability";
    FteCounters = 0x0012_0015, BadParam, "counters without the action that needs them, or the action without";
    FteCounterLimit = 0x0012_0016, Limit, "more counters than an entry can have";
    FteCounterUnknown = 0x0012_0017, BadResource, "SET_FLOW_TABLE_ENTRY with a counter that is not allocated";
    FteOutputShort = 0x0012_0018, BadOutputLength, "no space for the entry's destinations and counters";

    UctxUnsupported = 0x0014_0001, BadOp, "CREATE_UCTX without its capability";
    UctxByUser = 0x0014_0002, BadParam, "a user context made or destroyed by a user";
    UctxCap = 0x0014_0003, BadParam, "CREATE_UCTX with capabilities that are not offered";
    UctxExhausted = 0x0014_0004, NoResources, "no user context left";
    UctxUnknown = 0x0014_0005, BadResource, "DESTROY_UCTX of a user context that was never created";
    UctxBusy = 0x0014_0006, ResourceBusy, "DESTROY_UCTX of a user context that has objects";
    UmemUnsupported = 0x0014_0007, BadOp, "CREATE_UMEM without its capability";
    UmemAts = 0x0014_0008, BadParam, "CREATE_UMEM with address translation by the bus, which is not offered";
    UmemPageSize = 0x0014_0009, BadParam, "CREATE_UMEM with an impossible page size, or an offset beyond the first page";
    UmemList = 0x0014_000a, BadInputLength, "CREATE_UMEM with fewer pages than it says, or with none";
    UmemUnaligned = 0x0014_000b, BadParam, "CREATE_UMEM with a page that is not aligned to its size";
    UmemExhausted = 0x0014_000c, NoResources, "no user memory object left";
    UmemUnknown = 0x0014_000d, BadResource, "DESTROY_UMEM of user memory that was never created";
    UmemBusy = 0x0014_000e, ResourceBusy, "DESTROY_UMEM of user memory in which a queue, a record or a key lies";
    UmemRange = 0x0014_000f, BadParam, "a queue, a record or a key that reaches over the end of its user memory";

    FlowCounterUnsupported = 0x0013_0001, BadOp, "flow counters without their capability";
    FlowCounterBulk = 0x0013_0002, BadParam, "ALLOC_FLOW_COUNTER of a number that is not offered";
    FlowCounterExhausted = 0x0013_0003, NoResources, "no flow counters left";
    FlowCounterUnknown = 0x0013_0004, BadResource, "flow counters that are not allocated, or not the first of those allocated together";
    FlowCounterBusy = 0x0013_0005, ResourceBusy, "DEALLOC_FLOW_COUNTER of counters that entries use";
    FlowCounterRange = 0x0013_0006, BadParam, "QUERY_FLOW_COUNTER of more than is offered, or not aligned to four";
    FlowCounterOutput = 0x0013_0007, BadOutputLength, "no space for the counters";

    RewriteUnsupported = 0x0015_0001, BadOp, "changes to headers without their capability";
    RewriteLength = 0x0015_0002, BadParam, "ALLOC_MODIFY_HEADER_CONTEXT of no action, or of more than are offered";
    RewriteShort = 0x0015_0003, BadInputLength, "ALLOC_MODIFY_HEADER_CONTEXT with fewer actions than it says";
    RewriteAction = 0x0015_0004, BadParam, "a change to headers of a type that is not supported, or with reserved bits";
    RewriteField = 0x0015_0005, BadParam, "a change to a field that cannot be changed";
    RewriteRange = 0x0015_0006, BadParam, "a change to bits that the field does not have, or by more than it holds";
    RewriteExhausted = 0x0015_0007, NoResources, "no list of changes to headers left";
    RewriteUnknown = 0x0015_0008, BadResource, "a list of changes to headers that was never allocated";
    RewriteBusy = 0x0015_0009, ResourceBusy, "DEALLOC_MODIFY_HEADER_CONTEXT of what entries use";
    FteRewrite = 0x0015_000a, BadParam, "SET_FLOW_TABLE_ENTRY with a list of changes without the action that needs it, or the action without";
}

impl Syndrome {
    /// The number in the answer.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The place with this number.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|s| s.code() == code)
    }
}

/// The failure of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reject {
    /// With this answer.
    Answer { status: u8, syndrome: u32 },
    /// Not yet: it needs this many pages, and is tried again when pages were given.
    NeedPages(u32),
}

impl From<Syndrome> for Reject {
    fn from(syndrome: Syndrome) -> Self {
        Self::Answer {
            status: syndrome.status() as u8,
            syndrome: syndrome.code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_place_has_its_own_number_and_text() {
        let codes: HashSet<_> = Syndrome::ALL.iter().map(|s| s.code()).collect();
        assert_eq!(codes.len(), Syndrome::ALL.len());
        for &syndrome in Syndrome::ALL {
            assert!(
                syndrome.code() > 0xffff,
                "{syndrome:?} looks like an opcode"
            );
            assert_ne!(syndrome.status(), Status::Ok);
            assert!(!syndrome.text().is_empty());
            assert_eq!(Syndrome::from_code(syndrome.code()), Some(syndrome));
        }
    }
}
