//! The PortInfo (IBTA vol. 1, 14.2.5.6) of a port, and the part of it that a subnet manager sets.

use crate::subnet::datagram::{Fields, RESPONSE_TIME, SUBNET_DATA, Status, be16, be64};
use bareverbs_firmware_cmds::values::PortState;
use core::time::Duration;

/// Local identifiers from here on are of multicast groups, and 0 is none.
const FIRST_MULTICAST_LID: u16 = 0xc000;
/// The prefix of a subnet that was given none.
const DEFAULT_PREFIX: u64 = 0xfe80_0000_0000_0000;
/// A P_Key table's one entry that a port begins with.
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;
/// 4X, EDR; older agents read QDR.
const WIDTH_4X: u8 = 2;
const WIDTH_1X_OR_4X: u8 = 3;
const SPEED_SDR_TO_QDR: u8 = 7;
const SPEED_QDR: u8 = 4;
const SPEED_EDR: u8 = 2;
const SPEED_FDR_AND_EDR: u8 = 3;
/// FDR10, in the vendor's own attribute.
const SPEED_FDR10: u8 = 1;
/// Codes: packets of 4096 bytes; virtual lanes 0 to 7.
const MTU_4096: u8 = 5;
const LANES_0_TO_7: u8 = 4;
/// 4.096 µs · 2^18.
const SUBNET_TIMEOUT: u8 = 18;
/// Codes that mean "as it was" where something is set.
const NO_CHANGE: u8 = 0;

/// Physical states.
const POLLING: u8 = 2;
const LINK_UP: u8 = 5;

/// The right of a request, by its M_Key (14.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// It has the port's key, or there is none.
    Good,
    /// It may be answered, and the answer has no key.
    Hidden,
    /// It is discarded.
    Bad,
}

/// The changes that setting PortInfo has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Changes {
    pub(crate) state: bool,
    pub(crate) lid: bool,
    pub(crate) prefix: bool,
    /// Clients are to say anew which groups, services and notices they want.
    pub(crate) reregister: bool,
}

/// A port, as its agent for subnet management knows it.
#[derive(Debug, Clone)]
pub(crate) struct SubnetPort {
    /// The port's state but for its cable: Initialize, Armed or Active.
    pub(crate) state: PortState,
    pub(crate) lid: u16,
    /// The port has 2^`lmc` local identifiers.
    pub(crate) lmc: u8,
    pub(crate) sm_lid: u16,
    pub(crate) sm_level: u8,
    pub(crate) prefix: u64,
    /// 4.096 µs · 2^`timeout`.
    pub(crate) timeout: u8,
    pub(crate) m_key_violations: u16,
    m_key: u64,
    protection: u8,
    /// Seconds; 0 for ever.
    lease: u16,
    lease_ends: Option<Duration>,
    width: u8,
    speed: u8,
    extended_speed: u8,
    vendor_speed: u8,
    /// The code of the neighbor's MTU, and of the virtual lanes in use.
    mtu: u8,
    lanes: u8,
    /// Bytes that are kept as they are set: the default state of a link that goes down, limit of high priority, stall count
    /// and lifetime at the head of a queue, enforcement of partitions, thresholds of errors.
    down_default: u8,
    high_limit: u8,
    head_of_queue: u8,
    enforcement: u8,
    thresholds: u8,
}

impl SubnetPort {
    /// A port that awaits a subnet manager.
    pub(crate) fn new() -> Self {
        Self {
            state: PortState::Initialize,
            lid: 0,
            lmc: 0,
            sm_lid: 0,
            sm_level: 0,
            prefix: DEFAULT_PREFIX,
            timeout: SUBNET_TIMEOUT,
            m_key_violations: 0,
            m_key: 0,
            protection: 0,
            lease: 0,
            lease_ends: None,
            width: WIDTH_1X_OR_4X,
            speed: SPEED_SDR_TO_QDR,
            extended_speed: SPEED_FDR_AND_EDR,
            vendor_speed: SPEED_FDR10,
            mtu: MTU_4096,
            lanes: LANES_0_TO_7,
            down_default: POLLING,
            high_limit: 0,
            head_of_queue: 0,
            enforcement: 0,
            thresholds: 0,
        }
    }

