//! Every structure of this crate in one place: for the decoder, for a device model's dispatcher, and for rung 0.

#[cfg(test)]
extern crate std;

use crate::command::{Command, EmptyOut};
use crate::layout::{Descriptor, Layout};
use crate::opcode::Opcode;
use crate::values::{CapabilityGroup, RegisterId};
use crate::word::{Word, WordDescriptor};

/// The opcode of a command, its input and its output.
#[derive(Debug, Clone, Copy)]
pub struct CommandDescription {
    /// The opcode.
    pub opcode: Opcode,
    /// The input's fixed part.
    pub input: &'static Descriptor,
    /// The output's fixed part.
    pub output: &'static Descriptor,
    /// The bytes of a new input.
    #[cfg(test)]
    pub(crate) fresh: fn() -> std::vec::Vec<u8>,
}

impl CommandDescription {
    const fn of<C: Command>() -> Self {
        Self {
            opcode: C::OPCODE,
            input: C::DESCRIPTOR,
            output: <C::Output as Layout>::DESCRIPTOR,
            #[cfg(test)]
            fresh: || C::fresh().as_bytes().to_vec(),
        }
    }

    /// The answer carries nothing but status and syndrome.
    #[must_use]
    pub fn output_is_empty(&self) -> bool {
        // By name, as a constant need not have the same address in every crate.
        self.output.name == EmptyOut::DESCRIPTOR.name
    }
}

