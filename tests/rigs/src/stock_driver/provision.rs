//! Everything the rig needs from outside, fetched from Debian's archive into `target/`: QEMU with a vfio-user client, the
//! stock kernel, and what runs in the guest. QEMU is newer than the machine's C library and runs under the one it came
//! with.

use super::bzimage;
use super::cpio::Archive;
use super::kernel::{self, Built, Purpose};
use crate::apt::{Apt, unpack};
use crate::folder::{empty, walk};
use crate::process::{quiet_output, quietly};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "2";
/// The kernel's file. A guest whose stamp names another is rebuilt.
const KERNEL: &str = "vmlinux";

/// The packages that are unpacked for the guest: programs, and the libraries they need.
const GUEST_PACKAGES: &[&str] = &[
    "busybox-static",
    "ethtool",
    "ibverbs-providers",
    "ibverbs-utils",
    "infiniband-diags",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "kmod",
    "libbpf1",
    "libc6",
    "libcap2",
    "libelf1t64",
    "libgcc-s1",
    "libibmad5",
    "libibnetdisc5t64",
    "libibumad3",
    "libibverbs1",
    "libidn2-0",
    "libiperf0",
    "libkmod2",
    "libmnl0",
    "libnl-3-200",
    "libnl-route-3-200",
    "libopensm9",
    "libosmcomp5",
    "libosmvendor5",
    "libpci3",
    "libpcre2-8-0",
    "librdmacm1t64",
    "libsctp1",
    "libselinux1",
    "libssl3t64",
    "libudev1",
    "libunistring5",
    "libwrap0",
    "libxtables12",
    "libzstd1",
    "opensm",
    "perftest",
    "rdma-core",
    "rdmacm-utils",
    "zlib1g",
];

/// Files in it that the guest does not need.
const GUEST_REFUSE: &[&str] = &[
    "usr/share",
    "usr/lib/systemd",
    "usr/lib/udev",
    "usr/lib/x86_64-linux-gnu/gconv",
];

/// Kernel modules that the guest may load, with what they depend on. All of the RDMA core is included: it is
/// split into more modules from one version to the next.
const MODULES: &[&str] = &[
    "8021q",
    "act_gact",
    "cls_flower",
    // rdma_rxe asks for it by name.
    "crc32_generic",
    "ib_ipoib",
    "ip_gre",
    "mlx5_core",
    "mlx5_ib",
    "null_blk",
    "nvme_rdma",
    "nvmet_rdma",
    "rdma_rxe",
    "sch_ingress",
    "vfio_iommu_type1",
    "vfio_pci",
    "virtio_net",
    "virtio_pci",
    "vxlan",
];

/// The kernel that the guest boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Debian bookworm's.
    Old,
    /// Debian trixie's.
    Stable,
    /// The newest in trixie-backports.
    Backports,
    /// Trixie's sources, [built here](super::kernel) with options that no kernel of Debian's has.
    Built(Purpose),
}

impl Kernel {
    pub(super) fn by_option(option: &str) -> Option<Self> {
        match option {
            "--bookworm" => Some(Self::Old),
            "--stable" => Some(Self::Stable),
            "--backports" => Some(Self::Backports),
            "--iommufd" => Some(Self::Built(Purpose::Iommufd)),
            "--flow-offload" => Some(Self::Built(Purpose::FlowOffload)),
            _ => None,
        }
    }

    /// Debian's name for it, and the name of its directory here.
    pub(super) fn suite(self) -> &'static str {
        match self {
            Self::Old => "bookworm",
            Self::Stable => "trixie",
            Self::Backports => "trixie-backports",
            Self::Built(purpose) => purpose.name(),
        }
    }
}

/// Paths of what was fetched and built.
pub(crate) struct Provisions {
    /// QEMU's packages, unpacked.
    qemu: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
    /// The versions that were fetched, for the report.
    pub(super) about: String,
}

