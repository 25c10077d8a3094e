//! The command queue at work: delivery, execution, completion in either mode.

mod log_command;

use super::mailbox::{self, Delivery};
use super::slots::Slot;
use crate::bus::io::Io;
use crate::device::Device;
use crate::fault::CommandFault;
use crate::objects::eq::event;
use crate::replay::{Verdict, overlay};
use crate::syndrome::{Reject, Syndrome};
use bareverbs_firmware_cmds::cmdq::xor;
use bareverbs_firmware_cmds::dump::opcode_name;

const ENTRY: usize = 64;
/// `type`: the entry and its mailboxes are in the host's memory.
const TRANSPORT_PCI: u8 = 7;

/// The end of one execution of a slot.
enum Outcome {
    Answered { event: bool },
    Later(Slot),
}

impl Device {
    /// Executes every command that is due; the last slot, the one for pages, goes first.
    pub(crate) fn run_commands(&mut self, io: &mut Io<'_>) {
        let time = self.config.command_time;
        let mut limit = self.cmdq.slots.len();
        while let Some((number, at)) = self.cmdq.pending_below(limit) {
            limit = number;
            // A firmware that stopped answers nothing any more; the driver sees why in the health buffer.
            if !self.health.well() {
                return;
            }
            if at + time <= self.now {
                self.run_slot(io, number);
            }
        }
    }

    /// The host cannot give pages: commands that wait for them fail.
    pub(crate) fn starve_commands(&mut self, io: &mut Io<'_>) {
        for number in 0..self.cmdq.slots.len() {
            if self.cmdq.slots[number] != Slot::NeedsPages {
                continue;
            }
            let at = self.entry_address(number);
            let mut entry = [0; ENTRY];
            if io.read(at, &mut entry).is_err() {
                continue;
            }
            let outlen = be32(&entry, 0x38) as usize;
            let mut output = vec![0; outlen.min(16)];
            answer(&mut output, &Reject::from(Syndrome::NoContextMemory));
            self.stats.commands += 1;
            self.stats.commands_failed += 1;
            self.cmdq.delayed &= !(1 << number);
            let outcome = self.finish(io, number, &mut entry, &output, outlen, true);
            self.cmdq.set(number, outcome);
        }
    }

    fn entry_address(&self, slot: usize) -> u64 {
        self.cmdq
            .address
            .wrapping_add((slot as u64) << self.config.log_cmdq_stride)
    }

    fn run_slot(&mut self, io: &mut Io<'_>, number: usize) {
        let at = self.entry_address(number);
        let mut entry = [0; ENTRY];
        if io.read(at, &mut entry).is_err() {
            // An entry that cannot be read cannot be answered either.
            self.cmdq.set(number, Slot::Lost);
            return;
        }
        if entry[0x3f] & 1 == 0 {
            log::warn!("command slot {number} rung, but the entry is not the device's");
            self.cmdq.set(number, Slot::Idle);
            return;
        }
        let mut input = std::mem::take(&mut self.cmdq.input);
        let mut output = std::mem::take(&mut self.cmdq.output);
        let outcome = self.run_entry(io, number, &mut entry, &mut input, &mut output);
        self.cmdq.input = input;
        self.cmdq.output = output;
        let slot = match outcome {
            // A command may have reset the queue under itself; then its slot is free already.
            Outcome::Answered { event } => {
                if event {
                    self.command_event(io, number);
                }
                Slot::Idle
            }
            Outcome::Later(slot) => slot,
        };
        self.cmdq.set(number, slot);
    }

