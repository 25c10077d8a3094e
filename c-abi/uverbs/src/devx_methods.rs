//! DevX: commands that programs write themselves, with the number of a user of their own, and memory that these name.
//!
//! Each method takes the commands that `mlx5_ib` lets through there (drivers/infiniband/hw/mlx5/devx.c).

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::firmware_cmds::cq::{CreateCqIn, ModifyCqIn};
use bareverbs_node::verbs::firmware_cmds::mkey::CreateMkeyIn;
use bareverbs_node::verbs::firmware_cmds::numbers::{Cqn, Qpn};
use bareverbs_node::verbs::firmware_cmds::opcode::Opcode;
use bareverbs_node::verbs::firmware_cmds::qp::CreateQpIn;
use bareverbs_node::verbs::firmware_cmds::rq::CreateRqIn;
use bareverbs_node::verbs::firmware_cmds::sq::CreateSqIn;
use bareverbs_node::verbs::firmware_cmds::srq::{CreateRmpIn, CreateXrcSrqIn, Wq};
use bareverbs_node::verbs::firmware_cmds::status::Status;
use bareverbs_node::verbs::firmware_cmds::umem::CreateUmemIn;
use bareverbs_node::verbs::{CommandFailure, Device, TailIn};
use libc::c_int;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::devx as id;
use crate::attrs::{Args, Result, refused};
use crate::devx::{Devx, HEADER, Umem, put, word};
use crate::doorbells::{self, Queue};
use crate::objects::{Context, Object};
use crate::queues::{Mapped, undone};
use crate::server::Server;
use crate::trap;

/// `MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF`.
const BLUE_FLAME: u64 = 0;

/// A kind of objects: the commands about it. Its number stands in the third word of almost all of them.
struct Family {
    create: Opcode,
    destroy: Opcode,
    modify: &'static [Opcode],
    query: &'static [Opcode],
}

const fn family(
    create: Opcode,
    destroy: Opcode,
    modify: &'static [Opcode],
    query: &'static [Opcode],
) -> Family {
    Family {
        create,
        destroy,
        modify,
        query,
    }
}

/// Objects that programs may create by commands, as far as the driver knows these.
const FAMILIES: &[Family] = {
    use Opcode::*;
    &[
        family(CreateMkey, DestroyMkey, &[], &[QueryMkey]),
        family(CreateCq, DestroyCq, &[ModifyCq], &[QueryCq]),
        family(AllocPd, DeallocPd, &[], &[]),
        family(AllocTransportDomain, DeallocTransportDomain, &[], &[]),
        family(CreateRmp, DestroyRmp, &[ModifyRmp, ArmRq], &[QueryRmp]),
        family(CreateSq, DestroySq, &[ModifySq], &[QuerySq]),
        family(CreateRq, DestroyRq, &[ModifyRq], &[QueryRq]),
        family(CreateRqt, DestroyRqt, &[ModifyRqt], &[QueryRqt]),
        family(CreateTir, DestroyTir, &[ModifyTir], &[QueryTir]),
        family(CreateTis, DestroyTis, &[ModifyTis], &[QueryTis]),
        family(AllocQCounter, DeallocQCounter, &[], &[QueryQCounter]),
        family(
            CreateFlowTable,
            DestroyFlowTable,
            &[ModifyFlowTable],
            &[QueryFlowTable],
        ),
        family(CreateFlowGroup, DestroyFlowGroup, &[], &[QueryFlowGroup]),
        family(SetFte, DeleteFte, &[SetFte], &[QueryFte]),
        family(
            AllocFlowCounter,
            DeallocFlowCounter,
            &[],
            &[QueryFlowCounter],
        ),
        family(
            AllocModifyHeaderContext,
            DeallocModifyHeaderContext,
            &[],
            &[],
        ),
        family(
            CreateQp,
            DestroyQp,
            &[
                Rst2initQp,
                Init2rtrQp,
                Init2initQp,
                Rtr2rtsQp,
                Rts2rtsQp,
                Sqerr2rtsQp,
                Qp2Err,
                Qp2Rst,
            ],
            &[QueryQp],
        ),
        family(CreateSrq, DestroySrq, &[], &[QuerySrq]),
        family(CreateXrcSrq, DestroyXrcSrq, &[ArmXrcSrq], &[QueryXrcSrq]),
        family(CreateDct, DestroyDct, &[ArmDct], &[QueryDct]),
        family(AllocXrcd, DeallocXrcd, &[], &[]),
    ]
};

