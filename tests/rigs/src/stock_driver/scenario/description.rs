//! What a scenario is: the model, the machines, and what must come out.

use crate::stock_driver::provision::Kernel;

/// One model and the machines that use it.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Whether kernels differ in what it shows: any other, unless it is named, runs on the first of several kernels only.
    pub(crate) every_kernel: bool,
    /// The kernel that it is about, whichever is asked for.
    pub(crate) kernel: Option<Kernel>,
    /// How many functions the model has.
    pub(crate) functions: usize,
    /// The model's options.
    pub(crate) model: &'static [&'static str],
    /// Whether there has to be RoCE in what is recorded of the wires.
    pub(crate) roce: bool,
    /// Whether frames are damaged there on purpose.
    pub(crate) damaged: bool,
    /// What the model's log must have.
    pub(crate) says: &'static [&'static str],
    /// What the model may complain of here alone: text, reason.
    pub(crate) excuses: &'static [(&'static str, &'static str)],
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
    /// Whether they have an IOMMU.
    pub(crate) iommu: bool,
    /// Whether there is an ordinary network between them.
    pub(crate) network: bool,
    /// The machine that is none: this computer, at the other end of that network.
    pub(crate) here: Option<usize>,
    /// Whether what goes over that network is recorded, and shown to tshark.
    pub(crate) record: bool,
    /// What the record has to show: filters of tshark's, each of which some frame passes.
    pub(crate) shows: &'static [&'static str],
    /// Whether the first function shares its slot, and so its IOMMU group, with one that is not a card's.
    pub(crate) company: bool,
    /// Whether slots have a button and power of their own, as PCI Express has it; otherwise it is all ACPI's.
    pub(crate) buttons: bool,
    /// What QEMU itself may die of, once all steps were gone through: text, reason. If it does so earlier, the round is run
    /// again.
    pub(crate) known_end: Option<(&'static str, &'static str)>,
    /// The machine that boots twice.
    pub(crate) twice: Option<usize>,
    /// What steps must have printed: step, text.
    pub(crate) prints: &'static [(&'static str, &'static str)],
    /// What the driver must have complained of in steps where something happens to the card: step, text. These steps are
    /// not held to the list of what is explained.
    pub(crate) complains: &'static [(&'static str, &'static str)],
    /// What a driver may say in one step, and need not, as it depends on what was under way there: step, text, reason.
    pub(crate) may_say: &'static [(&'static str, &'static str, &'static str)],
    /// Minutes.
    pub(crate) limit: u64,
}
