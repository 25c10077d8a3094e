//! The device's state, in one place, and what holds it together: events, contexts, deadlines.

use crate::bus::front::Front;
use crate::bus::io::Io;
use crate::caps::Caps;
use crate::command::slots::CommandQueue;
use crate::config::Config;
use crate::counters::{CounterSet, Stats};
use crate::ethernet::{Looped, Queues};
use crate::fault::Faults;
use crate::health::Health;
use crate::memory::memic::Memic;
use crate::memory::pages::{Pages, Place};
use crate::objects::cq::Cq;
use crate::objects::domain::Domain;
use crate::objects::eq::Eq;
use crate::objects::mkey::Mkey;
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use crate::objects::table::Table;
use crate::objects::uar::Uar;
use crate::objects::umem::{Umem, Users};
use crate::objects::{Leak, ObjectKind};
use crate::port::lid::LocalSource;
use crate::port::multicast::Groups;
use crate::port::vport::Vport;
use crate::quirks::state::QuirkState;
use crate::rdma::read_ahead::ReadAhead;
use crate::replay::Replay;
use crate::roce::transport::Scratch;
use crate::steering::Steering;
use crate::sync_reset::SyncResets;
use crate::syndrome::{Reject, Syndrome};
use bareverbs_firmware_cmds::caps::HcaCap;
use bareverbs_firmware_cmds::cqe::{self, TimestampWord};
use bareverbs_firmware_cmds::roce::RoceAddr;
use bareverbs_firmware_cmds::values::TimestampFormat;
use bareverbs_firmware_cmds::word::Word;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The capabilities `sq_ts_format`, `rq_ts_format` and `qp_ts_format` of cards with real-time stamps only
/// (`MLX5_SQ_TIMESTAMP_FORMAT_CAP_REAL_TIME` of Linux and its like).
const REAL_TIME_ONLY: u8 = 1;

/// The first number of a queue pair.
const FIRST_QPN: u32 = 0x40;
/// QP0 and QP1 of the port.
const SPECIAL_QPS: usize = 2;

/// The number of event queues that there can be: their numbers have 8 bits.
fn most_eqs(config: &Config, general: &HcaCap) -> usize {
    let wanted = match general.max_num_eqs() {
        // Cards from before this field have what their numbers allow.
        0 => 1 << general.log_max_eq(),
        most => usize::from(most),
    };
    wanted.min(0x100usize.saturating_sub(config.first_eqn as usize))
}

/// The number of queue pairs that there can be beside the special ones of the port.
fn most_qps(general: &HcaCap) -> usize {
    1 << general.log_max_qp()
}

/// A table for all of them.
fn qp_table(general: &HcaCap) -> Table<Qp> {
    Table::new(FIRST_QPN, most_qps(general) + SPECIAL_QPS)
}

/// The progress of the function's life cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// After reset or DISABLE_HCA.
    Disabled,
    /// After ENABLE_HCA or TEARDOWN_HCA.
    Enabled,
    /// After INIT_HCA.
    Initialized,
}

