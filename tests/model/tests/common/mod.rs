//! A driver of nothing but raw bytes, to test the model against what the card's interface says, not against what our
//! driver does with it.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file is a crate and uses its part"
)]

pub mod queues;

use bareverbs_firmware_cmds::caps::{HcaCap, QueryHcaCapIn, SetHcaCapIn};
use bareverbs_firmware_cmds::command::Command;
use bareverbs_firmware_cmds::eq::CreateEqIn;
use bareverbs_firmware_cmds::hca::{
    DisableHcaIn, EnableHcaIn, InitHcaIn, QueryIssiIn, SetIssiIn, TeardownHcaIn,
};
use bareverbs_firmware_cmds::pages::{ManagePagesIn, QueryPagesIn};
use bareverbs_firmware_cmds::uar::AllocUarIn;
use connectx_model::{Config, Host, IommuFault, Model};
use std::time::Duration;
use zerocopy::FromBytes;

/// Where the host's memory appears to the device: nowhere near zero, so that nothing works by accident.
pub const BASE: u64 = 0x7_4000_0000;

/// The host: one piece of memory, and records of what came out.
pub struct TestHost {
    pub memory: Vec<u8>,
    next: usize,
    pub interrupts: Vec<u16>,
    pub frames: Vec<Vec<u8>>,
    pub faults: Vec<IommuFault>,
    /// Addresses that the device does not reach.
    pub unmapped: std::ops::Range<u64>,
}

impl TestHost {
    pub fn new(size: usize) -> Self {
        Self {
            memory: vec![0; size],
            next: 0,
            interrupts: Vec::new(),
            frames: Vec::new(),
            faults: Vec::new(),
            unmapped: 0..0,
        }
    }

    /// Zeroed memory, as a device address.
    pub fn alloc(&mut self, len: usize, align: usize) -> u64 {
        let at = self.next.next_multiple_of(align);
        self.next = at + len;
        assert!(self.next <= self.memory.len(), "test memory exhausted");
        BASE + at as u64
    }

    fn range(
        &mut self,
        iova: u64,
        len: usize,
        write: bool,
    ) -> Result<std::ops::Range<usize>, IommuFault> {
        let at = iova
            .checked_sub(BASE)
            .and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| Some(at..at.checked_add(len)?)) {
            Some(range) if range.end <= self.memory.len() && !self.unmapped.contains(&iova) => {
                Ok(range)
            }
            _ => {
                let fault = IommuFault { iova, len, write };
                self.faults.push(fault);
                Err(fault)
            }
        }
    }

    pub fn bytes(&mut self, iova: u64, len: usize) -> &mut [u8] {
        let range = self
            .range(iova, len, false)
            .expect("the test's own address");
        &mut self.memory[range]
    }

    pub fn put(&mut self, iova: u64, data: &[u8]) {
        self.bytes(iova, data.len()).copy_from_slice(data);
    }

    pub fn put32(&mut self, iova: u64, value: u32) {
        self.put(iova, &value.to_be_bytes());
    }

    pub fn get32(&mut self, iova: u64) -> u32 {
        u32::from_be_bytes(self.bytes(iova, 4).try_into().unwrap())
    }

    pub fn put64(&mut self, iova: u64, value: u64) {
        self.put(iova, &value.to_be_bytes());
    }
}

impl Host for TestHost {
    fn dma_read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault> {
        let range = self.range(iova, data.len(), false)?;
        data.copy_from_slice(&self.memory[range]);
        Ok(())
    }

    fn dma_write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault> {
        let range = self.range(iova, data.len(), true)?;
        self.memory[range].copy_from_slice(data);
        Ok(())
    }

    fn interrupt(&mut self, vector: u16) {
        self.interrupts.push(vector);
    }

    fn transmit(&mut self, frame: &[u8]) {
        self.frames.push(frame.to_vec());
    }
}

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Status and syndrome of the answer.
    Status(u8, u32),
    /// Delivery status of the entry.
    Delivery(u8),
    /// No answer.
    Silence,
}

