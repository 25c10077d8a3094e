//! The fake platform's firmware: it follows a script, and otherwise answers the commands of bring-up.

use std::time::Duration;

use bareverbs_firmware_cmds::caps::HcaCap;
use bareverbs_firmware_cmds::cmdq::{
    BLOCK_DATA_SIZE, CommandQueueEntry, INLINE_SIZE, MailboxBlock, blocks_needed,
};
use bareverbs_firmware_cmds::eq::{CreateEqIn, Eqe};
use bareverbs_firmware_cmds::event::{EQE_SIZE, Event, owner_of_pass};
use bareverbs_firmware_cmds::init_segment as registers;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::{DeliveryStatus, Status};
use bareverbs_firmware_cmds::values::CapabilityGroup;
use zerocopy::FromBytes;

use super::Inner;

/// A command as it reached the firmware.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    pub(crate) slot: u8,
    pub(crate) opcode: u16,
    pub(crate) op_mod: u16,
    pub(crate) input: Vec<u8>,
    pub(crate) output_len: usize,
    pub(crate) token: u8,
    pub(crate) at: Duration,
    entry_iova: u64,
}

impl Posted {
    pub(crate) fn is(&self, opcode: Opcode) -> bool {
        self.opcode == opcode.number()
    }

    pub(crate) fn dword(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.input[at..at + 4].try_into().unwrap())
    }
}

/// The firmware's answer to a command.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// Its usual answer.
    Normal,
    /// Answers with this (status OK).
    Answer(Vec<u8>),
    /// Refuses.
    Fail(Status, u32),
    /// Does not deliver.
    Delivery(DeliveryStatus),
    /// Never answers.
    Drop,
    /// Does it later.
    After(Duration, Box<Action>),
    /// Does it normally, but answers with a wrong token in the entry.
    BadToken,
    /// Does it normally, but with a wrong signature of the entry.
    BadEntrySignature,
    /// Does it normally, but with a wrong signature of the last output block.
    BadBlockSignature,
    /// Leaves the bus instead of answering.
    Vanish,
}

pub(super) type Script = Box<dyn FnMut(&Posted) -> Action + Send>;

/// An event queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Eq {
    ring: u64,
    log_size: u8,
    producer: u32,
}

impl Inner {
    fn queue_iova(&self) -> u64 {
        let high = self
            .registers
            .get(&registers::CMDQ_ADDR_H)
            .copied()
            .unwrap_or(0);
        let low = self
            .registers
            .get(&registers::CMDQ_ADDR_L_SZ)
            .copied()
            .unwrap_or(0);
        u64::from(high) << 32 | u64::from(low & 0xffff_f000)
    }

