//! What programs have in common that send each other datagrams.

use std::error::Error;

use bareverbs::cm::rdma::{PortSpace, UdEvent};
use bareverbs::verbs::qp::{Destination, SendData, SendOp, SendWr};
use bareverbs::verbs::{AddressHandle, Platform, Qpn, SendFlags};

use crate::exchange::{Amount, Messages};
use crate::node::Cm;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The network header that arrives in front of a datagram.
pub(crate) const GRH: usize = 40;

/// A port space, as rdma-core's programs have it or by name.
pub(crate) fn parse_port_space(text: &str) -> std::result::Result<PortSpace, String> {
    let number = text
        .strip_prefix("0x")
        .and_then(|digits| u16::from_str_radix(digits, 16).ok());
    match (text, number) {
        ("udp", _) | (_, Some(0x0111)) => Ok(PortSpace::Udp),
        ("ipoib", _) | (_, Some(0x0002)) => Ok(PortSpace::Ipoib),
        _ => Err("udp (0x0111) or ipoib (0x0002)".into()),
    }
}

/// That a packet of the port holds a message.
pub(crate) fn check_size<P: Platform>(cm: &Cm<'_, '_, P>, amount: Amount) -> Result<()> {
    let (size, limit) = (amount.size(), cm.port().active_mtu.bytes() as usize);
    if amount.messages() == 0 || size <= limit {
        return Ok(());
    }
    Err(format!("-S: {size} bytes do not fit the port's MTU, which is {limit}").into())
}

/// Where datagrams go.
pub(crate) struct There {
    pub(crate) ah: AddressHandle,
    pub(crate) destination: Qpn,
    pub(crate) qkey: u32,
}

impl There {
    /// Where an event says.
    pub(crate) fn told<P: Platform>(cm: &Cm<'_, '_, P>, ud: &UdEvent) -> Result<Self> {
        Ok(Self {
            ah: cm.device().create_ah(&ud.ah_attr)?,
            destination: Qpn::from_low_bits(ud.qp_num),
            qkey: ud.qkey,
        })
    }

    /// Sends all datagrams of a queue pair at once, each with the number of the queue pair to answer to.
    pub(crate) fn send<'d, P: Platform>(
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
