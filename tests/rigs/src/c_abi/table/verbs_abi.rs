//! Programs on Debian's own libibverbs, libmlx5 and librdmacm, for which `bareverbs-uverbs` serves the kernel's verbs ABI.

use crate::c_abi::scenario::Side::{Client, Server};
use crate::c_abi::scenario::{Ready, SERVED, Says, Scenario, alone, pair, same};

const PINGPONG: Says = &[(Server, "1000 iters in", 1), (Client, "1000 iters in", 1)];

pub(super) const ALL: &[Scenario] = &[
    alone(
        "served-devinfo",
        &["ibv_devinfo", "-v"],
        &[
            (Server, "hca_id:\tmlx5_0", 1),
            (Server, "PORT_ACTIVE (4)", 1),
            (Server, "::ffff:10.0.0.1, RoCE v2", 1),
        ],
    )
    .with(SERVED),
    pingpong(
        "served-rc-pingpong",
        &["ibv_rc_pingpong", "-g", "0", "-c", "-p", "{port}"],
    ),
    pingpong(
        "served-events",
        &["ibv_rc_pingpong", "-g", "0", "-e", "-p", "{port}"],
    ),
    pingpong(
        "served-ud-pingpong",
        &["ibv_ud_pingpong", "-g", "0", "-s", "1024", "-p", "{port}"],
    ),
    same(
        "served-write-bw",
        Ready::Tcp,
        &["ib_write_bw", "-F", "-x", "0", "-n", "200", "-p", "{port}"],
        &["localhost"],
        &[(Client, " 65536      200 ", 1)],
    )
    .with(SERVED),
    pair(
        "served-rping",
        Ready::Listens,
        &["rping", "-s", "-a", "10.0.0.1", "-C", "10", "-V", "-v"],
        &["rping", "-c", "-a", "10.0.0.1", "-C", "10", "-V", "-v"],
        &[
            (Server, "server ping data: rdma-ping-", 10),
            (Client, "ping data: rdma-ping-", 10),
        ],
    )
    .with(SERVED),
];

const fn pingpong(name: &'static str, program: &'static [&'static str]) -> Scenario {
    same(name, Ready::Tcp, program, &["localhost"], PINGPONG).with(SERVED)
}
