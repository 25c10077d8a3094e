//! The port's agents for management datagrams: for the subnet's management drivers hand over what comes to their QP0
//! (MAD_IFC), for performance management the firmware takes what comes for it off the wire.
//!
//! An unsupported method or attribute is reported in the answer's status (IBTA vol. 1, 13.4.7). The model has no subnet
//! manager, so only counters can be set.

use crate::device::Device;
use crate::port::vport::{DEFAULT_PKEY, PKEYS, PortTraffic};
use crate::syndrome::Syndrome;

/// A management datagram.
pub(crate) type Datagram = [u8; 256];

/// Management classes.
mod class {
    pub(super) const SUBNET_LID_ROUTED: u8 = 0x01;
    pub(super) const SUBNET_DIRECTED_ROUTE: u8 = 0x81;
    pub(super) const PERFORMANCE: u8 = 0x04;
}

mod method {
    pub(super) const GET: u8 = 0x01;
    pub(super) const SET: u8 = 0x02;
    pub(super) const TRAP_REPRESS: u8 = 0x07;
    pub(super) const GET_RESPONSE: u8 = 0x81;
}

/// Attributes of subnet management.
mod subnet {
    pub(super) const NODE_DESCRIPTION: u16 = 0x10;
    pub(super) const NODE_INFO: u16 = 0x11;
    pub(super) const GUID_INFO: u16 = 0x14;
    pub(super) const PORT_INFO: u16 = 0x15;
    pub(super) const P_KEY_TABLE: u16 = 0x16;
    pub(super) const SL_TO_VL: u16 = 0x17;
}

/// Attributes of performance management.
mod performance {
    pub(super) const CLASS_PORT_INFO: u16 = 0x01;
    pub(super) const PORT_COUNTERS: u16 = 0x12;
    pub(super) const PORT_COUNTERS_EXTENDED: u16 = 0x1d;
}

/// What an answer's status says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
enum Status {
    BadVersion = 0x04,
    MethodUnsupported = 0x08,
    AttributeUnsupported = 0x0c,
    InvalidValue = 0x1c,
}

/// Where the fields of a datagram are.
const CLASS_VERSION: usize = 2;
const METHOD: usize = 3;
const STATUS: usize = 4;
const ATTRIBUTE: usize = 16;
const MODIFIER: usize = 20;
/// The data of both classes.
const DATA: usize = 64;
/// Length of the data of subnet management.
const SUBNET_DATA: usize = 64;

/// The directed route's datagrams have one bit of the status for their direction.
const STATUS_BITS: u16 = 0x7fff;

const CHANNEL_ADAPTER: u8 = 1;
const VENDOR: [u8; 3] = [0x00, 0x02, 0xc9];
const REVISION: u32 = 0;
const PORT: u8 = 1;
/// GUIDs of the port, also those that are not given: one block of them.
const GUIDS: u8 = 8;
/// P_Keys in a block.
const PKEYS_PER_BLOCK: u16 = 32;
/// 4X, EDR; older agents read QDR.
const WIDTH_4X: u8 = 2;
const WIDTH_1X_OR_4X: u8 = 3;
const SPEED_SDR_TO_QDR: u8 = 7;
const SPEED_QDR: u8 = 4;
const SPEED_EDR: u8 = 2;
const SPEED_FDR_AND_EDR: u8 = 3;
/// Codes: packets of 4096 bytes; virtual lanes 0 to 7.
const MTU_4096: u8 = 5;
const LANES_0_TO_7: u8 = 4;
const SUBNET_TIMEOUT: u8 = 18;
/// Longest time until an answer: 4.096 µs · 2^16.
const RESPONSE_TIME: u8 = 16;
/// Performance management: there are counters of 64 bits, of packets by kind as well.
const EXTENDED_WIDTH: u16 = 1 << 9;

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Puts big-endian fields into an answer's data.
struct Fields<'a>(&'a mut [u8]);