impl Provisions {
    /// QEMU with its own C library and data.
    pub(crate) fn qemu(&self) -> Command {
        let mut command = under(
            &self.qemu,
            "usr/bin/qemu-system-x86_64",
            "qemu-system-x86_64",
        );
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.qemu.join(data));
        }
        command
    }

    /// QEMU for aarch64, [fetched](Self::fetch_aarch64) before, with the libraries and data of the x86 package.
    pub(crate) fn qemu_aarch64(&self) -> Command {
        let program = self.aarch64().join("usr/bin/qemu-system-aarch64");
        let mut command = under(&self.qemu, &program, "qemu-system-aarch64");
        command.arg("-L").arg(self.qemu.join("usr/share/qemu"));
        command
    }

    /// Fetches QEMU for aarch64, if it is not there yet: one package, as it has the same dependencies as QEMU for x86.
    pub(crate) fn fetch_aarch64(&self) -> Result<(), String> {
        let part = self.aarch64();
        let stamp = part.join("stamp");
        // Rebuilt together with QEMU for x86.
        let recipe = fs::read_to_string(self.qemu.join("stamp"));
        let recipe = recipe.map_err(|error| format!("{}: {error}", self.qemu.display()))?;
        let found = fs::read_to_string(&stamp).unwrap_or_default();
        if found.starts_with(&recipe) {
            return Ok(());
        }
        println!("provisioning {}", part.display());
        empty(&part)?;
        let apt = Apt::new(part.parent().unwrap_or(&part))?;
        let packages = part.join("debs");
        for deb in apt.fetch(&packages, &["qemu-system-arm/trixie-backports"])? {
            unpack(&deb, &part)?;
        }
        fs::remove_dir_all(&packages).map_err(|error| error.to_string())?;
        let version = quiet_output(self.qemu_aarch64().arg("--version"))?;
        let version = version.lines().next().unwrap_or_default();
        fs::write(&stamp, format!("{recipe}{version}\n")).map_err(|error| error.to_string())
    }

    fn aarch64(&self) -> PathBuf {
        self.qemu.with_file_name("qemu-aarch64")
    }
}

/// A program of an unpacked tree, or of elsewhere, called by `name`, run with that tree's dynamic linker and libraries.
fn under(root: &Path, program: impl AsRef<Path>, name: &str) -> Command {
    let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    command
        .arg("--library-path")
        .arg(root.join("usr/lib/x86_64-linux-gnu"))
        .arg("--argv0")
        .arg(name)
        .arg(root.join(program));
    command
}

/// Fetches and unpacks what is not there yet.
pub(super) fn provision(directory: &Path, kernel: Kernel) -> Result<Provisions, String> {
    let qemu = directory.join("qemu");
    let guest = directory.join(kernel.suite());
    let built = match kernel {
        Kernel::Built(purpose) => Some(kernel::built(purpose)?),
        _ => None,
    };
    let of_kernel = match &built {
        Some(built) => built.recipe.clone(),
        None => format!("{MODULES:?}"),
    };
    let recipes = [
        format!("{RECIPE}\n"),
        format!("{RECIPE}\n{KERNEL}\n{GUEST_PACKAGES:?}\n{GUEST_REFUSE:?}\n{of_kernel}\n"),
    ];
    let stamps = [&qemu, &guest].map(|part| part.join("stamp"));
    let made = |index: usize| {
        let found = std::fs::read_to_string(&stamps[index]).ok()?;
        let about = found.strip_prefix(&recipes[index])?;
        Some(about.trim_end().to_string())
    };
    let found = [made(0), made(1)];
    let mut about = Vec::new();
    let mut apt = None;
    for (index, found) in found.into_iter().enumerate() {
        if let Some(found) = found {
            about.push(found);
            continue;
        }
        let part = [&qemu, &guest][index];
        println!("provisioning {}", part.display());
        empty(part)?;
        let apt = match &mut apt {
            Some(apt) => apt,
            none => none.insert(Apt::new(directory)?),
        };
        let made = match index {
            0 => provision_qemu(apt, part)?,
            _ => provision_guest(apt, part, kernel, built.as_ref())?,
        };
        // Only what is complete has a stamp.
        let stamp = format!("{}{made}\n", recipes[index]);
        fs::write(&stamps[index], stamp).map_err(|error| error.to_string())?;
        about.push(made);
    }
    Ok(Provisions {
        qemu,
        kernel: guest.join(KERNEL),
        initrd: guest.join("initrd.cpio"),
        about: about.join("; "),
    })
}

