//! The whole life of a client and its server: bring-up, connections with traffic, teardown; each of the first 200 commands of
//! the client, and each of the server's with one connection, goes wrong in each way. The end that it happens to gets a typed
//! error that names the command, or the end of the device; nothing is left behind, nothing waits for ever, and the next
//! driver brings the function up.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bareverbs_cm::rdma::{self, *};
use bareverbs_core::firmware_cmds::opcode::Opcode;
use bareverbs_core::firmware_cmds::status::Status as FwStatus;
use bareverbs_core::{
    CloseError, CloseFailure, Cqs, Device, DeviceError, GidEntry, OpenError, OpenFailure, OpenStep,
    PageChunks, Qps, Resources, Srqs,
};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::fault::{CommandFault, CommandRule};
use connectx_model::syndrome::Status;
use connectx_model::{Config as Card, Objects};

use crate::faults::init;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 7174;
const TIMEOUT: Duration = Duration::from_millis(50);
/// The number of the client's commands that go wrong, one in each life.
const COMMANDS: u32 = 200;
const SYNDROME: u32 = 0x3c_5a71;
const HEALTH: u8 = 0xc;

type Memory = Resources<Qps<16>, Cqs<32>, Srqs<2>, PageChunks<256>>;
type Cm<'s, 'd> = RdmaCm<'s, 'd, ModelPlatform, StaticNeighbours<'d>>;

/// A failure that an end was told of.
#[derive(Debug)]
enum Failure {
    Open(OpenError),
    Cm(RdmaError),
    Close(CloseError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Cm(error) => error.fmt(f),
            Self::Close(error) => error.fmt(f),
        }
    }
}

impl Failure {
    /// The device's end, if that is what it says.
    fn device(&self) -> Option<DeviceError> {
        match self {
            Self::Open(error) => match error.failure {
                OpenFailure::Device(error) => Some(error),
                _ => None,
            },
            Self::Cm(RdmaError::Device(error)) => Some(*error),
            Self::Cm(_) => None,
            Self::Close(error) => match error.failure {
                CloseFailure::Device(error) => Some(error),
                _ => None,
            },
        }
    }
}

/// All failures with the node that was told, in order.
type Failures = Vec<(usize, Failure)>;

fn ip(node: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, node as u8 + 1])
}

fn quick() -> bareverbs_core::Config {
    let mut config = bareverbs_core::Config::DEFAULT;
    config.command_timeout = TIMEOUT;
    config.teardown_timeout = TIMEOUT;
    config.health_interval = 5 * MS;
    config
}

fn world() -> World {
    Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped()
}

/// Notes an error of a node.
fn note<T>(failures: &mut Failures, node: usize, result: Result<T, RdmaError>) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    failures.push((node, Failure::Cm(error)));
    None
}

/// The server's end of a connection.
#[derive(Default)]
struct Served {
    id: Option<CmId>,
    over: bool,
}

