//! Bring-up: from a function that was just reset to one that verbs can use.
//!
//! The commands, in 13 steps, of which each waits for the one before (20 commands at most with the defaults):
//!
//! 1. ENABLE_HCA
//! 2. SET_ISSI
//! 3. QUERY_PAGES (boot)
//! 4. MANAGE_PAGES
//! 5. ACCESS_REG (host endianness), QUERY_HCA_CAP (general)
//! 6. SET_HCA_CAP (general), QUERY_HCA_CAP (atomic; RoCE, twice)
//! 7. SET_HCA_CAP (atomic, RoCE)
//! 8. QUERY_PAGES (init)
//! 9. MANAGE_PAGES
//! 10. INIT_HCA
//! 11. QUERY_SPECIAL_CONTEXTS, SET_DRIVER_VERSION, ALLOC_UAR
//! 12. CREATE_EQ, of the queue that page requests come to
//! 13. CREATE_EQ of all others, MODIFY_NIC_VPORT_CONTEXT (RoCE on)
//!
//! The commands of a step are with the firmware at once. What the device does not have, or does not ask for, is left out; and
//! so is what a virtual function has no say in: it asks for no pages, and the host's byte order is set for it.

use core::time::Duration;

use bareverbs_firmware_cmds::caps::{AtomicCaps, HcaCap, QueryHcaCapIn, RoceCap, SetHcaCapIn};
use bareverbs_firmware_cmds::cmdq::COMMAND_INTERFACE_REVISION;
use bareverbs_firmware_cmds::doorbell::UAR_SIZE;
use bareverbs_firmware_cmds::hca::{
    EnableHcaIn, InitHcaIn, QueryIssiIn, SetDriverVersionIn, SetIssiIn,
};
use bareverbs_firmware_cmds::init_segment::{
    CMDIF_REV_FW_SUB, FW_REV, FirmwareVersion, INITIALIZING, Initializing, VANISHED,
    command_interface_revision,
};
use bareverbs_firmware_cmds::mkey::QuerySpecialContextsIn;
use bareverbs_firmware_cmds::numbers::UarIndex;
use bareverbs_firmware_cmds::pages::QueryPagesIn;
use bareverbs_firmware_cmds::register::{AccessRegisterIn, RegisterHostEndianness};
use bareverbs_firmware_cmds::uar::{AllocUarIn, DeallocUarIn};
use bareverbs_firmware_cmds::values::{
    AccessRegister, CAPABILITY_GROUP_SIZE, CapabilityGroup, CapabilityMode, CmdifChecksum,
    QueryPages, RegisterId,
};
use bareverbs_firmware_cmds::vport::ModifyNicVportContextIn;
use zerocopy::{FromBytes, FromZeros};

use crate::device::Device;
use crate::device::function::FunctionKind;
use crate::device::in_flight::{InFlight, PollBackoff};
use crate::device::storage::Storage;
use crate::firmware::command_queue::{CommandQueue, SetUpError};
use crate::firmware::control::Control;
use crate::firmware::health::{self, read_health};
use crate::firmware::mailbox::TailIn;
use crate::firmware::pages::{PageSupply, SupplyError};
use crate::firmware::sync_reset::ResetAnswer;
use crate::memory::blue_flame::BlueFlame;
use crate::platform::Platform;
use crate::types::config::Config;
use crate::types::error::{
    CommandError, CommandFailure, DeviceError, OpenError, OpenFailure, OpenStep,
};
use crate::types::port::LinkLayer;

/// Firmware starts slowly; between two looks at whether it has, the platform relaxes this often.
const TURNS_PER_LOOK: u32 = 16;

pub(super) trait AtStep<T> {
    fn at(self, step: OpenStep) -> Result<T, OpenError>;
}

impl<T> AtStep<T> for Result<T, CommandError> {
    fn at(self, step: OpenStep) -> Result<T, OpenError> {
        self.map_err(|error| {
            let failure = match error.failure {
                CommandFailure::Device(error) => OpenFailure::Device(error),
                _ => OpenFailure::Command(error),
            };
            OpenError { step, failure }
        })
    }
}

fn fail<T>(step: OpenStep, failure: OpenFailure) -> Result<T, OpenError> {
    Err(OpenError { step, failure })
}