/// Numbers of commands that `mlx5_ib` lets through and the driver does not know, which are for the firmware to refuse: those
/// that create objects (general ones, XRQs, scheduling elements, contexts of packet reformatting), and about none. There are no
/// objects that other such commands would be about.
const UNKNOWN_CREATE: &[u16] = &[0x717, 0x782, 0x93d, 0xa00];
const UNKNOWN_GENERAL: &[u16] = &[0x752, 0x76f, 0x80a, 0x842];
/// From `MLX5_CMD_OP_GENERAL_START` to before `MLX5_CMD_OP_GENERAL_END`.
const GENERAL_RANGE: std::ops::Range<u16> = 0xb00..0xd00;

/// The kind that a method has a command for.
fn of_method(method: u16, opcode: Opcode) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| match method {
        id::CREATE => family.create == opcode,
        id::MODIFY => family.modify.contains(&opcode),
        _ => family.query.contains(&opcode),
    })
}

/// Returns `true` if a method has a command with this number.
fn has(method: u16, number: u16, unknown: &[u16]) -> bool {
    match Opcode::from_number(number) {
        Some(opcode) => of_method(method, opcode).is_some(),
        None => unknown.contains(&number),
    }
}

fn is_create(number: u16, op_mod: u16) -> bool {
    has(id::CREATE, number, UNKNOWN_CREATE) && (number != Opcode::SetFte.number() || op_mod == 0)
}

/// An entry of a flow table is created and changed by one command.
fn is_modify(number: u16, op_mod: u16) -> bool {
    has(id::MODIFY, number, &[]) && (number != Opcode::SetFte.number() || op_mod == 1)
}

fn is_query(number: u16, _: u16) -> bool {
    has(id::QUERY, number, &[])
}

fn is_general(number: u16, _: u16) -> bool {
    let known = Opcode::from_number(number).is_some_and(|opcode| GENERAL.contains(&opcode));
    known || UNKNOWN_GENERAL.contains(&number) || GENERAL_RANGE.contains(&number)
}

/// Commands that are about no object.
const GENERAL: &[Opcode] = &[
    Opcode::QueryHcaCap,
    Opcode::QueryHcaVportContext,
    Opcode::QueryVportState,
    Opcode::QueryAdapter,
    Opcode::QueryIssi,
    Opcode::QueryNicVportContext,
    Opcode::QueryRoceAddress,
    Opcode::QueryVportCounter,
    Opcode::Nop,
    Opcode::QueryCongStatus,
    Opcode::QueryCongParams,
    Opcode::QueryCongStatistics,
];
/// General commands that programs without a user may send.
const FOR_ALL: &[Opcode] = &[Opcode::QueryHcaCap, Opcode::QueryHcaVportContext];

/// Offset of an object's number in requests and answers.
const NUMBER: usize = 8;
/// The length of commands that end what belongs to a flow table.
const FLOW_DESTROY: usize = 0x40;
/// A page's translation entry permits reads, and writes.
const READ: u64 = 1;
const WRITE: u64 = 2;
/// `enum ib_access_flags`.
const LOCAL_WRITE: u64 = 1 << 0;
const REMOTE_WRITE: u64 = 1 << 1;
const REMOTE_READ: u64 = 1 << 2;

