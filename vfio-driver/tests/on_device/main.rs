//! The driver on a function that VFIO gives it: every test here needs one, bound to vfio-pci and named by the environment
//! variable `BAREVERBS_DEVICE` (`vfio:0000:01:00.0`), root, and the function for itself; one needs a second function,
//! `BAREVERBS_OTHER_DEVICE`. `cargo rig vfio` runs them in a guest:
//!
//! ```text
//! BAREVERBS_DEVICE=vfio:0000:01:00.0 BAREVERBS_OTHER_DEVICE=vfio:0000:02:00.0 \
//!     on_device --ignored --test-threads=1
//! ```

mod leaving;
mod memory;
mod opening;
mod pair;
mod sleeping;

use std::path::PathBuf;
use std::time::Duration;

use bareverbs_core::{Config, Cqs, Device, PageChunks, Platform, Qps, Resources, Srqs};
use bareverbs_vfio::{PciAddress, VfioDevice};

const LONG: Duration = Duration::from_secs(30);
const HUGE: usize = 2 << 20;

fn address() -> PciAddress {
    let name = std::env::var("BAREVERBS_DEVICE").expect("BAREVERBS_DEVICE names the function");
    let address = name.strip_prefix("vfio:").expect("vfio:ADDRESS");
    address.parse().expect("a PCI address")
}

fn open() -> VfioDevice {
    VfioDevice::open(address()).expect("opened")
}

fn sysfs(name: &str) -> PathBuf {
    PathBuf::from(format!("/sys/bus/pci/devices/{}/{name}", address()))
}

/// Runs `work` with a device that was brought up.
fn with_device<P: Platform, T>(
    platform: P,
    interrupts: bool,
    work: impl FnOnce(&Device<'_, P>) -> T,
) -> T {
    let mut config = Config::DEFAULT;
    config.interrupts = interrupts;
    with_device_as(platform, config, work)
}

fn with_device_as<P: Platform, T>(
    platform: P,
    config: Config,
    work: impl FnOnce(&Device<'_, P>) -> T,
) -> T {
    let mut resources = Box::new(Resources::<Qps<8>, Cqs<8>, Srqs<1>, PageChunks<256>>::new());
    let device = Device::open(platform, config, resources.storage()).expect("brought up");
    work(&device)
}
