//! What the guests do, and what must come out.

use super::guest::{self, Server, Step, Transcript};
use super::provision::Provisions;
use crate::Outcome;
use std::path::Path;
use std::time::Duration;

/// Kernel log level of warnings; lower is worse.
const WARNING: u8 = 4;
/// A machine takes about ten seconds to boot, on a busy machine a minute.
const LIMIT: Duration = Duration::from_secs(420);

/// Warnings of the guest's kernel that are as they should be.
const EXPLAINED: &[(&str, &str)] = &[
    (
        "Failed to get valid vendor specific ID",
        "the model has no vendor-specific capability: it serves crash dumps and nothing else",
    ),
    (
        "Missing eth_net_offloads capability",
        "the model has no Ethernet queues yet, so the network device is rightly not offered",
    ),
];

/// Warnings of the model that are as they should be.
const MODEL_EXPLAINED: &[(&str, &str)] = &[(
    "health syndrome 0x1",
    "the rig had the firmware stop, in the scenario that is about that",
)];

/// One model and the machines that use it, one after the other.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// How many functions the machine has.
    functions: usize,
    /// Whether it has an IOMMU, which maps every page by itself.
    iommu: bool,
    model: &'static [&'static str],
    /// What the model's log must have.
    logs: &'static [&'static str],
    machines: &'static [Machine],
}

/// One boot.
struct Machine {
    script: &'static str,
    /// What steps must have printed: step, text.
    prints: &'static [(&'static str, &'static str)],
    /// What the driver must have complained of in steps where something happens to the card: step, text. These steps are
    /// not held to the list of what is explained.
    complains: &'static [(&'static str, &'static str)],
}

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "probe",
        about: "mlx5_core probes and removes ten times, then again in a second machine",
        functions: 1,
        iommu: false,
        model: &[],
        logs: &[],
        machines: &[
            Machine {
                complains: &[],
                script: PROBE,
                prints: &[
                    ("probe 1", "mlx5_core.rdma.0"),
                    ("probe 10", "mlx5_core.rdma.0"),
                ],
            },
            Machine {
                complains: &[],
                script: PROBE_ONCE,
                prints: &[("probe 1", "mlx5_core.rdma.0")],
            },
        ],
    },
    Scenario {
        name: "pages",
        about: "the same with thousands of boot and init pages",
        functions: 1,
        iommu: false,
        model: &["--boot-pages", "1500", "--init-pages", "5000"],
        logs: &[],
        machines: &[Machine {
            complains: &[],
            script: PROBE_ONCE,
            prints: &[("probe 1", "mlx5_core.rdma.0")],
        }],
    },
    Scenario {
        name: "infiniband",
        about: "mlx5_ib on an InfiniBand port",
        functions: 1,
        iommu: false,
        model: &["--port-type", "ib"],
        logs: &[],
        machines: &[Machine {
            complains: &[],
            script: VERBS,
            prints: &[
                ("devinfo", "hca_id:\tmlx5_0"),
                ("devinfo", "state:\t\t\tPORT_ACTIVE (4)"),
                ("devinfo", "link_layer:\t\tInfiniBand"),
                ("devinfo", "port_lid:\t\t1"),
                (
                    "devinfo",
                    "GID[  0]:\t\tfe80:0000:0000:0000:0002:c903:0000:0101",
                ),
            ],
        }],
    },
    Scenario {
        name: "infiniband-traffic",
        about: "rdma-core's and perftest's programs between two InfiniBand ports on one cable",
        functions: 2,
        iommu: false,
        model: &["--port-type", "ib"],
        logs: &[],
        machines: &[Machine {
            complains: &[],
            script: TRAFFIC,
            prints: &[("load", "uverbs1")],
        }],
    },
    Scenario {
        name: "hungry",
        about: "mlx5_ib while the firmware asks for every page by event",
        functions: 1,
        iommu: false,
        model: &[
            "--port-type",
            "ib",
            "--boot-pages",
            "1",
            "--init-pages",
            "1",
            "--page-chunk",
            "1",
        ],
        logs: &["asks for 1 pages", "asks for 300 pages"],
        machines: &[Machine {
            complains: &[],
            script: HUNGRY,
            prints: &[("devinfo", "state:\t\t\tPORT_ACTIVE (4)")],
        }],
    },
    Scenario {
        name: "iommu",
        about: "traffic behind a virtual IOMMU, whose maps come page by page and go again",
        functions: 1,
        iommu: true,
        model: &["--port-type", "ib"],
        // Single pages.
        logs: &[" + 0x1000 to 0x"],
        machines: &[Machine {
            complains: &[],
            script: IOMMU,
            prints: &[("groups", "0000:01:00.0")],
        }],
    },
    Scenario {
        name: "trouble",
        about: "the cable comes out, the function is reset, the firmware stops, the card falls off the bus",
        functions: 1,
        iommu: false,
        model: &["--port-type", "ib"],
        logs: &[],
        machines: &[Machine {
            complains: &[
                ("stopped", "Fatal error"),
                ("without firmware", ""),
                ("gone", "Fatal error"),
                ("without card", ""),
            ],
            script: TROUBLE,
            prints: &[
                ("cable out", "1: DOWN"),
                ("cable in", "4: ACTIVE"),
                ("after it", "4: ACTIVE"),
            ],
        }],
    },
    Scenario {
        name: "roce",
        about: "mlx5_ib on an Ethernet port, which is down for want of a network device",
        functions: 1,
        iommu: false,
        model: &[],
        logs: &[],
        machines: &[Machine {
            complains: &[],
            script: VERBS,
            prints: &[
                ("devinfo", "hca_id:\tmlx5_0"),
                ("devinfo", "state:\t\t\tPORT_DOWN (1)"),
                ("devinfo", "link_layer:\t\tEthernet"),
            ],
        }],
    },
];