/// A command of the program's, and how long its answer can be.
struct Program {
    opcode: Opcode,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Program {
    /// Reads a command, if the method has it (`permits`), and gives it its user's number.
    fn new(
        args: &mut Args,
        input: u16,
        (output, room): (Option<u16>, usize),
        uid: u16,
        permits: impl FnOnce(u16, u16) -> bool,
    ) -> Result<Self> {
        let mut bytes = args.bytes(input)?;
        if bytes.len() < HEADER || room < HEADER {
            return Err(libc::EINVAL);
        }
        let number = (word(&bytes, 0) >> 16) as u16;
        let (tunnel, op_mod) = (word(&bytes, 4) >> 16, word(&bytes, 4) as u16);
        let opcode = Opcode::from_number(number);
        if uid == 0 && !opcode.is_some_and(|opcode| FOR_ALL.contains(&opcode)) {
            return Err(libc::EINVAL);
        }
        // A tunnel is for another function of the card.
        if tunnel != 0 || !permits(number, op_mod) {
            return Err(libc::EINVAL);
        }
        let Some(opcode) = opcode else {
            // No command that the driver knows: as of firmware that does not have it.
            let mut answer = vec![0; room];
            put(
                &mut answer,
                0,
                u32::from(Status::BadOperation.number()) << 24,
            );
            if let Some(output) = output {
                args.output_bytes(output, &answer);
            }
            return Err(libc::EREMOTEIO);
        };
        put(
            &mut bytes,
            0,
            u32::from(opcode.number()) << 16 | u32::from(uid),
        );
        Ok(Self {
            opcode,
            input: bytes,
            output: vec![0; room],
        })
    }

    /// Executes it. What the firmware refuses is EREMOTEIO, with the reason in the answer.
    fn run(&mut self, device: &Device<'_, P>) -> Result<()> {
        let done = device.execute_bytes(self.opcode, &self.input, &mut self.output);
        done.map_err(|error| match error.failure {
            CommandFailure::Status { status, syndrome } => {
                log::info!("{error}");
                self.answer(status, syndrome);
                libc::EREMOTEIO
            }
            _ => refused(error),
        })
    }

    fn answer(&mut self, status: Status, syndrome: u32) {
        self.output.fill(0);
        put(&mut self.output, 0, u32::from(status.number()) << 24);
        put(&mut self.output, 4, syndrome);
    }

    /// The number of the object that it is about.
    fn about(&self) -> u32 {
        match self.opcode {
            Opcode::QueryQCounter => word(&self.input, 0x1c) & 0xff,
            Opcode::QueryFlowCounter => word(&self.input, 0x1c),
            Opcode::ModifyFlowTable | Opcode::QueryFlowTable => word(&self.input, 0x14) & 0xff_ffff,
            Opcode::QueryFlowGroup => word(&self.input, 0x18),
            Opcode::SetFte | Opcode::QueryFte => word(&self.input, 0x20),
            _ => word(&self.input, NUMBER) & 0xff_ffff,
        }
    }

    /// Says that rings and records are in memory of the program's, which it names.
    fn set_umem_valid(&mut self) {
        /// The command as a structure, if it is long enough.
        fn of<T: FromBytes + IntoBytes + KnownLayout + Immutable>(
            bytes: &mut [u8],
            change: impl FnOnce(&mut T),
        ) {
            if let Ok((command, _)) = T::mut_from_prefix(bytes) {
                change(command);
            }
        }
        fn queue(wq: &mut Wq) {
            wq.set_dbr_umem_valid(true).set_wq_umem_valid(true);
        }
        let bytes = &mut self.input[..];
        match self.opcode {
            Opcode::CreateMkey => of(bytes, |command: &mut CreateMkeyIn| {
                let key = command.memory_key_mkey_entry();
                // Lists of other keys stand in the command.
                let lists = matches!(key.access_mode_1_0(), 2 | 3) && key.access_mode_4_2() == 0;
                command.set_mkey_umem_valid(!lists);
            }),
            Opcode::CreateCq => of(bytes, |command: &mut CreateCqIn| {
                command.set_cq_umem_valid(true);
                command.cq_context_mut().set_dbr_umem_valid(true);
            }),
            Opcode::ModifyCq => of(bytes, |command: &mut ModifyCqIn| {
                command.set_cq_umem_valid(true);
            }),
            Opcode::CreateQp => of(bytes, |command: &mut CreateQpIn| {
                command.set_wq_umem_valid(true);
                command.qpc_mut().set_dbr_umem_valid(true);
            }),
            Opcode::CreateRq => of(bytes, |it: &mut CreateRqIn| queue(it.ctx_mut().wq_mut())),
            Opcode::CreateSq => of(bytes, |it: &mut CreateSqIn| queue(it.ctx_mut().wq_mut())),
            Opcode::CreateRmp => of(bytes, |it: &mut CreateRmpIn| queue(it.ctx_mut().wq_mut())),
            Opcode::CreateXrcSrq => of(bytes, |command: &mut CreateXrcSrqIn| {
                command.set_xrc_srq_umem_valid(true);
                command.xrc_srq_context_entry_mut().set_dbr_umem_valid(true);
            }),
            _ => {}
        }
    }

    /// The doorbell record that the queue of a command has: the memory that has it, where in it, and the doorbell page.
    fn record(&self) -> Option<(u32, u64, u32)> {
        let bytes = &self.input[..];
        match self.opcode {
            Opcode::CreateQp => {
                let (command, _) = CreateQpIn::ref_from_prefix(bytes).ok()?;
                let context = command.qpc();
                let umem = context.dbr_umem_id();
                Some((umem, context.dbr_addr(), context.uar_page()))
            }
            Opcode::CreateSq => {
                let (command, _) = CreateSqIn::ref_from_prefix(bytes).ok()?;
                let wq = command.ctx().wq();
                Some((wq.dbr_umem_id(), wq.dbr_addr(), wq.uar_page()))
            }
            Opcode::CreateCq => {
                let (command, _) = CreateCqIn::ref_from_prefix(bytes).ok()?;
                let context = command.cq_context();
                let umem = context.dbr_umem_id();
                Some((umem, context.dbr_addr(), context.uar_page()))
            }
            _ => None,
        }
    }

    /// The command that destroys what this one has created, and its number.
    fn undo(&self, family: &Family) -> (Vec<u8>, u32) {
        // What belongs to a flow table repeats where the table is.
        let (len, at, repeated) = match self.opcode {
            Opcode::CreateFlowTable => (FLOW_DESTROY, 0x14, 0x08..0x14),
            Opcode::CreateFlowGroup => (FLOW_DESTROY, 0x18, 0x08..0x18),
            Opcode::SetFte => (FLOW_DESTROY, 0x20, 0x08..0x18),
            _ => (HEADER, NUMBER, 0..0),
        };
        let number = match self.opcode {
            Opcode::SetFte => word(&self.input, 0x20),
            _ => word(&self.output, NUMBER),
        };
        let mut destroy = vec![0; len];
        if let Some(from) = self.input.get(repeated.clone()) {
            destroy[repeated].copy_from_slice(from);
        }
        let uid = word(&self.input, 0) & 0xffff;
        put(
            &mut destroy,
            0,
            u32::from(family.destroy.number()) << 16 | uid,
        );
        put(&mut destroy, at, number);
        (destroy, number)
    }
}

impl Context<'_> {
    /// The program's address of a place in its memory.
    fn address_in(&self, umem: u32, offset: u64) -> Option<u64> {
        self.objects.values().find_map(|object| match object {
            Object::Umem(memory) if memory.number == umem && offset < memory.len => {
                memory.address.checked_add(offset)
            }
            _ => None,
        })
    }

