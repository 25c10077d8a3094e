//! A switch of InfiniBand's: its agents for subnet and performance management, and where it forwards what (IBTA vol. 1,
//! 14.2 and 18.2).

use crate::port::lid::{PERMISSIVE_LID, group, lid, local, mac};
use crate::port::vport::PortTraffic;
use crate::roce::packet::reseal;
use crate::roce::transport::{GSI_QKEY, GSI_QPN, SMI_QPN};
use crate::subnet::datagram::{
    ATTRIBUTE, CLASS, CLASS_VERSION, DATA, DIRECTION, Datagram, Fields, HOP_COUNT, HOP_POINTER,
    INITIAL_PATH, M_KEY, METHOD, MODIFIER, MOST_HOPS, RETURN_PATH, STATUS, SUBNET_DATA, Status,
    attribute, be16, be32, be64, class, method,
};
use crate::subnet::performance;
use crate::subnet::port::{Key, SubnetPort};
use crate::subnet::tables::Tables;
use bareverbs_firmware_cmds::values::PortState;
use core::time::Duration;

/// Most ports of a switch, without its own port 0.
pub(crate) const MOST_PORTS: u8 = 64;
/// Entries of the forwarding tables.
const UNICAST_ENTRIES: usize = 0xc000;
const MULTICAST_ENTRIES: usize = 1024;
/// Entries in a block of either.
const UNICAST_BLOCK: usize = 64;
const MULTICAST_BLOCK: usize = 32;
/// A multicast entry's bits are for 16 ports.
const PORTS_PER_POSITION: usize = 16;
const POSITIONS: usize = MOST_PORTS as usize / PORTS_PER_POSITION + 1;
const FIRST_MULTICAST_LID: u16 = 0xc000;
/// In the unicast table: nowhere.
const NOWHERE: u8 = 0xff;
const PKEYS: u16 = 32;
const SWITCH: u8 = 2;
const DEVICE: u16 = 0xcb20;
const VENDOR: [u8; 3] = [0x00, 0x02, 0xc9];
/// Port 0 sends traps (`IsTrapSupported`), and has no manager behind it. It also speaks for all ports of the switch: their
/// extended speeds count only where it has `IsExtendedSpeedsSupported` (PortInfo, IBTA vol. 1, 14.2.5.6).
const CAPABILITIES: u32 = 1 << 3 | 1 << 14;
/// In SwitchInfo: a port's state has changed since it was cleared.
const STATE_CHANGED: u8 = 1 << 2;

/// Where fields are in a frame with a datagram, behind its Ethernet header and GRH.
pub(super) const SOURCE: usize = 14 + 8;
pub(super) const DESTINATION: usize = SOURCE + 16;
pub(super) const BTH: usize = 14 + 40;
pub(super) const DESTINATION_QPN: usize = BTH + 5;
pub(super) const QKEY: usize = BTH + 12;
pub(super) const SOURCE_QPN: usize = QKEY + 5;
pub(super) const PAYLOAD: usize = QKEY + 8;

struct SwitchPort {
    port: SubnetPort,
    tables: Tables,
    linked: bool,
    traffic: PortTraffic,
}

/// A switch.
pub(crate) struct Switch {
    guid: u64,
    name: [u8; 64],
    /// Port 0 is its own.
    ports: Vec<SwitchPort>,
    unicast: Vec<u8>,
    multicast: Vec<[u16; POSITIONS]>,
    top: u16,
    default_ports: [u8; 3],
    life_time: u8,
    state_changed: bool,
    traps: u64,
}

/// Where a frame goes: a bit for each port.
pub(crate) type Ports = u128;

impl Switch {
    pub(crate) fn new(guid: u64, name: &str, ports: u8) -> Self {
        let mut text = [0; 64];
        for (to, from) in text.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        let port = || SwitchPort {
            port: SubnetPort::new(),
            tables: Tables::new(PKEYS),
            linked: false,
            traffic: PortTraffic::default(),
        };
        let mut ports: Vec<_> = (0..=ports.min(MOST_PORTS)).map(|_| port()).collect();
        ports[0].linked = true;
        ports[0].port.state = PortState::Active;
        Self {
            guid,
            name: text,
            ports,
            unicast: vec![NOWHERE; UNICAST_ENTRIES],
            multicast: vec![[0; POSITIONS]; MULTICAST_ENTRIES],
            top: 0,
            default_ports: [0; 3],
            life_time: 0,
            state_changed: false,
            traps: 0,
        }
    }

