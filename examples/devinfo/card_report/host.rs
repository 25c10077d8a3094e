//! Reads the host's side of a function: PCI, the IOMMU, the kernel. It only reads files.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use bareverbs_vfio::{PciAddress, VfioDevice};

use bareverbs_examples::Result;

use super::hide::Identifiers;

/// Reads one file of sysfs or procfs, without the white space at its end.
fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end().to_owned())
}

/// The name at the end of a symbolic link.
fn link(path: impl AsRef<Path>) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// The names in a folder, in order.
fn names(path: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Lines of `name: value` for the files that there are.
fn values(text: &mut String, folder: &Path, files: &[&str]) {
    for file in files {
        if let Some(value) = read(folder.join(file)) {
            let value = value.replace('\n', "; ");
            // Writing to a String does not fail.
            let _ = writeln!(text, "{file}: {value}");
        }
    }
}

/// The folder of a function.
fn function(address: PciAddress) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(address.to_string())
}

/// Words of the kernel's command line that matter here: the others may name file systems and hosts.
const KERNEL_WORDS: [&str; 9] = [
    "intel_iommu",
    "amd_iommu",
    "iommu",
    "vfio",
    "pci",
    "pcie_",
    "hugepages",
    "mlx5",
    "isolcpus",
];

/// The kernel's release, its words, limits, and the versions of modules.
pub(crate) fn kernel() -> String {
    let mut text = String::new();
    values(
        &mut text,
        Path::new("/proc/sys/kernel"),
        &["ostype", "osrelease", "version", "arch"],
    );
    let words = read("/proc/cmdline").unwrap_or_default();
    let words = words
        .split_whitespace()
        .filter(|word| KERNEL_WORDS.iter().any(|known| word.starts_with(known)));
    let words: Vec<&str> = words.collect();
    let _ = writeln!(text, "kernel words: {}", words.join(" "));
    let limits = read("/proc/self/limits").unwrap_or_default();
    if let Some(line) = limits
        .lines()
        .find(|it| it.starts_with("Max locked memory"))
    {
        let line: Vec<&str> = line.split_whitespace().collect();
        let _ = writeln!(text, "{}", line.join(" ").to_lowercase());
    }
    for module in [
        "vfio",
        "vfio_pci",
        "vfio_pci_core",
        "vfio_iommu_type1",
        "iommufd",
        "mlx5_core",
    ] {
        let folder = Path::new("/sys/module").join(module);
        if !folder.exists() {
            continue;
        }
        let version = read(folder.join("version"));
        let source = read(folder.join("srcversion"));
        let version = version
            .or(source)
            .unwrap_or_else(|| "part of the kernel".into());
        let _ = write!(text, "module {module}: {version}");
        for parameter in names(folder.join("parameters")) {
            if let Some(value) = read(folder.join("parameters").join(&parameter)) {
                let _ = write!(text, " {parameter}={value}");
            }
        }
        text.push('\n');
    }
    text
}

/// Files of sysfs about the link and errors on it.
const PCI_FILES: [&str; 21] = [
    "vendor",
    "device",
    "subsystem_vendor",
    "subsystem_device",
    "revision",
    "class",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "numa_node",
    "local_cpulist",
    "power_state",
    "reset_method",
    "d3cold_allowed",
    "sriov_totalvfs",
    "sriov_numvfs",
    "resource",
    "aer_dev_correctable",
    "aer_dev_nonfatal",
    "aer_dev_fatal",
];

/// The PCI part, and the identifiers in it.
pub(crate) struct Pci {
    pub(crate) text: String,
    serials: Vec<Vec<u8>>,
    guids: Vec<[u8; 8]>,
}

impl Pci {
    /// Adds the identifiers in it to those that are known.
    pub(crate) fn identify(&self, known: &mut Identifiers) {
        for serial in &self.serials {
            known.serial(serial);
        }
        for guid in &self.guids {
            known.guid(*guid);
        }
    }
}

/// PCI of a function and of the bridges above it: what sysfs says, and the configuration space in `lspci -xxxx`'s form.
pub(crate) fn pci(address: PciAddress) -> Result<Pci> {
    let (mut text, mut serials, mut guids) = (String::new(), Vec::new(), Vec::new());
    let path = fs::canonicalize(function(address))?;
    let is_function = |path: &Path| path.join("config").exists();
    for path in path.ancestors().take_while(|path| is_function(path)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(text, "{name} PCI function");
        if let Some(driver) = link(path.join("driver")) {
            let _ = writeln!(text, "driver: {driver}");
        }
        values(&mut text, path, &PCI_FILES);
        if let Ok(vpd) = fs::read(path.join("vpd")) {
            for (keyword, value) in vpd_fields(&vpd) {
                if is_identity(&keyword) {
                    serials.push(value.clone());
                }
                let value = String::from_utf8_lossy(&value).into_owned();
                let _ = writeln!(
                    text,
                    "VPD {keyword}: {}",
                    value.trim_end_matches(['\0', ' '])
                );
            }
        }
        match fs::read(path.join("config")) {
            Ok(config) => {
                if let Some(serial) = device_serial_number(&config) {
                    guids.push(serial);
                }
                text.push_str(&lspci(&name, &config));
            }
            Err(error) => {
                let _ = writeln!(text, "configuration space: {error}");
            }
        }
        text.push('\n');
    }
    Ok(Pci {
        text,
        serials,
        guids,
    })
}

/// Configuration space as `lspci -xxxx` writes it and `lspci -F` reads it.
pub(crate) fn lspci(name: &str, config: &[u8]) -> String {
    let mut text = format!("{name} configuration space\n");
    for (row, bytes) in config.chunks(16).enumerate() {
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(text, "{:02x}: {}", 16 * row, bytes.join(" "));
    }
    text
}

