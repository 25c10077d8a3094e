//! The files that programs look for in `/sys/class/infiniband` and `/dev/infiniband`, as the preload library shows them.
//!
//! There is a folder for each kind and number of devices. The files have what is the same for every process: addresses, for
//! example, depend on it, and programs get them from the library. `docs/c-abi.md` has the list, and what is not there.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use connectx_model::Config;

/// The folder in the bundle.
pub const TREES: &str = "paths";
/// So many devices have files.
pub const MOST: usize = 8;
/// The entries of a port's table of GIDs that have a type. The table is longer, but programs end at the first one that is
/// not there.
const GIDS: usize = 128;
/// The domain of the devices' PCI addresses: one that machines do not have, so that the addresses are no other devices'.
const DOMAIN: &str = "ffff";

/// The devices are of one of these kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Models with Ethernet ports.
    Ethernet,
    /// Models with InfiniBand ports.
    InfiniBand,
    /// Some of them are cards, which are not known before they are opened.
    Cards,
    /// The first of the Ethernet ones is served by `bareverbs-uverbs`: there is what rdma-core's libibverbs reads of it.
    Served,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Ethernet, Self::InfiniBand, Self::Cards, Self::Served];

    /// By the list of devices.
    #[must_use]
    pub fn of(infiniband: bool, devices: &str) -> Self {
        match (infiniband, devices.contains("vfio:")) {
            (_, true) => Self::Cards,
            (true, false) => Self::InfiniBand,
            (false, false) => Self::Ethernet,
        }
    }

    /// The name of its folder.
    fn folder(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::InfiniBand => "infiniband",
            Self::Cards => "cards",
            Self::Served => "served",
        }
    }

    /// Link layer, class of the PCI function, type of the GIDs.
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::InfiniBand => ["InfiniBand", "0x020700", "IB/RoCE v1"],
            Self::Ethernet | Self::Cards | Self::Served => ["Ethernet", "0x020000", "RoCE v2"],
        }
    }
}

/// The folder with the files of so many devices, if there is one.
#[must_use]
pub fn of(bundle: &Path, devices: usize, kind: Kind) -> Option<PathBuf> {
    let folder = bundle.join(TREES).join(kind.folder());
    let folder = folder.join(devices.to_string());
    (1..=MOST).contains(&devices).then_some(folder)
}

/// Makes the folders, or makes them again.
pub(crate) fn make(bundle: &Path) -> io::Result<()> {
    let trees = bundle.join(TREES);
    match fs::remove_dir_all(&trees) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for kind in Kind::ALL {
        let folder = trees.join(kind.folder());
        for index in 0..MOST {
            make_gid_attributes(&folder.join(gid_attributes(index)), index, kind)?;
        }
        for devices in 1..=MOST {
            make_for(&folder.join(devices.to_string()), devices, kind)?;
        }
    }
    Ok(())
}

/// The folder of the attributes of a device's GIDs, among those that all numbers of devices have in common.
fn gid_attributes(index: usize) -> String {
    format!("gid_attrs{index}")
}

/// The address of a device's PCI function.
fn address(index: usize) -> String {
    format!("{DOMAIN}:{:02x}:00.0", index.saturating_add(1))
}

/// The name that `getifaddrs` gives the port of a device.
fn interface(index: usize) -> String {
    format!("roce{index}")
}

/// A file for each GID, all of them links to one.
fn make_gid_attributes(folder: &Path, index: usize, kind: Kind) -> io::Result<()> {
    let [_, _, gid_type] = kind.words();
    let mut lists = vec![("types", gid_type.to_owned())];
    if kind != Kind::InfiniBand {
        lists.push(("ndevs", interface(index)));
    }
    for (name, text) in lists {
        let list = folder.join(name);
        file(&list.join("each"), &text)?;
        for gid in 0..GIDS {
            symlink("each", list.join(gid.to_string()))?;
        }
    }
    Ok(())
}

