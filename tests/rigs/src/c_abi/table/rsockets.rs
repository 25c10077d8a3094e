//! Programs on rsockets.

use crate::c_abi::scenario::Side::{Client, Server};
use crate::c_abi::scenario::{self, Ready, Scenario, Side};

pub(super) const fn pair(
    name: &'static str,
    server: &'static [&'static str],
    client: &'static [&'static str],
    says: &'static [(Side, &'static str, usize)],
) -> Scenario {
    scenario::pair(name, Ready::RListens, server, client, says)
}

/// Each end prints a line when it has sent and received all, and found the data that was sent.
pub(super) const MEASURED: &[(Side, &str, usize)] =
    &[(Client, "custom ", 1), (Server, "custom ", 1)];

pub(super) const ALL: &[Scenario] = &[
    // A program with the functions that rdma-core has since 57, with streams that are waited for by `repoll_wait`.
    pair(
        "newest",
        &["c:newest", "server"],
        &["c:newest", "client"],
        &[
            (Server, "newest: all is right", 1),
            (Client, "newest: all is right", 1),
        ],
    ),
    // Calls that do not wait, in a loop.
    pair(
        "rstream",
        &["rstream", "-C", "200", "-S", "50000", "-T", "v"],
        &[
            "rstream", "-s", "10.0.0.1", "-C", "200", "-S", "50000", "-T", "v",
        ],
        MEASURED,
    ),
    // Calls that wait; what is sent goes inline.
    pair(
        "rstream-blocking",
        &[
            "rstream", "-I", "200", "-C", "1", "-S", "64", "-T", "v", "-T", "b",
        ],
        &[
            "rstream", "-s", "10.0.0.1", "-I", "200", "-C", "1", "-S", "64", "-T", "v", "-T", "b",
        ],
        MEASURED,
    ),
    // A client that ends with its rsocket open.
    pair(
        "rsockets-left-open",
        &["c:left_open"],
        &["c:left_open", "10.0.0.1"],
        &[
            (Client, "sent 200000", 1),
            (Server, "received 200000, the same, then 0", 1),
        ],
    ),
    // Waiting in `rpoll`.
    pair(
        "rstream-async-ipv6",
        &[
            "rstream", "-b", "fd00::1", "-C", "100", "-S", "20000", "-T", "v", "-T", "a",
        ],
        &[
            "rstream", "-s", "fd00::1", "-C", "100", "-S", "20000", "-T", "v", "-T", "a",
        ],
        MEASURED,
    ),
    // What is sent is many times longer than the rings.
    pair(
        "rstream-small-rings",
        &[
            "rstream", "-C", "10", "-S", "100000", "-B", "8192", "-T", "v", "-T", "b",
        ],
        &[
            "rstream", "-s", "10.0.0.1", "-C", "10", "-S", "100000", "-B", "8192", "-T", "v", "-T",
            "b",
        ],
        MEASURED,
    ),
    // Into buffers that the other end has mapped.
    pair(
        "riostream",
        &["riostream", "-C", "100", "-S", "50000", "-T", "v"],
        &[
            "riostream",
            "-s",
            "10.0.0.1",
            "-C",
            "100",
            "-S",
            "50000",
            "-T",
            "v",
        ],
        MEASURED,
    ),
    // Datagrams, which the server counts; it goes on waiting. Not each back to its sender (`-T e`): what is not back after 1 ms is
    // sent again, and if the earlier answer comes then, that is sent in place of the next message. If it is lost later, udpong
    // never ends, over the kernel's UDP (`-T s`) neither.
    pair(
        "udpong",
        &["udpong", "-b", "10.0.0.1"],
        &["udpong", "-s", "10.0.0.1", "-C", "200", "-S", "1000"],
        &[(Client, "custom ", 1)],
    )
    .stays(),
    // The server goes on waiting for others.
    pair(
        "rcopy",
        &["rcopy"],
        &[
            "/bin/sh",
            "-ec",
            "{programs}/rcopy {programs}/ib_write_bw 10.0.0.1:{scratch}/copied\n\
             cmp {programs}/ib_write_bw {scratch}/copied && echo the same",
        ],
        &[(Client, "the same", 1)],
    )
    .stays(),
];