/// An event queue of the test.
pub struct Events {
    pub number: u32,
    pub ring: u64,
    pub log_size: u8,
    pub consumer: u32,
}

/// A card and its driver.
pub struct Node {
    pub model: Model,
    pub host: TestHost,
    pub now: Duration,
    pub queue: u64,
    pub uar: u32,
    pub events: Vec<Events>,
    token: u8,
    input: u64,
    output: u64,
    /// Blocks per direction.
    blocks: usize,
    pub given: Vec<u64>,
}

const BLOCK: u64 = 1024;

impl Node {
    /// A card at power-on with the command queue programmed.
    pub fn new(config: Config) -> Self {
        let blocks = 600;
        let mut host = TestHost::new(24 << 20);
        let queue = host.alloc(4096, 4096);
        let input = host.alloc(blocks * BLOCK as usize, 4096);
        let output = host.alloc(blocks * BLOCK as usize, 4096);
        let mut node = Self {
            model: Model::new(config),
            host,
            now: Duration::ZERO,
            queue,
            uar: 0,
            events: Vec::new(),
            token: 0,
            input,
            output,
            blocks,
            given: Vec::new(),
        };
        node.model.config_write(&mut node.host, 4, &[0x06, 0x00]);
        node.program_queue();
        node
    }

    pub fn program_queue(&mut self) {
        self.sleep(Duration::from_millis(2));
        assert_eq!(self.read32(0x1fc) >> 31, 0, "still initializing");
        self.write32(0x10, (self.queue >> 32) as u32);
        self.write32(0x14, self.queue as u32);
    }

    pub fn sleep(&mut self, time: Duration) {
        self.now += time;
        self.advance();
    }

    pub fn advance(&mut self) {
        self.model.advance(&mut self.host, self.now);
    }

    pub fn read32(&mut self, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.model.bar_read(&mut self.host, offset, &mut word);
        u32::from_be_bytes(word)
    }

    pub fn write32(&mut self, offset: u64, value: u32) {
        self.model
            .bar_write(&mut self.host, offset, &value.to_be_bytes());
    }

    pub fn write64(&mut self, offset: u64, value: u64) {
        self.model
            .bar_write(&mut self.host, offset, &value.to_be_bytes());
    }

    /// Lays a command out in a slot, without ringing.
    pub fn post(&mut self, slot: u32, input: &[u8], outlen: usize) -> u64 {
        self.token = self.token.wrapping_add(1).max(1);
        let (token, blocks) = (self.token, self.blocks);
        let chain = |host: &mut TestHost, at: u64, data: &[u8], len: usize| -> u64 {
            let count = len.saturating_sub(16).div_ceil(512);
            assert!(count <= blocks);
            for n in 0..count {
                let block = at + n as u64 * BLOCK;
                host.bytes(block, 576).fill(0);
                let part = data.get(16 + n * 512..).unwrap_or(&[]);
                host.put(block, &part[..part.len().min(512)]);
                // Drivers keep chains that are longer than needed: the last block points on as well.
                host.put64(block + 0x230, block + BLOCK);
                host.put32(block + 0x238, n as u32);
                host.put(block + 0x23d, &[token]);
            }
            if count == 0 { 0 } else { at }
        };
        // Slots share the blocks: the tests that have several commands out keep them inline.
        let in_ptr = chain(&mut self.host, self.input, input, input.len());
        let out_ptr = chain(&mut self.host, self.output, &[], outlen);
        let entry = self.queue + u64::from(slot) * 64;
        let host = &mut self.host;
        host.bytes(entry, 64).fill(0);
        host.put(entry, &[7]);
        host.put32(entry + 0x04, input.len() as u32);
        host.put64(entry + 0x08, in_ptr);
        host.put(entry + 0x10, &input[..input.len().min(16)]);
        host.put64(entry + 0x30, out_ptr);
        host.put32(entry + 0x38, outlen as u32);
        host.put(entry + 0x3c, &[token, 0, 0, 1]);
        entry
    }

    pub fn ring(&mut self, slots: u32) {
        self.write32(0x18, slots);
    }

