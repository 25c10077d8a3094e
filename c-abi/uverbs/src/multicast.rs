//! Multicast groups of QPs for datagrams.

use std::net::Ipv6Addr;

use bareverbs_node::verbs::QpKind;
use bareverbs_node::verbs::firmware_cmds::mad::{AttachToMcgIn, DetachFromMcgIn};

use crate::abi::AttachMcastIn;
use crate::attrs::{Result, refused};
use crate::queues::Qp;

impl Qp<'_> {
    /// Lets it receive what is sent to a group, if it does not yet: `ib_uverbs_attach_mcast`.
    pub(crate) fn attach(&mut self, asked: &AttachMcastIn) -> Result<()> {
        let group = (asked.gid, asked.mlid);
        if self.groups.contains(&group) {
            return Ok(());
        }
        let ip = Ipv6Addr::from(asked.gid);
        // `rdma_is_multicast_addr`.
        let is_group = ip.is_multicast() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_multicast());
        if self.qp.kind() != QpKind::Ud || !is_group {
            return Err(libc::EINVAL);
        }
        let mut command = AttachToMcgIn::new();
        command.set_uid(self.uid).set_qpn(self.qp.qpn().number());
        *command.multicast_gid_mut() = asked.gid;
        self.device.execute(&command).map_err(refused)?;
        self.groups.push(group);
        Ok(())
    }

    /// Takes it out of a group: `ib_uverbs_detach_mcast`.
    pub(crate) fn detach(&mut self, asked: &AttachMcastIn) -> Result<()> {
        let group = (asked.gid, asked.mlid);
        let place = self.groups.iter().position(|it| *it == group);
        self.detach_at(place.ok_or(libc::EINVAL)?)
    }

    pub(crate) fn detach_at(&mut self, place: usize) -> Result<()> {
        let mut command = DetachFromMcgIn::new();
        command.set_uid(self.uid).set_qpn(self.qp.qpn().number());
        *command.multicast_gid_mut() = self.groups[place].0;
        self.device.execute(&command).map_err(refused)?;
        self.groups.swap_remove(place);
        Ok(())
    }
}
