//! The scenarios. Those that take long come first.

use super::super::stock_driver::{BOOT, Boot, SCENARIO, Scenario};

/// A guest, and this computer.
const PAIR: Boot = Boot {
    machines: &[&[], &[]],
    processors: 1,
    here: Some(1),
    network: true,
    limit: 15,
    ..BOOT
};

/// `IB_WC_LOC_QP_OP_ERR`, as `rdma_rxe` reports a work request that it cannot carry out.
const LOCAL_ERROR: &str = "non-flush error status = 2";
const KEYS_GO_FIRST: &str = "the kernel destroys a killed process's objects in the reverse order of their creation \
     (uverbs_destroy_ufile_hw): rping's memory keys before its queue pair, whose posted work requests then name keys that \
     are gone (copy_data in rxe_mr.c gives -EINVAL)";

/// The program asks for a queue pair that `rdma_rxe` does not have, and checks the answer.
const NO_SUCH_QP: &str = "rxe_create_qp: returned err = -95";
const ASKED_FOR: &str = "the program asks for IBV_QPT_DRIVER and checks that it is refused";

/// As many connections as its script says.
const MANY: Boot = Boot {
    record: true,
    limit: 20,
    ..PAIR
};

/// The text with which all scripts begin, and one of them, after its settings if it has any.
macro_rules! script {
    ($name:literal) => {
        script!($name, "")
    };
    ($name:literal, $settings:literal) => {
        concat!(
            include_str!("scripts/begin.sh"),
            $settings,
            include_str!(concat!("scripts/", $name, ".sh"))
        )
    };
}

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "ten-thousand",
        about: "the same as `many`, which CI runs, with 10,000 connections",
        functions: 0,
        rounds: &[Boot {
            script: script!("many", "count=10000\n"),
            prints: &[("connections to their server", "10000 connections in")],
            ..MANY
        }],
        ..SCENARIO
    },
    Scenario {
        name: "many",
        about: "connections are made, used once and torn down, one after the other; nothing is sent twice",
        functions: 0,
        rounds: &[Boot {
            script: script!("many", "count=2000\n"),
            prints: &[("connections to their server", "2000 connections in")],
            ..MANY
        }],
        ..SCENARIO
    },
    Scenario {
        name: "loss",
        about: "frames are lost, doubled, overtaken, late and damaged, and every byte arrives",
        functions: 0,
        damaged: true,
        rounds: &[Boot {
            record: true,
            script: script!("loss"),
            ..PAIR
        }],
        ..SCENARIO
    },
    Scenario {
        name: "trouble",
        about: "no listener, a rejection, and each end is killed under traffic",
        functions: 0,
        rounds: &[Boot {
            record: true,
            script: script!("trouble"),
            prints: &[
                ("no listener there", "reason 8 (invalid service ID"),
                ("no listener here", "RDMA_CM_EVENT_REJECTED, error 8"),
                ("refused here", "RDMA_CM_EVENT_REJECTED, error 28"),
                (
                    "refused there",
                    r#"reason 28 (rejected by the consumer), and says "\x00\x00\x02""#,
                ),
            ],
            driver_may_warn: &[
                ("their client is killed", LOCAL_ERROR, KEYS_GO_FIRST),
                ("their server is killed", LOCAL_ERROR, KEYS_GO_FIRST),
                (
                    "our server is killed",
                    "non-flush error status = 12",
                    "a SEND that was under way is repeated until its retries are used up (IB_WC_RETRY_EXC_ERR)",
                ),
            ],
            ..PAIR
        }],
        ..SCENARIO
    },
    Scenario {
        name: "programs",
        about: "our ucmatose, udaddy, rdma_client, rdma_server and cmtime against rdma-core's, each as server and as client",
        functions: 0,
        rounds: &[Boot {
            record: true,
            script: script!("programs"),
            prints: &[
                ("cmtime, to our server", "Connect (50) test - no QPs"),
                ("cmtime, to their server", "Accept (50) test - no QPs"),
            ],
            ..PAIR
        }],
        ..SCENARIO
    },
    Scenario {
        name: "port-space-ib",
        about: "endpoints of RDMA_PS_IB with RC, UC and UD queue pairs: a program in C on our libraries against the same on rdma-core's, each as server and as client",
        functions: 0,
        rounds: &[Boot {
            record: true,
            filters: &[
                // Transport 1 is UC: our request and Linux'.
                "ip.src == 10.0.0.3 && infiniband.cm.req.transpsvctype == 1",
                "ip.src == 10.0.0.1 && infiniband.cm.req.transpsvctype == 1",
                // What UC sends: SEND only, and RDMA WRITE only.
                "ip.src == 10.0.0.3 && infiniband.bth.opcode == 0x24",
                "ip.src == 10.0.0.1 && infiniband.bth.opcode == 0x24",
                "ip.src == 10.0.0.3 && infiniband.bth.opcode == 0x2a",
                "ip.src == 10.0.0.1 && infiniband.bth.opcode == 0x2a",
            ],
            script: script!("port_space_ib"),
            prints: &[
                ("uc, to our server", "8 messages each way"),
                ("uc, to their server", "8 messages each way"),
                ("ud, to our server", "8 messages each way"),
                ("ud, to their server", "8 messages each way"),
            ],
            ..PAIR
        }],
        ..SCENARIO
    },
    Scenario {
        name: "external-qp",
        about: "connections whose RC queue pairs are the program's own: a program in C on our libraries against the same on rdma-core's, each as server and as client",
        functions: 0,
        rounds: &[Boot {
            record: true,
            filters: &[
                // The requests, and what confirms the response: `rdma_establish`.
                "ip.src == 10.0.0.3 && infiniband.cm.req.transpsvctype == 0",
                "ip.src == 10.0.0.1 && infiniband.cm.req.transpsvctype == 0",
                "ip.src == 10.0.0.3 && infiniband.mad.attributeid == 0x14",
                "ip.src == 10.0.0.1 && infiniband.mad.attributeid == 0x14",
            ],
            script: script!("external_qp"),
            driver_may_warn: &[
                ("to our server", NO_SUCH_QP, ASKED_FOR),
                ("to their server", NO_SUCH_QP, ASKED_FOR),
            ],
            prints: &[
                ("to our server", "8 messages each way"),
                ("to their server", "8 messages each way"),
            ],
            ..PAIR
        }],
        ..SCENARIO
    },
    Scenario {
        name: "multicast",
        about: "our mckey against rdma-core's, each as sender and as receiver; who reports which group to the switches",
        functions: 0,
        rounds: &[Boot {
            record: true,
            filters: &[
                // IGMPv2's report and leave, and MLDv2's of a group that is entered and left.
                "ip.src == 10.0.0.2 && igmp.type == 0x16 && igmp.maddr == 239.192.7.1",
                "ip.src == 10.0.0.2 && igmp.type == 0x17 && igmp.maddr == 239.192.7.1",
                "icmpv6.mldr.mar.record_type == 4 && icmpv6.mldr.mar.multicast_address == ff15::7:1",
                "icmpv6.mldr.mar.record_type == 3 && icmpv6.mldr.mar.multicast_address == ff15::7:1",
                // The kernel's, and datagrams each way.
                "ip.src == 10.0.0.1 && igmp.type == 0x22 && igmp.maddr == 239.192.7.1",
                "ip.src == 10.0.0.1 && ip.dst == 239.192.7.1 && infiniband.bth.destqp == 0xffffff",
                "ip.src == 10.0.0.3 && ip.dst == 239.192.7.1 && infiniband.bth.destqp == 0xffffff",
            ],
            script: script!("multicast"),
            prints: &[
                ("our receiver, rdma-core's sender, -C 10", "0107C0EF"),
                ("Linux joins no group of IPv6", "Unknown error 524"),
            ],
            ..PAIR
        }],
        ..SCENARIO
    },
    Scenario {
        name: "vlan",
        about: "our rping and mckey against rdma-core's in a VLAN, each in both parts, over IPv4 and IPv6",
        functions: 0,
        rounds: &[Boot {
            record: true,
            filters: &[
                "vlan.id == 7 && ip.src == 10.7.0.2 && infiniband.cm.rep",
                "vlan.id == 7 && ip.src == 10.7.0.1 && infiniband.cm.rep",
                "vlan.id == 7 && ipv6.src == fd07::2 && infiniband.cm.rep",
                "vlan.id == 7 && ipv6.src == fd07::1 && infiniband.cm.rep",
                "vlan.id == 7 && ip.src == 10.7.0.2 && igmp.type == 0x16",
                "vlan.id == 7 && ip.src == 10.7.0.1 && ip.dst == 239.192.7.1 && infiniband.bth.destqp == 0xffffff",
                "vlan.id == 7 && ip.src == 10.7.0.3 && ip.dst == 239.192.7.1 && infiniband.bth.destqp == 0xffffff",
            ],
            script: script!("vlan"),
            ..PAIR
        }],
        ..SCENARIO
    },
    Scenario {
        name: "beside",
        about: "our tcp_echo answers Linux's ping, TCP and RDMA on one port, and is answered",
        functions: 0,
        rounds: &[Boot {
            record: true,
            script: script!("beside"),
            ..PAIR
        }],
        ..SCENARIO
    },
    Scenario {
        name: "rping",
        about: "our rping against rdma-core's, each as server and as client, over IPv4 and IPv6; nothing is sent twice",
        functions: 0,
        rounds: &[Boot {
            record: true,
            script: script!("rping"),
            ..PAIR
        }],
        ..SCENARIO
    },
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_script_can_be_planned_and_has_what_is_expected_of_it() {
        super::super::super::stock_driver::check_plans(super::ALL);
    }
}
