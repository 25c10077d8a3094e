//! The description of a scenario: the model, the machines, and what must come out.

use crate::stock_driver::plan;
use crate::stock_driver::provision::Kernel;

/// One model and the machines that use it.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// `true` if kernels differ in what it filters: any other, unless it is named, runs on the first of several kernels
    /// only.
    pub(crate) every_kernel: bool,
    /// The kernel that it is for, whichever is asked for.
    pub(crate) kernel: Option<Kernel>,
    /// The number of functions that the model has.
    pub(crate) functions: usize,
    /// The model's options.
    pub(crate) model: &'static [&'static str],
    /// `true` if there has to be RoCE in what is recorded of the wires.
    pub(crate) roce: bool,
    /// `true` if frames are damaged there on purpose.
    pub(crate) damaged: bool,
    /// Text that the model's log must have.
    pub(crate) model_logs: &'static [&'static str],
    /// Warnings of the model that are allowed in this scenario only: text, reason.
    pub(crate) model_may_warn: &'static [(&'static str, &'static str)],
    /// One after the other.
    pub(crate) rounds: &'static [Boot],
}

/// Machines that run at the same time.
pub(crate) struct Boot {
    pub(crate) script: &'static str,
    /// The functions of each machine.
    pub(crate) machines: &'static [&'static [usize]],
    /// Processors of each.
    pub(crate) processors: usize,
    /// Memory of each, in MiB.
    pub(crate) memory: usize,
    /// `true` if they have an IOMMU.
    pub(crate) iommu: bool,
    /// `true` if there is an ordinary network between them.
    pub(crate) network: bool,
    /// The machine that is this computer instead of a guest, at the other end of that network.
    pub(crate) here: Option<usize>,
    /// `true` if what goes over that network is recorded, and shown to tshark.
    pub(crate) record: bool,
    /// Display filters of tshark, each of which some frame of the record has to pass.
    pub(crate) filters: &'static [&'static str],
    /// `true` if the first function shares its slot, and so its IOMMU group, with one that is not a card's.
    pub(crate) shared_slot: bool,
    /// `true` if slots have a button and power of their own, as PCI Express has it; otherwise it is all ACPI's.
    pub(crate) buttons: bool,
    /// The message with which QEMU itself may abort once all steps have run: text, reason. If it aborts earlier, the round
    /// is run again.
    pub(crate) known_abort: Option<(&'static str, &'static str)>,
    /// The machine that boots twice.
    pub(crate) boots_twice: Option<usize>,
    /// The loader that one machine boots instead of Linux.
    pub(crate) loader: Option<Loader>,
    /// The lines that steps must have printed: step, text.
    pub(crate) prints: &'static [(&'static str, &'static str)],
    /// Warnings that the driver must log in steps with a fault of the card: step, text. In these steps it may log
    /// others as well.
    pub(crate) driver_warns: &'static [(&'static str, &'static str)],
    /// Warnings that a driver may log in one step, depending on what was in progress there: step, text, reason.
    pub(crate) driver_may_warn: &'static [(&'static str, &'static str, &'static str)],
    /// The number of these warnings that one machine may log at most: something that is repeated for ever is no accident.
    pub(crate) driver_may_warn_times: usize,
    /// Minutes.
    pub(crate) limit: u64,
}

/// A boot loader that has drivers of its own, and prints what a guest's script does: the lines of the protocol, which it
/// only sends.
pub(crate) struct Loader {
    pub(crate) machine: usize,
    /// The program among the rig's.
    pub(crate) program: &'static str,
    pub(crate) script: &'static str,
}

impl Loader {
    /// The names of its steps.
    pub(super) fn steps(&self) -> Vec<String> {
        let lines = self.script.lines();
        lines
            .filter_map(|line| line.strip_prefix("echo @@ step "))
            .map(str::to_string)
            .collect()
    }
}

impl Boot {
    /// The names of a machine's steps.
    pub(super) fn steps(&self, machine: usize) -> Result<Vec<String>, String> {
        match &self.loader {
            Some(loader) if loader.machine == machine => Ok(loader.steps()),
            _ => {
                let boots = 1 + usize::from(self.boots_twice == Some(machine));
                plan::steps(self.script, machine, self.machines.len(), boots)
            }
        }
    }
}
