//! Firmware commands: which there are, when each may come, and the checks that all share.

use crate::bus::io::Io;
use crate::device::{Device, Stage};
use crate::objects::umem::SHARED_UID;
use crate::syndrome::{Reject, Status, Syndrome};
use bareverbs_firmware_cmds::command::Command;
use bareverbs_firmware_cmds::layout::{self, Descriptor, Kind, Layout};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::Rtr2rtsQpIn;
use core::marker::PhantomData;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

mod caps;
mod congestion;
mod counter;
mod cq;
mod dct;
mod domain;
mod eq;
mod flow;
pub(crate) mod internal;
mod l2_table;
mod lifecycle;
mod mailbox;
mod mcg;
mod memic;
mod mkey;
mod pages;
mod qp;
mod queue;
mod register;
mod register_bytes;
mod rewrite;
mod roce;
mod rq;
mod settings;
pub(crate) mod slots;
mod sq;
mod srq;
pub(crate) mod sync_reset;
mod tir;
mod tis;
mod transition;
mod umem;
mod vport;
mod vxlan;

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
    let mut whole = C::new_zeroed();
    let (input, tail) = match C::ref_from_prefix(input) {
        Ok((input, tail)) => (input, tail),
        Err(_) if input.len() >= shortest::<C>() => {
            // What drivers leave out is what was reserved when they were written.
            let len = input.len();
            whole.as_mut_bytes()[..len].copy_from_slice(input);
            (&whole, &[][..])
        }
        Err(_) => return Err(Syndrome::InputShort.into()),
    };
    if device.config.strict && stray_bits::<C>(input.as_bytes()) {
        return Err(Syndrome::ReservedSet.into());
    }
    if output.len() < size_of::<C::Output>() {
        // Drivers leave reserved words at the end of an answer out (ENABLE_HCA's is 12 bytes long in the vendor's, and iPXE
        // has space for 224 of the 528 bytes of QUERY_HCA_VPORT_CONTEXT's).
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
        .filter_map(|field| {
            let start = (field.offset / 8) as usize;
            let end = match field.kind {
                Kind::Tail => return None,
                Kind::Struct(part) => start + named_end(part),
                Kind::Bits | Kind::Bytes => (field.offset + field.width).div_ceil(8) as usize,
            };
            (end <= of.size).then_some(end)
        })
        .max()
        .unwrap_or(of.size)
}

/// The head of every command: opcode, `op_mod` and the words behind them.
const HEAD: usize = 16;

/// The least input that a command can do with. rdma-core's VFIO driver and iPXE leave reserved words at its end out, and
/// INIT_HCA's software owner and the extension of RTS2RTS_QP, which came later.
fn shortest<C: Command>() -> usize {
    match C::OPCODE {
        Opcode::InitHca => HEAD,
        Opcode::Rts2rtsQp => named_end(Rtr2rtsQpIn::DESCRIPTOR),
        _ => named_end(C::DESCRIPTOR).max(HEAD),
    }
}

/// The longest fixed part of a command whose reserved bits are checked.
const MAX_CHECKED: usize = 0x400;

/// The bits of a command that named fields cover, worked out once: every command that comes is compared with them.
struct Named<C>(PhantomData<C>);

impl<C: Command> Named<C> {
    const BITS: [u8; MAX_CHECKED] = {
        let mut named = [0; MAX_CHECKED];
        // Drivers put the user's number into every command, those included in which the headers have nothing there.
        named[2] = 0xff;
        named[3] = 0xff;
        if C::DESCRIPTOR.size <= MAX_CHECKED {
            name(C::DESCRIPTOR, 0, C::DESCRIPTOR.size, &mut named);
        }
        named
    };
}

/// Sets the bits that the fields of a structure at byte `base`, `size` long, cover.
const fn name(of: &Descriptor, base: usize, size: usize, named: &mut [u8; MAX_CHECKED]) {
    let mut nth = 0;
    while nth < of.fields.len() {
        let field = &of.fields[nth];
        nth += 1;
        let at = (field.offset / 8) as usize;
        // Some structures end in a list that belongs to the command around them.
        if at + field.width.div_ceil(8) as usize > size {
            continue;
        }
        match field.kind {
            Kind::Bits => layout::set(
                named,
                base as u32 * 8 + field.offset,
                field.width,
                u64::MAX >> (64 - field.width),
            ),
            Kind::Bytes => {
                let mut byte = 0;
                while byte < field.width as usize / 8 {
                    named[base + at + byte] = 0xff;
                    byte += 1;
                }
            }
            Kind::Struct(inner) => name(inner, base + at, inner.size, named),
            Kind::Tail => {}
        }
    }
}