/// Node 0 connects to node 1, sends a message, disconnects. `None` after an error, which was noted.
fn converse(
    world: &World,
    cms: &mut [Cm<'_, '_>; 2],
    channels: [ChannelId; 2],
    failures: &mut Failures,
) -> Option<()> {
    let id = cms[0].create_id(Some(channels[0]), 0, PortSpace::Tcp);
    let ours = note(failures, 0, id)?;
    let prepared = cms[0]
        .resolve_addr(ours, None, SocketAddr::new(ip(1), PORT), SECOND)
        .and_then(|()| cms[0].resolve_route(ours, SECOND))
        .and_then(|()| cms[0].create_qp(ours, None, &mut init()))
        .and_then(|()| cms[0].reg_msgs(ours, 64));
    let buffer = note(failures, 0, prepared)?;
    note(
        failures,
        0,
        cms[0].post_recv(ours, 1, buffer.slice(..16).expect("inside")),
    )?;
    note(failures, 0, cms[0].connect(ours, None))?;
    let start = world.now();
    let mut served = Served::default();
    let mut sink = None;
    let (mut up, mut over, mut said) = (false, false, false);
    while !(over && served.over) {
        // The messages of the connection manager are repeated for more than a minute.
        if world.now() - start > 200 * SECOND {
            return note(failures, 0, Err(RdmaError::TimedOut));
        }
        for node in 0..2 {
            let now = cms[node].now();
            note(failures, node, cms[node].poll(now))?;
            loop {
                let event = cms[node].try_get_cm_event(channels[node]);
                let Some(event) = note(failures, node, event)? else {
                    break;
                };
                match event.event {
                    EventType::ConnectRequest => {
                        let cm = &mut cms[1];
                        let accepted = cm.create_qp(event.id, None, &mut init()).and_then(|()| {
                            let buffer = cm.reg_msgs(event.id, 16)?;
                            cm.post_recv(event.id, 1, buffer.slice(..16)?)?;
                            sink = Some(buffer);
                            cm.accept(event.id, None)
                        });
                        match note(failures, 1, accepted) {
                            Some(()) => served.id = Some(event.id),
                            // The client will be notified.
                            None => note(failures, 1, cm.reject(event.id, b"sorry"))?,
                        }
                    }
                    EventType::Established => up |= node == 0,
                    EventType::Disconnected if node == 0 => over = true,
                    EventType::Disconnected => served.over = true,
                    EventType::Rejected | EventType::Unreachable | EventType::ConnectError => {
                        let (event, status) = (event.event, event.status);
                        return note(failures, node, Err(RdmaError::Event { event, status }));
                    }
                    _ => {}
                }
            }
        }
        if up && served.id.is_some() && !said {
            said = true;
            let flags = SendFlags::SIGNALED;
            let posted = cms[0].post_send_inline(ours, 2, b"sixteen bytes...", flags);
            note(failures, 0, posted)?;
            let until = world.now() + 20 * SECOND;
            let _ = note(failures, 0, cms[0].get_send_comp_until(ours, until))?;
            let mut bytes = [0; 16];
            let copied = sink.as_ref().map(|sink| sink.copy_out(0, &mut bytes));
            copied.expect("a buffer").expect("16 bytes");
            assert_eq!(&bytes, b"sixteen bytes...");
            note(failures, 0, cms[0].disconnect(ours))?;
        }
        world.step();
        world.advance(MS / 4);
    }
    if let Some(id) = served.id {
        note(failures, 1, cms[1].destroy_id(id))?;
    }
    note(failures, 0, cms[0].destroy_id(ours))
}

fn talk(
    world: &World,
    devices: &[Device<'_, ModelPlatform>; 2],
    rounds: usize,
    failures: &mut Failures,
) -> Option<()> {
    let neighbours =
        [0, 1].map(|node| (ip(node), world.with_model(node, |model| model.config().mac)));
    let mut storage = [
        rdma::Resources::<Ids<ModelPlatform, 4>, Channels<1>>::new(),
        rdma::Resources::new(),
    ];
    let [s0, s1] = &mut storage;
    let make = |node: usize, storage| {
        let config = rdma::Config {
            gsi_depth: 16,
            ..rdma::Config::new(node as u64)
        };
        RdmaCm::new(
            &devices[node],
            StaticNeighbours(&neighbours),
            config,
            storage,
        )
    };
    let first = note(failures, 0, make(0, s0.storage()))?;
    let second = note(failures, 1, make(1, s1.storage()))?;
    let mut cms = [first, second];
    let mut channels = Vec::new();
    for (node, cm) in cms.iter_mut().enumerate() {
        channels.push(note(failures, node, cm.create_event_channel())?);
    }
    let channels = [channels[0], channels[1]];
    let listener = cms[1]
        .create_id(Some(channels[1]), 0, PortSpace::Tcp)
        .and_then(|id| {
            cms[1].bind_addr(id, SocketAddr::new(ip(1), PORT))?;
            cms[1].listen(id, 4)?;
            Ok(id)
        });
    let listener = note(failures, 1, listener)?;
    for _ in 0..rounds {
        converse(world, &mut cms, channels, failures)?;
    }
    note(failures, 1, cms[1].destroy_id(listener))
}

/// Runs a life from reset to reset. Returns the failures that the nodes were told of, and the number of bytes that each still
/// keeps from reuse.
fn live(world: &World, rounds: usize) -> (Failures, [u64; 2]) {
    let mut failures = Failures::new();
    let mut memory = [Memory::new(), Memory::new()];
    let mut opened = Vec::new();
    for (node, memory) in memory.iter_mut().enumerate() {
        match Device::open(world.platform(node), quick(), memory.storage()) {
            Ok(device) => opened.push(device),
            Err(error) => failures.push((node, Failure::Open(error))),
        }
    }
    let mut kept = [0; 2];
    let devices = match <[_; 2]>::try_from(opened) {
        Ok(devices) => devices,
        Err(rest) => {
            for device in rest {
                device.close().expect("the other end");
            }
            return (failures, kept);
        }
    };
    let mut addressed = true;
    for (node, device) in devices.iter().enumerate() {
        let set = device.mac().map_err(RdmaError::Command).and_then(|mac| {
            let entry = GidEntry::roce_v2(ip(node).into(), mac);
            device.set_gid(0, entry).map_err(RdmaError::Gid)
        });
        addressed &= note(&mut failures, node, set).is_some();
    }
    if addressed {
        talk(world, &devices, rounds, &mut failures);
    }
    for (node, device) in devices.into_iter().enumerate() {
        if let Err(error) = device.close() {
            kept[node] = error.bytes_quarantined;
            failures.push((node, Failure::Close(error)));
        }
    }
    (failures, kept)
}

/// The steps of bring-up that have this command.
fn steps(opcode: Opcode) -> &'static [OpenStep] {
    match opcode {
        Opcode::EnableHca => &[OpenStep::EnableHca],
        Opcode::SetIssi | Opcode::QueryIssi => &[OpenStep::Issi],
        Opcode::QueryPages | Opcode::ManagePages => &[OpenStep::BootPages, OpenStep::InitPages],
        Opcode::AccessRegister => &[OpenStep::HostEndianness],
        Opcode::QueryHcaCap | Opcode::SetHcaCap => &[OpenStep::Capabilities],
        Opcode::InitHca => &[OpenStep::InitHca],
        Opcode::QuerySpecialContexts => &[OpenStep::SpecialContexts],
        Opcode::SetDriverVersion => &[OpenStep::DriverVersion],
        Opcode::AllocUar => &[OpenStep::AllocUar],
        Opcode::CreateEq => &[OpenStep::CreateEq],
        Opcode::ModifyNicVportContext => &[OpenStep::EnableRoce],
        _ => &[],
    }
}

