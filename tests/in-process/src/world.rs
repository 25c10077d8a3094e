//! The world around the driver: functions, memory, cable, clock.

use crate::exit::Exit;
use crate::function::{Function, Slot};
use crate::memory::Accounting;
use crate::network::{Network, Wire};
use crate::platform::ModelPlatform;
use crate::shared::Shared;
use bareverbs_core::event::SyncReset;
use bareverbs_core::{Config as DriverConfig, Device, GidEntry, Platform, Storage};
use connectx_model::host::IommuFault;
use connectx_model::link::datagram;
use connectx_model::link::fault::{Faulty, Rates};
use connectx_model::link::setting::LONGEST_DELAY;
use connectx_model::link::{Cable, Link};
use connectx_model::{Config, Model};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The command register in configuration space, and what a platform writes there before the driver comes: memory space,
/// bus master, and no INTx.
const PCI_COMMAND: usize = 4;
const COMMAND_IN_USE: [u8; 2] = [0x06, 0x04];
/// Builds a [`World`].
pub struct Builder {
    functions: Vec<Config>,
    wire: Wire,
    exits: Vec<Arc<datagram::Wire>>,
    interrupt_vectors: u16,
}

impl Builder {
    /// A world with no function yet, and a cable between the ports of the two to come.
    #[must_use]
    pub fn new() -> Self {
        Self::with_link(Box::new(Cable::new()), 0)
    }

    /// A world whose functions' ports are those of `link`, in this order. `seed` decides the faults, once a test sets
    /// some.
    #[must_use]
    pub fn with_link(link: Box<dyn Link>, seed: u64) -> Self {
        Self {
            functions: Vec::new(),
            wire: Faulty::new(link, seed, Rates::default()),
            exits: Vec::new(),
            interrupt_vectors: 0,
        }
    }

    /// Adds a function.
    #[must_use]
    pub fn function(mut self, config: Config) -> Self {
        self.functions.push(config);
        self
    }

    /// Lets a wire out of the process: its far end is the port of the link behind those of the functions and of the wires
    /// before. Frames come in and go out on the real clock, so that the world should be a threaded one.
    #[must_use]
    pub fn exit(mut self, wire: datagram::Wire) -> Self {
        self.exits.push(Arc::new(wire));
        self
    }

    /// Offers the driver this many MSI-X vectors; without, it polls.
    #[must_use]
    pub fn interrupts(mut self, vectors: u16) -> Self {
        self.interrupt_vectors = vectors;
        self
    }

    /// A world with a virtual clock, which moves when the driver waits.
    #[must_use]
    pub fn stepped(self) -> World {
        World::new(self.build(None), None)
    }

    /// A world on the real clock, with a thread for the devices.
    #[must_use]
    pub fn threaded(self) -> World {
        let shared = self.build(Some(Instant::now()));
        let device = std::thread::spawn({
            let shared = shared.clone();
            move || shared.run()
        });
        World::new(shared, Some(device))
    }

    fn build(self, started: Option<Instant>) -> Arc<Shared> {
        let vectors = usize::from(self.interrupt_vectors);
        let slots = self
            .functions
            .into_iter()
            .map(|config| Slot::new(config, vectors));
        let slots: Vec<Slot> = slots.collect();
        let network = Network::new(self.wire, self.exits, slots.len(), started.is_some());
        Arc::new(Shared::new(slots, network, self.interrupt_vectors, started))
    }
}

/// Functions, their memory, and the cable between them.
pub struct World {
    shared: Arc<Shared>,
    device: Option<JoinHandle<()>>,
    exits: Mutex<Vec<Exit>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    fn new(shared: Arc<Shared>, device: Option<JoinHandle<()>>) -> Self {
        let exits = shared.network.exits.iter().map(|wire| {
            let (stir, cut) = (shared.clone(), shared.clone());
            Exit::new(wire.clone(), move || stir.stir(), move || cut.cut())
        });
        Self {
            exits: Mutex::new(exits.collect()),
            shared,
            device,
        }
    }

    /// The driver's seam to function `index`, which is reset first, as VFIO does when a device is opened.
    ///
    /// # Panics
    /// If there is no such function.
    #[must_use]
    pub fn platform(&self, index: usize) -> ModelPlatform {
        let mut function = self.shared.function(index);
        let Function { model, port, .. } = &mut *function;
        model.function_reset();
        model.config_write(port, PCI_COMMAND, &COMMAND_IN_USE);
        drop(function);
        ModelPlatform {
            shared: self.shared.clone(),
            index,
        }
    }

