//! Firmware commands: which there are, when each may come, and the checks that all share.

use crate::device::{Device, Stage};
use crate::io::Io;
use crate::syndrome::{Reject, Status, Syndrome};
use bareverbs_firmware_cmds::command::Command;
use bareverbs_firmware_cmds::layout::{self, Descriptor, Kind, Layout};
use bareverbs_firmware_cmds::opcode::Opcode;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

mod caps;
mod counter;
mod cq;
mod domain;
mod eq;
mod lifecycle;
mod mailbox;
mod mcg;
mod mkey;
mod pages;
mod qp;
pub(crate) mod queue;
mod register;
mod roce;
mod srq;
mod transition;
mod vport;

type Result = core::result::Result<(), Reject>;

/// A command's input as it came: fixed part and what follows.
struct Call<'a, C: Command> {
    input: &'a C,
    tail: &'a [u8],
    output: &'a mut C::Output,
    output_tail: &'a mut [u8],
}

fn call<C: Command>(
    device: &mut Device,
    io: &mut Io<'_>,
    input: &[u8],
    output: &mut [u8],
    handler: fn(&mut Device, &mut Io<'_>, Call<'_, C>) -> Result,
) -> Result {
    let (input, tail) = C::ref_from_prefix(input).map_err(|_| Syndrome::InputShort)?;
    if device.config.strict && stray_bits(C::DESCRIPTOR, input.as_bytes()) {
        return Err(Syndrome::ReservedSet.into());
    }
    if input.as_bytes()[2..4] != [0, 0] {
        return Err(Syndrome::UidNotZero.into());
    }
    if output.len() < size_of::<C::Output>() {
        // Drivers leave reserved words at the end of an answer out (ENABLE_HCA's is 12 bytes long in the vendor's).
        if output.len() < named_end(C::Output::DESCRIPTOR) {
            return Err(Syndrome::OutputShort.into());
        }
        let mut whole = C::Output::new_zeroed();
        let call = Call {
            input,
            tail,
            output: &mut whole,
            output_tail: &mut [],
        };
        handler(device, io, call)?;
        output.copy_from_slice(&whole.as_bytes()[..output.len()]);
        return Ok(());
    }
    let (output, output_tail) =
        C::Output::mut_from_prefix(output).map_err(|_| Syndrome::OutputShort)?;
    handler(
        device,
        io,
        Call {
            input,
            tail,
            output,
            output_tail,
        },
    )
}

/// Where the last named field of a structure's fixed part ends.
fn named_end(of: &Descriptor) -> usize {
    of.fields
        .iter()
        .filter(|field| !matches!(field.kind, Kind::Tail))
        .map(|field| (field.offset + field.width).div_ceil(8) as usize)
        .filter(|&end| end <= of.size)
        .max()
        .unwrap_or(of.size)
}

/// Whether bits are set that no named field covers.
fn stray_bits(of: &Descriptor, bytes: &[u8]) -> bool {
    let mut rest = [0; 0x210];
    let Some(rest) = rest.get_mut(..bytes.len()) else {
        return false;
    };
    rest.copy_from_slice(bytes);
    clear_known(of, rest);
    rest.iter().any(|&byte| byte != 0)
}

fn clear_known(of: &Descriptor, bytes: &mut [u8]) {
    for field in of.fields {
        let at = (field.offset / 8) as usize;
        // Some structures end in a list that belongs to the command around them.
        if at + field.width.div_ceil(8) as usize > bytes.len() {
            continue;
        }
        match field.kind {
            Kind::Bits => layout::set(bytes, field.offset, field.width, 0),
            Kind::Bytes => bytes[at..at + (field.width / 8) as usize].fill(0),
            Kind::Struct(inner) => clear_known(inner, &mut bytes[at..at + inner.size]),
            Kind::Tail => {}
        }
    }
}

macro_rules! commands {
    ($device:ident, $io:ident, $opcode:ident, $input:ident, $output:ident:
     $($Opcode:ident, $Stage:ident, $handler:path;)*) => {
        match $opcode {
            $(Opcode::$Opcode => {
                $device.require(Stage::$Stage)?;
                call($device, $io, $input, $output, $handler)
            })*
            // The crate of structures may know commands that this firmware does not.
            #[allow(unreachable_patterns, reason = "at times it knows no more")]
            other => Err(unknown(other.number())),
        }
    };
}

/// A command that there is not is named by the syndrome.
fn unknown(opcode: u16) -> Reject {
    Reject::Answer {
        status: Status::BadOp as u8,
        syndrome: u32::from(opcode),
    }
}

impl Device {
    fn require(&self, stage: Stage) -> Result {
        if self.stage >= stage {
            Ok(())
        } else if self.stage == Stage::Disabled {
            Err(Syndrome::NotEnabled.into())
        } else {
            Err(Syndrome::NotInitialized.into())
        }
    }

