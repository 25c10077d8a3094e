//! Programs on InfiniBand ports, which they address by LID unless they are told to use the GID.

use super::perftest::tcp;
use super::verbs::{PINGPONG, pingpong};
use crate::c_abi::scenario::Side::{Client, Server};
use crate::c_abi::scenario::{Scenario, alone};

/// Of `bareverbs-run`.
const INFINIBAND: &[&str] = &["--infiniband"];

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
];