fn dword(config: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*config.get(at..)?.first_chunk()?))
}

/// The extended capability "device serial number" (PCI Express 3.0, 7.12), in the order in which it is written.
fn device_serial_number(config: &[u8]) -> Option<[u8; 8]> {
    let mut at = 0x100;
    // The loop ends after as many capabilities as there is space for, even if the chain does not.
    for _ in 0..960 {
        let header = dword(config, at)?;
        if header & 0xffff == 3 {
            let (low, high) = (dword(config, at + 4)?, dword(config, at + 8)?);
            return Some((u64::from(high) << 32 | u64::from(low)).to_be_bytes());
        }
        at = (header >> 20) as usize;
        if at < 0x100 {
            return None;
        }
    }
    None
}

/// The fields of vital product data (PCI Local Bus 3.0, appendix I): keyword and value, and the name.
fn vpd_fields(vpd: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut fields = Vec::new();
    let mut rest = vpd;
    while let [tag @ (0x82 | 0x90 | 0x91), low, high, more @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(more.len());
        let (mut data, behind) = more.split_at(len);
        rest = behind;
        if *tag == 0x82 {
            fields.push(("name".into(), data.into()));
            continue;
        }
        while let [a, b, len, more @ ..] = data {
            let (value, behind) = more.split_at(usize::from(*len).min(more.len()));
            data = behind;
            let keyword = String::from_utf8_lossy(&[*a, *b]).into_owned();
            // RV is a checksum, and RW is free space.
            if !matches!(&*keyword, "RV" | "RW") {
                fields.push((keyword, value.into()));
            }
        }
    }
    fields
}

/// Fields of vital product data that name this card or its owner: serial number, the vendor's unique number, asset tags.
fn is_identity(keyword: &str) -> bool {
    matches!(keyword, "SN" | "V3" | "VU" | "YA") || keyword.starts_with('Y')
}

/// The IOMMU group of a function, and what else is in it.
pub(crate) fn iommu(address: PciAddress) -> Result<String> {
    let mut text = String::new();
    let path = function(address);
    let group = fs::canonicalize(path.join("iommu_group"))
        .map_err(|error| format!("the function has no IOMMU group: {error}"))?;
    let number = group.file_name().unwrap_or_default().to_string_lossy();
    let _ = writeln!(text, "group: {number}");
    values(&mut text, &group, &["type", "reserved_regions"]);
    if let Some(iommu) = link(path.join("iommu")) {
        let _ = writeln!(text, "iommu: {iommu}");
    }
    for name in names(group.join("devices")) {
        let neighbour = group.join("devices").join(&name);
        let id = |file| read(neighbour.join(file)).unwrap_or_default();
        let (vendor, device, class) = (id("vendor"), id("device"), id("class"));
        let driver = link(neighbour.join("driver")).unwrap_or_else(|| "none".into());
        let _ = writeln!(
            text,
            "device {name}: {vendor}:{device} class {class} driver {driver}"
        );
    }
    Ok(text)
}

/// Properties of the function in VFIO.
pub(crate) fn vfio(device: &VfioDevice) -> String {
    let mut text = format!("{}", device.limits());
    let mut config = [0; 0x100];
    match device.read_config(0, &mut config) {
        Ok(()) => text.push_str(&lspci(&device.address().to_string(), &config)),
        Err(error) => {
            let _ = writeln!(text, "configuration space: {error}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_serial_number_of_pci_express_is_found() {
        let mut config = vec![0; 0x1000];
        config[0x100..0x104].copy_from_slice(&0x1401_0001_u32.to_le_bytes());
        config[0x140..0x144].copy_from_slice(&0x0001_0003_u32.to_le_bytes());
        config[0x144..0x14c].copy_from_slice(&[0x45, 0x23, 0xb1, 0, 3, 7, 0x8a, 0x24]);
        // lspci shows it as 24-8a-07-03-00-b1-23-45.
        let serial = [0x24, 0x8a, 0x07, 0x03, 0x00, 0xb1, 0x23, 0x45];
        assert_eq!(device_serial_number(&config), Some(serial));
        // These chains lead back, and out of the space.
        config[0x140..0x144].copy_from_slice(&0x1001_0001_u32.to_le_bytes());
        assert_eq!(device_serial_number(&config), None);
        config[0x140..0x144].copy_from_slice(&0xffe1_0001_u32.to_le_bytes());
        assert_eq!(device_serial_number(&config), None);
        assert_eq!(device_serial_number(&[0; 64]), None);
    }

    #[test]
    fn vital_product_data_are_read_as_far_as_they_go() {
        let vpd = b"\x82\x04\0CX-5\x90\x11\0PN\x03ABCSN\x04MT12RV\x01\x77\x91\x07\0V3\x09zz";
        let fields = vpd_fields(vpd);
        let text: Vec<(&str, &[u8])> = fields.iter().map(|(a, b)| (&**a, &**b)).collect();
        let expected: [(&str, &[u8]); 4] = [
            ("name", b"CX-5"),
            ("PN", b"ABC"),
            ("SN", b"MT12"),
            ("V3", b"zz"),
        ];
        assert_eq!(text, expected);
        assert!(is_identity("SN") && !is_identity("PN"));
    }

    #[test]
    fn configuration_space_is_written_as_lspci_does() {
        let text = lspci("0000:3b:00.0", &[0xb3, 0x15, 0x1d, 0x10, 0x06, 0x04]);
        let expected = "0000:3b:00.0 configuration space\n00: b3 15 1d 10 06 04\n";
        assert_eq!(text, expected);
    }
}
