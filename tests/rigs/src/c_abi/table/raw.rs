//! The programs of `perftest` for raw packet QPs. Their frames have the MAC addresses that they are told; rules let them in.

use crate::c_abi::scenario::Side::{Client, Server};
use crate::c_abi::scenario::{Ready, Scenario, alone, pair};

/// The arguments of both ends of a program.
macro_rules! ends {
    ($program:literal $(, $option:literal)*) => {(
        &[
            $program, "--server", "-F", "-B", "02:00:00:00:01:01", "-E", "02:00:00:00:02:01" $(, $option)*
        ],
        &[
            $program, "--client", "-F", "-B", "02:00:00:00:02:01", "-E", "02:00:00:00:01:01" $(, $option)*
        ],
    )};
}

type Ends = (&'static [&'static str], &'static [&'static str]);

const LATENCY: Ends = ends!("raw_ethernet_lat", "-n", "100");
/// The server has room for all of its frames: nothing would send one again.
const BANDWIDTH: Ends = ends!("raw_ethernet_bw", "-n", "300", "-s", "1500", "-r", "512");
/// Rules for addresses of IPv4 and ports of UDP.
const UDP: Ends = ends!(
    "raw_ethernet_bw",
    "-n",
    "300",
    "-s",
    "200",
    "-r",
    "512",
    "-j",
    "10.1.0.2",
    "-J",
    "10.1.0.1",
    "-k",
    "4001",
    "-K",
    "4000"
);
/// Makes rules, and takes them away.
const RULES: Ends = ends!("raw_ethernet_fs_rate", "-n", "300");

pub(super) const ALL: &[Scenario] = &[
    pair(
        "raw-ethernet-lat",
        Ready::Steered,
        LATENCY.0,
        LATENCY.1,
        &[(Server, " 64      100 ", 1), (Client, " 64      100 ", 1)],
    ),
    pair(
        "raw-ethernet-bw",
        Ready::Steered,
        BANDWIDTH.0,
        BANDWIDTH.1,
        &[
            (Server, " 1500       300 ", 1),
            (Client, " 1500       300 ", 1),
        ],
    ),
    pair(
        "raw-ethernet-bw-udp",
        Ready::Steered,
        UDP.0,
        UDP.1,
        &[
            (Server, " 200        300 ", 1),
            (Client, " 200        300 ", 1),
        ],
    ),
    alone(
        "raw-ethernet-rules",
        RULES.0,
        &[(Server, "300          ", 1), (Server, "#flows", 1)],
    ),
];