impl Fields<'_> {
    fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn byte(&mut self, at: usize, value: u8) -> &mut Self {
        self.put(at, &[value])
    }

    /// Two fields of four bits.
    fn halves(&mut self, at: usize, high: u8, low: u8) -> &mut Self {
        self.byte(at, high << 4 | low & 0xf)
    }
}

/// Whether a datagram asks the agent for performance management.
pub(crate) fn for_performance_agent(asked: &Datagram) -> bool {
    asked[1] == class::PERFORMANCE && matches!(asked[METHOD], method::GET | method::SET)
}

impl Device {
    /// Answers a management datagram; `None` if there is nothing to answer.
    pub(crate) fn manage(&mut self, asked: &Datagram) -> Result<Option<Datagram>, Syndrome> {
        let subnet = match asked[1] {
            class::SUBNET_LID_ROUTED | class::SUBNET_DIRECTED_ROUTE => true,
            class::PERFORMANCE => false,
            _ => return Err(Syndrome::MadClass),
        };
        if asked[METHOD] == method::TRAP_REPRESS {
            return Ok(None);
        }
        let mut answer = *asked;
        answer[METHOD] = method::GET_RESPONSE;
        let version = (asked[0], asked[CLASS_VERSION]) == (1, 1);
        let known = matches!(asked[METHOD], method::GET | method::SET);
        let result = if !version {
            Err(Status::BadVersion)
        } else if !known {
            Err(Status::MethodUnsupported)
        } else if subnet {
            self.manage_subnet(asked, &mut answer)
        } else {
            self.manage_performance(asked, &mut answer)
        };
        let direction = be16(asked, STATUS) & !STATUS_BITS;
        let status = result.map_or_else(|status| status as u16, |()| 0);
        answer[STATUS..STATUS + 2].copy_from_slice(&(direction | status).to_be_bytes());
        Ok(Some(answer))
    }

    fn manage_subnet(&self, asked: &Datagram, answer: &mut Datagram) -> Result<(), Status> {
        if asked[METHOD] != method::GET {
            return Err(Status::AttributeUnsupported);
        }
        let modifier = u32::from_be_bytes([
            asked[MODIFIER],
            asked[MODIFIER + 1],
            asked[MODIFIER + 2],
            asked[MODIFIER + 3],
        ]);
        let data = &mut answer[DATA..DATA + SUBNET_DATA];
        data.fill(0);
        let mut fields = Fields(data);
        match be16(asked, ATTRIBUTE) {
            subnet::NODE_DESCRIPTION => {
                fields.put(0, &self.node_description);
            }
            subnet::NODE_INFO => self.node_info(&mut fields),
            // An adapter's ports are asked one by one, 0 being the one that was asked.
            subnet::PORT_INFO if modifier > u32::from(PORT) => return Err(Status::InvalidValue),
            subnet::PORT_INFO => self.port_info(&mut fields),
            subnet::GUID_INFO if modifier > 0 => return Err(Status::InvalidValue),
            subnet::GUID_INFO => {
                fields.put(0, &self.vport.context.port_guid().to_be_bytes());
            }
            subnet::P_KEY_TABLE if modifier >= u32::from(PKEYS / PKEYS_PER_BLOCK) => {
                return Err(Status::InvalidValue);
            }
            subnet::P_KEY_TABLE => {
                if modifier == 0 {
                    fields.put(0, &DEFAULT_PKEY.to_be_bytes());
                }
            }
            subnet::SL_TO_VL => {
                for pair in 0..8 {
                    let level = pair * 2 % 8;
                    fields.halves(usize::from(pair), level, level + 1);
                }
            }
            _ => return Err(Status::AttributeUnsupported),
        }
        Ok(())
    }

