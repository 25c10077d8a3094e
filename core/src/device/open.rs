//! Bring-up: from a function that was just reset to one that verbs can use.
//!
//! The commands, in order (20 at most with the defaults): ENABLE_HCA, SET_ISSI, QUERY_PAGES and MANAGE_PAGES (boot),
//! ACCESS_REG (host endianness), QUERY_HCA_CAP and SET_HCA_CAP (general), QUERY_HCA_CAP and SET_HCA_CAP (atomic),
//! QUERY_HCA_CAP (RoCE, twice) and SET_HCA_CAP (RoCE), QUERY_PAGES and MANAGE_PAGES (init), INIT_HCA,
//! QUERY_SPECIAL_CONTEXTS, SET_DRIVER_VERSION, ALLOC_UAR, CREATE_EQ, MODIFY_NIC_VPORT_CONTEXT (RoCE on). What the device
//! does not have, or does not ask for, is left out; and so is what a virtual function has no say in: it asks for no pages,
//! and the host's byte order is set for it.

use core::time::Duration;

use bareverbs_firmware_cmds::caps::{AtomicCaps, HcaCap, QueryHcaCapIn, RoceCap, SetHcaCapIn};
use bareverbs_firmware_cmds::cmdq::COMMAND_INTERFACE_REVISION;
use bareverbs_firmware_cmds::doorbell::UAR_SIZE;
use bareverbs_firmware_cmds::eq::CreateEqIn;
use bareverbs_firmware_cmds::event::EventType;
use bareverbs_firmware_cmds::hca::{
    EnableHcaIn, InitHcaIn, QueryIssiIn, SetDriverVersionIn, SetIssiIn,
};
use bareverbs_firmware_cmds::init_segment::{
    CMDIF_REV_FW_SUB, FW_REV, FirmwareVersion, INITIALIZING, Initializing, VANISHED,
    command_interface_revision,
};
use bareverbs_firmware_cmds::numbers::{Eqn, UarIndex};
use bareverbs_firmware_cmds::pages::QueryPagesIn;
use bareverbs_firmware_cmds::register::{AccessRegisterIn, RegisterHostEndianness};
use bareverbs_firmware_cmds::status::Status;
use bareverbs_firmware_cmds::uar::{AllocUarIn, DeallocUarIn};
use bareverbs_firmware_cmds::values::{
    AccessRegister, CAPABILITY_GROUP_SIZE, CapabilityGroup, CapabilityMode, CmdifChecksum,
    QueryPages, RegisterId,
};
use bareverbs_firmware_cmds::vport::ModifyNicVportContextIn;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::device::function::FunctionKind;
use crate::device::storage::Storage;
use crate::device::{Device, PollBackoff};
use crate::firmware::command_queue::{CommandQueue, SetUpError, TailIn};
use crate::firmware::control::{Control, MAX_EQS};
use crate::firmware::eq::{self, EventQueue};
use crate::firmware::health;
use crate::firmware::pages::{PageSupply, SupplyError};
use crate::memory::blue_flame::BlueFlame;
use crate::platform::Platform;
use crate::types::config::Config;
use crate::types::error::{
    CommandError, CommandFailure, DeviceError, OpenError, OpenFailure, OpenStep,
};
use crate::types::port::LinkLayer;

/// Firmware starts slowly; between two looks at whether it has, the platform relaxes this often.
const TURNS_PER_LOOK: u32 = 16;