    /// Takes a command from its slot.
    pub(super) fn take(&mut self, slot: u8) {
        let entry_iova = self.queue_iova() + u64::from(slot) * 64;
        let entry = CommandQueueEntry::read_from_bytes(&self.dma_read(entry_iova, 64)).unwrap();
        assert!(
            entry.ownership(),
            "doorbell for slot {slot}, which the host owns"
        );
        assert!(entry.signature_is_valid(), "wrong signature of the entry");
        assert_eq!(entry.r#type(), 7);
        assert_ne!(entry.token(), 0);
        let len = entry.input_length() as usize;
        let mut input = entry.command_input_inline_data().to_vec();
        let mut block_iova = entry.input_mailbox();
        for number in 0..blocks_needed(len) {
            assert_eq!(block_iova % 1024, 0, "misaligned block");
            let block = MailboxBlock::read_from_bytes(&self.dma_read(block_iova, 576)).unwrap();
            // Disabled by the driver, they are not looked at.
            let checked = self.hca.cmdif_checksum() != 0 && !self.lies;
            assert!(
                !checked || block.signatures_are_valid(),
                "wrong signature of input block {number}"
            );
            assert_eq!(block.block_number() as usize, number);
            assert_eq!(
                block.token(),
                entry.token(),
                "wrong token in block {number}"
            );
            input.extend_from_slice(block.mailbox_data());
            block_iova = block.next_block();
        }
        assert_eq!(block_iova, 0, "the chain goes on behind the message");
        input.truncate(len);
        let posted = Posted {
            slot,
            opcode: u16::from_be_bytes([input[0], input[1]]),
            op_mod: u16::from_be_bytes([input[6], input[7]]),
            output_len: entry.output_length() as usize,
            token: entry.token(),
            at: self.now,
            input,
            entry_iova,
        };
        self.history.push(posted.clone());
        let action = match &mut self.script {
            Some(script) => script(&posted),
            None => Action::Normal,
        };
        self.due.push_back((self.now, posted, action));
    }

    /// Executes the commands that are due.
    pub(super) fn run(&mut self) {
        if self.alive {
            let counter = self.registers.entry(registers::HEALTH_COUNTER).or_default();
            *counter = counter.wrapping_add(1) & 0xff_ffff;
        }
        for _ in 0..self.due.len() {
            let Some((at, posted, action)) = self.due.pop_front() else {
                return;
            };
            match action {
                Action::Drop => {}
                Action::Vanish => self.gone = true,
                Action::After(delay, then) => {
                    self.due.push_back((at + delay, posted, *then));
                }
                _ if at > self.now => self.due.push_back((at, posted, action)),
                action => self.perform(&posted, &action),
            }
        }
    }

    fn perform(&mut self, posted: &Posted, action: &Action) {
        let mut entry =
            CommandQueueEntry::read_from_bytes(&self.dma_read(posted.entry_iova, 64)).unwrap();
        if let Action::Delivery(status) = action {
            entry.set_status(status.number()).set_ownership(false);
            self.dma_write(posted.entry_iova, &entry.0);
            return;
        }
        let mut output = match action {
            Action::Answer(output) => output.clone(),
            Action::Fail(status, syndrome) => {
                let mut output = vec![0; 16];
                output[0] = status.number();
                output[4..8].copy_from_slice(&syndrome.to_be_bytes());
                output
            }
            _ => self.answer(posted),
        };
        output.resize(posted.output_len, 0);
        let mut block_iova = entry.output_mailbox();
        let blocks = blocks_needed(posted.output_len);
        for number in 0..blocks {
            let mut block = MailboxBlock::read_from_bytes(&self.dma_read(block_iova, 576)).unwrap();
            assert_eq!(
                block.token(),
                posted.token,
                "wrong token in output block {number}"
            );
            let at = INLINE_SIZE + number * BLOCK_DATA_SIZE;
            let part = &output[at..output.len().min(at + BLOCK_DATA_SIZE)];
            block.mailbox_data_mut()[..part.len()].copy_from_slice(part);
            if self.signing {
                block.sign();
            }
            if matches!(action, Action::BadBlockSignature) && number + 1 == blocks {
                block.0[0x23f] ^= 0x40;
            }
            self.dma_write(block_iova, &block.0);
            block_iova = block.next_block();
        }
        entry
            .command_output_inline_data_mut()
            .copy_from_slice(&output[..16]);
        entry.set_status(0).set_ownership(false);
        if matches!(action, Action::BadToken) {
            entry.set_token(posted.token ^ 0x55);
        }
        if self.signing {
            // As a card does it: with the ownership bit as it was.
            entry.set_ownership(true).sign().set_ownership(false);
        }
        if matches!(action, Action::BadEntrySignature) {
            entry.set_signature(entry.signature() ^ 2);
        }
        self.dma_write(posted.entry_iova, &entry.0[..63]);
        self.dma_write(posted.entry_iova + 63, &entry.0[63..]);
        if !self.eqs.is_empty() && posted.opcode != Opcode::CreateEq.number() {
            self.event(Event::Command {
                slots: 1 << posted.slot,
            });
        }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.raw_event(event.to_eqe());
    }

    /// An event queue entry of any content; only its owner bit is made right.
    pub(crate) fn raw_event(&mut self, mut entry: Eqe) {
        let Some(mut eq) = self.eqs.first().copied() else {
            return;
        };
        entry.set_owner(owner_of_pass(eq.producer, eq.log_size) != 0);
        let index = u64::from(eq.producer & ((1 << eq.log_size) - 1));
        let iova = eq.ring + index * EQE_SIZE as u64;
        self.dma_write(iova, &entry.0[..63]);
        self.dma_write(iova + 63, &entry.0[63..]);
        eq.producer = eq.producer.wrapping_add(1);
        self.eqs[0] = eq;
    }

    fn answer(&mut self, posted: &Posted) -> Vec<u8> {
        let mut output = vec![0; posted.output_len.max(16)];
        let Some(opcode) = Opcode::from_number(posted.opcode) else {
            output[0] = Status::BadOperation.number();
            return output;
        };
        match opcode {
            Opcode::SetIssi if self.issi & 0b10 == 0 => {
                output[0] = Status::BadParameter.number();
            }
            Opcode::QueryIssi => output[0x6c..0x70].copy_from_slice(&self.issi.to_be_bytes()),
            Opcode::QueryPages => {
                let pages = if posted.op_mod == 1 {
                    self.boot_pages
                } else {
                    self.init_pages
                };
                output[12..16].copy_from_slice(&pages.to_be_bytes());
            }
            Opcode::ManagePages => self.manage_pages(posted, &mut output),
            Opcode::QueryHcaCap => {
                let max = posted.op_mod & 1 == 0;
                let group = CapabilityGroup::from_number(posted.op_mod >> 1);
                let image = match group {
                    Some(CapabilityGroup::General) if max => &self.hca_max.0,
                    Some(CapabilityGroup::General) => &self.hca.0,
                    Some(CapabilityGroup::Roce) => &self.roce.0,
                    Some(CapabilityGroup::Atomic) => &self.atomic.0,
                    _ => panic!("no group {group:?}"),
                };
                output[16..16 + 256].copy_from_slice(image);
            }
            Opcode::SetHcaCap if posted.op_mod == 0 => {
                let image: [u8; 256] = posted.input[16..16 + 256].try_into().unwrap();
                self.hca = HcaCap(image);
                self.signing = self.hca.cmdif_checksum() == 3;
            }
            Opcode::AllocUar => output[8..12].copy_from_slice(&self.uar.to_be_bytes()),
            Opcode::CreateEq => {
                let (create, pages) = CreateEqIn::read_from_prefix(&posted.input).unwrap();
                let context = create.eq_context_entry();
                assert_eq!(
                    pages.len() / 8,
                    (64usize << context.log_eq_size()).div_ceil(4096)
                );
                self.eqs.push(Eq {
                    ring: u64::from_be_bytes(pages[..8].try_into().unwrap()),
                    log_size: context.log_eq_size(),
                    producer: 0,
                });
                output[11] = self.eqs.len() as u8;
            }
            Opcode::DestroyEq => {
                self.eqs.pop();
            }
            Opcode::AccessRegister => output[16..].copy_from_slice(&posted.input[16..]),
            _ => {}
        }
        output
    }

    /// A function is gone, and with it what the firmware knew of its pages.
    pub(crate) fn release_function(&mut self, function_id: u16) {
        let function = u32::from(function_id);
        let gone = |owner: &u32| *owner == function;
        self.pages
            .retain(|page| !self.page_owners.get(page).is_some_and(gone));
        self.page_owners.retain(|_, owner| !gone(owner));
        self.event(Event::PageRequest {
            function_id,
            embedded_cpu: false,
            release_all: true,
            pages: 0,
        });
    }

    fn manage_pages(&mut self, posted: &Posted, output: &mut [u8]) {
        let function = posted.dword(8);
        if posted.op_mod == 2
            && function != 0
            && !self.page_owners.values().any(|&owner| owner == function)
        {
            output[0] = Status::BadParameter.number();
            return;
        }
        match posted.op_mod {
            1 => {
                let count = posted.dword(12) as usize;
                assert_eq!(posted.input.len(), 16 + count * 8);
                for address in posted.input[16..].chunks(8) {
                    let iova = u64::from_be_bytes(address.try_into().unwrap());
                    assert_eq!(iova % 4096, 0);
                    assert!(self.pages.insert(iova), "page {iova:#x} given twice");
                    if function != 0 {
                        self.page_owners.insert(iova, function);
                    }
                    self.dma_write(iova, &[0xee; 4096]);
                }
            }
            2 => {
                let wanted = posted.dword(12) as usize;
                let mut returned: Vec<u64> = Vec::new();
                if !self.keep_pages {
                    returned.append(&mut self.foreign_pages);
                    let owned =
                        |page: &u64| self.page_owners.get(page).copied().unwrap_or(0) == function;
                    let own: Vec<u64> = self.pages.iter().copied().filter(owned).collect();
                    for page in own.into_iter().take(wanted.saturating_sub(returned.len())) {
                        self.pages.remove(&page);
                        self.page_owners.remove(&page);
                        returned.push(page);
                    }
                }
                output[8..12].copy_from_slice(&(returned.len() as u32).to_be_bytes());
                for (slot, page) in output[16..].chunks_mut(8).zip(&returned) {
                    slot.copy_from_slice(&page.to_be_bytes());
                }
            }
            _ => {}
        }
    }
}
