//! Debian's programs with ours of the same name at the other end, which use the driver as a Rust library.

use crate::c_abi::scenario::Ready::{Joined, Listens};
use crate::c_abi::scenario::Side::{Client, Server};
use crate::c_abi::scenario::{Scenario, pair};

pub(super) const ALL: &[Scenario] = &[
    pair(
        "rping-our-client",
        Listens,
        &["rping", "-s", "-a", "10.0.0.1", "-V", "-v"],
        &[
            "our:rping",
            "-c",
            "-a",
            "10.0.0.1",
            "-I",
            "10.0.0.2",
            "-C",
            "10",
            "-V",
            "-v",
            "-S",
            "64",
        ],
        &[
            (Server, "server ping data: rdma-ping-", 10),
            (Client, "from connect to established", 1),
        ],
    ),
    pair(
        "rping-our-server",
        Listens,
        &[
            "our:rping",
            "-s",
            "-a",
            "10.0.0.1",
            "-p",
            "7174",
            "-V",
            "-v",
        ],
        &[
            "rping", "-c", "-a", "10.0.0.1", "-p", "7174", "-C", "10", "-V", "-v",
        ],
        &[
            (Server, "server: ping ", 10),
            (Client, "ping data: rdma-ping-", 10),
        ],
    ),
    pair(
        "ucmatose-our-client",
        Listens,
        &["ucmatose", "-b", "10.0.0.1", "-c", "10"],
        &[
            "our:ucmatose",
            "-s",
            "10.0.0.1",
            "-b",
            "10.0.0.2",
            "-c",
            "10",
        ],
        &[
            (Server, "return status 0", 1),
            (
                Client,
                "10 queue pairs, 100 messages of 100 bytes sent and 100 received",
                1,
            ),
        ],
    )
    .whole(),
    pair(
        "ucmatose-our-server",
        Listens,
        &["our:ucmatose", "-b", "10.0.0.1", "-c", "10"],
        &["ucmatose", "-s", "10.0.0.1", "-c", "10"],
        &[
            (
                Server,
                "10 queue pairs, 100 messages of 100 bytes sent and 100 received",
                1,
            ),
            (Client, "return status 0", 1),
        ],
    )
    .whole(),
    pair(
        "udaddy-our-client",
        Listens,
        &["udaddy", "-b", "10.0.0.1"],
        &["our:udaddy", "-s", "10.0.0.1", "-b", "10.0.0.2"],
        &[
            (Server, "return status 0", 1),
            (
                Client,
                "1 queue pairs, 10 messages of 100 bytes sent and 10 received",
                1,
            ),
        ],
    )
    .whole(),
    pair(
        "udaddy-our-server",
        Listens,
        &["our:udaddy", "-b", "10.0.0.1"],
        &["udaddy", "-s", "10.0.0.1"],
        &[
            (
                Server,
                "1 queue pairs, 10 messages of 100 bytes sent and 10 received",
                1,
            ),
            (Client, "return status 0", 1),
        ],
    )
    .whole(),
    pair(
        "mckey-our-sender",
        Joined,
        &["mckey", "-m", "239.1.1.1", "-b", "10.0.0.1"],
        &["our:mckey", "-m", "239.1.1.1", "-b", "10.0.0.2", "-s"],
        &[
            (Server, "return status 0", 1),
            (Client, "10 messages of 100 bytes sent and 0 received", 1),
        ],
    )
    .whole(),
    pair(
        "mckey-our-receiver",
        Listens,
        &["our:mckey", "-m", "239.1.1.1", "-b", "10.0.0.1"],
        &["mckey", "-m", "239.1.1.1", "-b", "10.0.0.2", "-s"],
        &[
            (Server, "0 messages of 100 bytes sent and 10 received", 1),
            (Client, "return status 0", 1),
        ],
    )
    .whole(),
    pair(
        "rdma-client-ours",
        Listens,
        &["rdma_server", "-s", "10.0.0.1"],
        &["our:rdma_client", "-s", "10.0.0.1", "-b", "10.0.0.2"],
        &[
            (Server, "rdma_server: end 0", 1),
            (Client, "client: received", 1),
        ],
    )
    .whole(),
    pair(
        "rdma-server-ours",
        Listens,
        &["our:rdma_server", "-s", "10.0.0.1"],
        &["rdma_client", "-s", "10.0.0.1"],
        &[
            (Server, "server: received", 1),
            (Client, "rdma_client: end 0", 1),
        ],
    )
    .whole(),
    pair(
        "cmtime-our-client",
        Listens,
        &["cmtime", "-b", "10.0.0.1", "-c", "100"],
        &[
            "our:cmtime",
            "-s",
            "10.0.0.1",
            "-b",
            "10.0.0.2",
            "-c",
            "100",
        ],
        &[(Client, "100 connections: ", 1)],
    )
    .stays()
    .whole(),
    pair(
        "cmtime-our-server",
        Listens,
        &["our:cmtime", "-b", "10.0.0.1", "-c", "100"],
        &["cmtime", "-s", "10.0.0.1", "-c", "100"],
        &[
            (Server, "listening on 10.0.0.1", 1),
            (Client, "destroy      :", 1),
        ],
    )
    .whole(),
];