/// Every command, in the order of [`Opcode::ALL`].
pub const COMMANDS: &[CommandDescription] = &[
    CommandDescription::of::<crate::hca::EnableHcaIn>(),
    CommandDescription::of::<crate::hca::DisableHcaIn>(),
    CommandDescription::of::<crate::hca::QueryIssiIn>(),
    CommandDescription::of::<crate::hca::SetIssiIn>(),
    CommandDescription::of::<crate::hca::InitHcaIn>(),
    CommandDescription::of::<crate::hca::TeardownHcaIn>(),
    CommandDescription::of::<crate::hca::QueryAdapterIn>(),
    CommandDescription::of::<crate::hca::QueryVuidIn>(),
    CommandDescription::of::<crate::hca::SetDriverVersionIn>(),
    CommandDescription::of::<crate::hca::NopIn>(),
    CommandDescription::of::<crate::pages::QueryPagesIn>(),
    CommandDescription::of::<crate::pages::ManagePagesIn>(),
    CommandDescription::of::<crate::caps::QueryHcaCapIn>(),
    CommandDescription::of::<crate::caps::SetHcaCapIn>(),
    CommandDescription::of::<crate::register::AccessRegisterIn>(),
    CommandDescription::of::<crate::uar::AllocUarIn>(),
    CommandDescription::of::<crate::uar::DeallocUarIn>(),
    CommandDescription::of::<crate::domain::AllocPdIn>(),
    CommandDescription::of::<crate::domain::DeallocPdIn>(),
    CommandDescription::of::<crate::domain::AllocTransportDomainIn>(),
    CommandDescription::of::<crate::domain::DeallocTransportDomainIn>(),
    CommandDescription::of::<crate::domain::AllocXrcdIn>(),
    CommandDescription::of::<crate::domain::DeallocXrcdIn>(),
    CommandDescription::of::<crate::umem::CreateUctxIn>(),
    CommandDescription::of::<crate::umem::DestroyUctxIn>(),
    CommandDescription::of::<crate::umem::CreateUmemIn>(),
    CommandDescription::of::<crate::umem::DestroyUmemIn>(),
    CommandDescription::of::<crate::mkey::CreateMkeyIn>(),
    CommandDescription::of::<crate::mkey::QueryMkeyIn>(),
    CommandDescription::of::<crate::mkey::DestroyMkeyIn>(),
    CommandDescription::of::<crate::mkey::QuerySpecialContextsIn>(),
    CommandDescription::of::<crate::memic::AllocMemicIn>(),
    CommandDescription::of::<crate::memic::DeallocMemicIn>(),
    CommandDescription::of::<crate::eq::CreateEqIn>(),
    CommandDescription::of::<crate::eq::DestroyEqIn>(),
    CommandDescription::of::<crate::eq::QueryEqIn>(),
    CommandDescription::of::<crate::cq::CreateCqIn>(),
    CommandDescription::of::<crate::cq::DestroyCqIn>(),
    CommandDescription::of::<crate::cq::QueryCqIn>(),
    CommandDescription::of::<crate::cq::ModifyCqIn>(),
    CommandDescription::of::<crate::qp::CreateQpIn>(),
    CommandDescription::of::<crate::qp::DestroyQpIn>(),
    CommandDescription::of::<crate::qp::Rst2initQpIn>(),
    CommandDescription::of::<crate::qp::Init2rtrQpIn>(),
    CommandDescription::of::<crate::qp::Rtr2rtsQpIn>(),
    CommandDescription::of::<crate::qp::Rts2rtsQpIn>(),
    CommandDescription::of::<crate::qp::Sqerr2rtsQpIn>(),
    CommandDescription::of::<crate::qp::Qp2ErrIn>(),
    CommandDescription::of::<crate::qp::Qp2RstIn>(),
    CommandDescription::of::<crate::qp::QueryQpIn>(),
    CommandDescription::of::<crate::qp::Sqd2rtsQpIn>(),
    CommandDescription::of::<crate::qp::Init2initQpIn>(),
    CommandDescription::of::<crate::srq::CreateSrqIn>(),
    CommandDescription::of::<crate::srq::DestroySrqIn>(),
    CommandDescription::of::<crate::srq::QuerySrqIn>(),
    CommandDescription::of::<crate::srq::ArmRqIn>(),
    CommandDescription::of::<crate::srq::CreateXrcSrqIn>(),
    CommandDescription::of::<crate::srq::DestroyXrcSrqIn>(),
    CommandDescription::of::<crate::srq::QueryXrcSrqIn>(),
    CommandDescription::of::<crate::srq::ArmXrcSrqIn>(),
    CommandDescription::of::<crate::dct::CreateDctIn>(),
    CommandDescription::of::<crate::dct::DestroyDctIn>(),
    CommandDescription::of::<crate::dct::DrainDctIn>(),
    CommandDescription::of::<crate::dct::QueryDctIn>(),
    CommandDescription::of::<crate::dct::ArmDctIn>(),
    CommandDescription::of::<crate::srq::CreateRmpIn>(),
    CommandDescription::of::<crate::srq::ModifyRmpIn>(),
    CommandDescription::of::<crate::srq::DestroyRmpIn>(),
    CommandDescription::of::<crate::srq::QueryRmpIn>(),
    CommandDescription::of::<crate::roce::QueryRoceAddressIn>(),
    CommandDescription::of::<crate::roce::SetRoceAddressIn>(),
    CommandDescription::of::<crate::vport::QueryVportStateIn>(),
    CommandDescription::of::<crate::vport::QueryNicVportContextIn>(),
    CommandDescription::of::<crate::vport::ModifyNicVportContextIn>(),
    CommandDescription::of::<crate::vport::QueryHcaVportContextIn>(),
    CommandDescription::of::<crate::vport::ModifyHcaVportContextIn>(),
    CommandDescription::of::<crate::vport::QueryHcaVportGidIn>(),
    CommandDescription::of::<crate::vport::QueryHcaVportPkeyIn>(),
    CommandDescription::of::<crate::mad::MadIfcIn>(),
    CommandDescription::of::<crate::mad::AttachToMcgIn>(),
    CommandDescription::of::<crate::mad::DetachFromMcgIn>(),
    CommandDescription::of::<crate::vport::AddVxlanUdpDportIn>(),
    CommandDescription::of::<crate::vport::DeleteVxlanUdpDportIn>(),
    CommandDescription::of::<crate::vport::SetL2TableEntryIn>(),
    CommandDescription::of::<crate::vport::DeleteL2TableEntryIn>(),
    CommandDescription::of::<crate::vport::QueryVportCounterIn>(),
    CommandDescription::of::<crate::congestion::QueryCongStatusIn>(),
    CommandDescription::of::<crate::congestion::ModifyCongStatusIn>(),
    CommandDescription::of::<crate::congestion::QueryCongParamsIn>(),
    CommandDescription::of::<crate::congestion::ModifyCongParamsIn>(),
    CommandDescription::of::<crate::congestion::QueryCongStatisticsIn>(),
    CommandDescription::of::<crate::counter::AllocQCounterIn>(),
    CommandDescription::of::<crate::counter::DeallocQCounterIn>(),
    CommandDescription::of::<crate::counter::QueryQCounterIn>(),
    CommandDescription::of::<crate::tis::CreateTisIn>(),
    CommandDescription::of::<crate::tis::ModifyTisIn>(),
    CommandDescription::of::<crate::tis::DestroyTisIn>(),
    CommandDescription::of::<crate::tis::QueryTisIn>(),
    CommandDescription::of::<crate::tir::CreateTirIn>(),
    CommandDescription::of::<crate::tir::ModifyTirIn>(),
    CommandDescription::of::<crate::tir::DestroyTirIn>(),
    CommandDescription::of::<crate::tir::QueryTirIn>(),
    CommandDescription::of::<crate::tir::CreateRqtIn>(),
    CommandDescription::of::<crate::tir::ModifyRqtIn>(),
    CommandDescription::of::<crate::tir::DestroyRqtIn>(),
    CommandDescription::of::<crate::tir::QueryRqtIn>(),
    CommandDescription::of::<crate::sq::CreateSqIn>(),
    CommandDescription::of::<crate::sq::ModifySqIn>(),
    CommandDescription::of::<crate::sq::DestroySqIn>(),
    CommandDescription::of::<crate::sq::QuerySqIn>(),
    CommandDescription::of::<crate::rq::CreateRqIn>(),
    CommandDescription::of::<crate::rq::ModifyRqIn>(),
    CommandDescription::of::<crate::rq::DestroyRqIn>(),
    CommandDescription::of::<crate::rq::QueryRqIn>(),
    CommandDescription::of::<crate::flow::SetFlowTableRootIn>(),
    CommandDescription::of::<crate::flow::CreateFlowTableIn>(),
    CommandDescription::of::<crate::flow::DestroyFlowTableIn>(),
    CommandDescription::of::<crate::flow::QueryFlowTableIn>(),
    CommandDescription::of::<crate::flow::CreateFlowGroupIn>(),
    CommandDescription::of::<crate::flow::DestroyFlowGroupIn>(),
    CommandDescription::of::<crate::flow::QueryFlowGroupIn>(),
    CommandDescription::of::<crate::flow::SetFteIn>(),
    CommandDescription::of::<crate::flow::QueryFteIn>(),
    CommandDescription::of::<crate::flow::DeleteFteIn>(),
    CommandDescription::of::<crate::flow::AllocFlowCounterIn>(),
    CommandDescription::of::<crate::flow::DeallocFlowCounterIn>(),
    CommandDescription::of::<crate::flow::QueryFlowCounterIn>(),
    CommandDescription::of::<crate::flow::ModifyFlowTableIn>(),
    CommandDescription::of::<crate::flow::AllocModifyHeaderContextIn>(),
    CommandDescription::of::<crate::flow::DeallocModifyHeaderContextIn>(),
];

