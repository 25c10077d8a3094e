//! The common part of programs that send each other datagrams.

use bareverbs::cm::rdma::{PortSpace, UdEvent};
use bareverbs::verbs::qp::{Destination, SendData, SendOp, SendWr};
use bareverbs::verbs::{AddressHandle, Platform, Qpn, SendFlags};

use crate::Result;
use crate::exchange::{Amount, Messages};
use bareverbs_node::Cm;

/// The network header that arrives in front of a datagram.
pub const GRH: usize = 40;

/// A port space, as rdma-core's programs have it or by name.
pub fn parse_port_space(text: String) -> std::result::Result<PortSpace, String> {
    let number = text
        .strip_prefix("0x")
        .and_then(|digits| u16::from_str_radix(digits, 16).ok());
    match (text.as_str(), number) {
        ("udp", _) | (_, Some(0x0111)) => Ok(PortSpace::Udp),
        ("ipoib", _) | (_, Some(0x0002)) => Ok(PortSpace::Ipoib),
        _ => Err("udp (0x0111) or ipoib (0x0002)".into()),
    }
}

/// That a packet of the port holds a message.
pub fn check_size<P: Platform>(cm: &Cm<'_, '_, P>, amount: Amount) -> Result<()> {
    let (size, limit) = (amount.size(), cm.port().active_mtu.bytes() as usize);
    if amount.messages() == 0 || size <= limit {
        return Ok(());
    }
    Err(format!("-S: {size} bytes do not fit the port's MTU, which is {limit}").into())
}

/// The destination of datagrams.
pub struct RemoteQp {
    pub ah: AddressHandle,
    pub destination: Qpn,
    pub qkey: u32,
}

impl RemoteQp {
    /// From an event.
    pub fn from_event<P: Platform>(cm: &Cm<'_, '_, P>, ud: &UdEvent) -> Result<Self> {
        Ok(Self {
            ah: cm.device().create_ah(&ud.ah_attr)?,
            destination: Qpn::from_low_bits(ud.qp_num),
            qkey: ud.qkey,
        })
    }

    /// Sends all datagrams of a queue pair at once, each with the number of the queue pair to answer to.
    pub fn send<'d, P: Platform>(
        &self,
        cm: &mut Cm<'_, 'd, P>,
        messages: &Messages<'d, P>,
    ) -> Result<u64> {
        if messages.sends() == 0 {
            return Ok(0);
        }
        let sge = messages.sge()?;
        let qp = cm.ud_endpoint(messages.id())?.qp;
        let own = qp.qpn().number();
        for _ in 0..messages.sends() {
            qp.send_queue().post(&SendWr {
                wr_id: 0,
                op: SendOp::SendToImm(
                    Destination {
                        ah: &self.ah,
                        remote_qpn: self.destination,
                        remote_qkey: self.qkey,
                    },
                    own,
                ),
                flags: SendFlags::empty(),
                data: SendData::Sges(&[sge]),
            })?;
        }
        messages.sent(cm)?;
        Ok(messages.sends().into())
    }
}
