//! iPXE's driver for the cards (`drivers/infiniband/golan.c`), in Debian's package of it, in which all of its drivers are: a boot
//! loader, with no operating system under it, at the other end of a cable to a Linux that manages the subnet and has the
//! servers.
//!
//! The package has no command for checksums: what is known of the file is that iPXE got as many bytes as it was promised, and
//! of the script that it was executed to the word at its end. iPXE is not shut down: its driver then takes minutes,
//! probably for a semaphore that it holds itself (`golan_remove`).

use super::archive::Contents;
use crate::apt::{Apt, unpack};
use crate::folder::empty;
use crate::stock_driver::provision::copy;
use crate::stock_driver::{BOOT, Boot, Loader, Program, SCENARIO as DEFAULT, Scenario};
use std::path::Path;

/// Debian's package, and its file that is booted as a Linux kernel would be.
const PACKAGE: &str = "ipxe/trixie";
const LOADER: &str = "ipxe.lkrn";
/// A server for DHCP that knows IPoIB.
const SERVER: Contents = Contents {
    packages: &["dnsmasq-base"],
    roots: &["usr/sbin/dnsmasq"],
    folder: "dnsmasq",
};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "ipxe",
    about: "iPXE's driver under OpenSM: link up, an address by DHCP, a file and a script by HTTP",
    functions: 2,
    roce: false,
    // With the vendor-specific capability, which the driver cannot do without, and an agent that knows what the manager sets.
    model: &[
        "--card",
        "connectx-4",
        "--modelled",
        "--port-type",
        "ib",
        "--subnet-managed",
        "--subnet-agent",
    ],
    rounds: &[Boot {
        machines: &[&[0], &[1]],
        processors: 1,
        script: include_str!("scripts/ipxe.sh"),
        loader: Some(Loader {
            machine: 1,
            program: LOADER,
            script: include_str!("scripts/ipxe.ipxe"),
        }),
        prints: &[("address", "10.1.0.100/255.255.255.0")],
        driver_may_warn: &[(
            "load",
            "invalid device_frequency_khz",
            "the card has the frequency of its clock in MHz alone",
        )],
        ..BOOT
    }],
    ..DEFAULT
};

/// iPXE, and the server.
pub(super) fn programs(directory: &Path) -> Result<Vec<Program>, String> {
    let server = SERVER.archive(&directory.join(SERVER.folder))?;
    let loader = directory.join(LOADER);
    if !loader.exists() {
        let tree = directory.join("packages");
        empty(&tree)?;
        let apt = Apt::new(directory)?;
        for deb in apt.fetch(&directory.join("debs"), &[PACKAGE])? {
            unpack(&deb, &tree)?;
        }
        copy(&tree.join("usr/lib/ipxe").join(LOADER), &loader)?;
    }
    Ok(vec![
        Program {
            name: LOADER,
            path: loader,
        },
        Program {
            name: "dnsmasq.tar",
            path: server,
        },
    ])
}
