//! The port's MTU, which Ethernet and RoCE share.

use bareverbs_firmware_cmds::register::{AccessRegisterIn, PmtuReg};
use bareverbs_firmware_cmds::values::{AccessRegister, RegisterId};
use bareverbs_firmware_cmds::vport::ModifyNicVportContextIn;
use zerocopy::IntoBytes;

use crate::device::{Device, TailIn};
use crate::ethernet::error::EthernetError;
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::port::{ETHERNET_OVERHEAD, LinkLayer, PORT};

/// The smallest MTU that IPv4 can use.
const MIN_MTU: u16 = 68;
/// The bytes that the hardware's MTU counts beside the payload.
const OVERHEAD: u16 = ETHERNET_OVERHEAD as u16;

/// Payload of the port's longest frame, as `ip link` counts: without Ethernet header, VLAN tag and check sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EthernetMtu {
    /// The MTU in force.
    pub current: u16,
    /// The largest MTU that the port can be set to.
    pub max: u16,
}

impl<P: Platform> Device<'_, P> {
    /// The port's Ethernet MTU.
    pub fn ethernet_mtu(&self) -> Result<EthernetMtu, EthernetError> {
        if self.capabilities().link_layer() != LinkLayer::Ethernet {
            return Err(EthernetError::NotEthernet);
        }
        let (current, max) = match self.read_pmtu()? {
            Some(pmtu) => (pmtu.oper_mtu(), pmtu.max_mtu()),
            // A virtual function has no such register.
            None => {
                let mtu = self.nic_vport()?.mtu();
                (mtu, mtu)
            }
        };
        Ok(EthernetMtu {
            current: current.saturating_sub(OVERHEAD),
            max: max.saturating_sub(OVERHEAD),
        })
    }

    /// Sets the port's MTU, for Ethernet and RoCE alike. Queues that there are keep the buffers that they have: what
    /// comes in longer than those is counted and dropped.
    pub fn set_ethernet_mtu(&self, mtu: u16) -> Result<(), EthernetError> {
        let limit = self.ethernet_mtu()?.max;
        if !(MIN_MTU..=limit).contains(&mtu) {
            return Err(EthernetError::Size {
                field: "MTU",
                asked: mtu.into(),
                limit: limit.into(),
            });
        }
        // Inside the range, so that the sum fits.
        let hardware = mtu + OVERHEAD;
        if self.read_pmtu()?.is_some() {
            self.write_pmtu(hardware)?;
        }
        let mut modify = ModifyNicVportContextIn::new();
        modify.field_select_mut().set_mtu(true);
        modify.nic_vport_context_mut().set_mtu(hardware);
        self.execute_no_output(&modify)?;
        Ok(())
    }

    fn write_pmtu(&self, hardware: u16) -> Result<(), CommandError> {
        let mut pmtu = PmtuReg::ZERO;
        pmtu.set_local_port(PORT).set_admin_mtu(hardware);
        let mut write = AccessRegisterIn::new();
        write
            .set_op_mod(AccessRegister::Write.number())
            .set_register_id(RegisterId::Pmtu.number());
        let mut answer = PmtuReg::ZERO;
        let tail = TailIn::Bytes(pmtu.as_bytes());
        self.execute_with(&write, tail, answer.as_mut_bytes())
            .map(drop)
    }
}