    fn lid(&self) -> u16 {
        self.ports[0].port.lid
    }

    fn port(&mut self, number: usize) -> Result<&mut SwitchPort, Status> {
        self.ports.get_mut(number).ok_or(Status::InvalidValue)
    }

    /// A cable is plugged in or out, or what is at its other end comes or goes. Returns the trap for the subnet manager
    /// and where it goes.
    pub(crate) fn set_link(&mut self, number: u8, up: bool) -> Option<(Vec<u8>, Ports)> {
        let port = self.ports.get_mut(usize::from(number))?;
        if number == 0 || port.linked == up {
            return None;
        }
        port.linked = up;
        port.port.state = PortState::Initialize;
        let told = std::mem::replace(&mut self.state_changed, true);
        let manager = self.ports[0].port.sm_lid;
        if told || manager == 0 || self.lid() == 0 {
            return None;
        }
        self.traps += 1;
        let mut frame = vec![0; PAYLOAD + 256 + 4];
        // A GRH for a packet that has none on a real wire, a base header of a UD SEND, its P_Key.
        frame[12..14].copy_from_slice(&[0x89, 0x15]);
        frame[14] = 0x60;
        let length = (frame.len() - BTH) as u16;
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        frame[20..22].copy_from_slice(&[0x1b, 1]);
        frame[BTH..BTH + 4].copy_from_slice(&[0x64, 0x40, 0xff, 0xff]);
        let trap = &mut frame[PAYLOAD..PAYLOAD + 256];
        trap[..4].copy_from_slice(&[1, class::SUBNET_LID_ROUTED, 1, method::TRAP]);
        trap[8..16].copy_from_slice(&self.traps.to_be_bytes());
        trap[ATTRIBUTE..ATTRIBUTE + 2].copy_from_slice(&attribute::NOTICE.to_be_bytes());
        // Urgent, of a switch, trap 128: a link of this one has changed.
        trap[DATA..DATA + 6].copy_from_slice(&[0x81, 0, 0, SWITCH, 0, 128]);
        let own = self.lid().to_be_bytes();
        trap[DATA + 6..DATA + 8].copy_from_slice(&own);
        trap[DATA + 10..DATA + 12].copy_from_slice(&own);
        self.address(&mut frame, self.lid(), manager, 0);
        Some((frame, self.route(manager)))
    }

    /// A frame from one of its ports; returns where it goes on. The frame may be another one then.
    pub(crate) fn receive(&mut self, from: u8, frame: &mut [u8], now: Duration) -> Ports {
        let (Some(&to), Some(&qpn)) = (
            frame.first_chunk::<6>(),
            frame
                .get(DESTINATION_QPN..)
                .and_then(|rest| rest.first_chunk::<3>()),
        ) else {
            return 0;
        };
        let number = u32::from_be_bytes([0, qpn[0], qpn[1], qpn[2]]);
        let Some((to, level)) = lid(to) else {
            return 0;
        };
        let Some(ingress) = self.ports.get_mut(usize::from(from)).filter(|p| p.linked) else {
            return 0;
        };
        if number == SMI_QPN {
            return match to {
                PERMISSIVE_LID => self.directed(from, frame, now),
                to if to == self.lid() => self.respond(from, number, level, frame, now),
                to => self.route(to),
            };
        }
        match ingress.port.state {
            // The neighbor is active already.
            PortState::Armed => ingress.port.state = PortState::Active,
            PortState::Active => {}
            _ => return 0,
        }
        let kind = &mut ingress.traffic;
        let counter = if group(to) {
            &mut kind.group_received
        } else {
            &mut kind.received
        };
        counter.count(frame);
        if to == self.lid() {
            return self.respond(from, number, level, frame, now);
        }
        let out = if group(to) {
            self.group(to) & !(1 << from)
        } else {
            self.route(to)
        };
        self.count_sent(out, group(to), frame)
    }