/// Every structure that is neither a command's input nor its output.
pub const STRUCTURES: &[&Descriptor] = &[
    EmptyOut::DESCRIPTOR,
    crate::caps::HcaCap::DESCRIPTOR,
    crate::caps::HcaCap2::DESCRIPTOR,
    crate::caps::RoceCap::DESCRIPTOR,
    crate::caps::AtomicCaps::DESCRIPTOR,
    crate::caps::DeviceMemCap::DESCRIPTOR,
    crate::cmdq::CommandQueueEntry::DESCRIPTOR,
    crate::cmdq::MailboxBlock::DESCRIPTOR,
    crate::cq::Cqc::DESCRIPTOR,
    crate::eq::Eqc::DESCRIPTOR,
    crate::eq::Eqe::DESCRIPTOR,
    crate::eq::CqError::DESCRIPTOR,
    crate::eq::QpEvents::DESCRIPTOR,
    crate::event::CompEvent::DESCRIPTOR,
    crate::event::CmdInterCompEvent::DESCRIPTOR,
    crate::event::PortStateChangeEvent::DESCRIPTOR,
    crate::event::DctEvents::DESCRIPTOR,
    crate::dct::Dctc::DESCRIPTOR,
    crate::hca::QueryAdapterParamBlock::DESCRIPTOR,
    crate::health::HealthBuffer::DESCRIPTOR,
    crate::init_segment::InitSegment::DESCRIPTOR,
    crate::mkey::Mkc::DESCRIPTOR,
    crate::mkey::Mtt::DESCRIPTOR,
    crate::pages::PagesReqEvent::DESCRIPTOR,
    crate::qp::Ads::DESCRIPTOR,
    crate::qp::Qpc::DESCRIPTOR,
    crate::qp::QpcExt::DESCRIPTOR,
    crate::register::RegisterHostEndianness::DESCRIPTOR,
    crate::register::PtysReg::DESCRIPTOR,
    crate::register::PmtuReg::DESCRIPTOR,
    crate::register::PaosReg::DESCRIPTOR,
    crate::register::PvlcReg::DESCRIPTOR,
    crate::register::PpcntReg::DESCRIPTOR,
    crate::register::DtorReg::DESCRIPTOR,
    crate::register::McamReg::DESCRIPTOR,
    crate::register::MciaReg::DESCRIPTOR,
    crate::register::MfrlReg::DESCRIPTOR,
    crate::register::MpcntReg::DESCRIPTOR,
    crate::register::MtcapReg::DESCRIPTOR,
    crate::register::MtmpReg::DESCRIPTOR,
    crate::register::PcamReg::DESCRIPTOR,
    crate::register::PfccReg::DESCRIPTOR,
    crate::register::PmlpReg::DESCRIPTOR,
    crate::register::PplmReg::DESCRIPTOR,
    crate::register::QcamReg::DESCRIPTOR,
    crate::register::QpdpmReg::DESCRIPTOR,
    crate::register::QptsReg::DESCRIPTOR,
    crate::register::QtctReg::DESCRIPTOR,
    crate::register::QetcReg::DESCRIPTOR,
    crate::register::EtsTcnConfigReg::DESCRIPTOR,
    crate::register::EtsGlobalConfigReg::DESCRIPTOR,
    crate::register::Lane2ModuleMapping::DESCRIPTOR,
    crate::register::PcamEnhancedFeatures::DESCRIPTOR,
    crate::register::McamEnhancedFeatures::DESCRIPTOR,
    crate::register::PciePerformanceCounters::DESCRIPTOR,
    crate::congestion::CongControlRRoceEcnRp::DESCRIPTOR,
    crate::congestion::CongControlRRoceEcnNp::DESCRIPTOR,
    crate::roce::RoceAddr::DESCRIPTOR,
    crate::srq::Srqc::DESCRIPTOR,
    crate::srq::XrcSrqc::DESCRIPTOR,
    crate::srq::Wq::DESCRIPTOR,
    crate::srq::Rmpc::DESCRIPTOR,
    crate::srq::RmpBitmask::DESCRIPTOR,
    crate::umem::Uctx::DESCRIPTOR,
    crate::umem::Umem::DESCRIPTOR,
    crate::vport::ModifyNicVportFieldSelect::DESCRIPTOR,
    crate::vport::NicVportContext::DESCRIPTOR,
    crate::vport::HcaVportContext::DESCRIPTOR,
    crate::vport::Pkey::DESCRIPTOR,
    crate::vport::TrafficCounter::DESCRIPTOR,
    crate::init_segment::Registers::DESCRIPTOR,
    crate::tis::Tisc::DESCRIPTOR,
    crate::tis::ModifyTisBitmask::DESCRIPTOR,
    crate::tir::RxHashFieldSelect::DESCRIPTOR,
    crate::tir::Tirc::DESCRIPTOR,
    crate::tir::ModifyTirBitmask::DESCRIPTOR,
    crate::tir::Rqtc::DESCRIPTOR,
    crate::tir::RqtBitmask::DESCRIPTOR,
    crate::sq::Sqc::DESCRIPTOR,
    crate::rq::Rqc::DESCRIPTOR,
    crate::flow::FlowTableContext::DESCRIPTOR,
    crate::flow::FteMatchSetLyr24::DESCRIPTOR,
    crate::flow::FteMatchSetMisc::DESCRIPTOR,
    crate::flow::FteMatchParam::DESCRIPTOR,
    crate::flow::DestFormat::DESCRIPTOR,
    crate::flow::FlowCounterList::DESCRIPTOR,
    crate::flow::SetActionIn::DESCRIPTOR,
    crate::flow::AddActionIn::DESCRIPTOR,
    crate::flow::FlowContext::DESCRIPTOR,
    crate::caps::EthernetOffloadCaps::DESCRIPTOR,
    crate::caps::FlowTablePropLayout::DESCRIPTOR,
    crate::caps::FlowTableNicCap::DESCRIPTOR,
    crate::register::Eth8023Counters::DESCRIPTOR,
    crate::register::Rfc2863Counters::DESCRIPTOR,
    crate::register::Rfc2819Counters::DESCRIPTOR,
    crate::register::ExtendedCounters::DESCRIPTOR,
    crate::register::PriorityCounters::DESCRIPTOR,
    crate::register::PhysicalCounters::DESCRIPTOR,
    crate::register::InfinibandCounters::DESCRIPTOR,
];