fn provision_qemu(apt: &Apt, qemu: &Path) -> Result<String, String> {
    for deb in apt.fetch_closure(&["qemu-system-x86"], "trixie-backports")? {
        unpack(&deb, qemu)?;
    }
    let program = "usr/bin/qemu-system-x86_64";
    let version = quiet_output(under(qemu, program, "qemu-system-x86_64").arg("--version"))?;
    Ok(version.lines().next().unwrap_or_default().to_string())
}

fn provision_guest(
    apt: &Apt,
    directory: &Path,
    kernel: Kernel,
    built: Option<&Built>,
) -> Result<String, String> {
    let guest = directory.join("root");
    usr_links(&guest)?;
    for deb in apt.fetch(&directory.join("debs"), GUEST_PACKAGES)? {
        unpack(&deb, &guest)?;
    }
    for refused in GUEST_REFUSE {
        let path = guest.join(refused);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    let release = match built {
        Some(built) => {
            copy(&built.image, &directory.join(KERNEL))?;
            let modules = guest.join("usr/lib/modules").join(&built.release);
            for list in kernel::LISTS {
                copy(&built.image.with_file_name(list), &modules.join(list))?;
            }
            depmod(&guest, &built.release)?;
            built.release.clone()
        }
        None => debian_kernel(apt, directory, &guest, kernel)?,
    };
    let initrd = directory.join("initrd.cpio");
    fs::File::create(&initrd)
        .and_then(|out| write_initrd(std::io::BufWriter::new(out), &guest))
        .map_err(|error| format!("{}: {error}", initrd.display()))?;
    // The archive has all of it.
    for done in ["debs", "root"] {
        fs::remove_dir_all(directory.join(done)).map_err(|error| format!("{done}: {error}"))?;
    }
    Ok(format!("guest kernel {release}"))
}

/// Debian's own kernel, with the modules that guests may load. Its release.
fn debian_kernel(
    apt: &Apt,
    directory: &Path,
    guest: &Path,
    kernel: Kernel,
) -> Result<String, String> {
    let (release, packages) = apt.kernel(kernel.suite())?;
    let tree = directory.join("kernel");
    let debs = directory.join("kernel-debs");
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    for deb in apt.fetch(&debs, &packages)? {
        unpack(&deb, &tree)?;
    }
    // Since Linux 7 the kernel lies with its modules.
    let places = [
        format!("boot/vmlinuz-{release}"),
        format!("usr/lib/modules/{release}/vmlinuz"),
    ];
    let image = places.iter().map(|place| tree.join(place));
    let image = image.into_iter().find(|image| image.exists());
    let image = image.ok_or_else(|| format!("no kernel at {places:?} in its packages"))?;
    let failed = |why: String| format!("{}: {why}", image.display());
    let packed = fs::read(&image).map_err(|error| failed(error.to_string()))?;
    let unpacked = bzimage::kernel(&packed).map_err(failed)?;
    let kernel = unpacked.as_deref().unwrap_or(&packed);
    fs::write(directory.join(KERNEL), kernel).map_err(|error| failed(error.to_string()))?;
    modules(&tree, guest, &release)?;
    // The files that guests need were copied, and the tree is large.
    for done in [&tree, &debs] {
        fs::remove_dir_all(done).map_err(|error| format!("{}: {error}", done.display()))?;
    }
    Ok(release)
}

/// Debian's `/bin`, `/lib` and so on are links into `/usr`, made before anything is unpacked over them.
pub(crate) fn usr_links(root: &Path) -> Result<(), String> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let made = fs::create_dir_all(root.join("usr").join(name)).and_then(|()| {
            std::os::unix::fs::symlink(Path::new("usr").join(name), root.join(name))
        });
        made.map_err(|error| format!("{}: {error}", root.join(name).display()))?;
    }
    Ok(())
}

