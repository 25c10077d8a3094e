//! A card's function on a subnet, for programs that need a manager of one.

use std::time::Duration;

use bareverbs_node::verbs::{Config, Device, PortAttr, PortState};
use bareverbs_node::vfio::PciAddress;
use bareverbs_node::{DevicePlatform, DeviceStorage, PageChunks, wait_for_link};

use crate::Result;

use crate::devices;

/// Opens a function, and runs a program on it once its port is active.
pub fn with_function<T>(
    address: PciAddress,
    patience: Duration,
    run: impl FnOnce(&Device<'_, DevicePlatform>, PortAttr) -> Result<T>,
) -> Result<T> {
    let platform = DevicePlatform::from(devices::open(address, 0)?);
    let mut chunks = PageChunks::new(256);
    loop {
        let mut memory = DeviceStorage::for_connections(4, chunks.allocate());
        let device = match Device::open(platform.clone(), Config::DEFAULT, memory.storage()) {
            Ok(device) => device,
            Err(error) if chunks.grow(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        let port = wait_for_link(&device, patience)?;
        if port.state != PortState::Active {
            return Err("the port does not come up".into());
        }
        return run(&device, port);
    }
}
