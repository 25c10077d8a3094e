//! The port's agents for management datagrams: the firmware takes what comes off the wire for them, and drivers hand over what
//! they ask their own port (MAD_IFC).
//!
//! An unsupported method or attribute is reported in the answer's status (IBTA vol. 1, 13.4.7).

use crate::bus::io::Io;
use crate::device::Device;
use crate::port::link::{GUIDS_CHANGED, INITIALIZED, LID_CHANGED, PKEYS_CHANGED, REREGISTER};
use crate::port::vport::PKEYS;
use crate::subnet::datagram::{
    ATTRIBUTE, CLASS, CLASS_VERSION, DATA, DIRECTION, Datagram, Fields, HOP_POINTER, M_KEY, METHOD,
    MODIFIER, MOST_HOPS, RETURN_PATH, STATUS, SUBNET_DATA, Status, attribute, be16, be32, be64,
    class, method,
};
use crate::subnet::performance;
use crate::subnet::port::{Changes, Key};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::values::PortState;

const CHANNEL_ADAPTER: u8 = 1;
const VENDOR: [u8; 3] = [0x00, 0x02, 0xc9];
const REVISION: u32 = 0;
const PORT: u8 = 1;
/// GUIDs of the port, also those that are not given: one block of them.
pub(crate) const GUIDS: u8 = 8;
/// Returns `true` if a datagram asks the agent for subnet management.
pub(crate) fn for_subnet_agent(asked: &Datagram) -> bool {
    matches!(
        asked[CLASS],
        class::SUBNET_LID_ROUTED | class::SUBNET_DIRECTED_ROUTE
    ) && matches!(asked[METHOD], method::GET | method::SET)
}

/// Turns an answer to a datagram with a directed route round: it came to the route's end, at this port.
pub(crate) fn turn_round(answer: &mut Datagram) {
    let status = be16(answer, STATUS) | DIRECTION;
    answer[STATUS..STATUS + 2].copy_from_slice(&status.to_be_bytes());
    let hop = usize::from(answer[HOP_POINTER]);
    if (1..MOST_HOPS).contains(&hop) {
        answer[RETURN_PATH + hop] = PORT;
    }
}

impl Device {
    /// Answers a management datagram; `None` if there is nothing to answer. The port's M_Key counts where `keyed`.
    pub(crate) fn manage(
        &mut self,
        io: &mut Io<'_>,
        asked: &Datagram,
        keyed: bool,
    ) -> Result<Option<Datagram>, Syndrome> {
        let subnet = match asked[CLASS] {
            class::SUBNET_LID_ROUTED | class::SUBNET_DIRECTED_ROUTE => true,
            class::PERFORMANCE => false,
            _ => return Err(Syndrome::MadClass),
        };
        let sets = asked[METHOD] == method::SET;
        let mut key = Key::Good;
        if subnet && keyed {
            let now = self.now;
            key = self.vport.subnet.check(be64(asked, M_KEY), sets, now);
        }
        if asked[METHOD] == method::TRAP_REPRESS || key == Key::Bad {
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
            let set = if sets {
                self.set_subnet(io, asked)
            } else {
                Ok(())
            };
            set.and_then(|()| self.manage_subnet(asked, &mut answer))
        } else {
            let port = performance::port(asked);
            let known = matches!(port, PORT | performance::ALL);
            let traffic = known.then_some(&mut self.vport.traffic);
            performance::answer(asked, &mut answer, traffic)
        };
        if key == Key::Hidden && be16(asked, ATTRIBUTE) == attribute::PORT_INFO {
            answer[DATA..DATA + 8].fill(0);
        }
        let direction = be16(asked, STATUS) & DIRECTION;
        let status = result.map_or_else(|status| status as u16, |()| 0);
        answer[STATUS..STATUS + 2].copy_from_slice(&(direction | status).to_be_bytes());
        Ok(Some(answer))
    }

