//! The two ports: queues, and a thread for each lane.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bareverbs::verbs::{
    CompressedForwarder, Config, Cqs, Device, EthernetDomain, FlowSlot, ForwardCounters,
    ForwardInit, Forwarder, FrameCompression, LinkLayer, PageChunks, Platform, Qps, Resources, Rqn,
    Srqs,
};
use bareverbs_examples::Result;

use crate::port_counters::PortCounters;
use crate::spread::{Counted, Spread};
use crate::strides::{StridedLane, Together};

/// The interval at which rates are shown.
const PERIOD: Duration = Duration::from_secs(1);

/// The settings of the forwarder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forwarding {
    pub(crate) lanes: usize,
    pub(crate) keep_addresses: bool,
    /// The ports compress completions of what they receive.
    pub(crate) compress: bool,
    /// Queues receive into strides, and send many frames in a request.
    pub(crate) strides: bool,
    /// The interval at which the indirection tables change, if they do.
    pub(crate) change: Option<Duration>,
    /// The rules count their frames.
    pub(crate) count: bool,
    /// Bytes of the longest frame.
    pub(crate) frame_len: u32,
}

/// Frames of a lane, both ways, and how long its thread was at work.
#[derive(Debug, Default)]
struct Count {
    sent: [AtomicU64; 2],
    dropped: [AtomicU64; 2],
    garbage: AtomicU64,
    bursts: AtomicU64,
    unused: AtomicU64,
    busy_ns: AtomicU64,
}

/// The counts of a lane since the last report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lane {
    /// Frames that went out, from the first port and from the second.
    pub(crate) sent: [u64; 2],
    /// The same since the beginning.
    pub(crate) in_all: [u64; 2],
    pub(crate) dropped: [u64; 2],
    pub(crate) garbage: u64,
    /// Since the beginning.
    pub(crate) together: Together,
    /// Time that its thread spent on bursts with frames.
    pub(crate) busy: Duration,
}

/// The counts of all lanes in some time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rates {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) time: Duration,
    /// The counts of each port's rules since the beginning, if they count.
    pub(crate) counted: [Option<Counted>; 2],
    /// The counts of the devices, if the rules count.
    pub(crate) ports: [Option<PortCounters>; 2],
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_second = |frames: u64, time: Duration| frames as f64 / time.as_secs_f64().max(1e-9);
        let (mut sent, mut busy) = (0, Duration::ZERO);
        for (at, lane) in self.lanes.iter().enumerate() {
            let frames = lane.sent[0] + lane.sent[1];
            sent += frames;
            busy += lane.busy;
            writeln!(
                f,
                "lane {at}: {:.0} packets/s while at work, {:.1}% of the time; {} + {} packets, {} dropped; {} + {} in all",
                per_second(frames, lane.busy),
                100.0 * per_second(1, self.time) * lane.busy.as_secs_f64(),
                lane.sent[0],
                lane.sent[1],
                lane.dropped[0] + lane.dropped[1],
                lane.in_all[0],
                lane.in_all[1],
            )?;
        }
        let (mut together, mut frames) = (Together::default(), 0);
        for lane in &self.lanes {
            together.bursts += lane.together.bursts;
            together.unused += lane.together.unused;
            frames += lane.in_all[0] + lane.in_all[1];
        }
        if together.bursts > 0 {
            let Together { bursts, unused } = together;
            writeln!(
                f,
                "strides: {frames} frames in {bursts} bursts, {unused} strides unused"
            )?;
        }
        for (port, counted) in self.counted.iter().enumerate() {
            if let Some(counted) = counted {
                writeln!(f, "port {port}: {counted}")?;
            }
        }
        for (port, counters) in self.ports.iter().enumerate() {
            if let Some(counters) = counters {
                writeln!(f, "counters {port}: {counters}")?;
            }
        }
        write!(
            f,
            "all: {:.0} packets/s of time at work on a lane; {sent} packets in {:.2} s",
            per_second(sent, busy),
            self.time.as_secs_f64()
        )
    }
}

type Memory = Resources<Qps<1>, Cqs<256>, Srqs<1>, PageChunks<256>>;