/// Commands whose failure no call returns: those at the end of an id. The calls that destroy succeed, as librdmacm's do, and
/// the error is logged. What the firmware refused to destroy is kept until the function is taken down, which may say that
/// it is still in use. SET_DRIVER_VERSION is another one: Linux's driver does not look at its answer.
fn may_be_silent(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Qp2Err
            | Opcode::Qp2Rst
            | Opcode::DestroyQp
            | Opcode::DestroyCq
            | Opcode::DestroyMkey
            | Opcode::DeallocPd
            | Opcode::SetDriverVersion
    )
}

fn is_in_use(failure: &Failure) -> bool {
    let Failure::Close(error) = failure else {
        return false;
    };
    matches!(error.failure, CloseFailure::Command(error) if error.is_status(FwStatus::ResourceBusy))
}

/// One life with a command of `node` going wrong, and what must hold of it. `false` once there is no such command.
fn strike(node: usize, nth: u32, fault: CommandFault, rounds: usize) -> bool {
    let world = world();
    let rule = CommandRule::nth(nth, fault);
    world.with_model(node, |model| model.faults_mut().commands.push(rule));
    let (failures, kept) = live(&world, rounds);
    let struck = world.with_model(node, |model| std::mem::take(&mut model.faults_mut().struck));
    let Some(&(opcode, _)) = struck.first() else {
        assert!(failures.is_empty(), "{failures:?}");
        return false;
    };
    let opcode = Opcode::from_number(opcode).expect("a command of this project");
    let what = format!("node {node}, command {nth}, {opcode}, {fault:?}: {failures:?}");
    let told = || failures.iter().filter(|(told, _)| *told == node);
    let texts: Vec<String> = told().map(|(_, failure)| failure.to_string()).collect();
    let says = |word: &str| texts.iter().any(|text| text.contains(word));
    let stuck = failures
        .iter()
        .any(|(_, failure)| matches!(failure, Failure::Cm(RdmaError::TimedOut)));
    assert!(!stuck, "{what}");
    // A failure in what the connection manager does by itself is an event with its errno, as in librdmacm.
    let event = told().any(|(_, failure)| match failure {
        Failure::Cm(error @ RdmaError::Event { .. }) => error.errno() == errno::EIO,
        _ => false,
    });
    let silent = may_be_silent(opcode) && told().all(|(_, failure)| is_in_use(failure));
    match fault {
        CommandFault::Delay(_) | CommandFault::LoseEvent => assert!(failures.is_empty(), "{what}"),
        CommandFault::Fail { syndrome, .. } => {
            let named = says(opcode.name()) && says(&format!("{syndrome:#x}"));
            assert!(named || event || silent, "{what}");
        }
        CommandFault::Delivery(_) | CommandFault::Drop | CommandFault::DropAnswer => {
            assert!(says(opcode.name()) || event || silent, "{what}");
        }
        CommandFault::Health(syndrome) => {
            let extended = 0;
            let fatal = DeviceError::Fatal { syndrome, extended };
            assert!(says(&fatal.to_string()), "{what}");
        }
        CommandFault::Vanish => assert!(says(&DeviceError::Gone.to_string()), "{what}"),
        // If zeros in the missing half are valid, a later command fails, or none.
        CommandFault::Half | CommandFault::Corrupt { .. } => {}
    }
    for (told, failure) in &failures {
        if let (true, Failure::Open(error)) = (*told == node, failure)
            && fault != CommandFault::Half
        {
            assert!(steps(opcode).contains(&error.step), "{what}");
        }
        if let (CommandFault::Vanish, Some(error)) = (fault, failure.device()) {
            assert_eq!((*told, error), (node, DeviceError::Gone), "{what}");
        }
    }
    for (node, kept) in kept.into_iter().enumerate() {
        let faults = world.take_faults(node);
        let accounting = world.accounting(node);
        let gone = world.with_model(node, |model| model.vanished());
        assert_eq!(faults, [], "{what}");
        assert_eq!(accounting.mapped, 0, "{what}");
        // The host does not reuse memory to which a device that it no longer sees may still write.
        let allowed = if gone { accounting.allocated as u64 } else { 0 };
        assert_eq!(accounting.allocated as u64, allowed, "node {node}: {what}");
        if gone && !matches!(failures.first(), Some((_, Failure::Open(_)))) {
            assert_eq!(kept, allowed, "{what}");
        }
        world.with_model(node, |model| model.faults_mut().commands.clear());
        let mut memory = Memory::new();
        match Device::open(world.platform(node), quick(), memory.storage()) {
            Ok(device) => {
                assert!(!gone, "{what}");
                device.close().expect(&what);
                world.with_model(node, |model| {
                    assert_eq!(model.pages_held(), 0, "{what}");
                    assert_eq!(model.objects(), Objects::default(), "{what}");
                });
                assert_eq!(world.accounting(node).allocated, 0, "{what}");
            }
            Err(error) => {
                let is_gone = error.failure == OpenFailure::Device(DeviceError::Gone);
                assert!(gone && is_gone, "{what}: then {error}");
            }
        };
    }
    true
}