impl<'s, P: Platform> Device<'s, P> {
    /// Brings the function up from reset: memory decoding and bus mastering are on, and it was not used since it was
    /// reset. If that fails, everything done until then is undone.
    ///
    /// # Errors
    /// Names the step, and what came back. After a command that was not answered, or a dead device, the function may
    /// have to be reset before it can be tried again.
    pub fn open(platform: P, config: Config, storage: Storage<'s>) -> Result<Self, OpenError> {
        let health = read_health(&platform);
        if health.has_problem() && !health.is_gone() {
            log::warn!("the function was left with a problem: {health}");
        }
        if let Some(recorder) = storage.recorder {
            recorder.open(platform.now(), health);
        }
        wait_for_firmware(&platform, config.initialize_timeout)?;
        let revision = platform.read_be32(CMDIF_REV_FW_SUB);
        let found = command_interface_revision(revision);
        if found != COMMAND_INTERFACE_REVISION {
            return fail(OpenStep::Revision, OpenFailure::Revision { found });
        }
        let firmware = FirmwareVersion::from_registers(platform.read_be32(FW_REV), revision);
        start_queue(&platform, &config, &storage)?;
        storage.device.gids.lock().clear(0);
        let mut device = Self::unopened(platform, config, storage, firmware);
        match device.bring_up() {
            Ok(()) => {
                log::info!(
                    "firmware {firmware}, {} commands, {} pages",
                    device.commands_executed(),
                    device.pages_given()
                );
                Ok(device)
            }
            Err(error) => {
                log::error!("bring-up: {error}");
                device.forget_commands();
                if let Err(error) = device.tear_down(true) {
                    log::error!("undoing bring-up: {error}");
                }
                Err(error)
            }
        }
    }

    // A separate stack frame, as what follows it is to start where it did.
    #[inline(never)]
    fn bring_up(&mut self) -> Result<(), OpenError> {
        // Once more: the firmware re-reads its configuration when it learns where the command queue is.
        wait_for_firmware(&self.platform, self.config.initialize_timeout)?;
        self.enable_hca()?;
        self.agree_on_issi()?;
        self.supply(QueryPages::Boot, OpenStep::BootPages)?;
        self.negotiate()?;
        self.supply(QueryPages::Init, OpenStep::InitPages)?;
        self.init_hca()?;
        self.set_up_function()?;
        // From the first queue on the firmware can ask for pages, which it may require for what follows.
        self.create_eqs()
    }

    fn enable_hca(&mut self) -> Result<(), OpenError> {
        self.embedded_cpu = Initializing(self.platform.read_be32(INITIALIZING)).embedded_cpu();
        let mut enable = EnableHcaIn::new();
        enable.set_embedded_cpu_function(self.embedded_cpu);
        let result = self.execute_no_output(&enable);
        self.stage.enabled = happened(&result);
        result.at(OpenStep::EnableHca)
    }

    /// Asks for interface 1 outright, and what there is only if that is refused: firmware of this decade has it.
    fn agree_on_issi(&mut self) -> Result<(), OpenError> {
        let mut set = SetIssiIn::new();
        set.set_current_issi(1);
        let refusal = match self.execute(&set) {
            Ok(_) => {
                self.capabilities.issi = 1;
                return Ok(());
            }
            Err(error) => error,
        };
        if !matches!(refusal.failure, CommandFailure::Status { .. }) {
            return Err(refusal).at(OpenStep::Issi);
        }
        let supported = match self.execute(&QueryIssiIn::new()) {
            Ok(answer) => answer.supported_issi_dw0(),
            // Firmware with one interface only does not have the command. Linux's driver takes any refusal for that.
            Err(CommandError {
                failure: CommandFailure::Status { .. },
                ..
            }) => 0,
            Err(error) => return Err(error).at(OpenStep::Issi),
        };
        match supported {
            // It has interface 1, so the refusal had another reason.
            _ if supported & 0b10 != 0 => Err(refusal).at(OpenStep::Issi),
            // Linux's driver also takes an empty answer for interface 0.
            _ if supported & 0b01 != 0 || supported == 0 => Ok(()),
            _ => fail(OpenStep::Issi, OpenFailure::Issi { supported }),
        }
    }