impl Forwarding {
    /// Forwards between two ports until `go_on` says no, which gets what was done each second, and at last all of it.
    pub(crate) fn run<P: Platform + Send + Sync>(
        &self,
        platforms: [P; 2],
        go_on: &mut dyn FnMut(&Rates) -> bool,
    ) -> Result<Rates> {
        let mut memory = [Box::new(Memory::new()), Box::new(Memory::new())];
        let [one, two] = platforms;
        let [here, there] = &mut memory;
        let devices = [
            Device::open(one, Config::DEFAULT, here.storage())?,
            Device::open(two, Config::DEFAULT, there.storage())?,
        ];
        if let Some(at) = devices
            .iter()
            .position(|device| device.capabilities().link_layer() == LinkLayer::InfiniBand)
        {
            let which = ["first", "second"][at];
            return Err(format!(
                "frames need Ethernet ports, and the {which} is an InfiniBand port"
            )
            .into());
        }
        let rates = self.between(&devices, go_on)?;
        for device in devices {
            device.close()?;
        }
        Ok(rates)
    }

    fn between<P: Platform + Send + Sync>(
        &self,
        devices: &[Device<'_, P>; 2],
        go_on: &mut dyn FnMut(&Rates) -> bool,
    ) -> Result<Rates> {
        let pds = [devices[0].alloc_pd()?, devices[1].alloc_pd()?];
        let domains = [
            devices[0].alloc_ethernet_domain()?,
            devices[1].alloc_ethernet_domain()?,
        ];
        let init = |from: usize| {
            let to = 1 - from;
            let leave_as = [[2, 0, 0, 0, 0, to as u8], domains[to].mac()];
            ForwardInit {
                frame_len: self.frame_len,
                addresses: (!self.keep_addresses).then_some(leave_as),
                ..ForwardInit::default()
            }
        };
        let to = |from: usize| (&domains[1 - from], &pds[1 - from]);
        if self.strides {
            self.with_lanes(devices, &domains, go_on, |from| {
                StridedLane::new((&domains[from], &pds[from]), to(from), &init(from))
            })
        } else if self.compress {
            self.with_lanes(devices, &domains, go_on, |from| {
                let (init, kept) = (init(from), FrameCompression::HASH);
                Ok(domains[from].create_compressed_forwarder(&pds[from], to(from), &init, kept)?)
            })
        } else {
            self.with_lanes(devices, &domains, go_on, |from| {
                Ok(domains[from].create_forwarder(&pds[from], to(from), &init(from))?)
            })
        }
    }

    /// With lanes of one kind.
    fn with_lanes<P: Platform + Send + Sync, F: OneWay + Send>(
        &self,
        devices: &[Device<'_, P>; 2],
        domains: &[EthernetDomain<'_, P>; 2],
        go_on: &mut dyn FnMut(&Rates) -> bool,
        lane: impl Fn(usize) -> Result<F>,
    ) -> Result<Rates> {
        let mut lanes = Vec::new();
        for _ in 0..self.lanes {
            lanes.push([lane(0)?, lane(1)?]);
        }
        let mut slots = [[FlowSlot::new(); 24]; 2];
        let [first, second] = &mut slots;
        let numbers = |side: usize| lanes.iter().map(move |lane| lane[side].number()).collect();
        let numbers: [Vec<Rqn>; 2] = [numbers(0), numbers(1)];
        let [ours, theirs] = numbers;
        // Until the end frames come by these.
        let mut spread = [
            Spread::new(&domains[0], ours, first, self.count)?,
            Spread::new(&domains[1], theirs, second, self.count)?,
        ];
        let counts: Vec<Count> = (0..self.lanes).map(|_| Count::default()).collect();
        let stop = AtomicBool::new(false);
        let begun = Instant::now();
        thread::scope(|scope| {
            let threads: Vec<_> = lanes
                .iter_mut()
                .zip(&counts)
                .map(|(lane, count)| scope.spawn(|| work(lane, count, &stop)))
                .collect();
            let watched = self.watch(devices, &mut spread, &counts, go_on, || {
                threads.iter().any(|thread| thread.is_finished())
            });
            stop.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().map_err(|_| "a lane's thread panicked")??;
            }
            watched
        })?;
        let none = vec![Lane::default(); self.lanes];
        Ok(Rates {
            lanes: since(&counts, &none),
            time: begun.elapsed(),
            counted: counted(&spread)?,
            ports: self.ports(devices)?,
        })
    }

    /// Drives the devices, changes the tables, and shows rates each second.
    fn watch<P: Platform>(
        &self,
        devices: &[Device<'_, P>; 2],
        spread: &mut [Spread<'_, '_, P>; 2],
        counts: &[Count],
        go_on: &mut dyn FnMut(&Rates) -> bool,
        is_over: impl Fn() -> bool,
    ) -> Result<()> {
        let mut before = vec![Lane::default(); counts.len()];
        let mut begun = Instant::now();
        let mut changed = begun;
        let pause = Duration::from_millis(10).min(self.change.unwrap_or(Duration::MAX));
        loop {
            for device in devices {
                device.poll()?;
            }
            if is_over() {
                return Ok(());
            }
            thread::sleep(pause);
            if self.change.is_some_and(|often| changed.elapsed() >= often) {
                changed = Instant::now();
                for port in spread.iter_mut() {
                    port.change()?;
                }
            }
            if begun.elapsed() < PERIOD {
                continue;
            }
            let rates = Rates {
                lanes: since(counts, &before),
                time: begun.elapsed(),
                counted: counted(spread)?,
                ports: self.ports(devices)?,
            };
            begun = Instant::now();
            before = since(counts, &vec![Lane::default(); counts.len()]);
            if !go_on(&rates) {
                return Ok(());
            }
        }
    }
}

impl Forwarding {
    fn ports<P: Platform>(
        &self,
        devices: &[Device<'_, P>; 2],
    ) -> Result<[Option<PortCounters>; 2]> {
        if !self.count {
            return Ok([None, None]);
        }
        let [one, other] = devices;
        Ok([
            Some(PortCounters::read(one)?),
            Some(PortCounters::read(other)?),
        ])
    }
}

/// The counts of both ports' rules.
fn counted<P: Platform>(spread: &[Spread<'_, '_, P>; 2]) -> Result<[Option<Counted>; 2]> {
    Ok([spread[0].counted()?, spread[1].counted()?])
}

/// A lane's forwarder of any kind.
trait OneWay {
    fn forward(&mut self) -> Result<u32>;
    fn counters(&self) -> ForwardCounters;
    fn together(&self) -> Together {
        Together::default()
    }
    fn number(&self) -> Rqn;
}

macro_rules! one_way {
    ($($kind:ident),*) => {$(
        impl<P: Platform> OneWay for $kind<'_, P> {
            fn forward(&mut self) -> Result<u32> {
                Ok($kind::forward(self)?)
            }
            fn counters(&self) -> ForwardCounters {
                Forwarder::counters(self)
            }
            fn number(&self) -> Rqn {
                Forwarder::number(self)
            }
        }
    )*};
}

one_way!(Forwarder, CompressedForwarder);

impl<P: Platform> OneWay for StridedLane<'_, P> {
    fn forward(&mut self) -> Result<u32> {
        StridedLane::forward(self)
    }
    fn counters(&self) -> ForwardCounters {
        StridedLane::counters(self)
    }
    fn together(&self) -> Together {
        StridedLane::together(self)
    }
    fn number(&self) -> Rqn {
        StridedLane::number(self)
    }
}

/// Forwards both ways of a lane.
fn work(lane: &mut [impl OneWay; 2], count: &Count, stop: &AtomicBool) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let mut went = 0;
        for forwarder in lane.iter_mut() {
            went += forwarder.forward()?;
        }
        let (mut garbage, mut together) = (0, Together::default());
        for (side, forwarder) in lane.iter().enumerate() {
            let counters = forwarder.counters();
            count.sent[side].store(counters.sent, Ordering::Relaxed);
            count.dropped[side].store(counters.dropped, Ordering::Relaxed);
            garbage += counters.garbage_completions;
            together.bursts += forwarder.together().bursts;
            together.unused += forwarder.together().unused;
        }
        count.bursts.store(together.bursts, Ordering::Relaxed);
        count.unused.store(together.unused, Ordering::Relaxed);
        count.garbage.store(garbage, Ordering::Relaxed);
        if went == 0 {
            // The model's threads may need this processor.
            thread::yield_now();
        } else {
            let busy = begun.elapsed().as_nanos() as u64;
            count.busy_ns.fetch_add(busy, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The counts of the lanes since then.
fn since(counts: &[Count], before: &[Lane]) -> Vec<Lane> {
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let lanes = counts.iter().zip(before);
    lanes
        .map(|(count, before)| Lane {
            sent: [0, 1].map(|side: usize| get(&count.sent[side]) - before.sent[side]),
            in_all: [0, 1].map(|side: usize| get(&count.sent[side])),
            dropped: [0, 1].map(|side: usize| get(&count.dropped[side]) - before.dropped[side]),
            garbage: get(&count.garbage) - before.garbage,
            together: Together {
                bursts: get(&count.bursts),
                unused: get(&count.unused),
            },
            busy: Duration::from_nanos(get(&count.busy_ns)) - before.busy,
        })
        .collect()
}