    /// Applies the settings of a subnet manager, and raises the events that tell the driver.
    fn set_subnet(&mut self, io: &mut Io<'_>, asked: &Datagram) -> Result<(), Status> {
        let modifier = be32(asked, MODIFIER);
        let data: &[u8; SUBNET_DATA] = asked[DATA..].first_chunk().ok_or(Status::InvalidValue)?;
        match be16(asked, ATTRIBUTE) {
            // An adapter's ports are set one by one, 0 being the one that was asked.
            attribute::PORT_INFO if modifier & 0xff > PORT.into() => Err(Status::InvalidValue),
            attribute::PORT_INFO => {
                let up = self.vport.up();
                let before = self.vport.subnet.state;
                let changes = self.vport.subnet.set(data, true, up)?;
                self.vport.managed = true;
                self.port_was_set(io, before, data[32] & 0xf, changes);
                Ok(())
            }
            attribute::EXTENDED_PORT_INFO if modifier & 0xff > PORT.into() => {
                Err(Status::InvalidValue)
            }
            attribute::EXTENDED_PORT_INFO => self.vport.subnet.set_extended(data),
            attribute::P_KEY_TABLE => {
                if self.vport.tables.set_pkeys(modifier & 0xffff, data)? {
                    self.port_event(io, PKEYS_CHANGED);
                    self.configure_all(io);
                }
                Ok(())
            }
            attribute::GUID_INFO if modifier > 0 => Err(Status::InvalidValue),
            attribute::GUID_INFO => {
                // The first is the port's own.
                for (at, guid) in self.vport.guids.iter_mut().enumerate() {
                    *guid = be64(data, 8 + at * 8);
                }
                self.port_event(io, GUIDS_CHANGED);
                Ok(())
            }
            attribute::SL_TO_VL => {
                self.vport.tables.set_levels(data);
                Ok(())
            }
            attribute::VL_ARBITRATION => {
                *self.vport.tables.arbitration(modifier)? = *data;
                Ok(())
            }
            _ => Err(Status::AttributeUnsupported),
        }
    }

    fn port_was_set(&mut self, io: &mut Io<'_>, before: PortState, asked: u8, changes: Changes) {
        if asked == PortState::Down.number() {
            self.port_event(io, PortState::Down.number());
            self.port_event(io, INITIALIZED);
        }
        if changes.lid {
            self.port_event(io, LID_CHANGED);
        }
        if changes.prefix {
            self.port_event(io, GUIDS_CHANGED);
        }
        let state = self.vport.subnet.state;
        if state == PortState::Active && before != state {
            self.port_event(io, PortState::Active.number());
        }
        if changes.reregister {
            self.port_event(io, REREGISTER);
        }
    }

    fn manage_subnet(&mut self, asked: &Datagram, answer: &mut Datagram) -> Result<(), Status> {
        let modifier = be32(asked, MODIFIER);
        let data = &mut answer[DATA..DATA + SUBNET_DATA];
        data.fill(0);
        let mut fields = Fields(data);
        match be16(asked, ATTRIBUTE) {
            attribute::NODE_DESCRIPTION => {
                fields.put(0, &self.node_description);
            }
            attribute::NODE_INFO => self.node_info(&mut fields),
            attribute::PORT_INFO if modifier & 0xff > PORT.into() => {
                return Err(Status::InvalidValue);
            }
            attribute::PORT_INFO => {
                let (mask, up) = (self.vport.cap_mask1, self.vport.up());
                self.vport.subnet.info(&mut fields, PORT, mask, GUIDS, up);
            }
            attribute::EXTENDED_PORT_INFO if modifier & 0xff > PORT.into() => {
                return Err(Status::InvalidValue);
            }
            attribute::EXTENDED_PORT_INFO => self.vport.subnet.extended_info(&mut fields),
            attribute::GUID_INFO if modifier > 0 => return Err(Status::InvalidValue),
            attribute::GUID_INFO => {
                fields.put(0, &self.vport.context.port_guid().to_be_bytes());
                for (at, guid) in self.vport.guids.iter().enumerate() {
                    fields.put(8 + at * 8, &guid.to_be_bytes());
                }
            }
            attribute::P_KEY_TABLE => self.vport.tables.pkeys(modifier & 0xffff, data)?,
            attribute::SL_TO_VL => self.vport.tables.levels(data),
            attribute::VL_ARBITRATION => {
                data.copy_from_slice(self.vport.tables.arbitration(modifier)?);
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
}
