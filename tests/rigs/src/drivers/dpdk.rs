//! DPDK's driver (`librte_net_mlx5` under `dpdk-testpmd`), Debian's packages: its queues are made by DevX and verbs, beside the
//! kernel's `mlx5_core` and `mlx5_ib`, which stay bound to the function.

use super::archive::Contents;
use crate::stock_driver::{BOOT, Boot, InC, Program, SCENARIO as DEFAULT, Scenario};
use std::fs;
use std::path::Path;

/// The program, the driver, the memory pool that it takes its buffers from, and a port that is a file; and what has
/// programs write lines as they come.
const CONTENTS: Contents = Contents {
    packages: &[
        "coreutils",
        "dpdk-dev",
        "librte-mempool-ring25",
        "librte-net-mlx5-25",
        "librte-net-pcap25",
    ],
    roots: &[
        "usr/bin/dpdk-testpmd",
        "usr/libexec/coreutils/libstdbuf.so",
        "usr/lib/x86_64-linux-gnu/librte_mempool_ring.so.25",
        "usr/lib/x86_64-linux-gnu/librte_net_mlx5.so.25",
        "usr/lib/x86_64-linux-gnu/librte_net_pcap.so.25",
    ],
    folder: "dpdk",
};
/// Counts a forwarding thread's instructions.
const COUNTER: InC = InC {
    name: "burst_steps",
    text: include_str!("burst_steps.c"),
    libraries: &[],
};
/// The number of bytes that the script has segments be.
const SEGMENT: usize = 1400;
/// The number of frames that the file has that testpmd sends.
const FRAMES: u32 = 64;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "dpdk",
    about: "DPDK's testpmd in two guests: both sides count the same packets and bytes",
    functions: 2,
    roce: false,
    rounds: &[Boot {
        machines: &[&[0], &[1]],
        script: concat!(
            "device_arguments=\n",
            include_str!("scripts/testpmd.sh"),
            include_str!("scripts/testpmd-pair.sh"),
            include_str!("scripts/dpdk.sh")
        ),
        limit: 4,
        ..BOOT
    }],
    ..DEFAULT
};

/// The same without the library's own steering of packets, with which the driver makes its queues, its tables of hashes and its
/// rules by verbs: work queues, RSS queue pairs and `ibv_create_flow`.
pub(super) const VERBS: Scenario = Scenario {
    name: "dpdk-verbs",
    about: "the same of DPDK's testpmd, by work queues, RSS queue pairs and rules of verbs",
    functions: 2,
    roce: false,
    rounds: &[Boot {
        machines: &[&[0], &[1]],
        script: concat!(
            "device_arguments=,dv_flow_en=0\n",
            include_str!("scripts/testpmd.sh"),
            include_str!("scripts/testpmd-pair.sh"),
            include_str!("scripts/dpdk.sh")
        ),
        limit: 4,
        ..BOOT
    }],
    ..DEFAULT
};

/// The scenario that is left where the card has no tables that lead to others: without rules, frames can be sent.
pub(super) const SEND: Scenario = Scenario {
    name: "dpdk-send",
    about: "DPDK's testpmd sends without rules for received frames; Linux counts the same packets and bytes",
    functions: 2,
    roce: false,
    rounds: &[Boot {
        machines: &[&[0], &[1]],
        script: concat!(
            include_str!("scripts/testpmd.sh"),
            include_str!("scripts/dpdk-send.sh")
        ),
        limit: 4,
        ..BOOT
    }],
    ..DEFAULT
};

/// The instructions of a frame, beside which `docs/benchmarks.md` has those of our forwarder.
pub(super) const COUNT: Scenario = Scenario {
    name: "dpdk-count",
    about: "instructions that DPDK's testpmd takes for a frame that it forwards",
    functions: 2,
    roce: false,
    rounds: &[Boot {
        machines: &[&[0], &[1]],
        script: concat!(
            include_str!("scripts/testpmd.sh"),
            include_str!("scripts/dpdk-count.sh")
        ),
        limit: 10,
        ..BOOT
    }],
    ..DEFAULT
};

/// The program with its libraries, in one archive.
pub(super) fn programs(directory: &Path) -> Result<Vec<Program>, String> {
    let archive = CONTENTS.archive(directory)?;
    let frames = directory.join("frames.pcap");
    fs::write(&frames, recording()).map_err(|error| format!("{}: {error}", frames.display()))?;
    let counter = COUNTER.build(directory, directory, None)?;
    Ok(vec![
        Program {
            name: "dpdk.tar",
            path: archive,
        },
        Program {
            name: "frames.pcap",
            path: frames,
        },
        Program {
            name: COUNTER.name,
            path: counter,
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