    /// The handle of an object, in the first attribute.
    fn handle(&self, args: &Args) -> Result<u32> {
        let handle = args.number(id::FIRST)? as u32;
        match self.objects.contains_key(&handle) {
            true => Ok(handle),
            false => Err(libc::ENOENT),
        }
    }

    /// Reads a command about an object, which the first attribute has the handle of.
    fn about(&self, args: &mut Args, method: u16, answer: (Option<u16>, usize)) -> Result<Program> {
        let handle = self.handle(args)?;
        let permits = match method {
            id::MODIFY => is_modify,
            _ => is_query,
        };
        let mut program = Program::new(args, id::OBJ_IN, answer, self.uid, permits)?;
        let family = of_method(method, program.opcode).ok_or(libc::EINVAL)?;
        if !self.has(handle, family, program.about()) {
            return Err(libc::EINVAL);
        }
        program.set_umem_valid();
        Ok(program)
    }

    /// Returns `true` if a handle has the object with this number, of these commands.
    fn has(&self, handle: u32, family: &Family, number: u32) -> bool {
        let (create, own) = match self.objects.get(&handle) {
            Some(Object::Devx(devx)) => (devx.create, devx.number),
            Some(Object::Cq(cq)) => (Opcode::CreateCq, cq.cqn.number()),
            Some(Object::Qp(qp)) => (Opcode::CreateQp, qp.qp.qpn().number()),
            Some(Object::Dct(dct)) => (Opcode::CreateDct, dct.number.unwrap_or(0)),
            Some(Object::Srq(srq)) if srq.is_xrc() => (Opcode::CreateXrcSrq, srq.srqn),
            Some(Object::Srq(srq)) => (Opcode::CreateRmp, srq.srqn),
            Some(Object::Wq(queue)) => (Opcode::CreateRq, queue.number()),
            Some(Object::Table(table)) => (Opcode::CreateRqt, table.made.number),
            Some(Object::Raw(raw)) => {
                use Opcode::{CreateRq, CreateSq, CreateTir, CreateTis};
                let creates = [CreateTir, CreateTis, CreateRq, CreateSq];
                let mut parts = creates.into_iter().zip(raw.numbers());
                return parts.any(|part| part == (family.create, Some(number)));
            }
            _ => return false,
        };
        create == family.create && own == number
    }
}