    /// Gives the firmware the pages that it requires, in one command, and waits until it has taken them.
    fn supply(&mut self, phase: QueryPages, step: OpenStep) -> Result<(), OpenError> {
        let mut query = QueryPagesIn::new();
        query
            .set_op_mod(phase.number())
            .set_embedded_cpu_function(self.embedded_cpu);
        let answer = self.execute(&query).at(step)?;
        let pages = answer.num_pages();
        let Ok(wanted) = i32::try_from(pages) else {
            let value = u64::from(pages);
            let field = "num_pages";
            return fail(step, OpenFailure::Value { field, value });
        };
        if wanted == 0 {
            return Ok(());
        }
        let given = self.pages_given();
        // Whose function it is the driver says, as Linux does, and not the answer.
        let (id, embedded_cpu) = (answer.function_id(), self.embedded_cpu);
        self.with(|control| control.pages.request_own(id, embedded_cpu, wanted));
        let mut backoff = PollBackoff::default();
        let mut first_error = None;
        loop {
            let (serviced, idle, error) = self
                .with(|control| {
                    let serviced = control.service(&self.context());
                    (
                        serviced,
                        control.pages.is_idle(),
                        control.pages.take_error(),
                    )
                })
                .unwrap_or((Err(DeviceError::Closed), true, None));
            first_error = first_error.or(error);
            if let Err(error) = serviced {
                return fail(step, OpenFailure::Device(error));
            }
            if idle {
                break;
            }
            self.pause(&mut backoff);
        }
        match first_error {
            None => Ok(()),
            Some(SupplyError::Memory(error)) => fail(step, OpenFailure::Memory(error)),
            Some(SupplyError::Chunks { missing }) => {
                let sufficient = self.page_chunks.len().saturating_add(missing);
                let pages = pages.saturating_add(given);
                fail(step, OpenFailure::PageChunks { pages, sufficient })
            }
            Some(SupplyError::Command(error)) => Err(error).at(step),
        }
    }

    /// Steps 5 to 7: reads the capabilities, and sets what this driver decides.
    fn negotiate(&mut self) -> Result<(), OpenError> {
        let mut register = RegisterHostEndianness::ZERO;
        register.set_he(cfg!(target_endian = "big"));
        let mut write = AccessRegisterIn::new();
        write
            .set_op_mod(AccessRegister::Write.number())
            .set_register_id(RegisterId::HostEndianness.number());
        let mut answer = RegisterHostEndianness::ZERO;
        let physical = self.function_kind() != FunctionKind::Virtual;
        let written = match physical {
            true => self.ask(&write, TailIn::Bytes(&register.0), answer.0.len()),
            false => InFlight::Idle,
        };
        let mut image = [0; CAPABILITY_GROUP_SIZE];
        let general = self.ask_group(CapabilityGroup::General, CapabilityMode::Current);
        if physical {
            self.answer(written, &write, TailIn::Bytes(&register.0), &mut answer.0)
                .at(OpenStep::HostEndianness)?;
        }
        self.take_group(general, &mut image)?;
        let verify = self.choose_general(&mut image)?;
        let caps = head::<HcaCap>(&image);
        self.capabilities.hca = caps;
        let mut set = self.set_group(CapabilityGroup::General, &image);
        if verify {
            // Which answers are signed is known for those alone that are asked for afterwards.
            self.carried_out(set).at(OpenStep::Capabilities)?;
            set = InFlight::DONE;
            self.with(|control| control.queue.verify_signatures());
        }
        let current = CapabilityMode::Current;
        let atomic = caps
            .atomic()
            .then(|| self.ask_group(CapabilityGroup::Atomic, current));
        let ethernet = self.capabilities.link_layer() == LinkLayer::Ethernet;
        let roce = (caps.roce() && ethernet).then(|| {
            [CapabilityMode::Max, current].map(|mode| self.ask_group(CapabilityGroup::Roce, mode))
        });
        self.carried_out(set).at(OpenStep::Capabilities)?;
        if !verify {
            self.with(|control| control.queue.leave_blocks_unsigned());
        }
        let atomic = match atomic {
            Some(asked) => self.choose_atomic(asked, &mut image)?,
            None => None,
        };
        let roce = match roce {
            Some(asked) => self.choose_roce(asked, &mut image)?,
            None => None,
        };
        for set in [atomic, roce].into_iter().flatten() {
            self.carried_out(set).at(OpenStep::Capabilities)?;
        }
        Ok(())
    }