fn write_initrd(out: impl std::io::Write, guest: &Path) -> std::io::Result<()> {
    let mut archive = Archive::new(out);
    archive.tree(guest)?;
    for directory in ["dev", "etc", "proc", "run", "sys", "tmp"] {
        archive.directory(directory)?;
    }
    archive.file("etc/hosts", 0o644, b"127.0.0.1 localhost\n")?;
    archive.finish()?;
    Ok(())
}

/// Takes the wanted modules out of the kernel's tree, uncompressed, and indexes them for modprobe.
fn modules(kernel: &Path, guest: &Path, release: &str) -> Result<(), String> {
    // Older kernels are not for systems with everything below /usr.
    let places = ["usr/lib/modules", "lib/modules"].map(|place| kernel.join(place).join(release));
    let from = places.into_iter().find(|place| place.exists());
    let from = from.ok_or_else(|| format!("no modules of {release} in its packages"))?;
    let to = guest.join("usr/lib/modules").join(release);
    let mut found = Vec::new();
    walk(&from, &mut found).map_err(|error| format!("{}: {error}", from.display()))?;
    let mut known = BTreeMap::new();
    let mut wanted: Vec<String> = MODULES.iter().map(|name| (*name).to_string()).collect();
    for path in &found {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let below = path
            .strip_prefix(&from)
            .map_err(|error| error.to_string())?;
        if let Some(module) = name.trim_end_matches(".xz").strip_suffix(".ko") {
            let module = module.replace('-', "_");
            if below.starts_with("kernel/drivers/infiniband/core") {
                wanted.push(module.clone());
            }
            known.insert(module, below);
        } else if name.starts_with("modules.") {
            copy(path, &to.join(below))?;
        }
    }
    while let Some(module) = wanted.pop() {
        // What is not there is built in, or done already.
        let Some(below) = known.remove(&module) else {
            continue;
        };
        let mut path = to.join(below);
        copy(&from.join(below), &path)?;
        if path.extension() == Some(OsStr::new("xz")) {
            quietly(
                Command::new(guest.join("usr/bin/busybox"))
                    .arg("unxz")
                    .arg(&path),
            )?;
            path.set_extension("");
        }
        let needs = quiet_output(
            under(guest, "usr/bin/kmod", "modinfo")
                .args(["-F", "depends"])
                .arg(&path),
        )?;
        wanted.extend(
            needs
                .trim_end()
                .split(',')
                .map(|name| name.replace('-', "_")),
        );
    }
    depmod(guest, release)
}

/// Indexes a guest's modules.
fn depmod(guest: &Path, release: &str) -> Result<(), String> {
    // kmod is many programs, selected by the name that it was called by.
    let mut depmod = under(guest, "usr/bin/kmod", "depmod");
    quietly(depmod.arg("-b").arg(guest).arg(release))
}

/// Packages of the guests' release, unpacked below `directory`; where to. `recipe` changes when the packages do.
pub(crate) fn guest_packages(
    directory: &Path,
    packages: &[&str],
    recipe: &str,
) -> Result<PathBuf, String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let tree = directory.join("packages");
    let stamp = directory.join("stamp");
    if fs::read_to_string(&stamp).unwrap_or_default() == recipe {
        return Ok(tree);
    }
    unpack_for_guests(directory, packages, &tree)?;
    fs::write(&stamp, recipe).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(tree)
}

/// Fetches packages of the guests' release, and unpacks them into an empty tree.
pub(crate) fn unpack_for_guests(
    directory: &Path,
    packages: &[&str],
    tree: &Path,
) -> Result<(), String> {
    empty(tree)?;
    let apt = Apt::new(directory)?;
    let wanted: Vec<String> = packages
        .iter()
        .map(|name| format!("{name}/{}", Kernel::Stable.suite()))
        .collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    for deb in apt.fetch(&directory.join("debs"), &wanted)? {
        unpack(&deb, tree)?;
    }
    Ok(())
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let made = to.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::copy(from, to).map(|_| ()))
        .map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}
