//! Lookup of ids by port space and port: a hash table of chains through the slots.

use core::net::{IpAddr, SocketAddr};

use bareverbs_core::Platform;

use crate::rdma::id::slot::IdSlot;
use crate::rdma::id::table::{IdTable, PortRange};
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::id::NIL;
use crate::rdma::types::{IdState, PortSpace};

/// Returns `true` for an address of no device, which takes its port from all addresses: the one for all, and a loopback address
/// (`cma_any_addr` of Linux's core/cma.c). Without programs in C the latter is left out, for less code.
fn is_any(ip: IpAddr) -> bool {
    ip.is_unspecified() || cfg!(feature = "attached-qps") && ip.is_loopback()
}

impl<P: Platform> IdTable<'_, '_, P> {
    fn port_bucket(&self, port: u16) -> usize {
        usize::from(port) % self.len().max(1)
    }

    pub(crate) fn port_head(&self, port: u16) -> u32 {
        self.get(self.port_bucket(port))
            .map_or(NIL, |slot| slot.links.port_head)
    }

    /// The first thing that `find` gives for an id on this port.
    pub(crate) fn on_port<T>(
        &self,
        port_space: PortSpace,
        port: u16,
        find: impl Fn(&IdSlot<'_, P>) -> Option<T>,
    ) -> Option<T> {
        let mut at = self.port_head(port);
        while let Some(slot) = self.get(at as usize) {
            if slot.route.local.is_some_and(|local| local.port() == port)
                && slot.port_space == port_space
                && let Some(found) = find(slot)
            {
                return Some(found);
            }
            at = slot.links.port_next;
        }
        None
    }

    /// The listener for a destination: one that is bound to it before a wildcard.
    pub(crate) fn find_listener(
        &self,
        port_space: PortSpace,
        port: u16,
        destination: IpAddr,
        over_ip: bool,
    ) -> Option<usize> {
        let mut any = None;
        let mut at = self.port_head(port);
        while let Some(slot) = self.get(at as usize) {
            if let (IdState::Listen, Some(local)) = (slot.state, slot.route.local)
                && local.port() == port
                && slot.port_space == port_space
                && (!cfg!(feature = "infiniband") || slot.route.ip == over_ip)
            {
                let ip = local.ip();
                if ip == destination {
                    return Some(at as usize);
                }
                let takes = ip.is_ipv4() == destination.is_ipv4() || !slot.options.is_af_only(ip);
                if (ip.is_unspecified() || ip.is_loopback()) && takes {
                    any = Some(at as usize);
                }
            }
            at = slot.links.port_next;
        }
        any
    }

    /// A port that no other id of the space has at this address.
    pub(crate) fn free_port(
        &mut self,
        port_space: PortSpace,
        ip: IpAddr,
    ) -> Result<u16, RdmaError> {
        let PortRange { first, last, .. } = self.ports;
        for _ in first..=last {
            let port = self.ports.next;
            self.ports.next = if port >= last { first } else { port + 1 };
            // As many ports as there are for each address, not for all of them together.
            let in_way = |slot: &IdSlot<'_, P>| {
                let other = slot.route.local.map(|local| local.ip());
                let apart = other.is_some_and(|other| other != ip && !is_any(other) && !is_any(ip));
                (!apart).then_some(())
            };
            if (first..=last).contains(&port) && self.on_port(port_space, port, in_way).is_none() {
                return Ok(port);
            }
        }
        Err(RdmaError::AddrNotAvailable(SocketAddr::new(ip, 0)))
    }
    pub(crate) fn enter_port(&mut self, index: usize, port: u16) {
        let bucket = self.port_bucket(port);
        let next = core::mem::replace(&mut self[bucket].links.port_head, index as u32);
        let slot = &mut self[index];
        slot.links.port_next = next;
        slot.links.in_ports = true;
    }

    pub(crate) fn leave_port(&mut self, index: usize) {
        let slot = &mut self[index];
        if !core::mem::take(&mut slot.links.in_ports) {
            return;
        }
        let (next, port) = (
            slot.links.port_next,
            slot.route.local.map_or(0, |local| local.port()),
        );
        let bucket = self.port_bucket(port);
        if self[bucket].links.port_head == index as u32 {
            self[bucket].links.port_head = next;
            return;
        }
        let mut at = self[bucket].links.port_head;
        while let Some(slot) = self.get_mut(at as usize) {
            if slot.links.port_next == index as u32 {
                slot.links.port_next = next;
                return;
            }
            at = slot.links.port_next;
        }
    }

    /// Checks whether an id may have this address beside the others on the port of its space (`cma_check_port` of Linux's
    /// core/cma.c). `reuse`: it shares the port with ids that do so as well.
    pub(crate) fn check_port(
        &self,
        index: usize,
        address: SocketAddr,
        reuse: bool,
    ) -> Result<(), RdmaError> {
        let port_space = self[index].port_space;
        let only = self[index].options.is_af_only(address.ip());
        let other = self.on_port(port_space, address.port(), |other| {
            let theirs = other.route.local?.ip();
            let itself = core::ptr::addr_eq(other, &self[index]);
            let shared = reuse && other.options.reuse_addr;
            let apart =
                address.is_ipv4() != theirs.is_ipv4() && only && other.options.is_af_only(theirs);
            if itself || shared || apart {
                return None;
            }
            let ours = address.ip();
            if is_any(ours) || is_any(theirs) {
                return Some(RdmaError::AddrNotAvailable(address));
            }
            (ours == theirs).then_some(RdmaError::AddrInUse(address))
        });
        other.map_or(Ok(()), Err)
    }
}