/// Returns `true` if bits are set that no named field covers.
fn stray_bits<C: Command>(bytes: &[u8]) -> bool {
    let named = const { &Named::<C>::BITS };
    bytes.len() <= MAX_CHECKED
        && bytes
            .iter()
            .zip(named)
            .fold(0, |stray, (byte, named)| stray | byte & !named)
            != 0
}

macro_rules! commands {
    ($device:ident, $io:ident, $opcode:ident, $input:ident, $output:ident:
     $($Opcode:ident, $Stage:ident, $handler:path;)*) => {
        match $opcode {
            $(Opcode::$Opcode => {
                $device.require(Stage::$Stage)?;
                call($device, $io, $input, $output, $handler)
            })*
            // The crate of structures may describe commands that this firmware does not have.
            #[allow(unreachable_patterns, reason = "at times it has no more")]
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

    /// Executes a command whose header is complete, for the user that it names.
    fn execute(&mut self, io: &mut Io<'_>, number: u16, input: &[u8], output: &mut [u8]) -> Result {
        let Some(opcode) = Opcode::from_number(number) else {
            return Err(unknown(number));
        };
        let uid = u16::from_be_bytes([input[2], input[3]]);
        // What the kernel makes for all users has their number, where there may be users.
        let shared = uid == SHARED_UID && self.caps.general.log_max_uctx() != 0;
        let uid = if shared { 0 } else { uid };
        if !self.users.exists(uid) {
            return Err(Syndrome::UidNotZero.into());
        }
        self.users.current = uid;
        let result = match self.to_be_destroyed(opcode, input) {
            Ok(object) => {
                let result = self.dispatch(io, opcode, input, output);
                if let (Ok(()), Some((kind, number))) = (result, object) {
                    self.users.forget(kind, number);
                }
                result
            }
            Err(syndrome) => Err(syndrome.into()),
        };
        self.users.current = 0;
        result
    }

    fn dispatch(
        &mut self,
        io: &mut Io<'_>,
        opcode: Opcode,
        input: &[u8],
        output: &mut [u8],
    ) -> Result {
        if matches!(
            opcode,
            Opcode::DestroyCq | Opcode::DestroyEq | Opcode::DestroyQp | Opcode::Qp2Rst
        ) {
            self.catch_up(io);
        }
        // What a command may end or show is complete before.
        self.close_sessions(io);
        commands! { self, io, opcode, input, output:
            EnableHca, Disabled, lifecycle::enable;
            DisableHca, Enabled, lifecycle::disable;
            QueryIssi, Enabled, lifecycle::query_issi;
            SetIssi, Enabled, lifecycle::set_issi;
            InitHca, Enabled, lifecycle::init;
            TeardownHca, Initialized, lifecycle::teardown;
            QueryAdapter, Enabled, lifecycle::query_adapter;
            QueryVuid, Initialized, lifecycle::query_vuid;
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
            CreateUctx, Initialized, umem::create_uctx;
            DestroyUctx, Initialized, umem::destroy_uctx;
            CreateUmem, Initialized, umem::create_umem;
            DestroyUmem, Initialized, umem::destroy_umem;
            CreateMkey, Initialized, mkey::create;
            QueryMkey, Initialized, mkey::query;
            DestroyMkey, Initialized, mkey::destroy;
            QuerySpecialContexts, Initialized, mkey::special;
            AllocMemic, Initialized, memic::alloc;
            DeallocMemic, Initialized, memic::dealloc;
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
            CreateDct, Initialized, dct::create;
            DestroyDct, Initialized, dct::destroy;
            DrainDct, Initialized, dct::drain;
            QueryDct, Initialized, dct::query;
            ArmDct, Initialized, dct::arm;
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
            AddVxlanUdpDport, Initialized, vxlan::add;
            DeleteVxlanUdpDport, Initialized, vxlan::delete;
            SetL2TableEntry, Initialized, l2_table::set;
            DeleteL2TableEntry, Initialized, l2_table::delete;
            QueryVportCounter, Initialized, vport::query_counter;
            QueryCongStatus, Initialized, congestion::query_status;
            ModifyCongStatus, Initialized, congestion::modify_status;
            QueryCongParams, Initialized, congestion::query_params;
            ModifyCongParams, Initialized, congestion::modify_params;
            QueryCongStatistics, Initialized, congestion::query_statistics;
            QueryHcaVportGid, Initialized, vport::query_gid;
            QueryHcaVportPkey, Initialized, vport::query_pkey;
            MadIfc, Initialized, mcg::mad_ifc;
            AttachToMcg, Initialized, mcg::attach;
            DetachFromMcg, Initialized, mcg::detach;
            AllocQCounter, Initialized, counter::alloc;
            DeallocQCounter, Initialized, counter::dealloc;
            QueryQCounter, Initialized, counter::query;
            SetFlowTableRoot, Initialized, flow::set_root;
            CreateFlowTable, Initialized, flow::create_table;
            DestroyFlowTable, Initialized, flow::destroy_table;
            QueryFlowTable, Initialized, flow::query_table;
            ModifyFlowTable, Initialized, flow::modify_table;
            CreateFlowGroup, Initialized, flow::create_group;
            DestroyFlowGroup, Initialized, flow::destroy_group;
            QueryFlowGroup, Initialized, flow::query_group;
            SetFte, Initialized, flow::set_entry;
            QueryFte, Initialized, flow::query_entry;
            DeleteFte, Initialized, flow::delete_entry;
            AllocModifyHeaderContext, Initialized, rewrite::alloc;
            DeallocModifyHeaderContext, Initialized, rewrite::dealloc;
            AllocFlowCounter, Initialized, flow::alloc_counter;
            DeallocFlowCounter, Initialized, flow::dealloc_counter;
            QueryFlowCounter, Initialized, flow::query_counter;
            CreateTis, Initialized, tis::create;
            ModifyTis, Initialized, tis::modify;
            DestroyTis, Initialized, tis::destroy;
            QueryTis, Initialized, tis::query;
            CreateTir, Initialized, tir::create;
            ModifyTir, Initialized, tir::modify;
            DestroyTir, Initialized, tir::destroy;
            QueryTir, Initialized, tir::query;
            CreateRqt, Initialized, tir::create_rqt;
            ModifyRqt, Initialized, tir::modify_rqt;
            DestroyRqt, Initialized, tir::destroy_rqt;
            QueryRqt, Initialized, tir::query_rqt;
            CreateSq, Initialized, sq::create;
            ModifySq, Initialized, sq::modify;
            DestroySq, Initialized, sq::destroy;
            QuerySq, Initialized, sq::query;
            CreateRq, Initialized, rq::create;
            ModifyRq, Initialized, rq::modify;
            DestroyRq, Initialized, rq::destroy;
            QueryRq, Initialized, rq::query;
        }
    }
}

/// Fills as many page addresses into an answer as it has space for.
fn put_pages(tail: &mut [u8], pages: &[u64]) {
    for (entry, page) in tail.chunks_exact_mut(8).zip(pages) {
        entry.copy_from_slice(&page.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_firmware_cmds::qp::{CreateQpIn, Init2rtrQpIn, QueryQpIn};

    /// Bits that named fields of a structure cover, counted.
    fn covered(of: &Descriptor) -> u32 {
        let bits = |field: &layout::Field| match field.kind {
            Kind::Bits | Kind::Bytes => field.width,
            Kind::Struct(inner) => covered(inner),
            Kind::Tail => 0,
        };
        of.fields.iter().map(bits).sum()
    }

    fn single_bits<C: Command>() {
        let size = C::DESCRIPTOR.size;
        let mut stray = 0;
        // The user's number is part of every command, whether a field covers it or not.
        for bit in (0..16).chain(32..size * 8) {
            let mut bytes = vec![0; size];
            bytes[bit / 8] = 0x80 >> (bit % 8);
            stray += u32::from(stray_bits::<C>(&bytes));
        }
        let named = covered(C::DESCRIPTOR);
        let uid = C::DESCRIPTOR.fields.iter().any(|field| field.name == "uid");
        assert_eq!(stray, size as u32 * 8 - named - if uid { 0 } else { 16 });
    }

    #[test]
    fn what_no_field_covers_is_stray() {
        single_bits::<CreateQpIn>();
        single_bits::<Init2rtrQpIn>();
        single_bits::<QueryQpIn>();
        let mut create = CreateQpIn::ZERO;
        create.qpc_mut().set_pd(0xff_ffff).set_log_rq_size(15);
        assert!(!stray_bits::<CreateQpIn>(&create.0));
        create.0[0x10c] = 1;
        assert!(stray_bits::<CreateQpIn>(&create.0));
    }
}
