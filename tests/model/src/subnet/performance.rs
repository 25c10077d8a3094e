//! Performance management (IBTA vol. 1, 16.1): a port's counters, shown and cleared.

use crate::port::vport::PortTraffic;
use crate::subnet::datagram::{
    ATTRIBUTE, CLASS, DATA, Datagram, Fields, METHOD, RESPONSE_TIME, Status, be16, class, method,
};

mod attribute {
    pub(super) const CLASS_PORT_INFO: u16 = 0x01;
    pub(super) const PORT_COUNTERS: u16 = 0x12;
    pub(super) const PORT_COUNTERS_EXTENDED: u16 = 0x1d;
}

/// There are counters of 64 bits, of packets by kind as well.
const EXTENDED_WIDTH: u16 = 1 << 9;
/// All ports.
pub(crate) const ALL: u8 = 0xff;

/// Returns `true` if a datagram asks a port's agent.
pub(crate) fn for_agent(asked: &Datagram) -> bool {
    asked[CLASS] == class::PERFORMANCE && matches!(asked[METHOD], method::GET | method::SET)
}

/// The port that a datagram asks for, by number.
pub(crate) fn port(asked: &Datagram) -> u8 {
    asked[DATA + 1]
}

/// Fills in an answer, whose port has counted `traffic`; `None` if there is no such port.
pub(crate) fn answer(
    asked: &Datagram,
    answer: &mut Datagram,
    traffic: Option<&mut PortTraffic>,
) -> Result<(), Status> {
    let sets = asked[METHOD] == method::SET;
    let data = &mut answer[DATA..];
    let wide = match be16(asked, ATTRIBUTE) {
        attribute::CLASS_PORT_INFO if !sets => {
            data.fill(0);
            Fields(data)
                .put(0, &[1, 1])
                .put(2, &EXTENDED_WIDTH.to_be_bytes())
                .put(7, &[RESPONSE_TIME]);
            return Ok(());
        }
        attribute::PORT_COUNTERS => false,
        attribute::PORT_COUNTERS_EXTENDED => true,
        _ => return Err(Status::AttributeUnsupported),
    };
    let traffic = traffic.ok_or(Status::InvalidValue)?;
    if sets {
        // Of what is selected, only traffic is ever counted here: data and packets, sent and received.
        let selected = if wide { 0x00ff } else { 0xf000 };
        if be16(asked, DATA + 2) & selected != 0 {
            *traffic = PortTraffic::default();
        }
    }
    data[4..].fill(0);
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
