//! The mlx5 driver: from a BAR and DMA memory to verbs, with no kernel driver under it, no allocator and no operating
//! system.
//!
//! [`Device::open`] takes a [`Platform`] (the BAR, DMA memory and a clock of one PCI function that was just reset), a
//! [`Config`] and the caller's [`Storage`], and brings the function up. From there on it is libibverbs, in the form that a
//! Rust programmer expects: protection domains, memory regions, completion queues, queue pairs and shared receive queues
//! are values that borrow the device and destroy their object when they are dropped.
//!
//! ```no_run
//! use bareverbs_core::{Config, Cqs, Device, PageChunks, Platform, Qps, Resources, Srqs};
//!
//! fn run<P: Platform>(platform: P) -> Result<(), Box<dyn std::error::Error>> {
//!     // Storage for 16 QPs, 16 CQs, 4 SRQs, and 128 MiB that the firmware may ask for.
//!     let mut resources = Resources::<Qps<16>, Cqs<16>, Srqs<4>, PageChunks<64>>::new();
//!     let device = Device::open(platform, Config::DEFAULT, resources.storage())?;
//!     println!("{:?}", device.query_port()?);
//!     let pd = device.alloc_pd()?;
//!     // ...
//!     drop(pd);
//!     device.close()?;
//!     Ok(())
//! }
//! ```
//!
//! # Where names are
//!
//! | module | of |
//! |---|---|
//! | [`device`], [`config`], [`storage`], [`slots`], [`page_chunk`] | the device, its settings, and the caller's memory that it works in |
//! | [`platform`], [`barrier`], [`conformance`] | the seam below the driver, and its test |
//! | [`pd`], [`mr`], [`mw`], [`mkey`], [`null_mr`], [`dm`] | protection domains and memory |
//! | [`cq`], [`wc`], [`clock`] | completion queues, work completions, and their time stamps |
//! | [`qp`], [`srq`], [`xrc`], [`ah`] | queue pairs of all types, shared receive queues, XRC domains, address handles |
//! | [`ethernet`] | queues of whole frames, and rules for them |
//! | [`port`], [`gid`], [`rate`], [`qos`], [`module`], [`temperature`], [`counters`] | the port, its addresses, its settings and what it counts |
//! | [`capabilities`], [`function`], [`register`], [`resources`], [`health`], [`recorder`] | the card: what it can do, its registers, its health, and a record of what was done with it |
//! | [`event`], [`error`], [`tasks`] | asynchronous events, errors, waiting with async/await |
//!
//! Each name is also at the crate's root: `use bareverbs_core::{Device, Gid, QpAttr}`.
//!
//! # Another kernel
//!
//! [`Platform`] is all that the driver needs of the world around it. [`conformance`] holds an implementation of it against
//! its requirements, and `PORTING.md` makes one, step by step.
//!
//! # Who drives
//!
//! Nothing runs in the background. [`Device::poll`] moves everything on that is not data: page requests of the firmware,
//! completion events, asynchronous events, the watch over the device's health. Call it in every loop, or let a thread do
//! nothing else; waiting for a command does it too. [`Device::wait`] sleeps for an interrupt where the platform has them.
//!
//! Control calls take `&Device` from any thread. They share one lock, which is never held while waiting, so several
//! threads can have commands in flight. The data path (posting work requests, polling completions) has no lock and no
//! access to commands.
//!
//! # Tasks
//!
//! With async/await a task waits for completions ([`Cq::next`], [`Cq::ready`]), for asynchronous events
//! ([`Device::async_event`]), and for the firmware: [`Device::start_create_cq`], [`Pd::start_create_qp`], [`Qp::modifying`],
//! [`Qp::start_destroy`] and [`Cq::start_destroy`] are awaited. It does so on any executor: the futures are of `core`,
//! allocate nothing, and keep the task's waker in the CQ's slot or beside that of the command. They are woken where events
//! are read, and nothing reads them in the background. So one task, or a thread, polls the device: at each interrupt, and at
//! [`Device::next_deadline`].
//!
//! ```no_run
//! use bareverbs_core::{Cq, CqError, Device, Platform};
//! use core::time::Duration;
//!
//! /// `interrupt` waits for one, or until a time on the platform's clock: tokio's `AsyncFd` of the platform's descriptor, say.
//! async fn drive<P: Platform>(
//!     device: &Device<'_, P>,
//!     interrupt: impl AsyncFn(Option<Duration>),
//! ) -> Result<(), bareverbs_core::DeviceError> {
//!     loop {
//!         device.poll()?;
//!         interrupt(device.next_deadline()).await;
//!     }
//! }
//!
//! async fn work<P: Platform>(cq: &mut Cq<'_, P>) -> Result<(), CqError> {
//!     loop {
//!         println!("work request {} is complete", cq.next().await?.wr_id);
//!     }
//! }
//! ```
//!
//! A future may be dropped at any time; what it waited for is not lost. (An object that is being created or destroyed is
//! owned by its future: dropping that waits for the firmware, as dropping the object does.)
//!
//! # Commands under way
//!
//! The same without tasks: what a `start_*` call returns, or began, is looked at with `try_finish` or
//! [`Qp::try_finish_modify`], which wait for nothing, while [`Device::poll`] drives the device. Up to 30 commands of a device
//! are under way so; what finds the queue full waits for its turn. One more place is kept for the calls that wait, and
//! one for the firmware's requests for pages.
//!
//! # Targets
//!
//! Machines need atomic operations of 64 bits, and barriers that are known to [`barrier`]: x86-64, x86, aarch64, ARMv7-A,
//! riscv64, powerpc64 and s390x compile, in either byte order; others are refused with the reason (thumbv7em and riscv32, for
//! their atomics; loongarch64, for its barriers). `docs/targets.md` says what is tested of each.
//!
//! # Safety model
//!
//! * **The platform is trusted**, by `unsafe trait` [`Platform`]: memory that it hands out is exclusive and stays valid,
//!   registers are registers.
//! * **The caller is not**: nothing that safe code does is undefined behaviour. Objects borrow the device, so closing it
//!   under them does not compile:
//!
//!   ```compile_fail,E0505
//!   # use bareverbs_core::{Device, Platform};
//!   fn close_early<P: Platform>(device: Device<'_, P>) {
//!       let pd = device.alloc_pd().unwrap();
//!       let _ = device.close();
//!       drop(pd);
//!   }
//!   ```
//!
//!   [`Storage`] is borrowed exclusively, so two devices cannot share it:
//!
//!   ```compile_fail,E0499
//!   # use bareverbs_core::{Config, Cqs, Device, PageChunks, Platform, Qps, Resources, Srqs};
//!   type Memory = Resources<Qps<1>, Cqs<1>, Srqs<1>, PageChunks<1>>;
//!   fn share<P: Platform>(one: P, two: P, resources: &mut Memory) {
//!       let first = Device::open(one, Config::DEFAULT, resources.storage());
//!       let second = Device::open(two, Config::DEFAULT, resources.storage());
//!       drop(first);
//!   }
//!   ```
//!
//!   Registering memory of the caller is `unsafe`, as the other side of a connection changes it at any time; memory of
//!   the driver ([`Buffer`]) needs no `unsafe`.
//! * **The device is not**: what it writes (answers, events, completions, addresses of returned pages) is bounds-checked
//!   like input from a network. It can refuse to work, and lie about results; within an IOMMU it cannot make the driver
//!   touch memory that it should not.
//! * **Memory that the device may still use is never given back.** After a command that was not answered, a refused
//!   destroy, or the death of the device, memory and mappings go into quarantine until the function was taken down in
//!   order, or has said that it is disabled. If neither happens they stay allocated; [`CloseError`] says how much, and only
//!   the platform's reset of the function ends it.
//!
//! # Errors
//!
//! Every failure is a value that says what was tried and what came back: [`CommandError`] (status and syndrome of the
//! firmware, a timeout, a refusal of the command interface, an answer that makes no sense), [`OpenError`] with the step of
//! bring-up, [`CloseError`]. Everything has a deadline, on the platform's clock. A device that left the bus (registers read
//! all ones), was disabled, reports a fatal error or (with `Config::health_stall`) stands still is found by the caller that
//! waits or polls; the verdict is [`DeviceError`], stays, and reaches every waiter at once. Dropping anything on a dead device returns immediately.
//!
//! # What is covered
//!
//! | Area | What there is | What there is not |
//! |---|---|---|
//! | bring-up | PF and VF of ConnectX-4 and later, Ethernet (RoCE v1, v2) and InfiniBand ports, ISSI 0 and 1, both page phases, capability negotiation, mailbox signatures | SR-IOV administration, sub-functions, multi-port RoCE |
//! | commands | 1 to 31 in flight, MANAGE_PAGES on a separate slot, deadlines, messages of up to 16 MiB, trace in `mlx5_core`'s form (log target `mlx5_cmd`) | DEVX uids |
//! | events | one event queue for everything or several for completions, polled or by interrupt; all events of `ibv_get_async_event` | |
//! | port | state, MTU, rate, GUIDs, MAC, P_Keys, GID table with VLANs, link up and down, counters, flow control, priorities, congestion control, modules, temperature | |
//! | verbs | PD, MR by translation list, CQ (entries compressed or of 128 bytes, time stamps), QP (RC, UC, UD, GSI, XRC, raw packets, dynamic connections), SRQ, XRC domains and SRQs, AH, memory windows, indirect keys, device memory, null and zero-based regions: see the modules | on-demand paging |
//! | Ethernet | queues of whole frames, alone or many with spreading by hash; steering by headers of layers 2 to 4, with counters; checksums and large sends, also in tunnels; VLAN tags put in and taken out; striding receives, several packets in one request; forwarding between two ports; a `phy::Device` of smoltcp's (feature `smoltcp`): see [`ethernet`] | flow tables of frames that are sent |
#![no_std]

