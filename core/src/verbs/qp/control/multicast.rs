//! Multicast groups of datagram QPs.

use bareverbs_firmware_cmds::mad::{AttachToMcgIn, DetachFromMcgIn};

use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::gid::Gid;
use crate::verbs::qp::control::qp::Qp;
use crate::verbs::qp::route::service::Ud;

impl<P: Platform> Qp<'_, P, Ud> {
    /// Lets the QP receive what is sent to a multicast group: `ibv_attach_mcast`. Over IPv4 the group is in mapped form.
    /// The switches learn of it by other means (IGMP, MLD, the subnet manager).
    pub fn attach_mcast(&mut self, group: Gid) -> Result<(), CommandError> {
        let mut command = AttachToMcgIn::new();
        command.set_qpn(self.qp.object.qpn.number());
        *command.multicast_gid_mut() = group.0;
        self.qp.object.device.execute_no_output(&command)?;
        self.qp.object.groups += 1;
        Ok(())
    }

    /// Takes the QP out of a multicast group: `ibv_detach_mcast`.
    pub fn detach_mcast(&mut self, group: Gid) -> Result<(), CommandError> {
        let mut command = DetachFromMcgIn::new();
        command.set_qpn(self.qp.object.qpn.number());
        *command.multicast_gid_mut() = group.0;
        self.qp.object.device.execute_no_output(&command)?;
        self.qp.object.groups = self.qp.object.groups.saturating_sub(1);
        Ok(())
    }
}