/// Each of the client's first 200 commands, and each of the server's with one connection.
fn strike_each(fault: CommandFault) {
    let commands = |rounds| {
        let world = world();
        let (failures, _) = live(&world, rounds);
        assert!(failures.is_empty(), "{failures:?}");
        world.with_model(0, |model| model.stats().commands as u32)
    };
    let (one, two) = (commands(1), commands(2));
    for nth in 0..COMMANDS {
        // This is the number of connections that have so many commands.
        let more = (nth + 1).saturating_sub(one).div_ceil(two - one);
        let struck = strike(0, nth, fault, 1 + more as usize);
        assert!(struck, "{nth} commands only");
    }
    strike_each_of_the_server(fault);
}

fn strike_each_of_the_server(fault: CommandFault) {
    let count = (0..).take_while(|&nth| strike(1, nth, fault, 1)).count();
    assert!(count > 40, "{count} commands only");
}

#[test]
fn refused() {
    let status = Status::InternalError;
    strike_each(CommandFault::Fail {
        status,
        syndrome: SYNDROME,
    });
}

#[test]
fn not_delivered() {
    strike_each_of_the_server(CommandFault::Delivery(6));
}

#[test]
fn late() {
    strike_each(CommandFault::Delay(20 * MS));
}

#[test]
fn dropped() {
    strike_each(CommandFault::Drop);
}

#[test]
fn never_answered() {
    strike_each(CommandFault::DropAnswer);
}

#[test]
fn half_answered() {
    strike_each(CommandFault::Half);
}

#[test]
fn the_firmware_stops() {
    strike_each(CommandFault::Health(HEALTH));
}

#[test]
fn the_card_vanishes() {
    strike_each(CommandFault::Vanish);
}