    /// Returns `true` if a local identifier is one of the port's.
    pub(crate) fn has(&self, lid: u16) -> bool {
        self.lid != 0 && lid & !((1 << self.lmc) - 1) == self.lid
    }

    /// Checks a request's key. One that is wrong starts the lease, at whose end the key is no longer protected.
    pub(crate) fn check(&mut self, key: u64, sets: bool, now: Duration) -> Key {
        if self.lease_ends.is_some_and(|end| end <= now) {
            self.lease_ends = None;
            self.protection = 0;
        }
        if self.m_key == 0 || key == self.m_key {
            self.lease_ends = None;
            return Key::Good;
        }
        match self.protection {
            0 if !sets => return Key::Good,
            1 if !sets => return Key::Hidden,
            _ => {}
        }
        self.m_key_violations = self.m_key_violations.saturating_add(1);
        if self.lease != 0 && self.lease_ends.is_none() {
            self.lease_ends = Some(now + Duration::from_secs(self.lease.into()));
        }
        Key::Bad
    }

    /// PortInfo of the port that has this number, capability mask and number of GUIDs.
    pub(crate) fn info(
        &self,
        fields: &mut Fields<'_>,
        number: u8,
        capabilities: u32,
        guids: u8,
        up: bool,
    ) {
        let (state, physical) = if up {
            (self.state, LINK_UP)
        } else {
            (PortState::Down, POLLING)
        };
        fields
            .put(0, &self.m_key.to_be_bytes())
            .put(8, &self.prefix.to_be_bytes())
            .put(16, &self.lid.to_be_bytes())
            .put(18, &self.sm_lid.to_be_bytes())
            .put(20, &capabilities.to_be_bytes())
            .put(26, &self.lease.to_be_bytes())
            .byte(28, number)
            .put(29, &[self.width, WIDTH_1X_OR_4X, WIDTH_4X])
            .halves(32, SPEED_SDR_TO_QDR, state.number())
            .halves(33, physical, self.down_default)
            .byte(34, self.protection << 6 | self.lmc)
            .halves(35, SPEED_QDR, self.speed)
            .halves(36, self.mtu, self.sm_level)
            .halves(37, LANES_0_TO_7, 0)
            .byte(38, self.high_limit)
            .put(39, &[ARBITRATION_ENTRIES, ARBITRATION_ENTRIES])
            .halves(41, 0, MTU_4096)
            .byte(42, self.head_of_queue)
            .halves(43, self.lanes, self.enforcement)
            .put(44, &self.m_key_violations.to_be_bytes())
            .byte(50, guids)
            .byte(51, self.timeout)
            .byte(52, RESPONSE_TIME)
            .byte(53, self.thresholds)
            .halves(62, SPEED_EDR, SPEED_FDR_AND_EDR)
            .byte(63, self.extended_speed);
    }