impl Server<'_, '_, '_> {
    /// Answers the methods of DevX's objects.
    pub(crate) fn devx(&mut self, fd: c_int, args: &mut Args) -> Result<()> {
        let device = self.device;
        let eqn = u32::from(self.events.eqn.0);
        let context = self.context(fd)?;
        match (args.header.object, args.header.method) {
            (id::DEVX, id::OTHER) => {
                let room = args.buffer_size(id::OTHER_OUT);
                let answer = (Some(id::OTHER_OUT), room);
                let mut program =
                    Program::new(args, id::OTHER_IN, answer, context.uid, is_general)?;
                let done = program.run(device);
                args.output_bytes(id::OTHER_OUT, &program.output);
                done
            }
            (id::DEVX, id::QUERY_UAR) => {
                args.output(id::SECOND, &context.uar.number);
                Ok(())
            }
            (id::DEVX, id::QUERY_EQN) => match args.input::<u32>(id::FIRST)? {
                0 => {
                    args.output(id::SECOND, &eqn);
                    Ok(())
                }
                _ => Err(libc::ENOENT),
            },
            (id::DEVX, id::SUBSCRIBE) => context.subscribe(args),
            (id::EVENT_CHANNEL, id::CREATE) => context.add_event_channel(args),
            (id::COMMAND_CHANNEL, id::CREATE) => context.add_command_channel(args),
            (id::OBJ, id::CREATE) => {
                // The handle has a place before there is an object.
                args.number(id::FIRST)?;
                let answer = (Some(id::OBJ_OUT), args.buffer_size(id::OBJ_OUT));
                let program = Program::new(args, id::OBJ_IN, answer, context.uid, is_create)?;
                create(device, context, args, program)
            }
            (id::OBJ, id::ASYNC_QUERY) => {
                let fd = args.number(id::ASYNC_CHANNEL)?;
                let channel = context.packets(fd, id::COMMAND_CHANNEL)?;
                let wr_id = args.number(id::ASYNC_WR_ID)?;
                // A constant, which has 8 bytes of any attribute: `uverbs_get_const`.
                let room = u16::try_from(args.number(id::ASYNC_OUT_LEN)?);
                let room = room.map_err(|_| libc::EINVAL)?.into();
                if args.buffer_size(id::ASYNC_OUT_LEN) != size_of::<u64>() {
                    return Err(libc::EINVAL);
                }
                let mut program = context.about(args, id::QUERY, (None, room))?;
                channel.check_room(room)?;
                // Done at once. What the firmware refuses stands in the answer.
                match program.run(device) {
                    Ok(()) | Err(libc::EREMOTEIO) => {}
                    Err(errno) => return Err(errno),
                }
                let packet = [&wr_id.to_ne_bytes()[..], &program.output].concat();
                channel.send(packet);
                Ok(())
            }
            (id::OBJ, method @ (id::MODIFY | id::QUERY)) => {
                let answer = (Some(id::OBJ_OUT), args.buffer_size(id::OBJ_OUT));
                let mut program = context.about(args, method, answer)?;
                let done = program.run(device);
                args.output_bytes(id::OBJ_OUT, &program.output);
                done?;
                if program.opcode == Opcode::Qp2Rst {
                    doorbells::reset(Queue::Send(Qpn::from_low_bits(program.about())));
                }
                Ok(())
            }
            (id::OBJ, id::DESTROY) => {
                let handle = context.handle(args)?;
                let is = |object: &Object<'_>| matches!(object, Object::Devx(_));
                context.remove(handle, is).map(drop)
            }
            (id::UMEM, id::CREATE) => {
                args.number(id::FIRST)?;
                let memory = register(device, args, context.uid)?;
                args.output(id::UMEM_ID, &memory.number);
                let handle = context.add(Object::Umem(Box::new(memory)));
                args.set_number(id::FIRST, handle.into())
            }
            (id::UMEM, id::DESTROY) => {
                let handle = context.handle(args)?;
                let is = |object: &Object<'_>| matches!(object, Object::Umem(_));
                context.remove(handle, is).map(drop)
            }
            (id::UAR, id::CREATE) => {
                args.number(id::FIRST)?;
                // A card's pages are uncached, and are refused for BlueFlame as Linux does it without write combining.
                if args.number(id::SECOND)? == BLUE_FLAME && trap::is_card() {
                    return Err(libc::EOPNOTSUPP);
                }
                // All doorbell pages are the context's one.
                args.output(id::UAR_OFFSET, &(id::WC_PAGE * 4096));
                args.output(id::UAR_LEN, &4096_u32);
                args.output(id::UAR_PAGE, &context.uar.number);
                let handle = context.add(Object::Page);
                args.set_number(id::FIRST, handle.into())
            }
            (id::UAR, id::DESTROY) => {
                let handle = context.handle(args)?;
                let is = |object: &Object<'_>| matches!(object, Object::Page);
                context.remove(handle, is).map(drop)
            }
            _ => Err(libc::EPROTONOSUPPORT),
        }
    }
}