/// Every word of the data path.
pub const WORDS: &[&WordDescriptor] = &[
    crate::wqe::ControlWord::DESCRIPTOR,
    crate::wqe::ControlFlags::DESCRIPTOR,
    crate::wqe::RemoteAddressWord::DESCRIPTOR,
    crate::wqe::RemoteKeyWord::DESCRIPTOR,
    crate::wqe::AtomicSwapAddWord::DESCRIPTOR,
    crate::wqe::AtomicCompareWord::DESCRIPTOR,
    crate::wqe::QKeyWord::DESCRIPTOR,
    crate::wqe::DcKeyWord::DESCRIPTOR,
    crate::wqe::DestinationWord::DESCRIPTOR,
    crate::wqe::RemoteMacWord::DESCRIPTOR,
    crate::wqe::GrhWord::DESCRIPTOR,
    crate::wqe::RemoteGidHighWord::DESCRIPTOR,
    crate::wqe::RemoteGidLowWord::DESCRIPTOR,
    crate::wqe::EthernetOffloadWord::DESCRIPTOR,
    crate::wqe::EthernetInlineWord::DESCRIPTOR,
    crate::wqe::XrcWord::DESCRIPTOR,
    crate::wqe::XrcReservedWord::DESCRIPTOR,
    crate::wqe::DataWord::DESCRIPTOR,
    crate::wqe::DataAddressWord::DESCRIPTOR,
    crate::wqe::InlineWord::DESCRIPTOR,
    crate::wqe::SrqNextWord::DESCRIPTOR,
    crate::wqe::UmrWord::DESCRIPTOR,
    crate::wqe::UmrMaskWord::DESCRIPTOR,
    crate::wqe::UmrOffsetWord::DESCRIPTOR,
    crate::wqe::KlmWord::DESCRIPTOR,
    crate::wqe::KlmAddressWord::DESCRIPTOR,
    crate::wqe::RepeatBlockWord::DESCRIPTOR,
    crate::wqe::RepeatCountWord::DESCRIPTOR,
    crate::wqe::RepeatEntryWord::DESCRIPTOR,
    crate::wqe::RepeatAddressWord::DESCRIPTOR,
    crate::cqe::WqeIdWord::DESCRIPTOR,
    crate::cqe::RssHashWord::DESCRIPTOR,
    crate::cqe::PathWord::DESCRIPTOR,
    crate::cqe::SlidWord::DESCRIPTOR,
    crate::cqe::SourceWord::DESCRIPTOR,
    crate::cqe::HeadersWord::DESCRIPTOR,
    crate::cqe::IndexWord::DESCRIPTOR,
    crate::cqe::ImmediateWord::DESCRIPTOR,
    crate::cqe::ByteCountWord::DESCRIPTOR,
    crate::cqe::TimestampWord::DESCRIPTOR,
    crate::cqe::ErrorWord::DESCRIPTOR,
    crate::cqe::TailWord::DESCRIPTOR,
    crate::cqe::OpOwn::DESCRIPTOR,
    crate::cqe::mini::MiniCqe::DESCRIPTOR,
    crate::doorbell::EqDoorbell::DESCRIPTOR,
    crate::doorbell::CqArmRecord::DESCRIPTOR,
    crate::doorbell::CqArmDoorbell::DESCRIPTOR,
    crate::doorbell::CqConsumerRecord::DESCRIPTOR,
    crate::doorbell::ReceiveRecord::DESCRIPTOR,
    crate::doorbell::SendRecord::DESCRIPTOR,
    crate::event::EqeOwner::DESCRIPTOR,
];