    /// The answer in a slot, if the device has given the entry back.
    pub fn answer(&mut self, slot: u32, outlen: usize) -> Result<Vec<u8>, Failure> {
        let entry = self.queue + u64::from(slot) * 64;
        let status = self.host.bytes(entry + 0x3f, 1)[0];
        if status & 1 != 0 {
            return Err(Failure::Silence);
        }
        if status != 0 {
            return Err(Failure::Delivery(status >> 1));
        }
        let mut output = self.host.bytes(entry + 0x20, outlen.min(16)).to_vec();
        let mut at = self.output;
        while output.len() < outlen {
            let run = (outlen - output.len()).min(512);
            output.extend_from_slice(self.host.bytes(at, run));
            at += BLOCK;
        }
        let syndrome = u32::from_be_bytes(output[4..8].try_into().unwrap());
        if output[0] != 0 {
            return Err(Failure::Status(output[0], syndrome));
        }
        Ok(output)
    }

    /// Executes raw bytes in slot 0.
    pub fn raw(&mut self, input: &[u8], outlen: usize) -> Result<Vec<u8>, Failure> {
        self.post(0, input, outlen);
        self.ring(1);
        self.advance();
        self.answer(0, outlen)
    }

    /// Executes a command, with a tail on either side.
    pub fn command_with<C: Command>(
        &mut self,
        command: &C,
        tail: &[u8],
        out_tail: usize,
    ) -> Result<(C::Output, Vec<u8>), Failure> {
        let mut input = command.as_bytes().to_vec();
        input.extend_from_slice(tail);
        let size = size_of::<C::Output>();
        let output = self.raw(&input, size + out_tail)?;
        let (head, rest) = C::Output::read_from_prefix(&output).unwrap();
        Ok((head, rest.to_vec()))
    }

    pub fn command<C: Command>(&mut self, command: &C) -> Result<C::Output, Failure> {
        self.command_with(command, &[], 0).map(|(output, _)| output)
    }

    /// QUERY_PAGES and MANAGE_PAGES(give) for a stage.
    pub fn give_pages(&mut self, stage: u16) -> u32 {
        let mut query = QueryPagesIn::new();
        query.set_op_mod(stage);
        let count = self.command(&query).unwrap().num_pages();
        if count != 0 {
            self.give(count);
        }
        count
    }

    pub fn give(&mut self, count: u32) {
        let mut list = Vec::new();
        for _ in 0..count {
            let page = self.host.alloc(4096, 4096);
            self.given.push(page);
            list.extend(page.to_be_bytes());
        }
        let mut give = ManagePagesIn::new();
        give.set_op_mod(1).set_input_num_entries(count);
        self.command_with(&give, &list, 0).unwrap();
    }

    /// ENABLE_HCA to just before INIT_HCA.
    pub fn enable(&mut self) {
        self.command(&EnableHcaIn::new()).unwrap();
        let issi = self.command(&QueryIssiIn::new()).unwrap();
        if issi.supported_issi_dw0() & 2 != 0 {
            let mut set = SetIssiIn::new();
            set.set_current_issi(1);
            self.command(&set).unwrap();
        }
        self.give_pages(1);
        let mut query = QueryHcaCapIn::new();
        query.set_op_mod(1);
        let (_, mut caps) = self.command_with(&query, &[], 0x1000).unwrap();
        query.set_op_mod(0);
        let (_, max) = self.command_with(&query, &[], 0x1000).unwrap();
        let max = HcaCap::read_from_prefix(&max).unwrap().0;
        let (current, _) = HcaCap::mut_from_prefix(&mut caps).unwrap();
        current.set_dct(max.dct());
        let mut set = SetHcaCapIn::new();
        set.set_op_mod(0);
        self.command_with(&set, &caps, 0).unwrap();
        self.give_pages(2);
    }

    /// Everything up to a UAR.
    pub fn initialize(&mut self) {
        self.enable();
        self.command(&InitHcaIn::new()).unwrap();
        self.uar = self.command(&AllocUarIn::new()).unwrap().uar();
    }