/// Everything but the PCI function.
pub(crate) struct Device {
    pub(crate) config: Config,
    pub(crate) now: Duration,
    /// When the function came out of reset.
    pub(crate) started: Duration,
    pub(crate) stage: Stage,
    pub(crate) issi: u16,
    pub(crate) caps: Caps,
    pub(crate) cmdq: CommandQueue,
    pub(crate) pages: Pages,
    pub(crate) uars: Table<Uar>,
    /// The front between the bus and the doorbell registers, if bursts can come.
    pub(crate) front: Option<Box<Front>>,
    pub(crate) pds: Table<Domain>,
    pub(crate) transport_domains: Table<Domain>,
    pub(crate) xrcds: Table<Domain>,
    pub(crate) users: Users,
    pub(crate) umems: Table<Umem>,
    pub(crate) mkeys: Table<Mkey>,
    pub(crate) memic: Memic,
    pub(crate) eqs: Table<Eq>,
    pub(crate) cqs: Table<Cq>,
    pub(crate) qps: Table<Qp>,
    pub(crate) srqs: Table<Srq>,
    pub(crate) counters: Table<CounterSet>,
    pub(crate) gids: Vec<RoceAddr>,
    /// Indexes of the entries that are not empty, as every packet looks through them.
    pub(crate) gids_used: Vec<u16>,
    pub(crate) groups: Groups,
    /// Addresses for which the port's frames come to this function, beside its own, by index.
    pub(crate) l2_table: BTreeMap<u32, [u8; 6]>,
    pub(crate) steering: Steering,
    pub(crate) nic: Queues,
    pub(crate) vport: Vport,
    pub(crate) health: Health,
    pub(crate) faults: Faults,
    /// A card's recorded answers, which come before its own.
    pub(crate) replay: Option<Box<Replay>>,
    pub(crate) stats: Stats,
    pub(crate) leaks: Vec<Leak>,
    /// QPs with something to do.
    pub(crate) ready: VecDeque<u32>,
    /// QPs by the time of their next timer.
    pub(crate) timers: BTreeSet<(Duration, u32)>,
    /// QPs in error whose receive queue has to be looked at again, as nothing rings when a receive is posted.
    pub(crate) draining: BTreeSet<u32>,
    pub(crate) drain_at: Duration,
    /// And after how long the next time: it doubles.
    pub(crate) drain_period: Duration,
    /// Completion queues whose moderation holds an event back, by the time when it no longer may.
    pub(crate) held_back: BTreeSet<(Duration, u32)>,
    /// Completion queues with completions that wait to be compressed, by the time until which they do.
    pub(crate) sessions: BTreeSet<(Duration, u32)>,
    /// The QP1 of the port.
    pub(crate) gsi: Option<u32>,
    /// The QP0 of the port.
    pub(crate) smi: Option<u32>,
    /// Frames to the own address.
    pub(crate) loopback: VecDeque<Vec<u8>>,
    /// Frames of QPs with force loopback.
    pub(crate) forced: VecDeque<Vec<u8>>,
    /// Frames to the own address from Ethernet send queues.
    pub(crate) looped: VecDeque<Looped>,
    /// The sender of the packet that is being delivered, on an InfiniBand port.
    pub(crate) sender: Option<LocalSource>,
    pub(crate) spare_frames: Vec<Vec<u8>>,
    pub(crate) scratch: Option<Scratch>,
    /// The port may send nothing for the moment.
    pub(crate) paused: bool,
    pub(crate) sync_reset: SyncResets,
    pub(crate) node_description: [u8; 64],
    pub(crate) read_ahead: ReadAhead,
    /// The bytes that go into the next completion of a queue pair.
    pub(crate) for_cqe: Vec<u8>,
    pub(crate) quirk_state: QuirkState,
}

impl Device {
    pub(crate) fn new(config: Config) -> Self {
        let caps = Caps::new(&config);
        let vport = Vport::new(&config);
        let uars = usize::try_from(config.bar_size / 4096)
            .unwrap_or(usize::MAX)
            .saturating_sub(config.first_uar as usize);
        Self {
            now: Duration::ZERO,
            started: Duration::ZERO,
            stage: Stage::Disabled,
            issi: 0,
            cmdq: CommandQueue::new(&config),
            pages: Pages::new(&config),
            uars: Table::new(config.first_uar, uars),
            front: Front::new(&config).map(Box::new),
            pds: Table::new(1, 1 << caps.general.log_max_pd()),
            transport_domains: Table::new(1, 1 << caps.general.log_max_transport_domain()),
            xrcds: Table::new(1, 1 << caps.general.log_max_xrcd()),
            users: Users::default(),
            umems: Table::new(1, 1 << caps.general.log_max_umem()),
            mkeys: Table::new(0x10, (1 << 24) - 0x20),
            memic: Memic::new(&caps.device_memory, &config),
            eqs: Table::new(config.first_eqn, most_eqs(&config, &caps.general)),
            cqs: Table::new(0x400, 1 << caps.general.log_max_cq()),
            qps: qp_table(&caps.general),
            srqs: Table::new(1, 1 << caps.general.log_max_srq()),
            counters: Table::new(1, usize::from(caps.general.max_qp_cnt()).min(255)),
            gids: vec![RoceAddr::ZERO; usize::from(caps.roce.roce_address_table_size())],
            gids_used: Vec::new(),
            groups: Groups::default(),
            l2_table: BTreeMap::new(),
            steering: Steering::default(),
            nic: Queues::new(&caps),
            vport,
            health: Health::default(),
            faults: Faults::default(),
            replay: None,
            stats: Stats::default(),
            leaks: Vec::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            draining: BTreeSet::new(),
            drain_at: Duration::ZERO,
            drain_period: Duration::ZERO,
            held_back: BTreeSet::new(),
            sessions: BTreeSet::new(),
            gsi: None,
            smi: None,
            loopback: VecDeque::new(),
            forced: VecDeque::new(),
            looped: VecDeque::new(),
            sender: None,
            spare_frames: Vec::new(),
            scratch: Some(Scratch::default()),
            paused: false,
            sync_reset: SyncResets::default(),
            node_description: [0; 64],
            read_ahead: ReadAhead::default(),
            for_cqe: Vec::new(),
            quirk_state: QuirkState::new(&config.quirks),
            caps,
            config,
        }
    }