/// All of them: the structures, then inputs and outputs of the commands.
pub fn all() -> impl Iterator<Item = &'static Descriptor> {
    let commands = COMMANDS.iter().flat_map(|command| {
        let output = (!command.output_is_empty()).then_some(command.output);
        core::iter::once(command.input).chain(output)
    });
    STRUCTURES.iter().copied().chain(commands)
}

/// The description of a command.
#[must_use]
pub fn command(opcode: Opcode) -> &'static CommandDescription {
    // COMMANDS is in the order of Opcode::ALL, which a test guards; should that fail, the search still finds it.
    match COMMANDS.iter().find(|command| command.opcode == opcode) {
        Some(command) => command,
        None => &COMMANDS[0],
    }
}

/// The structure of a capability group, if this crate has it.
#[must_use]
pub const fn capability(group: CapabilityGroup) -> Option<&'static Descriptor> {
    match group {
        CapabilityGroup::General => Some(crate::caps::HcaCap::DESCRIPTOR),
        CapabilityGroup::General2 => Some(crate::caps::HcaCap2::DESCRIPTOR),
        CapabilityGroup::Atomic => Some(crate::caps::AtomicCaps::DESCRIPTOR),
        CapabilityGroup::Roce => Some(crate::caps::RoceCap::DESCRIPTOR),
        CapabilityGroup::EthernetOffloads => Some(crate::caps::EthernetOffloadCaps::DESCRIPTOR),
        CapabilityGroup::FlowTable => Some(crate::caps::FlowTableNicCap::DESCRIPTOR),
        CapabilityGroup::DeviceMemory => Some(crate::caps::DeviceMemCap::DESCRIPTOR),
        _ => None,
    }
}

