//! DPDK's `dpdk-testpmd` with the mlx5 PMD, both Debian's, on Debian's own libibverbs and libmlx5: one end sends frames, the other
//! one counts them.

use super::larger::{Program, QUIET, end, start};
use super::run::Place;
use super::scenario::SERVED;
use crate::apt::{Apt, unpack};
use crate::outcome::Outcome;
use crate::process::quietly;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const NAME: &str = "served-testpmd";
/// Changes when what is unpacked changes, so that old caches are replaced.
const RECIPE: &str = "1";
/// The release whose programs run here.
const SUITE: &str = "bookworm";
/// The libraries of DPDK's that the program is linked to, between what their packages' names have in common.
const OF_DPDK: &str = "bitratestats23 bpf23 bus-auxiliary23 bus-dpaa23 bus-pci23 bus-vdev23 cmdline23 common-dpaax23 \
    common-iavf23 common-mlx5-23 crypto-scheduler23 cryptodev23 dmadev23 eal23 ethdev23 eventdev23 gro23 gso23 hash23 ip-frag23 \
    kvargs23 latencystats23 mbuf23 mempool-dpaa23 mempool-ring23 mempool23 meter23 metrics23 net-bnxt23 net-bond23 net-dpaa23 \
    net-i40e23 net-ice23 net-ixgbe23 net-mlx5-23 net23 pcapng23 pci23 pdump23 rcu23 reorder23 ring23 sched23 security23 \
    telemetry23 timer23";
/// The program, and the other libraries that it needs.
const OTHERS: &str = "dpdk-dev libnuma1 libfdt1 libjansson4 libbsd0 libelf1 libpcap0.8 libmd0 zlib1g libdbus-1-3 libsystemd0 \
    libcap2 libgcrypt20 liblzma5 libzstd1 liblz4-1 libgpg-error0";
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
/// Arguments of both ends: no huge pages, one queue of each kind, and figures each second.
const ENVIRONMENT: &str =
    "-l 0,1 --no-huge -m 256 --no-shconf --no-telemetry -a ffff:01:00.0,dv_flow_en=0";
const APPLICATION: &str = "-- --total-num-mbufs=4096 -a --stats-period 1";
/// The time until the frames have come, and until a program has ended.
const END: Duration = Duration::from_secs(120);
/// As many frames have to come.
const FRAMES: u64 = 1000;

/// Fetches and unpacks the program, if it is not there yet.
fn fetch(directory: &Path) -> Result<PathBuf, String> {
    let (root, stamp) = (directory.join("root"), directory.join("stamp"));
    let recipe = format!("{RECIPE} {SUITE} {OF_DPDK} {OTHERS}\n");
    if fs::read_to_string(&stamp).unwrap_or_default() == recipe {
        return Ok(root);
    }
    let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(fail)?;
    }
    fs::create_dir_all(directory).map_err(fail)?;
    let of_dpdk = OF_DPDK.split_whitespace();
    let of_dpdk = of_dpdk.map(|name| format!("librte-{name}/{SUITE}"));
    let others = OTHERS.split_whitespace();
    let names: Vec<String> = others
        .map(|name| format!("{name}/{SUITE}"))
        .chain(of_dpdk)
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let packages = directory.join("debs");
    for deb in Apt::new(directory)?.fetch(&packages, &names)? {
        unpack(&deb, &root)?;
    }
    fs::remove_dir_all(&packages).map_err(fail)?;
    fs::write(&stamp, recipe).map_err(fail)?;
    Ok(root)
}

/// Frames received, as the program has printed last.
fn received(printed: &str) -> u64 {
    let last = printed.rsplit_once("RX-packets: ");
    let digits = last.and_then(|(_, rest)| rest.split_whitespace().next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn frames(place: &Place<'_>, directory: &Path) -> Result<u64, String> {
    let root = fetch(directory)?;
    let mut environment: Vec<(&str, String)> = Vec::new();
    for (name, value) in place.debian()? {
        let mut value = value.to_string_lossy().into_owned();
        if name == "LD_LIBRARY_PATH" {
            for folder in LIBRARIES {
                value += &format!(":{}", root.join(folder).display());
            }
        }
        environment.push((name, value));
    }
    let environment: Vec<(&str, &str)> = environment
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let libraries = root.join(LIBRARIES[0]);
    let start_one = |side: &str, unit: &str, more: &[&str]| {
        let words = ENVIRONMENT.split_whitespace().map(str::to_owned);
        let drivers = ["librte_net_mlx5.so.23", "librte_mempool_ring.so.23"];
        let drivers = drivers.into_iter().flat_map(|name| {
            let path = libraries.join(name).display().to_string();
            ["-d".to_owned(), path]
        });
        let application = APPLICATION.split_whitespace().chain(more.iter().copied());
        let program = Program {
            log: format!("{NAME}.{side}"),
            options: &[SERVED, QUIET, &["--unit", unit]].concat(),
            environment: &environment,
            path: root.join("usr/bin/dpdk-testpmd"),
            arguments: words
                .chain(drivers)
                .chain(application.map(str::to_owned))
                .collect(),
        };
        start(place, None, &program)
    };
    let mut receiver = start_one("receiver", "1", &["--forward-mode=rxonly"])?;
    receiver.wait_until("begin", END, |it| {
        it.printed().contains("rxonly packet forwarding - ")
    })?;
    let to = "--eth-peer=0,02:00:00:00:00:01";
    let sender = start_one("sender", "2", &["--forward-mode=txonly", to])?;
    receiver.wait_until("frames", END, |it| received(&it.printed()) >= FRAMES)?;
    let mut count = 0;
    for running in [sender, receiver] {
        let process = running.process.0.id().to_string();
        quietly(Command::new("kill").args(["-INT", &process]))?;
        let ended = end(running, END)?;
        if !ended.printed.contains("Bye...") {
            return Err(format!("{} before its ports were closed", ended.status));
        }
        count = received(&ended.printed);
    }
    Ok(count)
}

pub(super) fn run(place: &Place<'_>, directory: &Path) -> Outcome {
    let begun = Instant::now();
    let mut outcome = Outcome::default();
    let counted = frames(place, &directory.join("dpdk"));
    outcome.check(counted.is_ok(), || {
        let why = counted.as_ref().err().map_or("", String::as_str);
        format!("{NAME}: {why} (logs: {}/{NAME}*)", place.logs.display())
    });
    if let Ok(count) = counted {
        let seconds = begun.elapsed().as_secs_f64();
        println!("{NAME}: {count} frames received; {seconds:.1} s");
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::received;

    #[test]
    fn the_last_count_is_the_one() {
        let figures =
            "  RX-packets: 7          RX-missed: 0\n  RX-packets: 12         RX-dropped: 0\n";
        assert_eq!(received(figures), 12);
        assert_eq!(received("TX-packets: 5"), 0);
    }
}