    /// Of some ports, those that send data; they count it.
    fn count_sent(&mut self, out: Ports, group: bool, frame: &[u8]) -> Ports {
        let mut sent = 0;
        for (number, port) in self.ports.iter_mut().enumerate().skip(1) {
            if out >> number & 1 != 0 && port.linked && port.port.state == PortState::Active {
                sent |= 1 << number;
                let kind = &mut port.traffic;
                let counter = if group {
                    &mut kind.group_sent
                } else {
                    &mut kind.sent
                };
                counter.count(frame);
            }
        }
        sent
    }

    /// Where the table leads, but to port 0.
    fn route(&self, to: u16) -> Ports {
        let port = self.unicast.get(usize::from(to)).copied();
        let known = port.filter(|&port| port != 0 && self.is_linked(port));
        known.map_or(0, |port| 1 << port)
    }

    fn is_linked(&self, port: u8) -> bool {
        let port = self.ports.get(usize::from(port));
        port.is_some_and(|port| port.linked)
    }

    fn group(&self, to: u16) -> Ports {
        let entry = self
            .multicast
            .get(usize::from(to.wrapping_sub(FIRST_MULTICAST_LID)));
        entry.map_or(0, |positions| {
            (0..)
                .zip(positions)
                .fold(0, |all, (at, &bits)| all | Ports::from(bits) << (16 * at))
        })
    }

    /// A datagram with a directed route: to the next port on it, or to the own agent at its end, and back (14.2.2).
    fn directed(&mut self, from: u8, frame: &mut [u8], now: Duration) -> Ports {
        let Some(datagram) = frame
            .get_mut(PAYLOAD..)
            .and_then(|rest| rest.first_chunk_mut::<256>())
        else {
            return 0;
        };
        let (pointer, count) = (datagram[HOP_POINTER], datagram[HOP_COUNT]);
        let back = be16(datagram, STATUS) & DIRECTION != 0;
        if datagram[CLASS] != class::SUBNET_DIRECTED_ROUTE
            || pointer == 0
            || pointer > count
            || usize::from(count) >= MOST_HOPS
        {
            return 0;
        }
        let at = usize::from(pointer);
        let next = if back {
            if at < 2 {
                return 0;
            }
            datagram[HOP_POINTER] -= 1;
            datagram[RETURN_PATH + at - 1]
        } else {
            datagram[RETURN_PATH + at] = from;
            if pointer == count {
                return self.respond(from, SMI_QPN, 0, frame, now);
            }
            datagram[HOP_POINTER] += 1;
            datagram[INITIAL_PATH + at + 1]
        };
        if next == 0 || !self.is_linked(next) {
            return 0;
        }
        // On each cable of a directed route both identifiers are the permissive one, whatever the sender has: the end of
        // the route answers to the source, and no table may be needed for that.
        self.address(frame, PERMISSIVE_LID, PERMISSIVE_LID, 0);
        1 << next
    }

    /// Answers what is for one of the own agents, in place.
    fn respond(&mut self, from: u8, qpn: u32, level: u8, frame: &mut [u8], now: Duration) -> Ports {
        let whole = frame.len() == PAYLOAD + 256 + 4;
        let source = frame.get(6..).and_then(|rest| rest.first_chunk::<6>());
        let (true, Some((requester, _))) = (whole, source.and_then(|&source| lid(source))) else {
            return 0;
        };
        let Some(asked) = frame[PAYLOAD..].first_chunk::<256>().copied() else {
            return 0;
        };
        let directed = asked[CLASS] == class::SUBNET_DIRECTED_ROUTE;
        let subnet = directed || asked[CLASS] == class::SUBNET_LID_ROUTED;
        let mut answer = asked;
        let result = match qpn {
            SMI_QPN if subnet => match self.manage(from, &asked, &mut answer, now) {
                Some(result) => result,
                None => return 0,
            },
            GSI_QPN if performance::for_agent(&asked) => {
                let port = self.ports.get_mut(usize::from(performance::port(&asked)));
                performance::answer(&asked, &mut answer, port.map(|port| &mut port.traffic))
            }
            _ => return 0,
        };
        answer[METHOD] = method::GET_RESPONSE;
        let direction = if directed { DIRECTION } else { 0 };
        let status = direction | result.map_or_else(|status| status as u16, |()| 0);
        answer[STATUS..STATUS + 2].copy_from_slice(&status.to_be_bytes());
        frame[PAYLOAD..PAYLOAD + 256].copy_from_slice(&answer);
        let to: [u8; 3] = [
            frame[SOURCE_QPN],
            frame[SOURCE_QPN + 1],
            frame[SOURCE_QPN + 2],
        ];
        frame[DESTINATION_QPN..DESTINATION_QPN + 3].copy_from_slice(&to);
        frame[SOURCE_QPN..SOURCE_QPN + 3].copy_from_slice(&qpn.to_be_bytes()[1..]);
        let qkey = if qpn == GSI_QPN { GSI_QKEY } else { 0 };
        frame[QKEY..QKEY + 4].copy_from_slice(&qkey.to_be_bytes());
        if directed {
            self.address(frame, PERMISSIVE_LID, PERMISSIVE_LID, 0);
            return 1 << from;
        }
        self.address(frame, self.lid(), requester, level);
        self.route(requester)
    }

