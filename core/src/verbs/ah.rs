//! Address handles of a device.

use crate::device::Device;
use crate::platform::Platform;
use crate::types::ah::{AddressHandle, AhAttr, AhError};
use crate::types::gid::RoceVersion;

impl<P: Platform> Device<'_, P> {
    /// Makes an address handle: `ibv_create_ah`. The GID table entry has to exist at this time.
    pub fn create_ah(&self, attr: &AhAttr) -> Result<AddressHandle, AhError> {
        let encapsulation = self.encapsulation(attr.sgid_index)?;
        let default = self
            .capabilities()
            .roce
            .map_or(0, |caps| caps.r_roce_min_src_udp_port());
        AddressHandle::encode(
            attr,
            encapsulation,
            if default == 0 { 0xc000 } else { default },
            self.capabilities().hca.stat_rate_support(),
        )
    }

    /// The encapsulation of packets from this GID table entry; `None` on InfiniBand.
    pub(crate) fn encapsulation(&self, sgid_index: u16) -> Result<Option<RoceVersion>, AhError> {
        match self.capabilities().link_layer() {
            crate::types::port::LinkLayer::InfiniBand => Ok(None),
            crate::types::port::LinkLayer::Ethernet => match self.port_gid(sgid_index) {
                Some(entry) => Ok(Some(entry.version)),
                None => Err(AhError::NoSuchSgid { index: sgid_index }),
            },
        }
    }
}
