//! The card: what the bus, the cable and the clock do to it.

use crate::bus::bar;
use crate::bus::combine::Combiner;
use crate::bus::doorbell;
use crate::bus::front::Front;
use crate::bus::io::Io;
use crate::bus::pci::{ConfigEffect, Pci};
use crate::command::internal;
use crate::config::Config;
use crate::counters::Stats;
use crate::device::{Device, Stage};
use crate::fault::Faults;
use crate::host::Host;
use crate::objects::Leak;
use crate::port::settings::Settings;
use crate::replay::{Recording, Replay};
use bareverbs_firmware_cmds::event::{Event, SyncReset};
use bareverbs_firmware_cmds::health::HealthBuffer;
use bareverbs_firmware_cmds::values::ResetResponse;
use core::time::Duration;

/// A ConnectX-5-like physical function.
///
/// It does nothing by itself: a doorbell, a command or a frame is only noted (or, for frames, handled) when it comes, and
/// the work is done in [`advance`](Self::advance), which is to be called after every other call and whenever
/// [`next_deadline`](Self::next_deadline) has come.
///
/// As after power-on, the function decodes its BAR and does DMA only when the command register in configuration space says
/// so: the host sets memory space and bus master enable there before any other access.
pub struct Model {
    device: Device,
    pci: Pci,
}

/// Turns of the work loop in one call of [`Model::advance`]; more is left for the next call.
const TURNS: usize = 64;

