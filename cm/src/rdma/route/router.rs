//! The router: the port's own addresses, the resolver, and what waits for the resolver's answers.
//!
//! It says how a destination is reached ([`resolve`](super::resolve)), and how the sender of a MAD is
//! ([`return_path`](super::return_path)). It does not send.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use bareverbs_core::ah::AhAttr;
use bareverbs_core::{Device, Gid, LinkLayer, Mtu, Platform, PortAttr};

use crate::engine::Address;
use crate::rdma::port::gsi::{self, SLICE};
use crate::rdma::resolver::{Neighbours, Resolver, Subnet};
use crate::rdma::route::deferred::{DeferredMad, DeferredMadSlot, DeferredMads};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::id::NIL;
use crate::rdma::types::sockaddr::ANY_GID;

/// The routes from a device's port.
#[derive(Debug)]
pub(crate) struct Router<'s, 'd, P: Platform, R> {
    pub(super) device: &'d Device<'d, P>,
    pub(crate) resolver: R,
    /// The port, as it was when the manager was made; on InfiniBand, when it was last asked.
    pub(super) port: PortAttr,
    /// The port's GID on InfiniBand; on RoCE there is a table of them.
    pub(super) gid: Gid,
    max_path_mtu: Mtu,
    /// The first of the ids that wait for an answer.
    pub(super) wait_head: u32,
    /// Waits for answers so far.
    pub(super) resolutions: u64,
    deferred_mads: DeferredMads<'s>,
}

impl<'s, 'd, P: Platform, R> Router<'s, 'd, P, R> {
    /// A router for a port.
    pub(crate) fn new(
        device: &'d Device<'d, P>,
        port: PortAttr,
        resolver: R,
        max_path_mtu: Mtu,
        deferred_mads: &'s mut [DeferredMadSlot],
    ) -> Result<Self, RdmaError> {
        let mut router = Self {
            device,
            resolver,
            port,
            gid: Gid::ZERO,
            max_path_mtu,
            wait_head: NIL,
            resolutions: 0,
            deferred_mads: DeferredMads::new(deferred_mads),
        };
        router.refresh_port()?;
        Ok(router)
    }

    /// The port.
    pub(crate) const fn port(&self) -> &PortAttr {
        &self.port
    }

    /// The port's GID on InfiniBand.
    pub(crate) const fn gid(&self) -> Gid {
        self.gid
    }

    /// Returns `true` if ids have GIDs for addresses here.
    pub(crate) fn is_infiniband(&self) -> bool {
        cfg!(feature = "infiniband") && self.port.link_layer == LinkLayer::InfiniBand
    }

    /// Asks the device for the port's LID, the subnet manager's, and the GID.
    pub(crate) fn refresh_port(&mut self) -> Result<(), RdmaError> {
        if self.is_infiniband() {
            self.port = self.device.query_port()?;
            self.gid = self.device.query_infiniband_gid(0)?;
        }
        Ok(())
    }

    /// The largest path MTU to ask for, in the code of the wire.
    pub(super) fn max_path_mtu(&self) -> u8 {
        self.port
            .active_mtu
            .number()
            .min(self.max_path_mtu.number())
    }

    /// The bits of the port's LID that distinguish its paths.
    pub(super) const fn path_mask(&self) -> u16 {
        let lmc = if self.port.lmc < 8 { self.port.lmc } else { 7 };
        (1 << lmc) - 1
    }

    /// The path in the device's format.
    pub(crate) fn ah_attr(&self, address: &Address) -> AhAttr {
        let attr = gsi::ah_attr(address);
        if address.remote_lid == 0 {
            return attr;
        }
        AhAttr {
            // GIDs only on paths that need a global route header.
            dgid: if address.hop_limit > 0 || self.port.grh_required {
                attr.dgid
            } else {
                Gid::ZERO
            },
            dlid: address.remote_lid,
            src_path_bits: (address.local_lid & self.path_mask()) as u8,
            ..attr
        }
    }

    pub(super) fn is_own_gid(&self, address: IpAddr) -> bool {
        address != ANY_GID && gsi::gid(address) == self.gid
    }

    /// The number of MADs that wait until their senders' addresses are resolved.
    pub(crate) const fn deferred_mads(&self) -> usize {
        self.deferred_mads.len()
    }