const PROBE: &str = "
for round in 1 2 3 4 5 6 7 8 9 10; do
    step 60 \"probe $round\" 'modprobe mlx5_core && ls /sys/bus/auxiliary/devices'
    step 60 \"remove $round\" 'rmmod mlx5_core'
done
";

const PROBE_ONCE: &str = "
step 60 'probe 1' 'modprobe mlx5_core && ls /sys/bus/auxiliary/devices'
step 60 'remove 1' 'rmmod mlx5_core'
";

const VERBS: &str = "
for round in 1 2 3; do
    step 60 \"core $round\" 'modprobe mlx5_core'
    step 60 \"verbs $round\" 'modprobe mlx5_ib && modprobe ib_umad && modprobe rdma_ucm && ls /dev/infiniband'
    step 60 'devinfo' 'ibv_devinfo -v'
    step 60 \"clients off $round\" 'rmmod rdma_ucm && rmmod ib_umad'
    step 60 \"verbs off $round\" 'rmmod mlx5_ib'
    step 60 \"core off $round\" 'rmmod mlx5_core'
done
";

const HUNGRY: &str = "
step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs'
host pages 0 300
step 60 'devinfo' 'ibv_devinfo -v'
program='ibv_srq_pingpong -c -n 50 -d mlx5_0'
step 120 'pingpong' \"sh /pair '$program' '$program 127.0.0.1'\"
step 60 'unload' 'rmmod mlx5_ib && rmmod mlx5_core'
";

const IOMMU: &str = "
step 60 'groups' 'ls /sys/kernel/iommu_groups/*/devices'
for round in 1 2; do
    step 60 \"load $round\" 'modprobe mlx5_ib && modprobe ib_uverbs'
    program='ibv_rc_pingpong -c -n 200 -d mlx5_0'
    step 120 \"rc $round\" \"sh /pair '$program' '$program 127.0.0.1'\"
    program='ibv_srq_pingpong -c -n 200 -e -d mlx5_0'
    step 120 \"srq $round\" \"sh /pair '$program' '$program 127.0.0.1'\"
    step 60 \"unload $round\" 'rmmod mlx5_ib && rmmod mlx5_core'
done
";

const TROUBLE: &str = r#"
state=/sys/class/infiniband/mlx5_0/ports/1/state
step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs'
host link 0 down
step 60 'cable out' "until grep -q DOWN $state; do usleep 100000; done; cat $state"
host link 0 up
step 60 'cable in' "until grep -q ACTIVE $state; do usleep 100000; done; cat $state"
host health 0 1
step 60 'stopped' "until dmesg | grep -q 'Fatal error'; do usleep 100000; done"
step 120 'without firmware' 'rmmod mlx5_ib; rmmod mlx5_core'
step 60 'reset' 'echo 1 > /sys/bus/pci/devices/0000:01:00.0/reset'
step 60 'after it' "modprobe mlx5_ib && cat $state"
host vanish 0
step 60 'gone' "until dmesg | grep -q 'Fatal error'; do usleep 100000; done"
step 120 'without card' 'rmmod mlx5_ib; rmmod mlx5_core'
"#;