impl Model {
    /// A card at power-on, at time zero.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            pci: Pci::new(&config),
            device: Device::new(config),
        }
    }

    /// The configuration that it was made from.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.device.config
    }

    fn with_io<T>(
        &mut self,
        host: &mut dyn Host,
        f: impl FnOnce(&mut Device, &mut Io<'_>) -> T,
    ) -> T {
        let mut faults = 0;
        let lose = self.device.faults.lose_interrupts;
        let result = f(
            &mut self.device,
            &mut Io::new(host, &mut self.pci, &mut faults, lose),
        );
        self.device.stats.dma_faults += faults;
        result
    }

    /// A read of 1, 2, 4 or 8 bytes in BAR 0. All registers are big-endian: `data` is as it lies on the bus, lowest address
    /// first.
    pub fn bar_read(&mut self, host: &mut dyn Host, offset: u64, data: &mut [u8]) {
        if self.device.front.is_some() {
            self.empty_combined(host);
        }
        if self.pci.memory_enabled() {
            bar::read(&mut self.device, &self.pci, offset, data);
        } else {
            data.fill(0xff);
        }
    }

    /// A write of 1, 2, 4 or 8 bytes in BAR 0, or of up to 64 bytes if the bus combined them.
    pub fn bar_write(&mut self, host: &mut dyn Host, offset: u64, data: &[u8]) {
        if self.device.front.is_some() {
            self.write_combined(host, offset, data);
        } else {
            self.bus_write(host, offset, data);
        }
    }

    /// A write on its way through what may combine it.
    #[inline(never)]
    fn write_combined(&mut self, host: &mut dyn Host, offset: u64, data: &[u8]) {
        let now = self.device.now;
        let front = self.device.front.as_mut();
        let Some(combiner) = front.and_then(|front| front.combiner.as_mut()) else {
            return self.bus_write(host, offset, data);
        };
        let writes = if doorbell::is_send_register(self.device.config.first_uar, offset) {
            combiner.store(now, offset, data)
        } else {
            let mut writes = combiner.empty();
            writes.push((offset, data.to_vec()));
            writes
        };
        for (offset, data) in writes {
            self.bus_write(host, offset, &data);
        }
    }

    /// A read empties what combines writes.
    #[inline(never)]
    fn empty_combined(&mut self, host: &mut dyn Host) {
        let front = self.device.front.as_mut();
        let combiner = front.and_then(|front| front.combiner.as_mut());
        let writes = combiner.map(Combiner::empty);
        for (offset, data) in writes.into_iter().flatten() {
            self.bus_write(host, offset, &data);
        }
    }

    /// A write as the bus brings it.
    #[inline]
    fn bus_write(&mut self, host: &mut dyn Host, offset: u64, data: &[u8]) {
        if !self.pci.memory_enabled() || self.device.health.vanished {
            return;
        }
        if bar::in_table(offset) {
            self.pci
                .table_write((offset - crate::bus::pci::MSIX_TABLE) as usize, data);
            self.deliver_pending(host);
            return;
        }
        self.with_io(host, |device, io| bar::write(device, io, offset, data));
    }

    /// A read of configuration space.
    pub fn config_read(&mut self, offset: usize, data: &mut [u8]) {
        if self.device.health.vanished {
            data.fill(0xff);
        } else {
            self.pci.read(offset, data);
        }
    }

    /// A write of configuration space.
    pub fn config_write(&mut self, host: &mut dyn Host, offset: usize, data: &[u8]) {
        if self.device.health.vanished {
            return;
        }
        match self.pci.write(offset, data) {
            ConfigEffect::None => {}
            ConfigEffect::Unmasked => self.deliver_pending(host),
            ConfigEffect::InternalCommand => {
                let command = self.pci.mailbox().map(std::mem::take);
                let Some(mut command) = command else { return };
                self.with_io(host, |device, io| {
                    internal::execute(device, io, &mut command)
                });
                if let Some(mailbox) = self.pci.mailbox() {
                    *mailbox = command;
                }
            }
            ConfigEffect::FunctionReset => {
                self.device.reset();
                self.pci.reset(&self.device.config, false);
            }
        }
    }

    fn deliver_pending(&mut self, host: &mut dyn Host) {
        while let Some(vector) = self.pci.take_deliverable() {
            host.interrupt(vector);
        }
    }

    /// Function-level reset as the host's kernel does it around an open or close of the device: the command register and
    /// the BAR come back as they were, everything else is as at power-on.
    pub fn function_reset(&mut self) {
        if !self.device.health.vanished {
            self.device.front = Front::new(&self.device.config).map(Box::new);
            self.device.reset();
            self.pci.reset(&self.device.config, true);
        }
    }

    /// A frame from the cable, without its check sequence.
    pub fn receive(&mut self, host: &mut dyn Host, frame: &[u8]) {
        if !self.device.health.vanished {
            self.with_io(host, |device, io| device.receive_frame(io, frame));
        }
    }

    /// Lets time pass and does what is due. Time never goes back.
    #[inline]
    pub fn advance(&mut self, host: &mut dyn Host, now: Duration) {
        let device = &mut self.device;
        device.now = device.now.max(now);
        device.health.tick(device.now);
        if device.health.vanished {
            return;
        }
        let commands = device.cmdq.any_pending();
        if commands || device.has_work() {
            self.work(host, commands);
        }
    }

    // Apart, as most calls find nothing to do.
    #[inline(never)]
    fn work(&mut self, host: &mut dyn Host, commands: bool) {
        self.with_io(host, |device, io| {
            device.run_commands(io);
            if !device.health.well() || device.health.interface != 0 {
                return;
            }
            device.run_quirks(io);
            device.run_timers(io);
            for _ in 0..TURNS {
                if device.idle() || device.rests() {
                    break;
                }
                device.run_queues(io);
                device.run_loopback(io);
                device.rest();
            }
            // Pages become spare by commands only.
            if commands {
                device.offer_pages(io);
            }
        });
    }

    /// When [`advance`](Self::advance) has something to do next, if nothing comes from outside. A time that has passed means
    /// at once.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let device = &self.device;
        if device.health.vanished {
            return None;
        }
        if !device.health.well() {
            return None;
        }
        let commands = device.cmdq.next_deadline(device.config.command_time);
        let boot = (!device.booted()).then(|| {
            let booted = device.started + device.config.boot_time;
            booted.max(device.quirk_state.initializing_until)
        });
        let busy = (!device.idle()).then(|| device.rests_until());
        let drain = (!device.draining.is_empty()).then_some(device.drain_at);
        let timer = device.timers.first().map(|&(at, _)| at);
        let held_back = device.held_back.first().map(|&(at, _)| at);
        let sessions = device.sessions.first().map(|&(at, _)| at);
        let late = device.late_deadline();
        let first = [
            commands, boot, busy, drain, timer, held_back, sessions, late,
        ]
        .into_iter()
        .flatten()
        .min();
        match &device.front {
            Some(front) => first.into_iter().chain(front.deadline()).min(),
            None => first,
        }
    }

    /// Returns `true` if [`advance`](Self::advance) has something to do at the time of its last call.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let device = &self.device;
        let commands = device.cmdq.any_pending()
            && device
                .cmdq
                .next_deadline(device.config.command_time)
                .is_some_and(|at| at <= device.now);
        device.health.well() && (commands || device.has_work())
    }

    /// Another port is the subnet manager from now on. The driver is not notified.
    pub fn set_sm_lid(&mut self, lid: u16) {
        self.device.config.sm_lid = lid;
        self.device.vport.subnet.sm_lid = lid;
    }

    /// The port is in this partition from now on, or, with 0, in none by this entry of its table. The driver is not notified.
    /// False if the table is shorter.
    pub fn set_pkey(&mut self, host: &mut dyn Host, index: u16, pkey: u16) -> bool {
        let entry = self.device.vport.tables.pkeys.get_mut(usize::from(index));
        let Some(entry) = entry else {
            return false;
        };
        *entry = pkey;
        // QPs have the index, and send what the table has there.
        self.with_io(host, |device, io| device.configure_all(io));
        true
    }

    /// Plugs the cable in or out.
    pub fn set_link(&mut self, host: &mut dyn Host, up: bool) {
        self.with_io(host, |device, io| {
            if device.health.vanished {
                device.vport.link_up = up;
            } else {
                device.set_link(io, up);
            }
        });
    }

    /// A sensor measures another temperature, in eighths of a degree Celsius.
    pub fn set_temperature(&mut self, host: &mut dyn Host, sensor: u16, eighths: i16) {
        self.with_io(host, |device, io| {
            device.set_temperature(io, sensor, eighths)
        });
    }

    /// Reports the state of a firmware reset that others ask for to the driver, if the card has such events, and the driver has
    /// set the capability that asks for them (`handle_hca_cap` does).
    pub fn announce_reset(&mut self, host: &mut dyn Host, state: SyncReset) {
        let event = Event::SyncReset { state }.to_eqe();
        self.with_io(host, |device, io| {
            let (kind, sub_type) = (event.event_type(), event.event_sub_type());
            let general = &device.caps.general;
            if general.general_notification_event() && general.pci_sync_for_fw_update_event() {
                device.sync_reset.announce(state);
                device.event(io, kind, sub_type, event.event_data());
            }
        });
    }

    /// The driver's answers to requests for a reset of the firmware, since the model is there.
    #[must_use]
    pub fn reset_answers(&self) -> &[ResetResponse] {
        &self.device.sync_reset.answers
    }

    /// The peer of the port, a switch for example, takes nothing for the moment: what is posted waits, requests and responses
    /// alike, as on a port with priority flow control (IEEE 802.1Qbb). Frames are received as before.
    #[inline]
    pub fn pause(&mut self, paused: bool) {
        self.device.paused = paused;
    }

    /// Returns `true` if the port can send and receive.
    #[must_use]
    pub fn link_up(&self) -> bool {
        self.device.vport.up()
    }

    /// Answers commands as a card did, until it has no record left ([`replay`](crate::replay)).
    pub fn replay(&mut self, recording: &Recording) {
        self.device.replay = Some(Box::new(Replay::new(recording)));
    }

    /// The number of recorded answers that are left.
    #[must_use]
    pub fn replay_left(&self) -> usize {
        self.device
            .replay
            .as_ref()
            .map_or(0, |replay| replay.left())
    }

    /// Executes a command that did not come through the queue. Returns the number of pages that it needs first, if any.
    pub(crate) fn execute(
        &mut self,
        host: &mut dyn Host,
        input: &[u8],
        output: &mut [u8],
    ) -> Option<u32> {
        self.with_io(host, |device, io| device.execute_apart(io, input, output))
    }

    /// Returns true if a driver has enabled the function.
    pub(crate) fn is_enabled(&self) -> bool {
        self.device.stage != Stage::Disabled
    }

    /// The faults that are to happen.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.device.faults
    }

    /// Makes the next object wait until this many more pages were given, which the card asks for by event; 0 ends that.
    pub fn set_page_appetite(&mut self, pages: u32) {
        self.device.pages.appetite = pages;
    }

    /// Another function whose pages this one's driver gives comes up and requires some: a virtual one, or, for embedded
    /// processors, one of the host's.
    pub fn function_comes(&mut self, host: &mut dyn Host, id: u16, pages: u32) {
        self.with_io(host, |device, io| {
            device.function_comes(io, (false, id), pages)
        });
    }

    /// The other function goes away. With `release_all`, the firmware forgets its pages, and refuses to return them.
    pub fn function_goes(&mut self, host: &mut dyn Host, id: u16, release_all: bool) {
        self.with_io(host, |device, io| {
            device.function_goes(io, (false, id), release_all)
        });
    }

    /// The firmware stops with this health syndrome.
    pub fn fail_health(&mut self, syndrome: u8, ext_syndrome: u16) {
        self.device.health.fail(syndrome, ext_syndrome);
    }

    /// The firmware reports a problem and leaves this health buffer; it stops if the buffer asks for a reset (`rfr`). A version,
    /// time or hardware number of zero is replaced by the card's own.
    pub fn leave_health(&mut self, buffer: HealthBuffer) {
        self.device.health.stop(buffer);
    }

    /// Another driver resets the firmware after it stopped, as the driver of the physical function does for its virtual
    /// ones: the function is healthy again, and disabled until its own driver initializes it again.
    pub fn reset_firmware(&mut self) {
        self.device.reset_firmware();
    }

    /// The card falls off the bus: reads give all-ones, nothing is written, nothing is sent, for ever.
    pub fn vanish(&mut self) {
        self.device.health.vanished = true;
    }

    /// Returns `true` if it fell off the bus.
    #[must_use]
    pub fn vanished(&self) -> bool {
        self.device.health.vanished
    }

    /// Returns `true` if the PCI command register lets it start DMA.
    #[must_use]
    pub fn is_bus_master(&self) -> bool {
        self.pci.bus_master()
    }

    /// The health syndrome; 0 when well.
    #[must_use]
    pub fn health_syndrome(&self) -> u8 {
        self.device.health.left.synd()
    }

    /// The counts of its work.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            intx: self.pci.intx(),
            ..self.device.stats
        }
    }

    /// The settings of the port.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.device.vport.settings
    }

    /// Objects and pages that drivers left behind at TEARDOWN_HCA and DISABLE_HCA since power-on.
    #[must_use]
    pub fn leaks(&self) -> &[Leak] {
        &self.device.leaks
    }

    /// Pages of the host that it holds now.
    #[must_use]
    pub fn pages_held(&self) -> usize {
        self.device.pages.held()
    }

    /// Live objects: (UARs, PDs, mkeys, EQs, CQs, QPs, SRQs).
    #[must_use]
    pub fn objects(&self) -> Objects {
        let device = &self.device;
        Objects {
            uars: device.uars.len(),
            pds: device.pds.len(),
            mkeys: device.mkeys.len(),
            eqs: device.eqs.len(),
            cqs: device.cqs.len(),
            qps: device.qps.len(),
            srqs: device.srqs.len(),
            xrcds: device.xrcds.len(),
        }
    }
}

/// The number of objects that are alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Objects {
    /// User access regions.
    pub uars: usize,
    /// Protection domains.
    pub pds: usize,
    /// Memory keys.
    pub mkeys: usize,
    /// Event queues.
    pub eqs: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Shared receive queues.
    pub srqs: usize,
    /// XRC domains.
    pub xrcds: usize,
}