    /// The MAD that has waited longest.
    pub(crate) fn next_deferred_mad(&mut self) -> Option<DeferredMad> {
        self.deferred_mads.pop()
    }

    /// Keeps a MAD until its sender's address is resolved, if there is a free slot and it has not waited too long.
    pub(crate) fn defer(&mut self, now: Duration, deferred: DeferredMad) {
        self.deferred_mads.push(now, deferred);
    }
}

impl<P: Platform, R: Resolver> Router<'_, '_, P, R> {
    /// Index and VLAN of the GID of one of the device's addresses.
    pub(crate) fn own_entry(&self, address: IpAddr) -> Option<(u16, Option<u16>)> {
        if self.is_infiniband() {
            return self.is_own_gid(address).then_some((0, None));
        }
        let gid = gsi::gid(address);
        let mut table = self.device.gid_table();
        let version = self.resolver.neighbours().roce_version();
        table
            .find(|(_, entry)| entry.gid == gid && entry.version == version)
            .map(|(index, entry)| (index, entry.vlan))
    }

    /// Returns `true` if the device has this address.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        if self.is_infiniband() {
            return self.is_own_gid(address);
        }
        let gid = gsi::gid(address);
        let mut table = self.device.gid_table();
        let version = self.resolver.neighbours().roce_version();
        table.any(|(_, entry)| entry.gid == gid && entry.version == version)
    }

    /// Index of the GID that answers for an address.
    pub(crate) fn gid_index(&self, address: IpAddr, vlan: Option<u16>) -> Option<u16> {
        self.device.find_gid(
            &gsi::gid(address),
            self.resolver.neighbours().roce_version(),
            vlan,
        )
    }

    /// Loopback and wildcard destinations mean this device.
    pub(super) fn own_for_loopback(&self, destination: IpAddr) -> Result<IpAddr, RdmaError> {
        if destination.is_loopback() || destination.is_unspecified() {
            self.first_own(destination)
                .ok_or(RdmaError::NoDevice(destination))
        } else {
            Ok(destination)
        }
    }

    /// The device's first address of the family, link-local only if that is what is wanted.
    pub(super) fn first_own(&self, like: IpAddr) -> Option<IpAddr> {
        let link_local = |address: IpAddr| match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let mut fallback = None;
        for (_, entry) in self.device.gid_table() {
            let address = entry.gid.to_ipv6().to_canonical();
            if entry.version != self.resolver.neighbours().roce_version()
                || address.is_ipv4() != like.is_ipv4()
            {
                continue;
            }
            if link_local(address) == link_local(like) {
                return Some(address);
            }
            fallback = fallback.or(Some(address));
        }
        fallback
    }

    /// Returns `true` if the device has this address; on InfiniBand, as an IP address or as a GID.
    pub(crate) fn is_own_end(&self, address: IpAddr, over_ip: bool) -> bool {
        if cfg!(feature = "infiniband") && over_ip {
            return self.resolver.neighbours().has_address(address);
        }
        self.is_own(address)
    }

    /// The error of binding to an address that is not the [own end](Self::is_own_end): an IP address is another host's, unless
    /// the GID table has it for the other encapsulation.
    pub(crate) fn not_own(&self, address: SocketAddr, over_ip: bool) -> RdmaError {
        let ip = address.ip();
        let gid = gsi::gid(ip);
        let is_gid = self.is_infiniband() && !over_ip;
        if is_gid || self.device.gid_table().any(|(_, entry)| entry.gid == gid) {
            return RdmaError::NoDevice(ip);
        }
        RdmaError::AddrNotAvailable(address)
    }

    /// When the resolver has to be polled at the latest, or what waits for it has to ask again.
    pub(crate) fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let waiting = self.wait_head != NIL || self.deferred_mads.len() > 0;
        let waiting = waiting.then(|| now.saturating_add(SLICE));
        let deadlines = [
            waiting,
            self.resolver.subnet().next_timeout(),
            self.resolver.neighbours().next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The port or its subnet has changed.
    pub(crate) fn port_changed(&mut self, now: Duration) {
        if !self.is_infiniband() {
            return;
        }
        if let Err(error) = self.refresh_port() {
            return log::warn!("the port does not say how it is: {error}");
        }
        self.resolver.subnet_mut().subnet_changed(now);
    }
}