/// The tree of so many devices, in which each is below its PCI function, as in Linux's.
fn make_for(tree: &Path, devices: usize, kind: Kind) -> io::Result<()> {
    let class = tree.join("sys/class");
    let [rdma, verbs] = ["infiniband", "infiniband_verbs"].map(|name| class.join(name));
    file(&verbs.join("abi_version"), "6")?;
    fs::create_dir_all(&rdma)?;
    let nodes = tree.join("dev/infiniband");
    fs::create_dir_all(&nodes)?;
    if kind == Kind::Served {
        symlink("/dev/full", nodes.join("rdma_cm"))?;
    }
    for index in 0..devices {
        let (name, verbs_name) = (format!("mlx5_{index}"), format!("uverbs{index}"));
        let function = format!("devices/pci{DOMAIN}:00/{}", address(index));
        make_function(&tree.join("sys").join(&function), index, kind)?;
        if kind == Kind::Served {
            // DPDK looks for devices here.
            let functions = tree.join(FUNCTIONS);
            fs::create_dir_all(&functions)?;
            let name = address(index);
            symlink(format!("../../../{function}"), functions.join(name))?;
        }
        let links = [
            (&rdma, "infiniband", name),
            (&verbs, "infiniband_verbs", verbs_name),
        ];
        for (class, part, name) in links {
            symlink(format!("../../{function}/{part}/{name}"), class.join(name))?;
        }
        // A character device that can be opened, which is all that programs want of it.
        symlink("/dev/null", nodes.join(format!("uverbs{index}")))?;
    }
    Ok(())
}

/// The files of a PCI function, and of the device on it.
fn make_function(function: &Path, index: usize, kind: Kind) -> io::Result<()> {
    let model = (kind != Kind::Cards).then(|| Config::new(1));
    let [link_layer, class, _] = kind.words();
    file(&function.join("vendor"), "0x15b3")?;
    file(&function.join("class"), class)?;
    file(&function.join("numa_node"), "-1")?;
    // All that there may be: a program looks for those that it has.
    file(&function.join("local_cpus"), &["ffffffff"; 32].join(","))?;
    file(&function.join("local_cpulist"), "0-1023")?;
    if kind != Kind::InfiniBand {
        fs::create_dir_all(function.join("net").join(interface(index)))?;
    }

    let device = function.join("infiniband").join(format!("mlx5_{index}"));
    file(&device.join("node_type"), "1: CA")?;
    let port = device.join("ports/1");
    file(&port.join("link_layer"), link_layer)?;
    file(&port.join("state"), "4: ACTIVE")?;
    file(&port.join("phys_state"), "5: LinkUp")?;
    // From the port up to the folder of the kind.
    let kinds = Path::new("../../../../../../../../..");
    symlink(kinds.join(gid_attributes(index)), port.join("gid_attrs"))?;
    if let Some(model) = &model {
        file(
            &function.join("device"),
            &format!("{:#06x}", model.device_id),
        )?;
        file(&device.join("hca_type"), &format!("MT{}", model.device_id))?;
        file(&device.join("hw_rev"), "0")?;
        let (major, minor, sub) = model.firmware;
        file(&device.join("fw_ver"), &format!("{major}.{minor}.{sub:04}"))?;
        let board = String::from_utf8_lossy(&model.board_id);
        file(&device.join("board_id"), board.trim_end_matches('\0'))?;
        file(&port.join("rate"), RATE)?;
    }

    let verbs = function
        .join("infiniband_verbs")
        .join(format!("uverbs{index}"));
    file(&verbs.join("ibdev"), &format!("mlx5_{index}"))?;
    file(&verbs.join("abi_version"), "1")?;
    if let Some(model) = model.filter(|_| kind == Kind::Served) {
        // The numbers of `/dev/null`, to which the device's node is a link.
        file(&verbs.join("dev"), "1:3")?;
        file(
            &function.join("modalias"),
            &format!(
                "pci:v000015B3d{:08X}sv000015B3sd00000000bc02sc00i00",
                model.device_id
            ),
        )?;
        file(&port.join("pkeys/0"), "0xffff")?;
        // What DPDK reads of a function, and of its interface.
        file(&function.join("subsystem_vendor"), "0x15b3")?;
        file(&function.join("subsystem_device"), "0x0000")?;
        file(&function.join("resource"), &["0x0 0x0 0x0"; 6].join("\n"))?;
        let uevent = format!("DRIVER=mlx5_core\nPCI_SLOT_NAME={}", address(index));
        file(&function.join("uevent"), &uevent)?;
        symlink("/sys/bus/pci/drivers/mlx5_core", function.join("driver"))?;
        let net = function.join("net").join(interface(index));
        file(&net.join("dev_port"), "0")?;
        // librdmacm finds the device again by this number, which need not be the model's.
        file(
            &device.join("node_guid"),
            &format!("0200:0000:0000:{:04x}", index + 1),
        )?;
    }
    for device in [device, verbs] {
        symlink("../..", device.join("device"))?;
    }
    Ok(())
}

/// The folder of PCI functions.
const FUNCTIONS: &str = "sys/bus/pci/devices";

/// The models' ports have this rate.
const RATE: &str = "100 Gb/sec (4X EDR)";

fn file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, format!("{text}\n"))
}
