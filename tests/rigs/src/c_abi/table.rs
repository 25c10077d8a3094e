//! Which programs run, and what they have to print.

mod rsockets;

use Side::{Client, Server};
use std::fmt;

/// One of two programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

/// When the client may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// The library says that the server listens.
    Listens,
    /// The library says that the server listens on an rsocket.
    RListens,
    /// The same, of a server that does not end by itself.
    RListensOn,
    /// The server listens at the TCP port over which the programs exchange their addresses.
    Tcp,
}

/// A program alone, or a server and a client. Both have to exit with status 0.
pub(super) struct Scenario {
    /// Its name, and that of its logs.
    pub(super) name: &'static str,
    /// A program and its arguments, with `{port}` for a free TCP port, `{programs}` for the folder of the programs, and
    /// `{scratch}` for a folder of this run.
    pub(super) server: &'static [&'static str],
    /// Nothing: the server runs alone.
    pub(super) client: &'static [&'static str],
    pub(super) ready: Ready,
    /// Of `bareverbs-run`, with `{log}` for the path of the side's log.
    pub(super) options: &'static [&'static str],
    /// So many lines of a side's output have this text.
    pub(super) says: &'static [(Side, &'static str, usize)],
}

/// All scenarios.
pub(super) fn all() -> impl Iterator<Item = &'static Scenario> {
    ALL.iter().chain(rsockets::ALL)
}

const fn alone(
    name: &'static str,
    program: &'static [&'static str],
    says: &'static [(Side, &'static str, usize)],
) -> Scenario {
    Scenario {
        name,
        server: program,
        client: &[],
        ready: Ready::Tcp,
        options: &[],
        says,
    }
}

const fn pair(
    name: &'static str,
    ready: Ready,
    server: &'static [&'static str],
    client: &'static [&'static str],
    says: &'static [(Side, &'static str, usize)],
) -> Scenario {
    Scenario {
        name,
        server,
        client,
        ready,
        options: &[],
        says,
    }
}