/// The structure of a register, if this crate has it.
#[must_use]
pub const fn register(register: RegisterId) -> Option<&'static Descriptor> {
    use crate::register::{
        DtorReg, McamReg, MciaReg, MfrlReg, MpcntReg, MtcapReg, MtmpReg, PaosReg, PcamReg, PfccReg,
        PmlpReg, PmtuReg, PpcntReg, PplmReg, PtysReg, PvlcReg, QcamReg, QetcReg, QpdpmReg, QptsReg,
        QtctReg, RegisterHostEndianness,
    };
    match register {
        RegisterId::HostEndianness => Some(RegisterHostEndianness::DESCRIPTOR),
        RegisterId::Ptys => Some(PtysReg::DESCRIPTOR),
        RegisterId::Pmtu => Some(PmtuReg::DESCRIPTOR),
        RegisterId::Paos => Some(PaosReg::DESCRIPTOR),
        RegisterId::Pvlc => Some(PvlcReg::DESCRIPTOR),
        RegisterId::Ppcnt => Some(PpcntReg::DESCRIPTOR),
        RegisterId::Dtor => Some(DtorReg::DESCRIPTOR),
        RegisterId::Mcam => Some(McamReg::DESCRIPTOR),
        RegisterId::Mcia => Some(MciaReg::DESCRIPTOR),
        RegisterId::Mfrl => Some(MfrlReg::DESCRIPTOR),
        RegisterId::Mpcnt => Some(MpcntReg::DESCRIPTOR),
        RegisterId::Mtcap => Some(MtcapReg::DESCRIPTOR),
        RegisterId::Mtmp => Some(MtmpReg::DESCRIPTOR),
        RegisterId::Pcam => Some(PcamReg::DESCRIPTOR),
        RegisterId::Pfcc => Some(PfccReg::DESCRIPTOR),
        RegisterId::Pmlp => Some(PmlpReg::DESCRIPTOR),
        RegisterId::Pplm => Some(PplmReg::DESCRIPTOR),
        RegisterId::Qcam => Some(QcamReg::DESCRIPTOR),
        RegisterId::Qpdpm => Some(QpdpmReg::DESCRIPTOR),
        RegisterId::Qpts => Some(QptsReg::DESCRIPTOR),
        RegisterId::Qtct => Some(QtctReg::DESCRIPTOR),
        RegisterId::Qetcr => Some(QetcReg::DESCRIPTOR),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_has_its_command() {
        assert!(
            COMMANDS
                .iter()
                .map(|command| command.opcode)
                .eq(Opcode::ALL.iter().copied())
        );
        for &opcode in Opcode::ALL {
            assert_eq!(command(opcode).opcode, opcode);
            assert_eq!(Opcode::from_number(opcode.number()), Some(opcode));
        }
    }

    #[test]
    fn names_are_unique() {
        for (i, a) in all().enumerate() {
            assert!(
                all().skip(i + 1).all(|b| a.name != b.name),
                "{} twice",
                a.name
            );
        }
    }

    #[test]
    fn fields_lie_inside_and_apart() {
        for structure in all() {
            for (i, field) in structure.fields.iter().enumerate() {
                let end = (field.offset + field.width) as usize;
                let tail = matches!(field.kind, crate::layout::Kind::Tail);
                assert!(
                    tail || end <= structure.size * 8,
                    "{}.{} sticks out",
                    structure.name,
                    field.name
                );
                for other in &structure.fields[i + 1..] {
                    let apart = field.offset + field.width <= other.offset
                        || other.offset + other.width <= field.offset;
                    assert!(
                        apart,
                        "{}: {} and {} overlap",
                        structure.name, field.name, other.name
                    );
                }
            }
        }
    }
}