fn create<'d>(
    device: &'d Device<'d, P>,
    context: &mut Context<'d>,
    args: &mut Args,
    mut program: Program,
) -> Result<()> {
    let opcode = program.opcode;
    let family = of_method(id::CREATE, opcode).ok_or(libc::EINVAL)?;
    program.set_umem_valid();
    // Of a queue whose record is not in the program's memory, the firmware says so.
    let record = program
        .record()
        .and_then(|(umem, offset, page)| Some((context.address_in(umem, offset)?, page)));
    let done = program.run(device);
    args.output_bytes(id::OBJ_OUT, &program.output);
    done?;
    let (destroy, number) = program.undo(family);
    let bell = match opcode {
        Opcode::CreateCq => Some(Queue::Arm(Cqn::from_low_bits(number))),
        Opcode::CreateQp | Opcode::CreateSq => Some(Queue::Send(Qpn::from_low_bits(number))),
        _ => None,
    };
    if let (Some(queue), Some((address, page))) = (bell, record) {
        doorbells::add(queue, page, doorbells::word(address)?);
    }
    let handle = context.add(Object::Devx(Box::new(Devx {
        device,
        create: opcode,
        number,
        destroy,
        bell,
    })));
    args.set_number(id::FIRST, handle.into())
}

/// Registers memory: `MLX5_IB_METHOD_DEVX_UMEM_REG`.
fn register<'d>(device: &'d Device<'d, P>, args: &mut Args, uid: u16) -> Result<Umem<'d>> {
    if uid == 0 {
        return Err(libc::EINVAL);
    }
    let (address, len) = (args.number(id::UMEM_ADDR)?, args.number(id::UMEM_LEN)?);
    let access = args.flags(id::UMEM_ACCESS, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ)?;
    let pages_of_4k = args.number(id::UMEM_PAGE_SIZES).unwrap_or(4096) & 4096 != 0;
    let written = access & REMOTE_WRITE == 0 || access & LOCAL_WRITE != 0;
    if len == 0 || !pages_of_4k || !written {
        return Err(libc::EINVAL);
    }
    let mut memory = Mapped::new(device, address, len, access & LOCAL_WRITE != 0)?;
    let rights = match access & LOCAL_WRITE {
        0 => READ,
        _ => READ | WRITE,
    };
    let mut command = CreateUmemIn::new();
    command.set_uid(uid);
    command
        .umem_mut()
        .set_page_offset((address % 4096) as u32)
        .set_num_of_mtt(memory.pages() as u64);
    let mut page = |index| memory.page(index) | rights;
    let tail = TailIn::Qwords(memory.pages(), &mut page);
    let created = device.execute_with(&command, tail, &mut []);
    let created = created.map_err(|error| undone(error, [&mut memory]))?;
    Ok(Umem {
        device,
        number: created.umem_id(),
        address,
        len,
        _memory: memory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_the_commands_that_linux_lets_through() {
        let [entry, query] = [Opcode::SetFte, Opcode::QueryFte].map(Opcode::number);
        let of = |op_mod| (is_create(entry, op_mod), is_modify(entry, op_mod));
        assert_eq!(
            [0, 1, 2].map(of),
            [(true, false), (false, true), (false, false)]
        );
        assert!(is_query(query, 0) && !is_modify(query, 1) && !is_general(query, 0));
        // General objects and what is in the range of general commands.
        assert!(is_create(0xa00, 0) && !is_general(0xa00, 0) && is_general(0xb00, 0));
        assert!(!is_general(0xd00, 0) && !is_create(0x999, 0));
        assert!(!is_modify(0xa01, 0) && !is_query(0xa02, 0));
        let lists = [UNKNOWN_CREATE, UNKNOWN_GENERAL].concat();
        assert!(
            lists
                .into_iter()
                .all(|number| Opcode::from_number(number).is_none())
        );
    }
}