const ALL: &[Scenario] = &[
    alone("devices", &["ibv_devices"], &[(Server, "mlx5_0", 1)]),
    alone(
        "devinfo",
        &["ibv_devinfo", "-v"],
        &[
            (Server, "hca_id:\tmlx5_0", 1),
            (Server, "PORT_ACTIVE (4)", 1),
            (Server, "::ffff:10.0.0.1, RoCE v2", 1),
            (Server, "fd00::1, RoCE v2", 1),
        ],
    ),
    pair(
        "rc-pingpong",
        Ready::Tcp,
        &["ibv_rc_pingpong", "-g", "0", "-p", "{port}"],
        &["ibv_rc_pingpong", "-g", "0", "-p", "{port}", "localhost"],
        PINGPONG,
    ),
    pair(
        "rc-pingpong-events-checked",
        Ready::Tcp,
        &["ibv_rc_pingpong", "-g", "0", "-e", "-c", "-p", "{port}"],
        &[
            "ibv_rc_pingpong",
            "-g",
            "0",
            "-e",
            "-c",
            "-p",
            "{port}",
            "localhost",
        ],
        PINGPONG,
    ),
    pair(
        "rc-pingpong-new-send",
        Ready::Tcp,
        &["ibv_rc_pingpong", "-g", "0", "-N", "-p", "{port}"],
        &[
            "ibv_rc_pingpong",
            "-g",
            "0",
            "-N",
            "-p",
            "{port}",
            "localhost",
        ],
        PINGPONG,
    ),
    pair(
        "uc-pingpong",
        Ready::Tcp,
        &["ibv_uc_pingpong", "-g", "0", "-c", "-p", "{port}"],
        &[
            "ibv_uc_pingpong",
            "-g",
            "0",
            "-c",
            "-p",
            "{port}",
            "localhost",
        ],
        PINGPONG,
    ),
    pair(
        "ud-pingpong",
        Ready::Tcp,
        &["ibv_ud_pingpong", "-g", "0", "-c", "-p", "{port}"],
        &[
            "ibv_ud_pingpong",
            "-g",
            "0",
            "-c",
            "-p",
            "{port}",
            "localhost",
        ],
        &[
            (Client, "2048000 bytes in", 1),
            (Server, "1000 iters in", 1),
        ],
    ),
    pair(
        "srq-pingpong",
        Ready::Tcp,
        &["ibv_srq_pingpong", "-g", "0", "-c", "-p", "{port}"],
        &[
            "ibv_srq_pingpong",
            "-g",
            "0",
            "-c",
            "-p",
            "{port}",
            "localhost",
        ],
        PINGPONG,
    ),
    pair(
        "xsrq-pingpong",
        Ready::Tcp,
        &["ibv_xsrq_pingpong", "-g", "0", "-p", "{port}"],
        &["ibv_xsrq_pingpong", "-g", "0", "-p", "{port}", "localhost"],
        &[(Client, "success", 1), (Server, "success", 1)],
    ),
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
        "ucmatose",
        Ready::Listens,
        &["ucmatose", "-b", "10.0.0.1", "-c", "100"],
        &["ucmatose", "-s", "10.0.0.1", "-c", "100"],
        &[
            (Server, "return status 0", 1),
            (Client, "return status 0", 1),
        ],
    ),
    pair(
        "udaddy",
        Ready::Listens,
        &["udaddy", "-b", "10.0.0.1"],
        &["udaddy", "-s", "10.0.0.1"],
        &[
            (Server, "return status 0", 1),
            (Client, "return status 0", 1),
        ],
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
    pair(
        "write-bw",
        Ready::Tcp,
        &["ib_write_bw", "-F", "-x", "0", "-p", "{port}"],
        &["ib_write_bw", "-F", "-x", "0", "-p", "{port}", "localhost"],
        &[(Client, " 65536      5000 ", 1)],
    ),
    pair(
        "read-lat",
        Ready::Tcp,
        &["ib_read_lat", "-F", "-x", "0", "-p", "{port}"],
        &["ib_read_lat", "-F", "-x", "0", "-p", "{port}", "localhost"],
        &[(Client, " 2       1000 ", 1)],
    ),
    pair(
        "atomic-bw",
        Ready::Tcp,
        &["ib_atomic_bw", "-F", "-x", "0", "-p", "{port}"],
        &["ib_atomic_bw", "-F", "-x", "0", "-p", "{port}", "localhost"],
        &[(Client, " 8          1000 ", 1)],
    ),
    pair(
        "send-bw",
        Ready::Tcp,
        &["ib_send_bw", "-F", "-x", "0", "-p", "{port}"],
        &["ib_send_bw", "-F", "-x", "0", "-p", "{port}", "localhost"],
        &[(Client, " 65536      1000 ", 1)],
    ),
    pair(
        "send-bw-events",
        Ready::Tcp,
        &[
            "ib_send_bw",
            "-F",
            "-e",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[
            "ib_send_bw",
            "-F",
            "-e",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
            "localhost",
        ],
        &[(Client, " 65536      200 ", 1)],
    ),
    pair(
        "send-lat-ud",
        Ready::Tcp,
        &[
            "ib_send_lat",
            "-F",
            "-c",
            "UD",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[
            "ib_send_lat",
            "-F",
            "-c",
            "UD",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
            "localhost",
        ],
        &[(Client, " 2       200 ", 1)],
    ),
    pair(
        "write-bw-cm",
        Ready::Listens,
        &["ib_write_bw", "-F", "-R", "-n", "200", "-p", "{port}"],
        &[
            "ib_write_bw",
            "-F",
            "-R",
            "-n",
            "200",
            "-p",
            "{port}",
            "10.0.0.1",
        ],
        &[(Client, " 65536      200 ", 1)],
    ),
    pair(
        "send-bw-cm",
        Ready::Listens,
        &["ib_send_bw", "-F", "-R", "-n", "200", "-p", "{port}"],
        &[
            "ib_send_bw",
            "-F",
            "-R",
            "-n",
            "200",
            "-p",
            "{port}",
            "10.0.0.1",
        ],
        &[(Client, " 65536      200 ", 1)],
    ),
];

/// 1000 messages of 4096 bytes in either direction.
const PINGPONG: &[(Side, &str, usize)] = &[
    (Client, "8192000 bytes in", 1),
    (Client, "1000 iters in", 1),
    (Server, "8192000 bytes in", 1),
    (Server, "1000 iters in", 1),
];

/// Ten pings, whose data both ends have printed; the client has compared it.
const RPING: &[(Side, &str, usize)] = &[
    (Server, "server ping data: rdma-ping-", 10),
    (Client, "ping data: rdma-ping-", 10),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_different_and_each_scenario_says_something() {
        let names: BTreeSet<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len());
        for scenario in ALL {
            assert!(!scenario.says.is_empty(), "{}", scenario.name);
            let of_client = scenario.says.iter().any(|(side, ..)| *side == Client);
            assert_eq!(of_client, !scenario.client.is_empty(), "{}", scenario.name);
        }
    }
}