    /// Asks for a group of capabilities.
    fn ask_group(&self, group: CapabilityGroup, mode: CapabilityMode) -> AskedGroup {
        let mut query = QueryHcaCapIn::new();
        query.set_op_mod(group.query(mode));
        let asked = self.ask(&query, TailIn::None, CAPABILITY_GROUP_SIZE);
        (query, asked)
    }

    /// The answer.
    fn take_group(&self, (query, asked): AskedGroup, image: &mut [u8]) -> Result<(), OpenError> {
        self.answer(asked, &query, TailIn::None, image)
            .at(OpenStep::Capabilities)
            .map(drop)
    }

    fn set_group(&self, group: CapabilityGroup, image: &[u8]) -> InFlight {
        let mut set = SetHcaCapIn::new();
        set.set_op_mod(group.set());
        self.order(&set, TailIn::Bytes(image))
    }

    /// Chooses among the general capabilities, whether answers are signed among them. The maxima are asked for only when
    /// there is something to raise.
    #[inline(never)]
    fn choose_general(&mut self, image: &mut [u8]) -> Result<bool, OpenError> {
        let mut caps = head::<HcaCap>(image);
        // Completions name their QP by the driver's index; with version 0 they could not.
        if caps.cqe_version() == 0 {
            let what = "CQE version 1";
            return fail(OpenStep::Capabilities, OpenFailure::Unsupported { what });
        }
        if !cfg!(feature = "infiniband") && caps.port_type() == 0 {
            let what = "an Ethernet port, and InfiniBand is left out of this build";
            return fail(OpenStep::Capabilities, OpenFailure::Unsupported { what });
        }
        let queue_pairs = self.tables.qps.len() as u64;
        let mut verify = false;
        // Dynamic connections are off until a driver asks for them (Linux: `handle_hca_cap`).
        let more = queue_pairs > 1 << caps.log_max_qp() || !caps.dct();
        if self.config.command_signatures || more {
            let mut max_image = [0; CAPABILITY_GROUP_SIZE];
            let asked = self.ask_group(CapabilityGroup::General, CapabilityMode::Max);
            self.take_group(asked, &mut max_image)?;
            let max = head::<HcaCap>(&max_image);
            verify = self.config.command_signatures
                && max.cmdif_checksum() == CmdifChecksum::Enabled.number();
            let wanted = queue_pairs.next_power_of_two().trailing_zeros() as u8;
            let reachable = wanted.min(max.log_max_qp()).max(caps.log_max_qp());
            caps.set_log_max_qp(reachable);
            caps.set_dct(caps.dct() || max.dct());
            // The firmware asks this driver before it is reset by others, too.
            let asks = max.pci_sync_for_fw_update_event();
            caps.set_pci_sync_for_fw_update_event(caps.pci_sync_for_fw_update_event() || asks);
        }
        // Doorbell pages of 4 KiB, with every page size of the host.
        let checksum = if verify {
            CmdifChecksum::Enabled
        } else {
            CmdifChecksum::Disabled
        };
        caps.set_cmdif_checksum(checksum.number())
            .set_log_uar_page_sz(0);
        image[..HcaCap::SIZE].copy_from_slice(&caps.0);
        Ok(verify)
    }

    /// Has the results of atomics delivered in the host's byte order, as verbs promise, where the device can.
    fn choose_atomic(
        &mut self,
        asked: AskedGroup,
        image: &mut [u8],
    ) -> Result<Option<InFlight>, OpenError> {
        self.take_group(asked, image)?;
        let mut caps = head::<AtomicCaps>(image);
        let mut set = None;
        if caps.supported_atomic_req_8B_endianness_mode_1()
            && caps.atomic_req_8B_endianness_mode() != 1
        {
            // The only field that this group lets be set; the rest of the image must be zero.
            image.fill(0);
            let mut wanted = AtomicCaps::ZERO;
            wanted.set_atomic_req_8B_endianness_mode(1);
            image[..AtomicCaps::SIZE].copy_from_slice(&wanted.0);
            set = Some(self.set_group(CapabilityGroup::Atomic, image));
            caps.set_atomic_req_8B_endianness_mode(1);
        }
        self.capabilities.atomic = Some(caps);
        Ok(set)
    }

