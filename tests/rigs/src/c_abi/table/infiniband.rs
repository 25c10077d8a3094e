//! Programs on InfiniBand ports, which they address by LID unless they are told to use the GID, and those of the connection manager
//! by GID.

use super::cm::{MCKEY, STATUS};
use super::perftest::tcp;
use super::rsockets::{self, MEASURED};
use super::verbs::{PINGPONG, pingpong};
use crate::c_abi::scenario::Side::{Client, Server};
use crate::c_abi::scenario::{Ready, Scenario, alone, pair};

/// Of `bareverbs-run`.
const INFINIBAND: &[&str] = &["--infiniband"];
/// The GIDs of the two ports, which follow from the models' numbers.
const SERVER: &str = "fe80::2:c903:0:101";
const CLIENT: &str = "fe80::2:c903:0:201";
/// A group.
const GROUP: &str = "ff12:401b:ffff::1:2";

pub(super) const ALL: &[Scenario] = &[
    alone(
        "devinfo-infiniband",
        &["ibv_devinfo", "-v"],
        &[
            (Server, "PORT_ACTIVE (4)", 1),
            (Server, "link_layer:\t\tInfiniBand", 1),
            (Server, "port_lid:\t\t1", 1),
        ],
    )
    .with(INFINIBAND),
    pingpong(
        "rc-pingpong-infiniband",
        &["ibv_rc_pingpong", "-c", "-p", "{port}"],
        PINGPONG,
    )
    .with(INFINIBAND),
    pingpong(
        "rc-pingpong-infiniband-gid",
        &["ibv_rc_pingpong", "-g", "0", "-e", "-c", "-p", "{port}"],
        PINGPONG,
    )
    .with(INFINIBAND)
    .whole(),
    pingpong(
        "uc-pingpong-infiniband",
        &["ibv_uc_pingpong", "-c", "-p", "{port}"],
        PINGPONG,
    )
    .with(INFINIBAND)
    .whole(),
    pingpong(
        "ud-pingpong-infiniband",
        &["ibv_ud_pingpong", "-c", "-p", "{port}"],
        &[
            (Client, "2048000 bytes in", 1),
            (Server, "1000 iters in", 1),
        ],
    )
    .with(INFINIBAND),
    pingpong(
        "srq-pingpong-infiniband",
        &["ibv_srq_pingpong", "-c", "-p", "{port}"],
        PINGPONG,
    )
    .with(INFINIBAND)
    .whole(),
    pingpong(
        "xsrq-pingpong-infiniband",
        &["ibv_xsrq_pingpong", "-p", "{port}"],
        &[(Client, "success", 1), (Server, "success", 1)],
    )
    .with(INFINIBAND)
    .whole(),
    tcp(
        "write-bw-infiniband",
        &["ib_write_bw", "-F", "-n", "500", "-p", "{port}"],
        &[(Client, " 65536      500 ", 1)],
    )
    .with(INFINIBAND),
    tcp(
        "send-bw-infiniband-ud",
        &["ib_send_bw", "-F", "-c", "UD", "-p", "{port}"],
        &[(Client, " 4096       1000 ", 1)],
    )
    .with(INFINIBAND)
    .whole(),
    tcp(
        "atomic-bw-infiniband",
        &["ib_atomic_bw", "-F", "-p", "{port}"],
        &[(Client, " 8          1000 ", 1)],
    )
    .with(INFINIBAND)
    .whole(),
    // The connection manager, with GIDs for addresses.
    pair(
        "ucmatose-infiniband",
        Ready::Listens,
        &["ucmatose", "-f", "gid", "-b", SERVER, "-c", "100"],
        &["ucmatose", "-f", "gid", "-s", SERVER, "-c", "100"],
        STATUS,
    )
    .with(INFINIBAND),
    pair(
        "ucmatose-infiniband-wildcard",
        Ready::Listens,
        &["ucmatose", "-f", "gid", "-c", "10", "-m", "-C", "20"],
        &[
            "ucmatose", "-f", "gid", "-s", SERVER, "-b", CLIENT, "-c", "10", "-m", "-C", "20",
        ],
        STATUS,
    )
    .with(INFINIBAND)
    .whole(),
    pair(
        "udaddy-infiniband",
        Ready::Listens,
        &["udaddy", "-f", "gid", "-b", SERVER],
        &["udaddy", "-f", "gid", "-s", SERVER],
        STATUS,
    )
    .with(INFINIBAND),
    pair(
        "mckey-infiniband",
        Ready::Joined,
        &["mckey", "-M", GROUP, "-b", SERVER, "-c", "4"],
        &["mckey", "-M", GROUP, "-b", CLIENT, "-c", "4", "-s"],
        MCKEY,
    )
    .with(INFINIBAND),
    pair(
        "mckey-infiniband-send-only",
        Ready::Joined,
        &["mckey", "-M", GROUP, "-b", SERVER],
        &["mckey", "-M", GROUP, "-b", CLIENT, "-s", "-o"],
        MCKEY,
    )
    .with(INFINIBAND)
    .whole(),
    pair(
        "infiniband-path",
        Ready::Listens,
        &["c:infiniband", "server"],
        &["c:infiniband", "client"],
        &[
            (Server, "received step by step", 1),
            (Server, "received by an endpoint", 1),
            (Server, "received by a socket", 1),
            (Client, "connected along paths of its own", 1),
        ],
    )
    .with(INFINIBAND),
    rsockets::pair(
        "rstream-infiniband",
        &[
            "rstream", "-f", "gid", "-b", SERVER, "-C", "200", "-S", "50000", "-T", "v",
        ],
        &[
            "rstream", "-f", "gid", "-s", SERVER, "-C", "200", "-S", "50000", "-T", "v",
        ],
        MEASURED,
    )
    .with(INFINIBAND),
    rsockets::pair(
        "riostream-infiniband",
        &[
            "riostream",
            "-f",
            "gid",
            "-C",
            "100",
            "-S",
            "5000",
            "-T",
            "v",
            "-T",
            "b",
        ],
        &[
            "riostream",
            "-f",
            "gid",
            "-s",
            SERVER,
            "-b",
            CLIENT,
            "-C",
            "100",
            "-S",
            "5000",
            "-T",
            "v",
            "-T",
            "b",
        ],
        MEASURED,
    )
    .with(INFINIBAND)
    .whole(),
];