trait AtStep<T> {
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
        self.set_host_endianness()?;
        self.negotiate_general()?;
        self.negotiate_atomic()?;
        self.query_roce()?;
        self.supply(QueryPages::Init, OpenStep::InitPages)?;
        self.init_hca()?;
        self.query_list_terminator()?;
        self.set_driver_version()?;
        self.alloc_uar()?;
        if P::WRITE_COMBINING {
            self.alloc_blue_flame()?;
        }
        // From here on the firmware can ask for pages, which it may require for what follows.
        self.create_eqs()?;
        self.enable_roce()
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
            // Firmware from before there were several does not have the command.
            Err(error) if error.is_status(Status::BadOperation) => 1,
            Err(error) => return Err(error).at(OpenStep::Issi),
        };
        match supported {
            // It has interface 1, so the refusal had another reason.
            _ if supported & 0b10 != 0 => Err(refusal).at(OpenStep::Issi),
            _ if supported & 0b01 != 0 => Ok(()),
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
        self.with(|control| control.pages.request(id, embedded_cpu, i64::from(wanted)));
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

    fn set_host_endianness(&mut self) -> Result<(), OpenError> {
        if self.function_kind() == FunctionKind::Virtual {
            return Ok(());
        }
        let mut register = RegisterHostEndianness::ZERO;
        register.set_he(cfg!(target_endian = "big"));
        let mut write = AccessRegisterIn::new();
        write
            .set_op_mod(AccessRegister::Write.number())
            .set_register_id(RegisterId::HostEndianness.number());
        let mut answer = RegisterHostEndianness::ZERO;
        let tail = TailIn::Bytes(register.as_bytes());
        self.execute_with(&write, tail, answer.as_mut_bytes())
            .at(OpenStep::HostEndianness)
            .map(drop)
    }

    fn query_group(
        &self,
        group: CapabilityGroup,
        mode: CapabilityMode,
        image: &mut [u8],
    ) -> Result<(), OpenError> {
        let mut query = QueryHcaCapIn::new();
        query.set_op_mod(group.query(mode));
        self.execute_with(&query, TailIn::None, image)
            .at(OpenStep::Capabilities)
            .map(drop)
    }

    fn set_group(&self, group: CapabilityGroup, image: &[u8]) -> Result<(), OpenError> {
        let mut set = SetHcaCapIn::new();
        set.set_op_mod(group.set());
        self.execute_with(&set, TailIn::Bytes(image), &mut [])
            .at(OpenStep::Capabilities)
            .map(drop)
    }

    /// Reads the general capabilities and sets what this driver decides. The maxima are asked for only when there is
    /// something to raise.
    fn negotiate_general(&mut self) -> Result<(), OpenError> {
        let mut image = [0; CAPABILITY_GROUP_SIZE];
        self.query_group(
            CapabilityGroup::General,
            CapabilityMode::Current,
            &mut image,
        )?;
        let mut caps = head::<HcaCap>(&image);
        let queue_pairs = self.tables.qps.len() as u64;
        let mut verify = false;
        if self.config.command_signatures || queue_pairs > 1 << caps.log_max_qp() {
            let mut max_image = [0; CAPABILITY_GROUP_SIZE];
            self.query_group(
                CapabilityGroup::General,
                CapabilityMode::Max,
                &mut max_image,
            )?;
            let max = head::<HcaCap>(&max_image);
            verify = self.config.command_signatures
                && max.cmdif_checksum() == CmdifChecksum::Enabled.number();
            let wanted = queue_pairs.next_power_of_two().trailing_zeros() as u8;
            let reachable = wanted.min(max.log_max_qp()).max(caps.log_max_qp());
            caps.set_log_max_qp(reachable);
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
        self.set_group(CapabilityGroup::General, &image)?;
        if verify {
            self.with(|control| control.queue.verify_signatures());
        }
        // Completions name their QP by the driver's index; with version 0 they could not.
        if caps.cqe_version() == 0 {
            let what = "CQE version 1";
            return fail(OpenStep::Capabilities, OpenFailure::Unsupported { what });
        }
        if !cfg!(feature = "infiniband") && caps.port_type() == 0 {
            let what = "an Ethernet port, and InfiniBand is left out of this build";
            return fail(OpenStep::Capabilities, OpenFailure::Unsupported { what });
        }
        self.capabilities.hca = caps;
        Ok(())
    }

    /// Has the results of atomics delivered in the host's byte order, as verbs promise, where the device can.
    fn negotiate_atomic(&mut self) -> Result<(), OpenError> {
        if !self.capabilities.hca.atomic() {
            return Ok(());
        }
        let mut image = [0; CAPABILITY_GROUP_SIZE];
        self.query_group(CapabilityGroup::Atomic, CapabilityMode::Current, &mut image)?;
        let mut caps = head::<AtomicCaps>(&image);
        if caps.supported_atomic_req_8B_endianness_mode_1()
            && caps.atomic_req_8B_endianness_mode() != 1
        {
            // The only field that this group lets be set; the rest of the image must be zero.
            let mut set = [0; CAPABILITY_GROUP_SIZE];
            let mut wanted = AtomicCaps::ZERO;
            wanted.set_atomic_req_8B_endianness_mode(1);
            set[..AtomicCaps::SIZE].copy_from_slice(&wanted.0);
            self.set_group(CapabilityGroup::Atomic, &set)?;
            caps.set_atomic_req_8B_endianness_mode(1);
        }
        self.capabilities.atomic = Some(caps);
        Ok(())
    }

    fn query_roce(&mut self) -> Result<(), OpenError> {
        if !self.capabilities.hca.roce() || self.capabilities.link_layer() != LinkLayer::Ethernet {
            return Ok(());
        }
        let mut image = [0; CAPABILITY_GROUP_SIZE];
        self.query_group(CapabilityGroup::Roce, CapabilityMode::Current, &mut image)?;
        let mut caps = head::<RoceCap>(&image);
        if !caps.sw_r_roce_src_udp_port() {
            let mut max = [0; CAPABILITY_GROUP_SIZE];
            self.query_group(CapabilityGroup::Roce, CapabilityMode::Max, &mut max)?;
            // Without it the device chooses source ports itself, without regard to queue pairs and address handles.
            if head::<RoceCap>(&max).sw_r_roce_src_udp_port() {
                caps.set_sw_r_roce_src_udp_port(true);
                image[..RoceCap::SIZE].copy_from_slice(&caps.0);
                self.set_group(CapabilityGroup::Roce, &image)?;
            }
        }
        let len = usize::from(caps.roce_address_table_size());
        self.slot.gids.lock().clear(len);
        self.capabilities.roce = Some(caps);
        Ok(())
    }

    fn init_hca(&mut self) -> Result<(), OpenError> {
        let result = self.execute_no_output(&InitHcaIn::new());
        self.stage.initialized = happened(&result);
        result.at(OpenStep::InitHca)
    }

    fn query_list_terminator(&mut self) -> Result<(), OpenError> {
        if !self.capabilities.hca.terminate_scatter_list_mkey() {
            return Ok(());
        }
        let keys = self
            .query_special_contexts()
            .at(OpenStep::SpecialContexts)?;
        self.list_terminator = keys.terminate_scatter_list_mkey();
        Ok(())
    }

    fn set_driver_version(&mut self) -> Result<(), OpenError> {
        let version = self.config.driver_version.as_bytes();
        if !self.capabilities.hca.driver_version() || version.is_empty() {
            return Ok(());
        }
        let mut set = SetDriverVersionIn::new();
        // The last byte stays zero: it ends the string.
        let field = &mut set.driver_version_mut()[..63];
        let len = version.len().min(field.len());
        field[..len].copy_from_slice(&version[..len]);
        self.execute_no_output(&set).at(OpenStep::DriverVersion)
    }

    fn enable_roce(&mut self) -> Result<(), OpenError> {
        if self.capabilities.roce.is_none() {
            return Ok(());
        }
        let mut modify = ModifyNicVportContextIn::new();
        modify.field_select_mut().set_roce_en(true);
        modify.nic_vport_context_mut().set_roce_en(true);
        self.execute_no_output(&modify).at(OpenStep::EnableRoce)
    }

    fn alloc_uar(&mut self) -> Result<(), OpenError> {
        let step = OpenStep::AllocUar;
        let answer = self.execute(&AllocUarIn::new()).at(step)?;
        self.uar = UarIndex::from_low_bits(answer.uar());
        self.stage.uar = true;
        self.check_uar(self.uar)
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

    /// A second page, write-combining, if the device has BlueFlame registers. The first page stays uncached, and the
    /// device would mix up their doorbells if they were the same.
    fn alloc_blue_flame(&mut self) -> Result<(), OpenError> {
        let caps = &self.capabilities.hca;
        let log_size = caps.log_bf_reg_size();
        if !caps.bf() || !BlueFlame::fits(log_size) {
            return Ok(());
        }
        let step = OpenStep::AllocUar;
        let answer = self.execute(&AllocUarIn::new()).at(step)?;
        let uar = UarIndex::from_low_bits(answer.uar());
        self.check_uar(uar)?;
        if uar == self.uar {
            let (field, value) = ("uar", u64::from(uar.number()));
            return fail(step, OpenFailure::Value { field, value });
        }
        if self.platform.set_write_combining(uar.bar_offset(), true) {
            self.blue_flame = BlueFlame::new(uar, log_size);
            return Ok(());
        }
        log::warn!("the platform has no write-combining page: doorbells instead of BlueFlame");
        let mut dealloc = DeallocUarIn::new();
        dealloc.set_uar(uar.number());
        self.execute(&dealloc).at(step).map(drop)
    }

    /// The first event queue takes everything, completions included if there are no others.
    fn create_eqs(&mut self) -> Result<(), OpenError> {
        let completions = match usize::from(self.config.completion_event_queues) {
            wanted if self.config.interrupts && self.platform.interrupt_vectors() > 0 => {
                wanted.min(usize::from(self.platform.interrupt_vectors() - 1))
            }
            wanted => wanted,
        };
        let limit = (self.capabilities.max_eq() as usize).min(MAX_EQS);
        let completions = completions.min(limit.saturating_sub(1)) as u16;
        // What there is, for those who ask which vector is whose.
        self.config.completion_event_queues = completions;
        let cqs = self.tables.cqs.len() as u32;
        // Every CQ can have one completion event and one error event in a queue.
        let entries = self
            .config
            .event_queue_entries
            .max(cqs.saturating_mul(2).saturating_add(eq::RESERVE));
        let limit = self.capabilities.hca.log_max_eq_sz().clamp(8, 24);
        let log_size = (entries
            .checked_next_power_of_two()
            .map_or(31, u32::trailing_zeros) as u8)
            .min(limit);
        let events = if self.config.interrupts && self.platform.interrupt_vectors() > 0 {
            eq::EVENT_MASK
        } else {
            // A caller that polls looks at the slots anyway, and would only read past the events.
            eq::EVENT_MASK & !EventType::Command.mask()
        };
        let events = if self.capabilities.hca.page_request_disable() {
            events & !EventType::PageRequest.mask()
        } else {
            events
        };
        self.create_eq(log_size, 0, events)?;
        if completions == 0 {
            let eqn = self
                .with(|control| control.eqs.first().map(EventQueue::eqn))
                .flatten();
            self.completion_eqs.extend(eqn);
        }
        for vector in 1..=completions {
            let eqn = self.create_eq(log_size, vector, 0)?;
            self.completion_eqs.extend(Some(eqn));
        }
        Ok(())
    }

    fn create_eq(&mut self, log_size: u8, vector: u16, mask: u64) -> Result<Eqn, OpenError> {
        let step = OpenStep::CreateEq;
        let interrupts = self.config.interrupts && self.platform.interrupt_vectors() > 0;
        let vector = if interrupts { vector } else { 0 };
        let mut eq = EventQueue::new(&self.platform, log_size, self.uar, vector, interrupts)
            .map_err(|error| {
                let failure = OpenFailure::Memory(error);
                OpenError { step, failure }
            })?;
        let mut create = CreateEqIn::new();
        eq.describe(create.eq_context_entry_mut());
        create.event_bitmask_mut()[..8].copy_from_slice(&mask.to_be_bytes());
        let mut page = |index| eq.page_iova(index);
        let tail = TailIn::Qwords(eq.pages(), &mut page);
        let result = self.execute_with(&create, tail, &mut []);
        match result {
            Ok(answer) => {
                let eqn = Eqn(answer.eq_number());
                eq.created(&self.platform, eqn);
                self.with(|control| {
                    if let Err(eq) = control.eqs.push(eq) {
                        control.quarantine(eq.into_memory());
                    }
                });
                Ok(eqn)
            }
            Err(error) => {
                let memory = eq.into_memory();
                if error.may_still_happen() {
                    self.quarantine(memory);
                } else {
                    memory.free(&self.platform);
                }
                Err(error).at(step)
            }
        }
    }
}

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
    let control = Control::new(platform, queue, PageSupply::new(storage.page_chunks));
    *storage.device.control.lock() = Some(control);
    Ok(())
}

/// Whether a command was carried out, or may have been.
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