    /// Executes a command whose header is complete.
    fn execute(&mut self, io: &mut Io<'_>, number: u16, input: &[u8], output: &mut [u8]) -> Result {
        let Some(opcode) = Opcode::from_number(number) else {
            return Err(unknown(number));
        };
        commands! { self, io, opcode, input, output:
            EnableHca, Disabled, lifecycle::enable;
            DisableHca, Enabled, lifecycle::disable;
            QueryIssi, Enabled, lifecycle::query_issi;
            SetIssi, Enabled, lifecycle::set_issi;
            InitHca, Enabled, lifecycle::init;
            TeardownHca, Initialized, lifecycle::teardown;
            QueryAdapter, Enabled, lifecycle::query_adapter;
            SetDriverVersion, Initialized, lifecycle::set_driver_version;
            Nop, Enabled, lifecycle::nop;
            QueryPages, Enabled, pages::query;
            ManagePages, Enabled, pages::manage;
            QueryHcaCap, Enabled, caps::query;
            SetHcaCap, Enabled, caps::set;
            AccessRegister, Enabled, register::access;
            AllocUar, Initialized, domain::alloc_uar;
            DeallocUar, Initialized, domain::dealloc_uar;
            AllocPd, Initialized, domain::alloc_pd;
            DeallocPd, Initialized, domain::dealloc_pd;
            AllocTransportDomain, Initialized, domain::alloc_transport_domain;
            DeallocTransportDomain, Initialized, domain::dealloc_transport_domain;
            AllocXrcd, Initialized, domain::alloc_xrcd;
            DeallocXrcd, Initialized, domain::dealloc_xrcd;
            CreateMkey, Initialized, mkey::create;
            QueryMkey, Initialized, mkey::query;
            DestroyMkey, Initialized, mkey::destroy;
            QuerySpecialContexts, Initialized, mkey::special;
            CreateEq, Initialized, eq::create;
            DestroyEq, Initialized, eq::destroy;
            QueryEq, Initialized, eq::query;
            CreateCq, Initialized, cq::create;
            DestroyCq, Initialized, cq::destroy;
            QueryCq, Initialized, cq::query;
            ModifyCq, Initialized, cq::modify;
            CreateQp, Initialized, qp::create;
            DestroyQp, Initialized, qp::destroy;
            Rst2initQp, Initialized, transition::rst2init;
            Init2rtrQp, Initialized, transition::init2rtr;
            Rtr2rtsQp, Initialized, transition::rtr2rts;
            Rts2rtsQp, Initialized, transition::rts2rts;
            Sqerr2rtsQp, Initialized, transition::sqerr2rts;
            Qp2Err, Initialized, transition::to_error;
            Qp2Rst, Initialized, transition::to_reset;
            QueryQp, Initialized, qp::query;
            Sqd2rtsQp, Initialized, transition::sqd2rts;
            Init2initQp, Initialized, transition::init2init;
            CreateSrq, Initialized, srq::create_srq;
            DestroySrq, Initialized, srq::destroy_srq;
            QuerySrq, Initialized, srq::query_srq;
            ArmRq, Initialized, srq::arm_rq;
            CreateXrcSrq, Initialized, srq::create_xrc_srq;
            DestroyXrcSrq, Initialized, srq::destroy_xrc_srq;
            QueryXrcSrq, Initialized, srq::query_xrc_srq;
            ArmXrcSrq, Initialized, srq::arm_xrc_srq;
            CreateRmp, Initialized, srq::create_rmp;
            ModifyRmp, Initialized, srq::modify_rmp;
            DestroyRmp, Initialized, srq::destroy_rmp;
            QueryRmp, Initialized, srq::query_rmp;
            QueryRoceAddress, Initialized, roce::query;
            SetRoceAddress, Initialized, roce::set;
            QueryVportState, Initialized, vport::query_state;
            QueryNicVportContext, Initialized, vport::query_nic;
            ModifyNicVportContext, Initialized, vport::modify_nic;
            QueryHcaVportContext, Initialized, vport::query_hca;
            ModifyHcaVportContext, Initialized, vport::modify_hca;
            QueryVportCounter, Initialized, vport::query_counter;
            QueryHcaVportGid, Initialized, vport::query_gid;
            QueryHcaVportPkey, Initialized, vport::query_pkey;
            MadIfc, Initialized, mcg::mad_ifc;
            AttachToMcg, Initialized, mcg::attach;
            DetachFromMcg, Initialized, mcg::detach;
            AllocQCounter, Initialized, counter::alloc;
            DeallocQCounter, Initialized, counter::dealloc;
            QueryQCounter, Initialized, counter::query;
        }
    }
}

/// Fills as many page addresses into an answer as it has room for; a query that asks for none is fine.
fn put_pages(tail: &mut [u8], pages: &[u64]) -> Option<()> {
    if tail.is_empty() {
        return Some(());
    }
    for (at, page) in pages.iter().enumerate() {
        tail.get_mut(at * 8..at * 8 + 8)?
            .copy_from_slice(&page.to_be_bytes());
    }
    Some(())
}