/// Every program finds its peer through TCP on the loopback interface, and waits there for nothing else.
const TRAFFIC: &str = r#"
step 60 'load' 'modprobe mlx5_ib && modprobe ib_uverbs && ls /dev/infiniband'
for kind in rc uc ud srq; do
    program="ibv_${kind}_pingpong -c -n 200"
    step 120 "$program" "sh /pair '$program -d mlx5_0' '$program -d mlx5_1 127.0.0.1'"
    program="$program -e"
    step 120 "$program" "sh /pair '$program -d mlx5_0' '$program -d mlx5_1 127.0.0.1'"
done
for program in 'ibv_xsrq_pingpong -n 200' 'ibv_xsrq_pingpong -n 200 -e'; do
    step 120 "$program" "sh /pair '$program -d mlx5_0' '$program -d mlx5_1 127.0.0.1'"
done
for test in write_bw read_bw send_bw atomic_bw write_lat read_lat send_lat atomic_lat; do
    program="ib_$test -F -n 100"
    step 120 "ib_$test" "sh /pair '$program -d mlx5_0' '$program -d mlx5_1 127.0.0.1'"
done
step 60 'unload' 'rmmod mlx5_ib && rmmod mlx5_core'
"#;

impl Scenario {
    pub(super) fn run(
        &self,
        provisions: &Provisions,
        logs: &Path,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let mut server = Server::start(logs, self.name, self.functions, self.model)?;
        for (index, machine) in self.machines.iter().enumerate() {
            let name = format!("{}-{}", self.name, index + 1);
            let transcript = guest::boot(
                provisions,
                logs,
                &name,
                &mut server,
                self.iommu,
                machine.script,
                LIMIT,
            )?;
            machine.check(&name, &transcript, outcome);
        }
        let log = server.stop()?;
        for wanted in self.logs {
            outcome.check(log.iter().any(|line| line.contains(wanted)), || {
                format!("{}: the model does not say {wanted:?}", self.name)
            });
        }
        let complaints: Vec<&str> = log
            .iter()
            .filter(|line| {
                // A panic has no level in front.
                let harmless = ["[INFO", "[DEBUG", "[TRACE"];
                let bad = !harmless.iter().any(|level| line.starts_with(level));
                bad && !MODEL_EXPLAINED
                    .iter()
                    .any(|(known, _)| line.contains(known))
            })
            .map(String::as_str)
            .collect();
        outcome.check(complaints.is_empty(), || {
            let first = complaints[..complaints.len().min(20)].join("\n  ");
            format!("{}: the model complains:\n  {first}", self.name)
        });
        Ok(())
    }
}

impl Machine {
    fn check(&self, name: &str, transcript: &Transcript, outcome: &mut Outcome) {
        if !transcript.ended {
            let rest = transcript.rest.iter().rev().take(40).rev();
            for line in rest {
                println!("  {line}");
            }
        }
        outcome.check(transcript.ended, || {
            format!("{name}: the machine's script did not come to its end")
        });
        for step in &transcript.steps {
            let before = outcome.failed;
            let troubled = self
                .complains
                .iter()
                .any(|(wanted, _)| *wanted == step.name);
            check_step(name, step, troubled, outcome);
            if outcome.failed == before {
                println!("  {name}: {}", step.name);
            }
        }
        for (wanted, text) in self.complains {
            let mut steps = transcript.steps.iter().filter(|step| step.name == *wanted);
            let complained = |step: &Step| step.log.iter().any(|(_, line)| line.contains(text));
            outcome.check(steps.any(complained), || {
                format!("{name}: in {wanted} the driver did not say {text:?}")
            });
        }
        for (wanted, text) in self.prints {
            let mut steps = transcript.steps.iter().filter(|step| step.name == *wanted);
            let printed = |step: &Step| step.output.iter().any(|line| line.contains(text));
            let any = transcript.steps.iter().any(|step| step.name == *wanted);
            outcome.check(any && steps.all(printed), || {
                format!("{name}: {wanted} did not print {text:?}")
            });
        }
    }
}

fn check_step(name: &str, step: &Step, troubled: bool, outcome: &mut Outcome) {
    outcome.check(step.status == Some(0), || {
        let output = step.output.join("\n  ");
        format!("{name}: {}: {:?}\n  {output}", step.name, step.status)
    });
    for (level, text) in &step.log {
        if *level <= WARNING && !troubled {
            let explained = EXPLAINED.iter().any(|(known, _)| text.contains(known));
            outcome.check(explained, || format!("{name}: {}: {text}", step.name));
        }
    }
}