    /// Addresses a frame of its own.
    fn address(&self, frame: &mut [u8], from: u16, to: u16, level: u8) {
        frame[..6].copy_from_slice(&mac(to, level));
        frame[6..12].copy_from_slice(&mac(from, level));
        frame[SOURCE..SOURCE + 16].copy_from_slice(&local(from));
        frame[DESTINATION..DESTINATION + 16].copy_from_slice(&local(to));
        reseal(frame);
    }

    /// Subnet management; `None` where a request is discarded.
    fn manage(
        &mut self,
        from: u8,
        asked: &Datagram,
        answer: &mut Datagram,
        now: Duration,
    ) -> Option<Result<(), Status>> {
        let sets = match asked[METHOD] {
            method::GET => false,
            method::SET => true,
            method::TRAP_REPRESS => return None,
            _ => return Some(Err(Status::MethodUnsupported)),
        };
        if (asked[0], asked[CLASS_VERSION]) != (1, 1) {
            return Some(Err(Status::BadVersion));
        }
        let key = self.ports[0].port.check(be64(asked, M_KEY), sets, now);
        if key == Key::Bad {
            return None;
        }
        let data: &[u8; SUBNET_DATA] = asked[DATA..].first_chunk()?;
        let (attribute, modifier) = (be16(asked, ATTRIBUTE), be32(asked, MODIFIER));
        let set = if sets {
            self.set(attribute, modifier, data)
        } else {
            Ok(())
        };
        let out = &mut answer[DATA..DATA + SUBNET_DATA];
        out.fill(0);
        let got = set.and_then(|()| self.get(from, attribute, modifier, out));
        if key == Key::Hidden && attribute == attribute::PORT_INFO {
            out[..8].fill(0);
        }
        Some(got)
    }

    fn set(
        &mut self,
        attribute: u16,
        modifier: u32,
        data: &[u8; SUBNET_DATA],
    ) -> Result<(), Status> {
        let low = (modifier & 0xff) as usize;
        match attribute {
            attribute::SWITCH_INFO => {
                if usize::from(be16(data, 6)) >= UNICAST_ENTRIES {
                    return Err(Status::InvalidValue);
                }
                self.top = be16(data, 6);
                self.default_ports.copy_from_slice(&data[8..11]);
                self.life_time = data[11] & 0xf8;
                // A 1 clears it.
                self.state_changed &= data[11] & STATE_CHANGED == 0;
            }
            attribute::PORT_INFO => {
                let port = self.port(low)?;
                port.port.set(data, low == 0, port.linked)?;
            }
            attribute::EXTENDED_PORT_INFO => self.port(low)?.port.set_extended(data)?,
            attribute::P_KEY_TABLE => {
                let port = self.port((modifier >> 16) as usize)?;
                port.tables.set_pkeys(modifier & 0xffff, data)?;
            }
            // One mapping for each pair of ports, of which the one in is enough here: nothing is scheduled by lanes.
            attribute::SL_TO_VL => {
                let port = (modifier >> 8 & 0xff) as usize;
                self.port(port)?.tables.set_levels(data);
            }
            attribute::VL_ARBITRATION => {
                *self.port(low)?.tables.arbitration(modifier)? = *data;
            }
            attribute::LINEAR_FORWARDING => {
                let block = self
                    .unicast
                    .chunks_mut(UNICAST_BLOCK)
                    .nth(modifier as usize);
                let block = block.ok_or(Status::InvalidValue)?;
                block.copy_from_slice(data);
            }
            attribute::MULTICAST_FORWARDING => {
                let (block, position) = multicast_block(modifier)?;
                for (at, entry) in self.multicast[block..block + MULTICAST_BLOCK]
                    .iter_mut()
                    .enumerate()
                {
                    entry[position] = be16(data, at * 2);
                }
            }
            _ => return Err(Status::AttributeUnsupported),
        }
        Ok(())
    }