    fn choose_roce(
        &mut self,
        [max, current]: [AskedGroup; 2],
        image: &mut [u8],
    ) -> Result<Option<InFlight>, OpenError> {
        self.take_group(max, image)?;
        let possible = head::<RoceCap>(image).sw_r_roce_src_udp_port();
        self.take_group(current, image)?;
        let mut caps = head::<RoceCap>(image);
        let mut set = None;
        // Without it the device chooses source ports itself, without regard to queue pairs and address handles.
        if !caps.sw_r_roce_src_udp_port() && possible {
            caps.set_sw_r_roce_src_udp_port(true);
            image[..RoceCap::SIZE].copy_from_slice(&caps.0);
            set = Some(self.set_group(CapabilityGroup::Roce, image));
        }
        let len = usize::from(caps.roce_address_table_size());
        self.slot.gids.lock().clear(len);
        self.capabilities.roce = Some(caps);
        Ok(set)
    }

    fn init_hca(&mut self) -> Result<(), OpenError> {
        let result = self.execute_no_output(&InitHcaIn::new());
        self.stage.initialized = happened(&result);
        result.at(OpenStep::InitHca)
    }

    /// Step 11: what the function needs before there are event queues.
    fn set_up_function(&mut self) -> Result<(), OpenError> {
        let special = QuerySpecialContextsIn::new();
        let terminates = self.capabilities.hca.terminate_scatter_list_mkey();
        let asked = match terminates {
            true => self.ask(&special, TailIn::None, 0),
            false => InFlight::Idle,
        };
        let version = self.order_driver_version();
        let alloc = AllocUarIn::new();
        let uar = self.ask(&alloc, TailIn::None, 0);
        let second = match P::WRITE_COMBINING && self.has_blue_flame() {
            true => Some(self.ask(&alloc, TailIn::None, 0)),
            false => None,
        };
        let keys = match terminates {
            true => self
                .answer(asked, &special, TailIn::None, &mut [])
                .at(OpenStep::SpecialContexts)
                .map(Some),
            false => Ok(None),
        };
        // The device does not need this command, and Linux's driver does not look at its answer.
        let version = match version.map_or(Ok(()), |version| self.carried_out(version)) {
            Err(error) if matches!(error.failure, CommandFailure::Status { .. }) => {
                log::warn!("sending the driver's version: {error}");
                Ok(())
            }
            done => done.at(OpenStep::DriverVersion),
        };
        // Whatever else has failed, pages that were allocated are recorded, so that they are given back.
        let uar = self.answer(uar, &alloc, TailIn::None, &mut []);
        let uar = uar.at(OpenStep::AllocUar).and_then(|answer| {
            self.uar = UarIndex::from_low_bits(answer.uar());
            self.stage.uar = true;
            self.check_uar(self.uar)
        });
        let second = second.map_or(Ok(()), |asked| self.set_up_blue_flame(asked));
        if let Some(keys) = keys? {
            self.list_terminator = keys.terminate_scatter_list_mkey();
        }
        version.and(uar).and(second)
    }

    fn order_driver_version(&self) -> Option<InFlight> {
        let version = self.config.driver_version.as_bytes();
        if !self.capabilities.hca.driver_version() || version.is_empty() {
            return None;
        }
        let mut set = SetDriverVersionIn::new();
        // The last byte stays zero: it ends the string.
        let field = &mut set.driver_version_mut()[..63];
        let len = version.len().min(field.len());
        field[..len].copy_from_slice(&version[..len]);
        Some(self.order(&set, TailIn::None))
    }

    pub(super) fn order_roce(&self) -> Option<InFlight> {
        self.capabilities.roce?;
        let mut modify = ModifyNicVportContextIn::new();
        modify.field_select_mut().set_roce_en(true);
        modify.nic_vport_context_mut().set_roce_en(true);
        Some(self.order(&modify, TailIn::None))
    }