    fn run_entry(
        &mut self,
        io: &mut Io<'_>,
        number: usize,
        entry: &mut [u8; ENTRY],
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Outcome {
        let event = self.eq_for(event::CMD).is_some();
        let checked = self.caps.general.cmdif_checksum() != 0;
        let outlen = be32(entry, 0x38) as usize;
        let fetched = if entry[0] != TRANSPORT_PCI {
            Err(Delivery::BadType)
        } else if checked && xor(entry) != 0xff {
            Err(Delivery::Signature)
        } else if !(8..=mailbox::LONGEST).contains(&outlen) {
            Err(Delivery::OutputLength)
        } else {
            mailbox::check_output(io, entry, outlen)
                .and_then(|()| mailbox::fetch(io, entry, checked, input))
        };
        if let Err(delivery) = fetched {
            return self.refuse(io, number, entry, delivery as u8, event);
        }
        let opcode = u16::from_be_bytes([input[0], input[1]]);
        let op_mod = u16::from_be_bytes([input[6], input[7]]);
        let bit = 1 << number;
        let fault = if self.cmdq.delayed & bit != 0 {
            self.cmdq.delayed &= !bit;
            None
        } else {
            self.faults.strike(opcode, op_mod)
        };
        if let Some(fault) = fault {
            log::info!("command {}: {fault:?}", opcode_name(opcode));
        }
        output.clear();
        output.resize(outlen, 0);
        match fault {
            Some(CommandFault::Delay(time)) => {
                self.cmdq.delayed |= bit;
                return Outcome::Later(Slot::Pending(self.now + time));
            }
            Some(CommandFault::Drop) => return Outcome::Later(Slot::Lost),
            Some(CommandFault::Health(syndrome)) => {
                self.health.fail(syndrome, 0);
                return Outcome::Later(Slot::Lost);
            }
            Some(CommandFault::Vanish) => {
                log::error!("the card falls off the bus");
                self.health.vanished = true;
                return Outcome::Later(Slot::Lost);
            }
            Some(CommandFault::Delivery(status)) => {
                return self.refuse(io, number, entry, status, event);
            }
            Some(CommandFault::Fail { status, syndrome }) => {
                let status = status as u8;
                answer(output, &Reject::Answer { status, syndrome });
            }
            _ => {
                let replay = self.replay.as_mut();
                let recorded = match replay.and_then(|replay| replay.next(opcode, input)) {
                    Some(Verdict::Lost) => return Outcome::Later(Slot::Lost),
                    Some(Verdict::Undelivered(status)) => {
                        return self.refuse(io, number, entry, status, event);
                    }
                    Some(Verdict::Refuse(card)) => Some((card, false)),
                    Some(Verdict::Execute(card)) => Some((card, true)),
                    None => None,
                };
                let executes = recorded.as_ref().is_none_or(|&(_, executes)| executes);
                if executes
                    && let Some(pages) = self.execute_apart(io, input, output)
                    && self.ask_for_pages(io, pages)
                {
                    if let (Some(replay), Some((card, _))) = (&mut self.replay, recorded) {
                        replay.put_back(opcode, input, card);
                    }
                    self.cmdq.delayed |= bit;
                    return Outcome::Later(Slot::NeedsPages);
                }
                if let Some((card, executed)) = recorded {
                    overlay(opcode, &card, executed, output);
                }
            }
        }
        self.stats.commands += 1;
        if output[0] != 0 {
            self.stats.commands_failed += 1;
        }
        log_command::log_command(opcode, op_mod, input, output);
        match fault {
            Some(CommandFault::DropAnswer) => return Outcome::Later(Slot::Lost),
            Some(CommandFault::Corrupt { at, with }) => {
                if let Some(byte) = output.get_mut(at) {
                    *byte ^= with;
                }
            }
            Some(CommandFault::Half) => output.truncate(output.len() / 8 * 4),
            _ => {}
        }
        // The queue's own event queue is made by a command that is still polled, and gone with the one that destroys it.
        let event =
            event && self.eq_for(event::CMD).is_some() && fault != Some(CommandFault::LoseEvent);
        match self.finish(io, number, entry, output, outlen, false) {
            Slot::Idle => Outcome::Answered { event },
            slot => Outcome::Later(slot),
        }
    }

    /// Executes a command and writes its answer. Returns the number of pages that it needs first, if any; the answer is then a
    /// refusal.
    pub(crate) fn execute_apart(
        &mut self,
        io: &mut Io<'_>,
        input: &[u8],
        output: &mut [u8],
    ) -> Option<u32> {
        let opcode = u16::from_be_bytes([input[0], input[1]]);
        let reject = self.execute(io, opcode, input, output).err()?;
        output.fill(0);
        match reject {
            Reject::NeedPages(pages) => {
                answer(output, &Reject::from(Syndrome::NoContextMemory));
                Some(pages)
            }
            reject => {
                answer(output, &reject);
                None
            }
        }
    }

    /// Sends an entry back unexecuted.
    fn refuse(
        &mut self,
        io: &mut Io<'_>,
        number: usize,
        entry: &mut [u8; ENTRY],
        delivery: u8,
        event: bool,
    ) -> Outcome {
        log::debug!("command slot {number}: delivery status {delivery:#x}");
        self.stats.commands += 1;
        self.stats.commands_failed += 1;
        entry[0x3f] = delivery << 1;
        self.sign(entry);
        match io.write(self.entry_address(number) + 0x3c, &entry[0x3c..]) {
            Ok(()) => Outcome::Answered { event },
            Err(_) => Outcome::Later(Slot::Lost),
        }
    }

    /// Writes the answer, ownership last.
    fn finish(
        &mut self,
        io: &mut Io<'_>,
        number: usize,
        entry: &mut [u8; ENTRY],
        output: &[u8],
        outlen: usize,
        event: bool,
    ) -> Slot {
        let inline = output.len().min(16);
        entry[0x20..0x30].fill(0);
        entry[0x20..0x20 + inline].copy_from_slice(&output[..inline]);
        let mut status = 0;
        if output.len() > 16
            && let Err(delivery) = mailbox::store(io, entry, &output[16..outlen.min(output.len())])
        {
            status = delivery as u8;
        }
        entry[0x3f] = status << 1;
        self.sign(entry);
        let at = self.entry_address(number);
        let written = io
            .write(at + 0x20, &entry[0x20..0x30])
            .and_then(|()| io.write(at + 0x3c, &entry[0x3c..]));
        if written.is_err() {
            return Slot::Lost;
        }
        if event {
            self.command_event(io, number);
        }
        Slot::Idle
    }

    /// The entry's signature makes the exclusive-or of all its bytes 0xff, always filled in: with the ownership bit as it was
    /// before the answer, as the log of a card shows it (`a_real_devices_signatures`).
    fn sign(&self, entry: &mut [u8; ENTRY]) {
        let owned = u8::from(!self.config.quirks.signs_what_lies_there);
        entry[0x3d] = 0;
        entry[0x3d] = !xor(entry) ^ owned;
    }

    fn command_event(&mut self, io: &mut Io<'_>, number: usize) {
        let mut data = [0; 28];
        data[..4].copy_from_slice(&(1u32 << number).to_be_bytes());
        self.event(io, event::CMD, 0, &data);
    }

    /// Asks the host for pages by event. Returns `false` if there is no way to ask.
    fn ask_for_pages(&mut self, io: &mut Io<'_>, pages: u32) -> bool {
        if self.config.page_chunk == 0 || self.eq_for(event::PAGE_REQUEST).is_none() {
            return false;
        }
        if self.pages.asked <= 0 {
            let wanted = pages.max(self.config.page_chunk).min(i32::MAX as u32) as i32;
            self.pages.asked = wanted;
            self.page_event(io, wanted);
        }
        true
    }

    pub(crate) fn page_event(&mut self, io: &mut Io<'_>, pages: i32) {
        log::debug!("the firmware asks for {pages} pages");
        self.function_event(io, (self.config.embedded_cpu, 0), pages, false);
    }

    /// An event about the pages of a function.
    fn function_event(
        &mut self,
        io: &mut Io<'_>,
        (embedded_cpu, id): (bool, u16),
        pages: i32,
        release_all: bool,
    ) {
        let mut request = bareverbs_firmware_cmds::pages::PagesReqEvent::ZERO;
        request.set_function_id(id).set_num_pages(pages as u32);
        if embedded_cpu {
            request.0[0] |= PAGES_OF_EMBEDDED_CPU;
        }
        if release_all {
            request.0[0] |= RELEASE_ALL_PAGES;
        }
        self.event(io, event::PAGE_REQUEST, 0, &request.0);
    }

    /// Another function comes up, and the firmware asks this one's driver for its pages.
    pub(crate) fn function_comes(&mut self, io: &mut Io<'_>, function: (bool, u16), pages: u32) {
        self.pages.others.entry(function).or_default();
        self.function_event(io, function, pages.min(i32::MAX as u32) as i32, false);
    }

    /// The other function goes away. The firmware forgets its pages and says so, or asks this one's driver to take them back.
    pub(crate) fn function_goes(
        &mut self,
        io: &mut Io<'_>,
        function: (bool, u16),
        release_all: bool,
    ) {
        let pages = if release_all {
            self.pages.others.remove(&function);
            0
        } else {
            let pages = self.pages.others.get(&function);
            -(pages.map_or(0, |pages| pages.len()) as i32)
        };
        self.function_event(io, function, pages, release_all);
    }
}

/// In the first byte of a page request, which `mlx5_ifc` does not name: the pages are for the function of the embedded cores
/// (`EC_FUNCTION_MASK` of Linux).
const PAGES_OF_EMBEDDED_CPU: u8 = 0x80;
/// In the same byte: the function is gone, and the firmware knows none of its pages any more (`RELEASE_ALL_PAGES_MASK` of
/// Linux).
const RELEASE_ALL_PAGES: u8 = 0x40;

/// Puts status and syndrome into an answer.
fn answer(output: &mut [u8], reject: &Reject) {
    if let (Reject::Answer { status, syndrome }, Some(head)) = (reject, output.get_mut(..8)) {
        head[0] = *status;
        head[4..].copy_from_slice(&syndrome.to_be_bytes());
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