    fn get(
        &mut self,
        from: u8,
        attribute: u16,
        modifier: u32,
        out: &mut [u8],
    ) -> Result<(), Status> {
        let low = (modifier & 0xff) as usize;
        let mut fields = Fields(out);
        match attribute {
            attribute::NODE_DESCRIPTION => {
                fields.put(0, &self.name);
            }
            attribute::NODE_INFO => {
                let guid = self.guid.to_be_bytes();
                let ports = (self.ports.len() - 1) as u8;
                fields
                    .put(0, &[1, 1, SWITCH, ports])
                    .put(4, &guid)
                    .put(12, &guid)
                    .put(20, &guid)
                    .put(28, &PKEYS.to_be_bytes())
                    .put(30, &DEVICE.to_be_bytes())
                    .byte(36, from)
                    .put(37, &VENDOR);
            }
            attribute::SWITCH_INFO => {
                let changed = if self.state_changed { STATE_CHANGED } else { 0 };
                fields
                    .put(0, &(UNICAST_ENTRIES as u16).to_be_bytes())
                    .put(4, &(MULTICAST_ENTRIES as u16).to_be_bytes())
                    .put(6, &self.top.to_be_bytes())
                    .put(8, &self.default_ports)
                    .byte(11, self.life_time | changed)
                    .put(14, &PKEYS.to_be_bytes());
            }
            attribute::PORT_INFO => {
                let port = self.port(low)?;
                let capabilities = if low == 0 { CAPABILITIES } else { 0 };
                let up = port.linked;
                port.port.info(&mut fields, from, capabilities, 0, up);
            }
            attribute::EXTENDED_PORT_INFO => self.port(low)?.port.extended_info(&mut fields),
            // Port 0 has its GUID only.
            attribute::GUID_INFO if modifier == 0 => {
                fields.put(0, &self.guid.to_be_bytes());
            }
            attribute::P_KEY_TABLE => {
                let port = self.port((modifier >> 16) as usize)?;
                port.tables.pkeys(modifier & 0xffff, out)?;
            }
            attribute::SL_TO_VL => {
                let port = (modifier >> 8 & 0xff) as usize;
                self.port(port)?.tables.levels(out);
            }
            attribute::VL_ARBITRATION => {
                out.copy_from_slice(self.port(low)?.tables.arbitration(modifier)?);
            }
            attribute::LINEAR_FORWARDING => {
                let block = self.unicast.chunks(UNICAST_BLOCK).nth(modifier as usize);
                out.copy_from_slice(block.ok_or(Status::InvalidValue)?);
            }
            attribute::MULTICAST_FORWARDING => {
                let (block, position) = multicast_block(modifier)?;
                for (at, entry) in self.multicast[block..block + MULTICAST_BLOCK]
                    .iter()
                    .enumerate()
                {
                    fields.put(at * 2, &entry[position].to_be_bytes());
                }
            }
            _ => return Err(Status::AttributeUnsupported),
        }
        Ok(())
    }
}

/// The first entry, and which 16 ports, of a block of the multicast table (14.2.5.12).
fn multicast_block(modifier: u32) -> Result<(usize, usize), Status> {
    let first = (modifier & 0x1ff) as usize * MULTICAST_BLOCK;
    let position = (modifier >> 28) as usize;
    if first >= MULTICAST_ENTRIES || position >= POSITIONS {
        return Err(Status::InvalidValue);
    }
    Ok((first, position))
}
