//! The files that programs look for in `/sys/class/infiniband` and `/dev/infiniband`, as the preload library shows them.
//!
//! There is a folder for each number of devices. The files have what is the same for every device: addresses, for
//! example, depend on the process, and programs get them from the library.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The folder in the bundle.
pub const TREES: &str = "paths";
/// So many devices have files.
pub const MOST: usize = 8;
/// The entries of a port's table of GIDs that have a type. The table is longer, but programs end at the first one that is
/// not there.
const GIDS: usize = 128;

/// The folder with the files of so many devices, if there is one.
#[must_use]
pub fn of(bundle: &Path, devices: usize, infiniband: bool) -> Option<PathBuf> {
    let kind = kind(infiniband);
    let folder = bundle.join(TREES).join(kind).join(devices.to_string());
    (1..=MOST).contains(&devices).then_some(folder)
}

/// Makes the folders, or makes them again.
pub(crate) fn make(bundle: &Path) -> io::Result<()> {
    let trees = bundle.join(TREES);
    match fs::remove_dir_all(&trees) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for infiniband in [false, true] {
        make_for(&trees.join(kind(infiniband)), infiniband)?;
    }
    Ok(())
}

/// The folder for devices with ports of a kind.
fn kind(infiniband: bool) -> &'static str {
    match infiniband {
        true => "infiniband",
        false => "ethernet",
    }
}

fn make_for(trees: &Path, infiniband: bool) -> io::Result<()> {
    let (link_layer, gid_type) = match infiniband {
        true => ("InfiniBand", "IB/RoCE v1"),
        false => ("Ethernet", "RoCE v2"),
    };
    let common = trees.join("common");
    for index in 0..MOST {
        let device = common.join(device(index));
        file(&device.join("numa_node"), "-1")?;
        file(&device.join("local_cpus"), "ffffffff")?;
        file(&device.join("vendor"), "0x15b3")?;
        if !infiniband {
            // The name that `getifaddrs` gives the port.
            fs::create_dir_all(device.join("net").join(format!("roce{index}")))?;
        }
    }
    let port = common.join("ports/1");
    file(&port.join("link_layer"), link_layer)?;
    file(&port.join("state"), "4: ACTIVE")?;
    file(&port.join("phys_state"), "5: LinkUp")?;
    for index in 0..GIDS {
        let types = port.join("gid_attrs/types");
        file(&types.join(index.to_string()), gid_type)?;
    }
    for devices in 1..=MOST {
        let tree = trees.join(devices.to_string());
        let class = tree.join("sys/class");
        file(&class.join("infiniband_verbs/abi_version"), "6")?;
        let nodes = tree.join("dev/infiniband");
        fs::create_dir_all(&nodes)?;
        for index in 0..devices {
            let (name, verbs) = (format!("mlx5_{index}"), format!("uverbs{index}"));
            let folder = class.join("infiniband").join(&name);
            file(&folder.join("node_type"), "1: CA")?;
            let common = Path::new("../../../../../common");
            symlink(common.join("ports"), folder.join("ports"))?;
            symlink(common.join(device(index)), folder.join("device"))?;
            let verbs_device = class.join("infiniband_verbs").join(&verbs);
            file(&verbs_device.join("ibdev"), &name)?;
            file(&verbs_device.join("abi_version"), "1")?;
            symlink(common.join(device(index)), verbs_device.join("device"))?;
            // A character device that can be opened, which is all that programs want of it.
            symlink("/dev/null", nodes.join(&verbs))?;
        }
    }
    Ok(())
}

/// The folder of a device's files among those that all numbers of devices have in common.
fn device(index: usize) -> String {
    format!("device{index}")
}

fn file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, format!("{text}\n"))
}