    fn node_info(&self, fields: &mut Fields<'_>) {
        let context = &self.vport.context;
        fields
            .put(0, &[1, 1, CHANNEL_ADAPTER, 1])
            .put(4, &context.system_image_guid().to_be_bytes())
            .put(12, &context.node_guid().to_be_bytes())
            .put(20, &context.port_guid().to_be_bytes())
            .put(28, &PKEYS.to_be_bytes())
            .put(30, &self.config.device_id.to_be_bytes())
            .put(32, &REVISION.to_be_bytes())
            .byte(36, PORT)
            .put(37, &VENDOR);
    }

    fn port_info(&self, fields: &mut Fields<'_>) {
        let up = self.vport.up();
        // Active and linked, or down and polling.
        let (state, physical) = if up { (4, 5) } else { (1, 2) };
        fields
            .put(8, &0xfe80_0000_0000_0000_u64.to_be_bytes())
            .put(16, &self.config.lid.to_be_bytes())
            .put(18, &1u16.to_be_bytes())
            .put(20, &self.vport.cap_mask1.to_be_bytes())
            .byte(28, PORT)
            .put(29, &[WIDTH_1X_OR_4X, WIDTH_1X_OR_4X, WIDTH_4X])
            .halves(32, SPEED_SDR_TO_QDR, state)
            .halves(33, physical, 2)
            .halves(35, SPEED_QDR, SPEED_SDR_TO_QDR)
            .halves(36, MTU_4096, 0)
            .halves(37, LANES_0_TO_7, 0)
            .halves(41, 0, MTU_4096)
            .halves(43, LANES_0_TO_7, 0)
            .byte(50, GUIDS)
            .byte(51, SUBNET_TIMEOUT)
            .byte(52, RESPONSE_TIME)
            .halves(62, SPEED_EDR, SPEED_FDR_AND_EDR)
            .byte(63, SPEED_FDR_AND_EDR);
    }

    fn manage_performance(
        &mut self,
        asked: &Datagram,
        answer: &mut Datagram,
    ) -> Result<(), Status> {
        let attribute = be16(asked, ATTRIBUTE);
        let sets = asked[METHOD] == method::SET;
        let data = &mut answer[DATA..];
        match attribute {
            performance::CLASS_PORT_INFO if !sets => {
                data.fill(0);
                Fields(data)
                    .put(0, &[1, 1])
                    .put(2, &EXTENDED_WIDTH.to_be_bytes())
                    .put(7, &[RESPONSE_TIME]);
                return Ok(());
            }
            performance::PORT_COUNTERS | performance::PORT_COUNTERS_EXTENDED => {}
            _ => return Err(Status::AttributeUnsupported),
        }
        // 255 means all ports.
        if !matches!(asked[DATA + 1], PORT | 0xff) {
            return Err(Status::InvalidValue);
        }
        let wide = attribute == performance::PORT_COUNTERS_EXTENDED;
        if sets {
            // Of what is selected, only traffic is ever counted here: data and packets, sent and received.
            let traffic = if wide { 0x00ff } else { 0xf000 };
            if be16(asked, DATA + 2) & traffic != 0 {
                self.vport.traffic = PortTraffic::default();
            }
        }
        data[4..].fill(0);
        let traffic = self.vport.traffic;
        let (sent, group_sent) = (traffic.sent, traffic.group_sent);
        let (received, group_received) = (traffic.received, traffic.group_received);
        // Data is counted in words.
        let totals = [
            (sent.octets + group_sent.octets) / 4,
            (received.octets + group_received.octets) / 4,
            sent.packets + group_sent.packets,
            received.packets + group_received.packets,
        ];
        let mut fields = Fields(data);
        if wide {
            let kinds = [
                sent.packets,
                received.packets,
                group_sent.packets,
                group_received.packets,
            ];
            for (nth, count) in totals.into_iter().chain(kinds).enumerate() {
                fields.put(8 + nth * 8, &count.to_be_bytes());
            }
        } else {
            for (nth, count) in totals.into_iter().enumerate() {
                // These stop where they are full.
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                fields.put(24 + nth * 4, &count.to_be_bytes());
            }
        }
        Ok(())
    }
}