    /// Page 0 is the init segment, and a page outside the BAR would swallow every doorbell.
    fn check_uar(&self, uar: UarIndex) -> Result<(), OpenError> {
        let end = uar.bar_offset() + UAR_SIZE;
        if uar.number() == 0 || end > self.platform.bar_len() {
            let value = u64::from(uar.number());
            let field = "uar";
            return fail(OpenStep::AllocUar, OpenFailure::Value { field, value });
        }
        Ok(())
    }

    fn has_blue_flame(&self) -> bool {
        let caps = &self.capabilities.hca;
        caps.bf() && BlueFlame::fits(caps.log_bf_reg_size())
    }

    /// A second page, write-combining, if the device has BlueFlame registers. The first page stays uncached, and the
    /// device would mix up their doorbells if they were the same.
    fn set_up_blue_flame(&mut self, asked: InFlight) -> Result<(), OpenError> {
        let step = OpenStep::AllocUar;
        let alloc = AllocUarIn::new();
        let answer = self.answer(asked, &alloc, TailIn::None, &mut []).at(step)?;
        let uar = UarIndex::from_low_bits(answer.uar());
        self.check_uar(uar)?;
        if uar == self.uar {
            let (field, value) = ("uar", u64::from(uar.number()));
            return fail(step, OpenFailure::Value { field, value });
        }
        if self.platform.set_write_combining(uar.bar_offset(), true) {
            self.blue_flame = BlueFlame::new(uar, self.capabilities.hca.log_bf_reg_size());
            return Ok(());
        }
        log::warn!("no write-combining page: doorbells instead of BlueFlame");
        let mut dealloc = DeallocUarIn::new();
        dealloc.set_uar(uar.number());
        match self.execute_no_output(&dealloc) {
            // The page is lost until the function is reset, and nothing needs it.
            Err(error) if matches!(error.failure, CommandFailure::Status { .. }) => {
                log::warn!("giving the page back: {error}");
                Ok(())
            }
            done => done.at(step),
        }
    }
}

/// A group of capabilities that was asked for.
type AskedGroup = (QueryHcaCapIn, InFlight);

/// Sets the command queue up, and puts the control path's state where it stays. A separate function, so that the stack
/// is free of what passes through it before the first command goes.
#[inline(never)]
fn start_queue<P: Platform>(
    platform: &P,
    config: &Config,
    storage: &Storage<'_>,
) -> Result<(), OpenError> {
    let queue =
        CommandQueue::set_up(platform, config.command_timeout).map_err(|error| OpenError {
            step: OpenStep::CommandQueue,
            failure: match error {
                SetUpError::Geometry {
                    log_size,
                    log_stride,
                } => OpenFailure::QueueGeometry {
                    log_size,
                    log_stride,
                },
                SetUpError::Memory(error) => OpenFailure::Memory(error),
            },
        })?;
    let pages = PageSupply::new(storage.page_chunks);
    let reset_answer = ResetAnswer::new(config.allow_firmware_reset);
    let control = Control::new(platform, queue, pages, reset_answer);
    *storage.device.control.lock() = Some(control);
    Ok(())
}

/// Returns `true` if a command was carried out, or may have been.
fn happened<T>(result: &Result<T, CommandError>) -> bool {
    result
        .as_ref()
        .map_or_else(CommandError::may_still_happen, |_| true)
}

/// The structure at the start of a capability image.
fn head<T: FromBytes + FromZeros>(image: &[u8]) -> T {
    T::read_from_prefix(image).map_or_else(|_| T::new_zeroed(), |(caps, _)| caps)
}

pub(crate) fn wait_for_firmware<P: Platform>(
    platform: &P,
    timeout: Duration,
) -> Result<(), OpenError> {
    let step = OpenStep::Firmware;
    let started = platform.now();
    loop {
        let register = platform.read_be32(INITIALIZING);
        // All ones would read as "busy" until the timeout; a device that is gone says so at once.
        if register == VANISHED && health::is_gone(platform) {
            return fail(step, OpenFailure::Device(DeviceError::Gone));
        }
        if !Initializing(register).busy() {
            return Ok(());
        }
        let waited = platform.now().saturating_sub(started);
        if waited >= timeout {
            return fail(step, OpenFailure::StillInitializing { waited });
        }
        for _ in 0..TURNS_PER_LOOK {
            platform.relax();
        }
    }
}