    /// Brings the driver up on a function and gives it these addresses, as RoCE v2.
    ///
    /// # Panics
    /// If the driver does not come up, or the table is too short.
    // So that only those who call it compile bring-up.
    #[inline]
    pub fn open<'s>(
        &self,
        index: usize,
        config: DriverConfig,
        storage: Storage<'s>,
        addresses: &[IpAddr],
    ) -> Device<'s, ModelPlatform> {
        bring_up(self.platform(index), config, storage, addresses)
    }

    /// Looks into a model, or sets its faults.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn with_model<R>(&self, index: usize, f: impl FnOnce(&mut Model) -> R) -> R {
        f(&mut self.shared.function(index).model)
    }

    /// Plugs the cable of function `index` in or pulls it out.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn set_link(&self, index: usize, up: bool) {
        self.shared.set_link(index, up);
    }

    /// Another function, `id`, comes up, whose pages the driver of function `index` gives.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn function_comes(&self, index: usize, id: u16, pages: u32) {
        self.shared.function_comes(index, id, pages);
    }

    /// The other function goes away; with `release_all`, the firmware forgets its pages.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn function_goes(&self, index: usize, id: u16, release_all: bool) {
        self.shared.function_goes(index, id, release_all);
    }

    /// Puts a P_Key into the table of function `index`, without an event; false if the table is shorter.
    ///
    /// # Panics
    /// If there is no such function.
    #[must_use]
    pub fn set_pkey(&self, index: usize, at: u16, pkey: u16) -> bool {
        self.shared.set_pkey(index, at, pkey)
    }

    /// A sensor of a function measures another temperature, in eighths of a degree Celsius.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn set_temperature(&self, index: usize, sensor: u16, eighths: i16) {
        self.shared.strike(index, |model, host| {
            model.set_temperature(host, sensor, eighths);
        });
    }

    /// Tells the driver of a function that others reset the firmware.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn announce_reset(&self, index: usize, state: SyncReset) {
        self.shared
            .strike(index, |model, host| model.announce_reset(host, state));
    }

    /// Ends the wires out of the process, as when the world ends: what was sent before leaves, and nothing arrives any more.
    /// For programs that end with devices in use. What a latency or a delay holds back leaves in its time.
    pub fn close_exits(&self) {
        let mut exits = self.exits.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.now() + LONGEST_DELAY;
        while !exits.is_empty() {
            self.step();
            let next = self.with_wire(|wire| wire.next_arrival());
            match next.filter(|at| *at < end && self.shared.is_threaded()) {
                Some(at) => std::thread::sleep(at.saturating_sub(self.now())),
                None => break,
            }
        }
        for exit in exits.drain(..) {
            exit.close();
        }
    }

    /// Looks at the wire, or damages it.
    pub fn with_wire<R>(&self, f: impl FnOnce(&mut Wire) -> R) -> R {
        self.shared.network.with(f)
    }

    /// Lets the devices do what is due now; whether anything happened. The virtual clock stands still.
    pub fn step(&self) -> bool {
        self.shared.step()
    }

    /// Moves the virtual clock on, doing everything that falls due on the way.
    pub fn advance(&self, by: Duration) {
        self.shared.advance(by);
    }

    /// Time on the world's clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.shared.now()
    }

    /// DMA accesses of function `index` to memory that was not mapped, since the last call.
    pub fn take_faults(&self, index: usize) -> Vec<IommuFault> {
        std::mem::take(&mut self.shared.function(index).port.memory.faults)
    }

    /// The number of times that the driver of function `index` went to sleep until an interrupt.
    #[must_use]
    pub fn waits(&self, index: usize) -> u64 {
        self.shared.function(index).port.interrupts.waits
    }

    /// The number of times that the device's thread of a threaded world found something to do for a sleeping driver without being
    /// woken for it: 0, or a wake-up was lost.
    #[must_use]
    pub fn late_wakes(&self) -> u64 {
        self.shared.late()
    }

    /// Memory that function `index` still holds.
    #[must_use]
    pub fn accounting(&self, index: usize) -> Accounting {
        self.shared.function(index).port.memory.accounting()
    }

    /// Lets the driver allocate this many bytes more for function `index`, then none (`None`: no limit).
    pub fn limit_memory(&self, index: usize, budget: Option<usize>) {
        self.shared.function(index).port.memory.budget = budget;
    }
}

/// Brings the driver up on a platform over a function and gives it these addresses, as RoCE v2.
///
/// # Panics
/// If the driver does not come up, or the table is too short.
pub fn bring_up<'s, P: Platform>(
    platform: P,
    config: DriverConfig,
    storage: Storage<'s>,
    addresses: &[IpAddr],
) -> Device<'s, P> {
    let device = Device::open(platform, config, storage).expect("bring-up");
    let mac = device.mac().expect("MAC");
    for (index, &address) in (0..).zip(addresses) {
        device
            .set_gid(index, GidEntry::roce_v2(address.into(), mac))
            .expect("GID");
    }
    device
}

impl Drop for World {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(device) = self.device.take() {
            // A panic of the device's thread was printed when it happened.
            let _ = device.join();
        }
        self.close_exits();
    }
}