    /// Takes what a subnet manager sets; if a value cannot be, nothing is taken. A switch's own ports have no
    /// identifiers.
    pub(crate) fn set(
        &mut self,
        data: &[u8; SUBNET_DATA],
        identified: bool,
        up: bool,
    ) -> Result<Changes, Status> {
        let before = self.clone();
        let (lid, lmc) = (be16(data, 16), data[34] & 7);
        let state = self.next_state(data[32] & 0xf, up)?;
        if identified {
            let last = lid | ((1 << lmc) - 1);
            if lid == 0 || last >= FIRST_MULTICAST_LID || lid & ((1 << lmc) - 1) != 0 {
                return Err(Status::InvalidValue);
            }
            if be16(data, 18) >= FIRST_MULTICAST_LID {
                return Err(Status::InvalidValue);
            }
        }
        let chosen = |value: u8, all: u8, most: u8, old: u8| match value {
            NO_CHANGE => Ok(old),
            value if value == all => Ok(most),
            value if value & !most == 0 => Ok(value),
            _ => Err(Status::InvalidValue),
        };
        let width = chosen(data[29], 0xff, WIDTH_1X_OR_4X, self.width)?;
        let speed = chosen(data[35] & 0xf, 0xf, SPEED_SDR_TO_QDR, self.speed)?;
        let extended = chosen(
            data[63] & 0x1f,
            0x1f,
            SPEED_FDR_AND_EDR,
            self.extended_speed,
        );
        let code = |value: u8, most: u8, old: u8| match value {
            NO_CHANGE => Ok(old),
            value if value <= most => Ok(value),
            _ => Err(Status::InvalidValue),
        };
        let mtu = code(data[36] >> 4, MTU_4096, self.mtu)?;
        let lanes = code(data[43] >> 4, LANES_0_TO_7, self.lanes)?;
        *self = Self {
            state,
            prefix: be64(data, 8),
            sm_lid: be16(data, 18),
            sm_level: data[36] & 0xf,
            timeout: data[51] & 0x1f,
            m_key: be64(data, 0),
            protection: data[34] >> 6,
            lease: be16(data, 26),
            lease_ends: None,
            width,
            speed,
            // Managers from before extended speeds leave the field 0 or use one that is reserved.
            extended_speed: extended.unwrap_or(self.extended_speed),
            vendor_speed: self.vendor_speed,
            mtu,
            lanes,
            down_default: code(data[33] & 0xf, POLLING, self.down_default)?,
            high_limit: data[38],
            head_of_queue: data[42],
            enforcement: data[43] & 0xf,
            thresholds: data[53],
            // Violations are counted from what is written on.
            m_key_violations: be16(data, 44),
            lid: if identified { lid } else { self.lid },
            lmc: if identified { lmc } else { self.lmc },
        };
        Ok(Changes {
            state: self.state != before.state,
            lid: (self.lid, self.lmc, self.sm_lid) != (before.lid, before.lmc, before.sm_lid),
            prefix: self.prefix != before.prefix,
            reregister: data[51] & 0x80 != 0,
        })
    }

    /// The vendor's MLNXExtendedPortInfo: whether the fields count, and the speeds that are supported, enabled and in use, of
    /// which there is none, as the link has a faster one (`ib_mlnx_ext_port_info_t` of OpenSM).
    pub(crate) fn extended_info(&self, fields: &mut Fields<'_>) {
        fields
            .byte(7, SPEED_FDR10)
            .byte(11, self.vendor_speed)
            .byte(15, 0);
    }

    /// Takes what a subnet manager sets there.
    pub(crate) fn set_extended(&mut self, data: &[u8; SUBNET_DATA]) -> Result<(), Status> {
        let enabled = data[11];
        if enabled & !SPEED_FDR10 != 0 {
            return Err(Status::InvalidValue);
        }
        self.vendor_speed = enabled;
        Ok(())
    }

    /// The state after one that is asked for (7.2.7): each is reached from the one before it, Down leads back to
    /// Initialize by way of the link.
    fn next_state(&self, asked: u8, up: bool) -> Result<PortState, Status> {
        let asked = PortState::from_number(asked).ok_or(Status::InvalidValue)?;
        match (asked, self.state) {
            (PortState::NoChange, state) => Ok(state),
            (PortState::Down, _) => Ok(PortState::Initialize),
            (PortState::Armed, PortState::Initialize | PortState::Armed) if up => {
                Ok(PortState::Armed)
            }
            (PortState::Active, PortState::Armed | PortState::Active) if up => {
                Ok(PortState::Active)
            }
            _ => Err(Status::InvalidValue),
        }
    }
}

/// Entries of the tables of high and of low priority.
const ARBITRATION_ENTRIES: u8 = 8;