#[cfg(not(target_has_atomic = "64"))]
compile_error!(
    "bareverbs needs atomic operations of 64 bits, which this target does not have: queues keep the numbers of work requests \
     in them, which a completion may read while another thread posts"
);

pub mod barrier;
pub mod conformance;
pub mod device;
pub mod ethernet;
mod firmware;
mod memory;
pub mod platform;
mod types;
mod verbs;

pub use device::{
    capabilities, counters, function, module, qos, register, resources, storage, tasks, temperature,
};
pub use firmware::{health, page_chunk, recorder};
pub use memory::slots;
pub use types::{ah, clock, config, error, event, gid, port, rate, wc};
pub use verbs::{cq, dm, mkey, mr, mw, null_mr, pd, qp, srq, xrc};

/// The device's language: the commands that [`Device::execute`] takes.
pub use bareverbs_firmware_cmds as firmware_cmds;
pub use cq::{Cq, CqInit};
pub use device::Device;
pub use device::storage::{Cqs, PageChunks, Qps, Resources, Srqs, Storage};
pub use mr::{Access, Buffer, Mr, Sge};
pub use pd::Pd;
pub use platform::Platform;
pub use qp::{Qp, QpInitAttr};
pub use srq::Srq;
pub use types::config::Config;
pub use wc::Wc;

