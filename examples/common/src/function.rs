//! A card's function on a subnet, for programs that need a manager of one.

use std::time::Duration;

use bareverbs_node::verbs::{Config, Device, PortAttr, PortState};
use bareverbs_node::vfio::VfioDevice;
use bareverbs_node::{
    DeviceName, DevicePlatform, DeviceStorage, PageChunks, Result, wait_for_link,
};

/// Opens the function that `BAREVERBS_DEVICE` names, and runs a program on it once its port is active.
pub fn with_function<T>(
    patience: Duration,
    run: impl FnOnce(&Device<'_, DevicePlatform>, PortAttr) -> Result<T>,
) -> Result<T> {
    let [DeviceName::Vfio(address)] = DeviceName::from_env()?[..] else {
        return Err("BAREVERBS_DEVICE names no function: a model alone has no subnet".into());
    };
    let platform = DevicePlatform::from(VfioDevice::open(address)?);
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
