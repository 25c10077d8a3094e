//! The programs of `ibverbs-utils`.

use crate::c_abi::scenario::Side::{Client, Server};
use crate::c_abi::scenario::{Ready, Says, Scenario, alone, same};

const FILES: Says = &[(Server, "the files are as the library has it", 1)];

pub(super) const ALL: &[Scenario] = &[
    alone("devices", &["ibv_devices"], &[(Server, "mlx5_0", 1)]),
    alone(
        "devinfo",
        &["ibv_devinfo", "-v"],
        &[
            (Server, "hca_id:\tmlx5_0", 1),
            (Server, "PORT_ACTIVE (4)", 1),
            (Server, "::ffff:10.0.0.1, RoCE v2", 1),
            (Server, "fd00::1, RoCE v2", 1),
            (Server, "IP csum offload", 1),
            (Server, "SUPPORT_RAW_PACKET", 1),
        ],
    ),
    alone(
        "functions",
        &["c:functions"],
        &[
            (Server, "MAC 02:c9:00:00:00:01", 1),
            (Server, "all functions work", 1),
        ],
    ),
    alone("sysfs", &["c:sysfs"], FILES),
    alone("sysfs-infiniband", &["c:sysfs"], FILES).with(&["--infiniband"]),
    alone(
        "contexts",
        &["c:contexts"],
        &[(Server, "contexts and rates are kept apart", 1)],
    ),
    alone(
        "packets",
        &["c:packets"],
        &[(Server, "queues, hashes, marks, tags and counters work", 1)],
    ),
    // Threads that are cancelled in calls that wait.
    alone(
        "cancel",
        &["c:cancel"],
        &[
            (Server, ": cancelled", 23),
            (Server, "all threads were cancelled", 1),
        ],
    ),
    // What is not there is said to the program; the device itself is not either.
    alone(
        "memory",
        &["c:memory"],
        &[
            (Server, "QPs: Cannot allocate memory", 1),
            (Server, "CQs: Cannot allocate memory", 2),
            (Server, "SRQs: Cannot allocate memory", 1),
            (Server, "no memory is an error", 1),
        ],
    ),
    // Registered memory that is gone when it is reached.
    alone(
        "gone",
        &["c:gone"],
        &[
            (Server, "memory: remote operation error", 15),
            (Server, "memory: local protection error", 3),
            (Server, "received: local protection error", 4),
            // Of reading what can only be read, and of memory that is still there.
            (Server, "memory: success", 12),
            (Server, "a child ends by SIGBUS", 1),
            (Server, "its own faults are the program's", 1),
        ],
    ),
    Scenario {
        whole: true,
        ..alone(
            "limits",
            &["c:limits"],
            &[(Server, "all limits are real", 1)],
        )
    },
    // It never ends, and would print when its output is longer than a buffer. What happens before the device is up is not its.
    alone(
        "asyncwatch",
        &["/usr/bin/stdbuf", "-oL", "ibv_asyncwatch"],
        &[
            (Server, "event_type IBV_EVENT_PORT_ERR (10), port 1", 1),
            (Server, "event_type IBV_EVENT_PORT_ACTIVE (9), port 1", 1),
        ],
    )
    .with(&["--cable-out-after", "2500ms", "--cable-out-for", "500ms"])
    .stays(),
    pingpong(
        "rc-pingpong",
        &["ibv_rc_pingpong", "-g", "0", "-p", "{port}"],
        PINGPONG,
    ),
    pingpong(
        "rc-pingpong-events-checked",
        &["ibv_rc_pingpong", "-g", "0", "-e", "-c", "-p", "{port}"],
        PINGPONG,
    ),
    pingpong(
        "rc-pingpong-new-send",
        &["ibv_rc_pingpong", "-g", "0", "-N", "-p", "{port}"],
        PINGPONG,
    ),
    pingpong(
        "uc-pingpong",
        &["ibv_uc_pingpong", "-g", "0", "-c", "-p", "{port}"],
        PINGPONG,
    ),
    pingpong(
        "ud-pingpong",
        &["ibv_ud_pingpong", "-g", "0", "-c", "-p", "{port}"],
        &[
            (Client, "2048000 bytes in", 1),
            (Server, "1000 iters in", 1),
        ],
    ),
    pingpong(
        "srq-pingpong",
        &["ibv_srq_pingpong", "-g", "0", "-c", "-p", "{port}"],
        PINGPONG,
    ),
    pingpong(
        "xsrq-pingpong",
        &["ibv_xsrq_pingpong", "-g", "0", "-p", "{port}"],
        &[(Client, "success", 1), (Server, "success", 1)],
    ),
];

pub(super) const fn pingpong(
    name: &'static str,
    program: &'static [&'static str],
    says: Says,
) -> Scenario {
    same(name, Ready::Tcp, program, &["localhost"], says)
}

/// 1000 messages of 4096 bytes in either direction.
pub(super) const PINGPONG: Says = &[
    (Client, "8192000 bytes in", 1),
    (Client, "1000 iters in", 1),
    (Server, "8192000 bytes in", 1),
    (Server, "1000 iters in", 1),
];
