//! Packets in tunnels: the UDP ports whose datagrams are VXLAN's (RFC 7348), and targets whose frames the card looks into.
//!
//! Source: `mlx5_ifc.h`, `tirc`; `MLX5_QP_FLAG_TUNNEL_OFFLOADS` and `MLX5_RX_HASH_INNER` of `create_rss_raw_qp_tir` in Linux's
//! `mlx5_ib`.

use bareverbs_firmware_cmds::caps::EthernetOffloadCaps;
use bareverbs_firmware_cmds::numbers::Rqn;
use bareverbs_firmware_cmds::tir::{CreateTirIn, RxHashFieldSelect, Tirc};
use bareverbs_firmware_cmds::values::CapabilityGroup;
use bareverbs_firmware_cmds::vport::{AddVxlanUdpDportIn, DeleteVxlanUdpDportIn};

use bitflags::bitflags;

use crate::device::Device;
use crate::ethernet::domain::{EthernetDomain, EthernetTarget, INDIRECT, IndirectionTable};
use crate::ethernet::error::EthernetError;
use crate::ethernet::limits::group;
use crate::ethernet::objects::{Kind, Object};
use crate::ethernet::rss::{RssError, RssHash};
use crate::platform::Platform;
use crate::types::error::CommandError;

bitflags! {
    /// Tunnels that a card looks into.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Tunnels: u8 {
        /// VXLAN, to [`VXLAN_PORT`] and to ports that the card [was told](Device::add_vxlan_port).
        const VXLAN = 1 << 0;
        /// GRE (RFC 2784), with an Ethernet frame or an IP packet inside.
        const GRE = 1 << 1;
    }
}

/// The headers of a packet in a tunnel that are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashedHeaders {
    /// Those around it.
    Outer,
    /// Its own. What is in no tunnel has the hash of nothing, which is 0.
    Inner,
}

/// The port that cards know without being told (IANA).
pub const VXLAN_PORT: u16 = 4789;

impl<P: Platform> Device<'_, P> {
    /// Tells the card of another UDP port that is VXLAN's, beside [`VXLAN_PORT`]: it finds inner headers behind no other
    /// (`ADD_VXLAN_UDP_DPORT`). The port is that of all queues of the function, until it is
    /// [removed](Self::remove_vxlan_port) or the device is closed.
    ///
    /// # Errors
    /// [`EthernetError::Unsupported`] on a card without such ports, [`EthernetError::Command`] if it keeps as many as it can.
    pub fn add_vxlan_port(&self, port: u16) -> Result<(), EthernetError> {
        let offloads: EthernetOffloadCaps = group(self, CapabilityGroup::EthernetOffloads)?;
        if offloads.max_vxlan_udp_ports() == 0 {
            return Err(EthernetError::Unsupported {
                what: "ports of VXLAN (max_vxlan_udp_ports)",
            });
        }
        let mut command = AddVxlanUdpDportIn::new();
        command.set_vxlan_udp_port(port);
        self.execute(&command)?;
        Ok(())
    }

    /// Takes a port back (`DELETE_VXLAN_UDP_DPORT`).
    ///
    /// # Errors
    /// [`EthernetError::Command`] if it is none of VXLAN's.
    pub fn remove_vxlan_port(&self, port: u16) -> Result<(), EthernetError> {
        let mut command = DeleteVxlanUdpDportIn::new();
        command.set_vxlan_udp_port(port);
        self.execute(&command)?;
        Ok(())
    }
}

/// Makes a hash one of inner headers.
pub(super) fn to_inner(context: &mut Tirc) {
    let fields = *context.rx_hash_field_selector_outer();
    *context.rx_hash_field_selector_inner_mut() = fields;
    *context.rx_hash_field_selector_outer_mut() = RxHashFieldSelect::ZERO;
}

impl<'d, P: Platform> EthernetDomain<'d, P> {
    /// The tunnels whose packets the card verifies the checksums of.
    ///
    /// # Errors
    /// If the firmware does not answer.
    pub fn tunnels(&self) -> Result<Tunnels, CommandError> {
        let offloads: EthernetOffloadCaps = group(self.device, CapabilityGroup::EthernetOffloads)?;
        let mut tunnels = Tunnels::empty();
        tunnels.set(Tunnels::VXLAN, offloads.tunnel_stateless_vxlan());
        tunnels.set(Tunnels::GRE, offloads.tunnel_stateless_gre());
        Ok(tunnels)
    }

    /// Creates a target that sends all its frames to one queue, and has the card look into those that are tunnels:
    /// [`ReceivedFrame::tunneled`](super::ReceivedFrame::tunneled).
    ///
    /// # Errors
    /// [`RssError::Tunnels`] if the card does not, or the firmware's refusal.
    pub fn create_tunnel_target(&self, queue: Rqn) -> Result<EthernetTarget<'d, P>, RssError> {
        let mut command = CreateTirIn::new();
        command.ctx_mut().set_inline_rqn(queue.number());
        self.create_tunnels(command, false)
    }

    /// Creates a target that sends each frame to the queue that a hash finds in a table, and has the card look into those that
    /// are tunnels.
    ///
    /// # Errors
    /// [`RssError`] says what the hash lacks or the card cannot do.
    pub fn create_hashed_tunnel_target(
        &self,
        table: &IndirectionTable<'d, P>,
        hash: &RssHash,
        headers: HashedHeaders,
    ) -> Result<EthernetTarget<'d, P>, RssError> {
        let mut command = CreateTirIn::new();
        let context = command.ctx_mut();
        context
            .set_disp_type(INDIRECT)
            .set_indirect_table(table.number());
        hash.check_table(table.size())?;
        hash.write(context)?;
        let inner = headers == HashedHeaders::Inner;
        if inner {
            to_inner(context);
        }
        self.create_tunnels(command, inner)
    }

    fn create_tunnels(
        &self,
        mut command: CreateTirIn,
        inner: bool,
    ) -> Result<EthernetTarget<'d, P>, RssError> {
        if self.tunnels()?.is_empty() {
            return Err(RssError::Tunnels);
        }
        command
            .ctx_mut()
            .set_transport_domain(self.domain.number())
            .set_tunneled_offload_en(true);
        let tirn = self.device.execute(&command)?.tirn();
        Ok(EthernetTarget {
            object: Object::new(self.device, Kind::Tir, tirn),
            device: self.device,
            inner,
        })
    }
}
