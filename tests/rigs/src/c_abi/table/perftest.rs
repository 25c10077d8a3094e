//! The programs of `perftest`. The line with the result has message size and iterations in front.

use crate::c_abi::scenario::Side::Client;
use crate::c_abi::scenario::{Ready, Says, Scenario, same};

pub(super) const ALL: &[Scenario] = &[
    tcp(
        "write-bw",
        &["ib_write_bw", "-F", "-x", "0", "-p", "{port}"],
        &[(Client, " 65536      5000 ", 1)],
    ),
    tcp(
        "write-lat",
        &["ib_write_lat", "-F", "-x", "0", "-p", "{port}"],
        &[(Client, " 2       1000 ", 1)],
    )
    .whole(),
    tcp(
        "read-bw",
        &["ib_read_bw", "-F", "-x", "0", "-p", "{port}"],
        &[(Client, " 65536      1000 ", 1)],
    )
    .whole(),
    tcp(
        "read-lat",
        &["ib_read_lat", "-F", "-x", "0", "-p", "{port}"],
        &[(Client, " 2       1000 ", 1)],
    ),
    tcp(
        "send-bw",
        &["ib_send_bw", "-F", "-x", "0", "-p", "{port}"],
        &[(Client, " 65536      1000 ", 1)],
    ),
    tcp(
        "send-lat",
        &["ib_send_lat", "-F", "-x", "0", "-p", "{port}"],
        &[(Client, " 2       1000 ", 1)],
    )
    .whole(),
    tcp(
        "atomic-bw",
        &["ib_atomic_bw", "-F", "-x", "0", "-p", "{port}"],
        &[(Client, " 8          1000 ", 1)],
    ),
    tcp(
        "atomic-lat",
        &["ib_atomic_lat", "-F", "-x", "0", "-p", "{port}"],
        &[(Client, " 8       1000 ", 1)],
    )
    .whole(),
    cm(
        "write-bw-cm",
        &["ib_write_bw", "-F", "-R", "-n", "200", "-p", "{port}"],
        &[(Client, " 65536      200 ", 1)],
    ),
    cm(
        "write-lat-cm",
        &["ib_write_lat", "-F", "-R", "-n", "200", "-p", "{port}"],
        &[(Client, " 2       200 ", 1)],
    )
    .whole(),
    tcp(
        "write-bw-1000-qps",
        &[
            "ib_write_bw",
            "-F",
            "-q",
            "1000",
            "-s",
            "4096",
            "-n",
            "5",
            "-t",
            "5",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 4096       5000 ", 1)],
    )
    .whole(),
    tcp(
        "write-bw-4-qps",
        &[
            "ib_write_bw",
            "-F",
            "-q",
            "4",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 65536      800 ", 1)],
    ),
    tcp(
        "write-bw-2-seconds",
        &["ib_write_bw", "-F", "-D", "2", "-x", "0", "-p", "{port}"],
        &[(Client, " 65536      ", 1)],
    )
    .whole(),
    tcp(
        "write-lat-2-seconds",
        &["ib_write_lat", "-F", "-D", "2", "-x", "0", "-p", "{port}"],
        &[(Client, " 2       ", 1)],
    )
    .whole(),
    tcp(
        "write-bw-xrc",
        &[
            "ib_write_bw",
            "-F",
            "-c",
            "XRC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 65536      200 ", 1)],
    )
    .whole(),
    tcp(
        "write-lat-xrc",
        &[
            "ib_write_lat",
            "-F",
            "-c",
            "XRC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 2       200 ", 1)],
    ),
    tcp(
        "write-bw-all-sizes",
        &[
            "ib_write_bw",
            "-F",
            "-a",
            "-n",
            "20",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 8388608    20 ", 1)],
    )
    .whole(),
    tcp(
        "write-lat-all-sizes",
        &[
            "ib_write_lat",
            "-F",
            "-a",
            "-n",
            "5",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 8388608 5 ", 1)],
    )
    .whole(),
    cm(
        "read-bw-cm",
        &["ib_read_bw", "-F", "-R", "-n", "200", "-p", "{port}"],
        &[(Client, " 65536      200 ", 1)],
    )
    .whole(),
    cm(
        "read-lat-cm",
        &["ib_read_lat", "-F", "-R", "-n", "200", "-p", "{port}"],
        &[(Client, " 2       200 ", 1)],
    )
    .whole(),
    tcp(
        "read-bw-4-qps",
        &[
            "ib_read_bw",
            "-F",
            "-q",
            "4",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 65536      800 ", 1)],
    )
    .whole(),
    tcp(
        "read-bw-events",
        &[
            "ib_read_bw",
            "-F",
            "-e",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 65536      200 ", 1)],
    )
    .whole(),
    tcp(
        "read-bw-2-seconds",
        &["ib_read_bw", "-F", "-D", "2", "-x", "0", "-p", "{port}"],
        &[(Client, " 65536      ", 1)],
    )
    .whole(),
    tcp(
        "read-lat-2-seconds",
        &["ib_read_lat", "-F", "-D", "2", "-x", "0", "-p", "{port}"],
        &[(Client, " 2       ", 1)],
    )
    .whole(),
    tcp(
        "read-bw-xrc",
        &[
            "ib_read_bw",
            "-F",
            "-c",
            "XRC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 65536      200 ", 1)],
    )
    .whole(),
    tcp(
        "read-lat-xrc",
        &[
            "ib_read_lat",
            "-F",
            "-c",
            "XRC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 2       200 ", 1)],
    )
    .whole(),
    tcp(
        "read-bw-all-sizes",
        &[
            "ib_read_bw",
            "-F",
            "-a",
            "-n",
            "20",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 8388608    20 ", 1)],
    )
    .whole(),
    tcp(
        "read-lat-all-sizes",
        &[
            "ib_read_lat",
            "-F",
            "-a",
            "-n",
            "5",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 8388608 5 ", 1)],
    )
    .whole(),
    cm(
        "send-bw-cm",
        &["ib_send_bw", "-F", "-R", "-n", "200", "-p", "{port}"],
        &[(Client, " 65536      200 ", 1)],
    ),
    cm(
        "send-lat-cm",
        &["ib_send_lat", "-F", "-R", "-n", "200", "-p", "{port}"],
        &[(Client, " 2       200 ", 1)],
    )
    .whole(),
    tcp(
        "send-bw-4-qps",
        &[
            "ib_send_bw",
            "-F",
            "-q",
            "4",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 65536      800 ", 1)],
    )
    .whole(),
    tcp(
        "send-bw-events",
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
        &[(Client, " 65536      200 ", 1)],
    ),
    tcp(
        "send-bw-2-seconds",
        &["ib_send_bw", "-F", "-D", "2", "-x", "0", "-p", "{port}"],
        &[(Client, " 65536      ", 1)],
    ),
    tcp(
        "send-lat-2-seconds",
        &["ib_send_lat", "-F", "-D", "2", "-x", "0", "-p", "{port}"],
        &[(Client, " 2       ", 1)],
    )
    .whole(),
    tcp(
        "send-bw-xrc",
        &[
            "ib_send_bw",
            "-F",
            "-c",
            "XRC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 65536      200 ", 1)],
    ),
    tcp(
        "send-lat-xrc",
        &[
            "ib_send_lat",
            "-F",
            "-c",
            "XRC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 2       200 ", 1)],
    )
    .whole(),
    tcp(
        "send-bw-all-sizes",
        &[
            "ib_send_bw",
            "-F",
            "-a",
            "-n",
            "20",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 8388608    20 ", 1)],
    )
    .whole(),
    tcp(
        "send-lat-all-sizes",
        &[
            "ib_send_lat",
            "-F",
            "-a",
            "-n",
            "5",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 8388608 5 ", 1)],
    ),
    cm(
        "atomic-bw-cm",
        &["ib_atomic_bw", "-F", "-R", "-n", "200", "-p", "{port}"],
        &[(Client, " 8          200 ", 1)],
    )
    .whole(),
    cm(
        "atomic-lat-cm",
        &["ib_atomic_lat", "-F", "-R", "-n", "200", "-p", "{port}"],
        &[(Client, " 8       200 ", 1)],
    )
    .whole(),
    tcp(
        "atomic-bw-4-qps",
        &[
            "ib_atomic_bw",
            "-F",
            "-q",
            "4",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 8          800 ", 1)],
    )
    .whole(),
    tcp(
        "atomic-bw-events",
        &[
            "ib_atomic_bw",
            "-F",
            "-e",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 8          200 ", 1)],
    )
    .whole(),
    tcp(
        "atomic-bw-2-seconds",
        &["ib_atomic_bw", "-F", "-D", "2", "-x", "0", "-p", "{port}"],
        &[(Client, " 8          ", 1)],
    )
    .whole(),
    tcp(
        "atomic-lat-2-seconds",
        &["ib_atomic_lat", "-F", "-D", "2", "-x", "0", "-p", "{port}"],
        &[(Client, " 8       ", 1)],
    )
    .whole(),
    tcp(
        "atomic-bw-xrc",
        &[
            "ib_atomic_bw",
            "-F",
            "-c",
            "XRC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 8          200 ", 1)],
    )
    .whole(),
    tcp(
        "atomic-lat-xrc",
        &[
            "ib_atomic_lat",
            "-F",
            "-c",
            "XRC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 8       200 ", 1)],
    )
    .whole(),
    tcp(
        "send-bw-ud",
        &[
            "ib_send_bw",
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
        &[(Client, " 4096       200 ", 1)],
    )
    .whole(),
    tcp(
        "send-lat-ud",
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
        &[(Client, " 2       200 ", 1)],
    ),
    cm(
        "send-lat-ud-cm",
        &[
            "ib_send_lat",
            "-F",
            "-c",
            "UD",
            "-R",
            "-n",
            "200",
            "-p",
            "{port}",
        ],
        &[(Client, " 2       200 ", 1)],
    )
    .whole(),
    tcp(
        "write-bw-uc",
        &[
            "ib_write_bw",
            "-F",
            "-c",
            "UC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 65536      200 ", 1)],
    )
    .whole(),
    tcp(
        "write-lat-uc",
        &[
            "ib_write_lat",
            "-F",
            "-c",
            "UC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 2       200 ", 1)],
    )
    .whole(),
    tcp(
        "send-bw-uc",
        &[
            "ib_send_bw",
            "-F",
            "-c",
            "UC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 65536      200 ", 1)],
    ),
    tcp(
        "send-lat-uc",
        &[
            "ib_send_lat",
            "-F",
            "-c",
            "UC",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 2       200 ", 1)],
    )
    .whole(),
    tcp(
        "send-bw-srq",
        &[
            "ib_send_bw",
            "-F",
            "--use-srq",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 65536      200 ", 1)],
    ),
    tcp(
        "send-lat-srq",
        &[
            "ib_send_lat",
            "-F",
            "--use-srq",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 2       200 ", 1)],
    )
    .whole(),
    tcp(
        "send-bw-ud-srq",
        &[
            "ib_send_bw",
            "-F",
            "-c",
            "UD",
            "--use-srq",
            "-n",
            "200",
            "-x",
            "0",
            "-p",
            "{port}",
        ],
        &[(Client, " 4096       200 ", 1)],
    )
    .whole(),
];

/// The programs exchange their addresses over TCP.
pub(super) const fn tcp(
    name: &'static str,
    program: &'static [&'static str],
    says: Says,
) -> Scenario {
    same(name, Ready::Tcp, program, &["localhost"], says)
}

/// The connection manager makes the connections. Where the client is faster than the server, it asks for its second connection
/// before the server listens for that; and what perftest does after the refusal uses memory that it has freed. Over a wire
/// with some latency the server is faster.
const fn cm(name: &'static str, program: &'static [&'static str], says: Says) -> Scenario {
    same(name, Ready::Listens, program, &["10.0.0.1"], says).with(&["--delay", "20ms"])
}