// All other names are here as well, for those who do not want the modules' paths; the documentation has them by module.
#[doc(hidden)]
pub use ah::{AddressHandle, AhAttr, AhError};
#[doc(hidden)]
pub use bareverbs_firmware_cmds::health::{HealthBuffer, HealthSyndrome, Severity};
#[doc(hidden)]
pub use bareverbs_firmware_cmds::numbers::{
    Cqn, Eqn, LKey, Pdn, Qpn, RKey, Rqn, Srqn, Tirn, Xrcdn,
};
#[doc(hidden)]
pub use capabilities::{Adapter, Capabilities};
#[doc(hidden)]
pub use cq::{Completion, CompletionKind, CqError, CqEvents, CqHandle, CreatingCq, DestroyingCq};
#[doc(hidden)]
pub use device::counters::{Counter, Counters, QueueCounters};
#[doc(hidden)]
pub use device::function::FunctionKind;
#[doc(hidden)]
pub use device::module::{Module, ModuleAddress, ModuleKind, Text};
#[doc(hidden)]
pub use device::qos::{DSCPS, Fec, FlowControl, PRIORITIES, TrafficClass, Trust};
#[doc(hidden)]
pub use device::register::RegisterError;
#[doc(hidden)]
pub use device::resources::{CqResource, QpPeer, QpResource, QpTransport, ResourceState};
#[doc(hidden)]
pub use device::storage::DeviceSlot;
#[doc(hidden)]
pub use device::tasks::NextAsyncEvent;
#[doc(hidden)]
pub use device::temperature::{Celsius, MODULE_SENSORS, Temperature};
#[doc(hidden)]
pub use device::{PendingCommand, TailIn};
#[doc(hidden)]
pub use dm::{AllocDmAttr, DM_WORD, Dm, DmMr};
#[doc(hidden)]
pub use error::{
    CloseError, CloseFailure, CommandError, CommandFailure, DeviceError, Millis, OpenError,
    OpenFailure, OpenStep,
};
#[doc(hidden)]
pub use ethernet::{
    CompressedForwarder, EthFilter, EthernetDomain, EthernetError, EthernetHalves, EthernetInit,
    EthernetMtu, EthernetOffload, EthernetQueue, EthernetReceive, EthernetReceiveError,
    EthernetSend, EthernetSendError, EthernetSendFlags, EthernetTarget, FlowAction, FlowAttr,
    FlowCounter, FlowCounterId, FlowError, FlowFlags, FlowMatch, FlowRule, FlowRuleInit, FlowSlot,
    FlowSpec, FlowTable, FlowTraffic, FlowType, ForwardCounters, ForwardError, ForwardInit,
    Forwarder, FrameCompression, FrameHash, HashFields, HashFunction, HashedHeaders, HashedPackets,
    IndirectionTable, Ipv4Filter, Ipv6Filter, MultiBurst, MultiSend, MultiSendInit, PortFilter,
    QueueFailure, RawPacketError, RawPacketQp, ReceiveCounters, ReceivedFrame, RssError, RssHash,
    SentFrame, StrideCompression, StrideFault, StridedBurst, StridedFrame, StridingCounters,
    StridingInit, StridingReceive, Tunnels, VXLAN_PORT,
};
#[doc(hidden)]
pub use event::AsyncEvent;
#[doc(hidden)]
pub use firmware::health::read_health;
#[doc(hidden)]
pub use firmware::page_chunk::PageChunk;
#[doc(hidden)]
pub use firmware::recorder::{CommandRecord, FlightRecorder, Record, RecordKind};
#[doc(hidden)]
pub use gid::{Gid, GidEntry, GidError, Mac, RoceVersion};
#[doc(hidden)]
pub use memory::slots::{CqSlot, QpSlot, SrqSlot};
#[doc(hidden)]
pub use mkey::{Mkey, MkeyEntries, MkeyInitAttr, MrList};
#[doc(hidden)]
pub use mr::MrError;
#[doc(hidden)]
pub use mw::Mw;
#[doc(hidden)]
pub use null_mr::NullMr;
#[doc(hidden)]
pub use platform::VectorSet;
#[doc(hidden)]
pub use port::{LinkLayer, LinkStatus, Mtu, PortAttr, PortState};
#[doc(hidden)]
pub use qp::{
    BadWr, CapError, CreateQpError, CreatingDynQp, CreatingQp, DcAddress, DcRoute, DcTarget, Dci,
    DciError, DciStreams, Dct, DctError, DctInitAttr, Destination, DestroyQpError, DestroyingDynQp,
    DestroyingQp, DynQp, Endpoint, Gsi, Inline, KeepAlive, ModifyError, ModifyingQp, MrInterleaved,
    MwBind, MwType, OpenBatch, PathMigState, PostError, QpAttr, QpAttrMask, QpCap, QpInitHandles,
    QpKind, QpState, QpType, RawPacket, Rc, RecvQueue, RecvWr, Remote, SendData, SendFlags, SendOp,
    SendQueue, SendWr, Uc, Ud, XrcRecv, XrcSend,
};
#[doc(hidden)]
pub use srq::{SrqAttr, SrqError, SrqHandle};
#[doc(hidden)]
pub use types::clock::Clock;
#[doc(hidden)]
pub use types::rate::StaticRate;
#[doc(hidden)]
pub use wc::{NetworkHeader, WcError, WcFlags, WcOpcode, WcStatus};
#[doc(hidden)]
pub use xrc::Xrcd;