    /// Back to power-on, but for the clock, the statistics, the cable, what is set of the port, the faults to come and what was
    /// found leaking.
    pub(crate) fn reset(&mut self) {
        let fresh = Self::new(self.config.clone());
        let old = std::mem::replace(self, fresh);
        self.now = old.now;
        self.started = old.now;
        self.stats = old.stats;
        self.leaks = old.leaks;
        self.faults = old.faults;
        self.replay = old.replay;
        self.paused = old.paused;
        self.sync_reset.answers = old.sync_reset.answers;
        self.vport.link_up = old.vport.link_up;
        self.vport.settings = old.vport.settings;
        // A subnet manager configures the card's port, independent of its driver.
        if old.vport.managed {
            self.vport.managed = true;
            self.vport.subnet = old.vport.subnet;
            self.vport.tables = old.vport.tables;
            self.vport.guids = old.vport.guids;
        }
    }

    /// The driver has decided on capabilities: how many objects there can be.
    pub(crate) fn apply_caps(&mut self) {
        self.qps = qp_table(&self.caps.general);
    }

    /// The number of the next queue pair, if there may be another. The special ones are not counted: iPXE sets `log_max_qp` to 0
    /// (`golan_set_hca_cap`, with the bytes of the field in the wrong order) and creates one beside them.
    pub(crate) fn next_qpn(&self, special: bool) -> Result<u32, Syndrome> {
        let specials = [self.smi, self.gsi].into_iter().flatten().count();
        let ordinary = self.qps.len().saturating_sub(specials);
        if !special && ordinary >= most_qps(&self.caps.general) {
            return Err(Syndrome::QpExhausted);
        }
        self.qps.next_number().ok_or(Syndrome::QpExhausted)
    }

    /// Returns `true` if the function has come out of reset.
    pub(crate) fn booted(&self) -> bool {
        let booted = self.started + self.config.boot_time;
        self.now >= booted.max(self.quirk_state.initializing_until)
    }

