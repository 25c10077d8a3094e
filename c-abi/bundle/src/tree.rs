//! The files that programs look for in `/sys/class/infiniband` and `/dev/infiniband`, as the preload library shows them.
//!
//! There is a folder for each kind and number of devices. The files have what is the same for every process: addresses, for
//! example, depend on it, and programs get them from the library. `docs/c-abi.md` has the list, and what is not there.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
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
    remove(&trees)?;
    for kind in Kind::ALL {
        let folder = trees.join(kind.folder());
        for index in 0..MOST {
            make_gid_attributes(&folder.join(gid_attributes(index)), index, kind)?;
        }
        for devices in 1..=MOST {
            make_for(&folder.join(devices.to_string()), devices, kind, None)?;
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the files of a card that is served by `bareverbs-uverbs`, and returns their folder. Those of the PCI function are the
/// system's; what the firmware says is not there until the card is up. There is one folder for each function, below one of the
/// user's own.
pub fn of_card(address: &str) -> io::Result<PathBuf> {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let address = match address.matches(':').count() {
        1 => format!("0000:{address}"),
        _ => address.to_owned(),
    };
    if !address.contains(':') || !address.bytes().all(is_part) {
        let why = format!("{address:?} is not an address of a PCI function");
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    // Files of this process are the user's.
    let user = fs::metadata("/proc/self")?.uid();
    let place = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    of_card_at(
        &place.join(format!("bareverbs-{user}")),
        user,
        Path::new("/"),
        &address,
    )
}

/// Makes them below a folder that only this user may write to, of a function of the system whose files are below `system`.
fn of_card_at(mine: &Path, user: u32, system: &Path, address: &str) -> io::Result<PathBuf> {
    match fs::DirBuilder::new().mode(0o700).create(mine) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(mine)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        let why = format!("{} is not this user's alone", mine.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    let function = system.join(FUNCTIONS).join(address);
    let card = Card {
        address,
        device: hexadecimal(&function.join("device"))?,
        revision: hexadecimal(&function.join("revision"))?,
        function,
    };
    let folder = mine.join(address);
    remove(&folder)?;
    let tree = folder.join("1");
    make_gid_attributes(&folder.join(gid_attributes(0)), 0, Kind::Served)?;
    make_for(&tree, 1, Kind::Served, Some(&card))?;
    Ok(tree)
}

/// The number in a file of a PCI function's.
fn hexadecimal(path: &Path) -> io::Result<u16> {
    let wrong = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    let text = fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let digits = text.trim().trim_start_matches("0x");
    let number = u16::from_str_radix(digits, 16);
    number.map_err(|error| wrong(format!("{}: {error}", path.display())))
}

/// A function of the system's.
struct Card<'a> {
    address: &'a str,
    /// This folder has its files.
    function: PathBuf,
    device: u16,
    revision: u16,
}

/// Parts that the system may have of a function besides its own files; in their place is what is made here.
const OF_OTHERS: [&str; 3] = ["infiniband", "infiniband_verbs", "net"];

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
fn make_for(tree: &Path, devices: usize, kind: Kind, card: Option<&Card<'_>>) -> io::Result<()> {
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
        let address = card.map_or_else(|| address(index), |card| card.address.to_owned());
        let function = format!("devices/pci{DOMAIN}:00/{address}");
        make_function(&tree.join("sys").join(&function), index, kind, card)?;
        if kind == Kind::Served {
            // DPDK looks for devices here.
            let functions = tree.join(FUNCTIONS);
            fs::create_dir_all(&functions)?;
            symlink(format!("../../../{function}"), functions.join(address))?;
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
fn make_function(
    function: &Path,
    index: usize,
    kind: Kind,
    card: Option<&Card<'_>>,
) -> io::Result<()> {
    let model = (kind != Kind::Cards && card.is_none()).then(|| Config::new(1));
    let [link_layer, class, _] = kind.words();
    fs::create_dir_all(function)?;
    if let Some(card) = card {
        // All of them: in the process, the driver looks for its function and that one's group here as well.
        for entry in card.function.read_dir()? {
            let entry = entry?;
            let (name, path) = (entry.file_name(), entry.path());
            if !OF_OTHERS.iter().any(|other| name == *other) {
                // Of a link, that where it leads to: programs look for the last part of that.
                symlink(path.canonicalize()?, function.join(name))?;
            }
        }
    } else {
        file(&function.join("vendor"), "0x15b3")?;
        file(&function.join("class"), class)?;
        file(&function.join("numa_node"), "-1")?;
        // All that there may be: a program looks for those that it has.
        file(&function.join("local_cpus"), &["ffffffff"; 32].join(","))?;
        file(&function.join("local_cpulist"), "0-1023")?;
    }
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
    let known = match (&model, card) {
        (Some(model), _) => Some((model.device_id, 0)),
        (None, card) => card.map(|card| (card.device, card.revision)),
    };
    if let Some((id, revision)) = known {
        file(&device.join("hca_type"), &format!("MT{id}"))?;
        file(&device.join("hw_rev"), &format!("{revision:x}"))?;
    }
    if let Some(model) = &model {
        file(
            &function.join("device"),
            &format!("{:#06x}", model.device_id),
        )?;
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
    if kind == Kind::Served {
        // The numbers of `/dev/null`, to which the device's node is a link.
        file(&verbs.join("dev"), "1:3")?;
        file(&port.join("pkeys/0"), "0xffff")?;
        // What DPDK reads of a function, and of its interface.
        if let Some(model) = &model {
            let id = model.device_id;
            file(
                &function.join("modalias"),
                &format!("pci:v000015B3d{id:08X}sv000015B3sd00000000bc02sc00i00"),
            )?;
            file(&function.join("subsystem_vendor"), "0x15b3")?;
            file(&function.join("subsystem_device"), "0x0000")?;
            file(&function.join("resource"), &["0x0 0x0 0x0"; 6].join("\n"))?;
            let uevent = format!("DRIVER=mlx5_core\nPCI_SLOT_NAME={}", address(index));
            file(&function.join("uevent"), &uevent)?;
            symlink("/sys/bus/pci/drivers/mlx5_core", function.join("driver"))?;
        }
        let net = function.join("net").join(interface(index));
        file(&net.join("dev_port"), "0")?;
        // librdmacm finds the device again by this number, which need not be the device's.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A card of a made-up system: the files are its own, and a second call makes them again.
    #[test]
    fn a_cards_files_say_what_the_function_says() {
        let base = std::env::temp_dir().join(format!("bareverbs-tree-{}", std::process::id()));
        let address = "0000:3b:00.1";
        let function = base.join(FUNCTIONS).join(address);
        for (name, text) in [
            ("device", "0x101d"),
            ("revision", "0x0a"),
            (
                "modalias",
                "pci:v000015B3d0000101Dsv000015B3sd00000016bc02sc00i00",
            ),
        ] {
            file(&function.join(name), text).unwrap();
        }
        let user = fs::metadata(&base).unwrap().uid();
        let mine = base.join("mine");
        for _ in 0..2 {
            let tree = of_card_at(&mine, user, &base, address).unwrap();
            let read = |path: &str| fs::read_to_string(tree.join(path)).unwrap();
            let device = "sys/class/infiniband/mlx5_0";
            assert_eq!(read(&format!("{device}/hca_type")), "MT4125\n");
            assert_eq!(read(&format!("{device}/hw_rev")), "a\n");
            assert!(
                read(&format!("{device}/device/modalias")).starts_with("pci:v000015B3d0000101D")
            );
            assert_eq!(read(&format!("{FUNCTIONS}/{address}/device")), "0x101d\n");
            assert_eq!(
                read(&format!("{device}/ports/1/gid_attrs/ndevs/0")),
                "roce0\n"
            );
            // The firmware has not been asked.
            assert!(!tree.join(device).join("board_id").exists());
        }
        let absent = of_card_at(&mine, user, &base, "0000:3b:00.2").unwrap_err();
        assert!(absent.to_string().contains("3b:00.2/device"), "{absent}");
        // A folder to which others may write, or that is another user's, is not taken.
        assert!(of_card_at(&mine, user + 1, &base, address).is_err());
        fs::set_permissions(&mine, PermissionsExt::from_mode(0o777)).unwrap();
        for text in ["../..", "model", "0000:3b:00.1/.."] {
            assert_eq!(
                of_card(text).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{text}"
            );
        }
        let open = of_card_at(&mine, user, &base, address).unwrap_err();
        assert_eq!(open.kind(), ErrorKind::PermissionDenied);
        fs::remove_dir_all(&base).unwrap();
    }
}
