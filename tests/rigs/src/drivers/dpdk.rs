//! DPDK's driver (`librte_net_mlx5` under `dpdk-testpmd`), Debian's packages: its queues are made by DevX and verbs, beside the
//! kernel's `mlx5_core` and `mlx5_ib`, which stay bound to the function.

use crate::process::quiet_output;
use crate::stock_driver::provision::{Apt, unpack};
use crate::stock_driver::{BOOT, Boot, Program, SCENARIO as DEFAULT, Scenario, empty};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release of the guests' libraries.
const SUITE: &str = "trixie";
/// The program, the driver, the memory pool that it takes its buffers from, and a port that is a file; and what has
/// programs write lines as they come.
const PACKAGES: &[&str] = &[
    "coreutils",
    "dpdk-dev",
    "librte-mempool-ring25",
    "librte-net-mlx5-25",
    "librte-net-pcap25",
];
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// The program, and what it loads by name.
const ROOTS: &[&str] = &[
    "usr/bin/dpdk-testpmd",
    "usr/libexec/coreutils/libstdbuf.so",
    "usr/lib/x86_64-linux-gnu/librte_mempool_ring.so.25",
    "usr/lib/x86_64-linux-gnu/librte_net_mlx5.so.25",
    "usr/lib/x86_64-linux-gnu/librte_net_pcap.so.25",
];
/// What of it every guest has.
const IN_GUESTS: &[&str] = &["ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6"];
/// How many bytes the script has segments be.
const SEGMENT: usize = 1400;
/// How many frames the file has that testpmd sends.
const FRAMES: u32 = 64;
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "3";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "dpdk",
    about: "DPDK's testpmd in two guests: both sides count the same packets and bytes",
    functions: 2,
    roce: false,
    rounds: &[Boot {
        machines: &[&[0], &[1]],
        script: include_str!("scripts/dpdk.sh"),
        limit: 4,
        ..BOOT
    }],
    ..DEFAULT
};

/// The program with its libraries, in one archive.
pub(super) fn programs(directory: &Path) -> Result<Vec<Program>, String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let archive = directory.join("dpdk.tar");
    let stamp = directory.join("stamp");
    if fs::read_to_string(&stamp).unwrap_or_default() != RECIPE {
        let tree = directory.join("packages");
        empty(&tree)?;
        let apt = Apt::new(directory)?;
        for deb in apt.fetch_closure(PACKAGES, SUITE)? {
            unpack(&deb, &tree)?;
        }
        pack(&tree, &archive)?;
        // The archive has what guests need.
        for done in [tree, directory.join("apt/archives")] {
            fs::remove_dir_all(&done).map_err(|error| format!("{}: {error}", done.display()))?;
        }
        fs::write(&stamp, RECIPE).map_err(|error| format!("{}: {error}", stamp.display()))?;
    }
    let frames = directory.join("frames.pcap");
    fs::write(&frames, recording()).map_err(|error| format!("{}: {error}", frames.display()))?;
    Ok(vec![
        Program {
            name: "dpdk.tar",
            path: archive,
        },
        Program {
            name: "frames.pcap",
            path: frames,
        },
    ])
}

/// Frames that are four segments each when they are cut at [`SEGMENT`] bytes, with checksums that are false, as a recording.
fn recording() -> Vec<u8> {
    let payload = [0x5a; 4 * SEGMENT];
    // To a unicast address, IPv4, TCP with ACK and PSH.
    let headers: [&[u8]; 3] = [
        &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0],
        &[
            0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0xba, 0xad, 198, 18, 0, 1, 198, 18, 0, 2,
        ],
        &[
            0x27, 0x10, 0x27, 0x11, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0xba, 0xad, 0, 0,
        ],
    ];
    let mut frame = headers.concat();
    frame.extend(payload);
    let ip_len = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
    let len = frame.len() as u32;
    // Version 2.4, microseconds, Ethernet.
    let mut file: Vec<u8> = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 0xffff, 1]
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect();
    for number in 0..FRAMES {
        let sequence = 1 + number * (4 * SEGMENT as u32);
        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
        file.extend(
            [number, 0, len, len]
                .iter()
                .flat_map(|word| word.to_le_bytes()),
        );
        file.extend(&frame);
    }
    file
}

/// Packs the program, what it loads, and all libraries of these.
fn pack(tree: &Path, archive: &Path) -> Result<(), String> {
    let mut files: BTreeSet<PathBuf> = ROOTS.iter().map(|root| tree.join(root)).collect();
    for root in ROOTS {
        let list = quiet_output(
            Command::new(tree.join("usr/lib64/ld-linux-x86-64.so.2"))
                .arg("--library-path")
                .arg(tree.join(LIBRARIES))
                .arg("--list")
                .arg(tree.join(root)),
        )?;
        files.extend(libraries(&list, tree)?);
    }
    let mut tar = Command::new("tar");
    tar.args(["--dereference", "--transform", "s,.*/,dpdk/,", "-cf"])
        .arg(archive)
        .arg("-C")
        .arg("/")
        .args(files);
    quiet_output(&mut tar).map(|_| ())
}

/// The libraries that the dynamic linker lists, without those that every guest has.
fn libraries(list: &str, tree: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for line in list.lines() {
        let Some((name, place)) = line.trim().split_once(" => ") else {
            continue;
        };
        let path = place.split(" (").next().unwrap_or_default();
        if !Path::new(path).starts_with(tree) {
            return Err(format!("{name} is not in the packages: {place}"));
        }
        if !IN_GUESTS.contains(&name) {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_of_the_packages() {
        let tree = Path::new("/tree");
        let list = "\tlinux-vdso.so.1 (0x00007fff)\n\
                    \tlibc.so.6 => /tree/usr/lib/x86_64-linux-gnu/libc.so.6 (0x00007f00)\n\
                    \tlibnuma.so.1 => /tree/usr/lib/x86_64-linux-gnu/libnuma.so.1 (0x00007f01)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n";
        let found = libraries(list, tree);
        let numa = tree.join(LIBRARIES).join("libnuma.so.1");
        assert_eq!(found, Ok(vec![numa]));
        for elsewhere in [
            "libnuma.so.1 => /lib/libnuma.so.1 (0x00007f01)",
            "libnuma.so.1 => not found",
        ] {
            assert!(libraries(elsewhere, tree).is_err(), "{elsewhere}");
        }
    }
}