    /// The free-running clock that the init segment and completions show.
    pub(crate) fn timer(&self) -> u64 {
        u64::try_from((self.now - self.started).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The real-time clock, seconds in the upper and nanoseconds in the lower half; 0 on a card without one.
    pub(crate) fn real_time(&self) -> u64 {
        let offered = self.caps.general.sq_ts_format()
            | self.caps.general.rq_ts_format()
            | self.caps.roce.qp_ts_format();
        if offered == 0 {
            return 0;
        }
        let time = self.config.real_time + (self.now - self.started);
        time.as_secs() << 32 | u64::from(time.subsec_nanos())
    }

    /// Puts the time into a completion of a queue with this `ts_format`, if it is real time: the free-running one is put there
    /// when the completion is written. `offered` is the capability of its kind of queue.
    pub(crate) fn stamp(&self, entry: &mut [u8; cqe::SIZE], format: u8, offered: u8) {
        let real = TimestampFormat::RealTime.number();
        let default = TimestampFormat::Default.number();
        if format == real || format == default && offered == REAL_TIME_ONLY {
            TimestampWord(self.real_time()).write(entry);
        }
    }

    /// The PCI distance between UAR pages, as a shift.
    pub(crate) fn uar_shift(&self) -> u32 {
        12 + u32::from(self.caps.general.log_uar_page_sz().min(8))
    }

    /// Puts a context into the host's pages.
    pub(crate) fn store(
        &mut self,
        io: &mut Io<'_>,
        kind: ObjectKind,
        number: u32,
        context: &[u8],
    ) -> Result<Place, Reject> {
        let place = self.pages.store(io, kind as u32, number, context)?;
        self.users.own(kind, number);
        Ok(place)
    }

    /// Checks whether the object is the current user's; reads its context back and compares. What is wrong there stops the
    /// firmware.
    pub(crate) fn check(
        &mut self,
        io: &mut Io<'_>,
        place: Place,
        kind: ObjectKind,
        number: u32,
        context: &[u8],
    ) -> Result<(), Reject> {
        if !self.users.controls(kind, number) {
            return Err(Syndrome::OtherUser.into());
        }
        let found = self.pages.check(io, place, kind as u32, number, context);
        self.assert_context(found)
    }

    /// Overwrites a context.
    pub(crate) fn restore(
        &mut self,
        io: &mut Io<'_>,
        place: Place,
        kind: ObjectKind,
        number: u32,
        context: &[u8],
    ) -> Result<(), Reject> {
        let written = self.pages.write(io, place, kind as u32, number, context);
        self.assert_context(written)
    }

    pub(crate) fn assert_context(&mut self, result: Result<(), Reject>) -> Result<(), Reject> {
        let lost = |syndrome: Syndrome| Err(Reject::from(syndrome));
        if result == lost(Syndrome::ContextLost) || result == lost(Syndrome::ContextUnreachable) {
            self.health.fail(crate::health::FIRMWARE_ERROR, 0x1001);
        }
        result
    }

    /// Puts an address into the table, or takes one out.
    pub(crate) fn set_gid(&mut self, index: usize, entry: RoceAddr) {
        if let Some(old) = self.gids.get_mut(index) {
            *old = entry;
        }
        self.gids_used.clear();
        let used = (0..)
            .zip(&self.gids)
            .filter(|(_, gid)| **gid != RoceAddr::ZERO);
        self.gids_used.extend(used.map(|(index, _)| index));
    }

    /// Destroys every object, as TEARDOWN_HCA does; what the driver should have destroyed is reported.
    pub(crate) fn drop_objects(&mut self) {
        let mut leaks = Vec::new();
        let mut note = |kind: ObjectKind, numbers: &mut dyn Iterator<Item = u32>| {
            leaks.extend(numbers.map(|number| Leak { kind, number }));
        };
        note(ObjectKind::Uar, &mut self.uars.iter().map(|(n, _)| n));
        note(ObjectKind::Pd, &mut self.pds.iter().map(|(n, _)| n));
        note(
            ObjectKind::TransportDomain,
            &mut self.transport_domains.iter().map(|(n, _)| n),
        );
        note(ObjectKind::Xrcd, &mut self.xrcds.iter().map(|(n, _)| n));
        note(ObjectKind::Eq, &mut self.eqs.iter().map(|(n, _)| n));
        note(ObjectKind::Cq, &mut self.cqs.iter().map(|(n, _)| n));
        note(ObjectKind::Mkey, &mut self.mkeys.iter().map(|(n, _)| n));
        note(ObjectKind::Memic, &mut self.memic.places());
        for (kind, dct) in [(ObjectKind::Qp, false), (ObjectKind::Dct, true)] {
            let of_kind = self.qps.iter().filter(|(_, qp)| qp.dct.is_some() == dct);
            note(kind, &mut of_kind.map(|(n, _)| n));
        }
        note(ObjectKind::Srq, &mut self.srqs.iter().map(|(n, _)| n));
        note(
            ObjectKind::QCounter,
            &mut self.counters.iter().map(|(n, _)| n),
        );
        note(ObjectKind::Tis, &mut self.nic.tises.iter().map(|(n, _)| n));
        note(ObjectKind::Tir, &mut self.nic.tirs.iter().map(|(n, _)| n));
        note(ObjectKind::Rqt, &mut self.nic.rqts.iter().map(|(n, _)| n));
        note(ObjectKind::Sq, &mut self.nic.sqs.iter().map(|(n, _)| n));
        note(ObjectKind::Rq, &mut self.nic.rqs.iter().map(|(n, _)| n));
        note(ObjectKind::Uctx, &mut self.users.uids());
        note(ObjectKind::Umem, &mut self.umems.iter().map(|(n, _)| n));
        note(ObjectKind::FlowTable, &mut self.steering.tables());
        note(ObjectKind::FlowGroup, &mut self.steering.groups());
        note(ObjectKind::FlowCounter, &mut self.steering.counters.iter());
        note(ObjectKind::ModifyHeader, &mut self.steering.rewrites());
        note(ObjectKind::L2TableEntry, &mut self.l2_table.keys().copied());
        for leak in &leaks {
            log::warn!(
                "TEARDOWN_HCA with a live {:?} {:#x}",
                leak.kind,
                leak.number
            );
        }
        self.leaks.append(&mut leaks);
        self.uars.clear();
        if let Some(front) = &mut self.front {
            front.partial = None;
        }
        self.pds.clear();
        self.transport_domains.clear();
        self.xrcds.clear();
        self.eqs.clear();
        self.cqs.clear();
        self.users = Users::default();
        self.umems.clear();
        self.mkeys.clear();
        self.memic.clear();
        self.qps.clear();
        self.srqs.clear();
        self.counters.clear();
        self.gids.fill(RoceAddr::ZERO);
        self.gids_used.clear();
        self.groups = Groups::default();
        self.steering = Steering::default();
        self.nic.clear();
        self.ready.clear();
        self.timers.clear();
        self.draining.clear();
        self.held_back.clear();
        self.sessions.clear();
        self.gsi = None;
        self.smi = None;
        self.loopback.clear();
        self.forced.clear();
        self.looped.clear();
        self.l2_table.clear();
        self.clear_late();
        self.pages.release_all();
        self.pages.asked = 0;
    }
}