    /// An event queue with some event types.
    pub fn create_eq(&mut self, log_size: u8, mask: u64, vector: u16) -> usize {
        let len = 64usize << log_size;
        let ring = self.host.alloc(len, 4096);
        for entry in self.host.bytes(ring, len).chunks_exact_mut(64) {
            entry[63] = 1;
        }
        let mut create = CreateEqIn::new();
        create
            .eq_context_entry_mut()
            .set_log_eq_size(log_size)
            .set_uar_page(self.uar)
            .set_intr(vector);
        create.event_bitmask_mut()[..8].copy_from_slice(&mask.to_be_bytes());
        let list = page_list(ring, len);
        let (output, _) = self.command_with(&create, &list, 0).unwrap();
        self.events.push(Events {
            number: u32::from(output.eq_number()),
            ring,
            log_size,
            consumer: 0,
        });
        let at = self.events.len() - 1;
        self.arm_eq(at);
        at
    }

    pub fn arm_eq(&mut self, at: usize) {
        let eq = &self.events[at];
        let value = eq.number << 24 | eq.consumer & 0xff_ffff;
        let uar = u64::from(self.uar) * 4096;
        self.write32(uar + 0x40, value);
    }

    /// The next entry of an event queue: type, sub-type, data.
    pub fn next_event(&mut self, at: usize) -> Option<(u8, u8, [u8; 28])> {
        let eq = &mut self.events[at];
        let size = 1u32 << eq.log_size;
        let entry = eq.ring + u64::from(eq.consumer & (size - 1)) * 64;
        let entry: [u8; 64] = self.host.bytes(entry, 64).try_into().unwrap();
        if u32::from(entry[63] & 1) != (eq.consumer >> eq.log_size) & 1 {
            return None;
        }
        eq.consumer += 1;
        Some((entry[1], entry[3], entry[0x20..0x3c].try_into().unwrap()))
    }

    /// TEARDOWN_HCA, all pages back, DISABLE_HCA.
    pub fn shut_down(&mut self) {
        self.command(&TeardownHcaIn::new()).unwrap();
        while !self.given.is_empty() {
            let taken = self.take_pages(10);
            assert_ne!(taken, 0, "{} pages never come back", self.given.len());
        }
        self.command(&DisableHcaIn::new()).unwrap();
    }

    /// MANAGE_PAGES(take); what comes back must have been given.
    pub fn take_pages(&mut self, count: u32) -> u32 {
        let mut take = ManagePagesIn::new();
        take.set_op_mod(2).set_input_num_entries(count);
        let (output, list) = self.command_with(&take, &[], count as usize * 8).unwrap();
        let taken = output.output_num_entries();
        for entry in list.chunks_exact(8).take(taken as usize) {
            let page = u64::from_be_bytes(entry.try_into().unwrap());
            let at = self.given.iter().position(|&given| given == page);
            self.given.remove(at.expect("a page that was never given"));
            self.host.bytes(page, 4096).fill(0xdd);
        }
        taken
    }
}

/// Addresses of the 4 KiB pages of a piece of memory.
pub fn page_list(start: u64, len: usize) -> Vec<u8> {
    (0..len.div_ceil(4096) as u64)
        .flat_map(|page| (start + page * 4096).to_be_bytes())
        .collect()
}

/// Lets both ends work until nothing moves; frames go from one to the other.
pub fn exchange(a: &mut Node, b: &mut Node) {
    for _ in 0..10_000 {
        a.advance();
        b.advance();
        let (to_b, to_a) = (
            std::mem::take(&mut a.host.frames),
            std::mem::take(&mut b.host.frames),
        );
        if to_a.is_empty() && to_b.is_empty() {
            let due = |node: &Node| node.model.next_deadline().is_some_and(|at| at <= node.now);
            if !due(a) && !due(b) {
                return;
            }
        }
        for frame in to_b {
            b.model.receive(&mut b.host, &frame);
        }
        for frame in to_a {
            a.model.receive(&mut a.host, &frame);
        }
    }
    panic!("the two never come to rest");
}
