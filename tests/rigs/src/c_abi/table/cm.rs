//! The programs of `rdmacm-utils`.

use crate::c_abi::scenario::Side::{Client, Server};
use crate::c_abi::scenario::{Ready, Says, Scenario, alone, pair};

pub(super) const ALL: &[Scenario] = &[
    pair(
        "rping",
        Ready::Listens,
        &["rping", "-s", "-a", "10.0.0.1", "-C", "10", "-V", "-v"],
        &["rping", "-c", "-a", "10.0.0.1", "-C", "10", "-V", "-v"],
        RPING,
    ),
    pair(
        "rping-4000-bytes",
        Ready::Listens,
        &[
            "rping", "-s", "-a", "10.0.0.1", "-C", "10", "-V", "-v", "-S", "4000",
        ],
        &[
            "rping", "-c", "-a", "10.0.0.1", "-C", "10", "-V", "-v", "-S", "4000",
        ],
        RPING,
    ),
    pair(
        "rping-ipv6",
        Ready::Listens,
        &["rping", "-s", "-a", "fd00::1", "-C", "10", "-V", "-v"],
        &["rping", "-c", "-a", "fd00::1", "-C", "10", "-V", "-v"],
        RPING,
    ),
    pair(
        "rping-wildcard",
        Ready::Listens,
        &["rping", "-s", "-C", "10", "-V", "-v"],
        &["rping", "-c", "-a", "10.0.0.1", "-C", "10", "-V", "-v"],
        RPING,
    ),
    pair(
        "rping-persistent",
        Ready::Listens,
        &["rping", "-s", "-P", "-a", "10.0.0.1", "-V", "-v"],
        &["rping", "-c", "-a", "10.0.0.1", "-C", "10", "-V", "-v"],
        &[(Client, "ping data: rdma-ping-", 10)],
    )
    .stays(),
    pair(
        "ucmatose",
        Ready::Listens,
        &["ucmatose", "-b", "10.0.0.1", "-c", "100"],
        &["ucmatose", "-s", "10.0.0.1", "-c", "100"],
        STATUS,
    ),
    pair(
        "ucmatose-1000",
        Ready::Listens,
        &["ucmatose", "-b", "10.0.0.1", "-c", "1000"],
        &["ucmatose", "-s", "10.0.0.1", "-c", "1000"],
        STATUS,
    )
    .whole(),
    pair(
        "udaddy",
        Ready::Listens,
        &["udaddy", "-b", "10.0.0.1"],
        &["udaddy", "-s", "10.0.0.1"],
        STATUS,
    ),
    pair(
        "ucmatose-migrated",
        Ready::Listens,
        &["ucmatose", "-b", "10.0.0.1", "-c", "10", "-m"],
        &["ucmatose", "-s", "10.0.0.1", "-c", "10", "-m"],
        STATUS,
    ),
    pair(
        "ucmatose-messages",
        Ready::Listens,
        &[
            "ucmatose", "-b", "10.0.0.1", "-c", "4", "-S", "4000", "-C", "50",
        ],
        &[
            "ucmatose", "-s", "10.0.0.1", "-c", "4", "-S", "4000", "-C", "50",
        ],
        STATUS,
    )
    .whole(),
    pair(
        "ucmatose-traffic-class-and-time-out",
        Ready::Listens,
        &[
            "ucmatose", "-b", "10.0.0.1", "-c", "4", "-t", "32", "-a", "18",
        ],
        &[
            "ucmatose", "-s", "10.0.0.1", "-c", "4", "-t", "32", "-a", "18",
        ],
        STATUS,
    )
    .whole(),
    pair(
        "ucmatose-ipv6",
        Ready::Listens,
        &["ucmatose", "-b", "fd00::1", "-c", "4"],
        &["ucmatose", "-s", "fd00::1", "-c", "4"],
        STATUS,
    )
    .whole(),
    pair(
        "udaddy-ids",
        Ready::Listens,
        &[
            "udaddy", "-b", "10.0.0.1", "-c", "10", "-C", "5", "-S", "1000",
        ],
        &[
            "udaddy", "-s", "10.0.0.1", "-c", "10", "-C", "5", "-S", "1000",
        ],
        STATUS,
    )
    .whole(),
    pair(
        "udaddy-ipoib-port-space",
        Ready::Listens,
        &["udaddy", "-b", "10.0.0.1", "-p", "2"],
        &["udaddy", "-s", "10.0.0.1", "-p", "2"],
        STATUS,
    )
    .whole(),
    pair(
        "udaddy-ipv6",
        Ready::Listens,
        &["udaddy", "-b", "fd00::1"],
        &["udaddy", "-s", "fd00::1"],
        STATUS,
    )
    .whole(),
    pair(
        "mckey",
        Ready::Joined,
        &["mckey", "-m", "239.1.1.1", "-b", "10.0.0.1", "-c", "4"],
        &[
            "mckey",
            "-m",
            "239.1.1.1",
            "-b",
            "10.0.0.2",
            "-c",
            "4",
            "-s",
        ],
        MCKEY,
    ),
    pair(
        "mckey-send-only-ipv6",
        Ready::Joined,
        &["mckey", "-m", "ff0e::101", "-b", "fd00::1"],
        &["mckey", "-m", "ff0e::101", "-b", "fd00::2", "-s", "-o"],
        MCKEY,
    ),
    pair(
        "rdma-client",
        Ready::Listens,
        &["rdma_server", "-s", "10.0.0.1"],
        &["rdma_client", "-s", "10.0.0.1"],
        &[
            (Server, "rdma_server: end 0", 1),
            (Client, "rdma_client: end 0", 1),
        ],
    ),
    // No program listens at the port.
    pair(
        "rdma-client-refused",
        Ready::Listens,
        &["rdma_server", "-s", "10.0.0.1", "-p", "7000"],
        &["rdma_client", "-s", "10.0.0.1", "-p", "7001"],
        &[(Client, "rdma_connect: Connection refused", 1)],
    )
    .stays()
    .fails(255),
    pair(
        "reject",
        Ready::Listens,
        &["c:reject", "server"],
        &["c:reject", "client"],
        &[
            (Server, "refused as it should be", 1),
            (Client, "RDMA_CM_EVENT_REJECTED, status 28", 1),
        ],
    ),
    pair(
        "ends",
        Ready::Listens,
        &["c:ends", "server", "10.0.0.1", "18", "100"],
        &["c:ends", "client", "10.0.0.1", "3"],
        &[
            (Server, ": heard after ", 18),
            (Server, ": in time", 1),
            (Client, "all ended", 1),
        ],
    ),
    pair(
        "port-space-ib-rc",
        Ready::Listens,
        &["c:port_space_ib", "server", "rc", "7471"],
        &["c:port_space_ib", "client", "rc", "10.0.0.1", "7471"],
        &[
            (Server, "8 messages each way", 1),
            (Client, "uc: event 8, status 9", 1),
            (Client, "ud: event 7, status 1", 1),
            (Client, "8 messages each way", 1),
        ],
    ),
    pair(
        "port-space-ib-uc",
        Ready::Listens,
        &["c:port_space_ib", "server", "uc", "7471"],
        &["c:port_space_ib", "client", "uc", "10.0.0.1", "7471"],
        &[
            (Server, "8 messages each way", 1),
            (Client, "rc: event 8, status 9", 1),
            (Client, "ud: event 7, status 1", 1),
            (Client, "8 messages each way", 1),
        ],
    ),
    pair(
        "port-space-ib-ud",
        Ready::Listens,
        &["c:port_space_ib", "server", "ud", "7471"],
        &["c:port_space_ib", "client", "ud", "10.0.0.1", "7471"],
        &[
            (Server, "8 messages each way", 1),
            (Client, "rc: event 8, status 8", 1),
            (Client, "uc: event 8, status 8", 1),
            (Client, "8 messages each way", 1),
        ],
    ),
    alone(
        "addresses",
        &["c:addresses"],
        &[(Server, "refused as by Linux", 1)],
    ),
    alone(
        "wildcard-on-two-devices",
        &["c:wildcard"],
        &[
            (Server, "from 10.0.0.1 to 10.0.0.2 on mlx5_1", 1),
            (Server, "from 10.0.0.2 to 10.0.0.1 on mlx5_0", 1),
        ],
    )
    .with(&["--device", "model,model"]),
    pair(
        "rdma-xclient",
        Ready::Listens,
        &["rdma_xserver"],
        &["rdma_xclient", "-s", "10.0.0.1"],
        XCLIENT,
    ),
    pair(
        "rdma-xclient-xrc",
        Ready::Listens,
        &["rdma_xserver", "-c", "x"],
        &["rdma_xclient", "-c", "x", "-s", "10.0.0.1"],
        XCLIENT,
    ),
    pair(
        "cmtime",
        Ready::Listens,
        &["cmtime", "-b", "10.0.0.1", "-c", "100"],
        &["cmtime", "-s", "10.0.0.1", "-c", "100"],
        &[(Client, "destroy      :", 1)],
    )
    .stays(),
    pair(
        "cmtime-1000",
        Ready::Listens,
        &["cmtime", "-b", "10.0.0.1", "-c", "1000"],
        &["cmtime", "-s", "10.0.0.1", "-c", "1000"],
        &[(Client, "destroy      :", 1)],
    )
    .stays()
    .whole(),
];

/// Ten pings, whose data both ends have printed; the client has compared it.
const RPING: Says = &[
    (Server, "server ping data: rdma-ping-", 10),
    (Client, "ping data: rdma-ping-", 10),
];

pub(super) const STATUS: Says = &[
    (Server, "return status 0", 1),
    (Client, "return status 0", 1),
];

pub(super) const MCKEY: Says = &[
    (Server, "data transfers complete", 1),
    (Server, "return status 0", 1),
    (Client, "return status 0", 1),
];

const XCLIENT: Says = &[
    (Server, "rdma_xserver: end 0", 1),
    (Client, "rdma_xclient: end 0", 1),
];
