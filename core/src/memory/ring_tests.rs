//! The rings of the data path against naive queues: random operations on rings of every kind and size, with counters that
//! start shortly before they wrap. All of a ring's memory is compared after each step, and what lies around it.

// UNSAFETY: the rings lie in memory of the tests' own.
#![expect(unsafe_code)]

extern crate std;

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use std::alloc::{alloc, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::env;
use std::vec;
use std::vec::Vec;

use bareverbs_firmware_cmds::cqe::{self, OpOwn, Opcode};
use bareverbs_firmware_cmds::doorbell::CqConsumerRecord;
use bareverbs_firmware_cmds::event::{EQE_SIZE, owner_of_pass};
use bareverbs_firmware_cmds::numbers::{LKey, Qpn};
use bareverbs_firmware_cmds::wqe::{BASIC_BLOCK, ControlFlags, ControlWord, SEGMENT_UNIT};
use proptest::collection::vec as vec_of;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use crate::memory::cqe_ring::{CqeRing, SharedRing};
use crate::memory::dma::DmaMemory;
use crate::memory::eqe_ring::EqeRing;
use crate::memory::record::{DoorbellRecord, RECORD_LEN};
use crate::memory::recv_ring::{RecvRing, RecvRingParts};
use crate::memory::send_ring::{Cursor, SendRing, SendRingParts, Wqe};
use crate::memory::slots::{QpArrays, QpSlot, SrqSlot};
use crate::platform::Dma;
use crate::types::sge::Sge;
use crate::verbs::qp::recv::RecvQueue;
use crate::verbs::qp::wr::PostError;
use crate::verbs::qp::{Inline, Payload, Rc};

/// The same cases in every run; a failure prints its input.
fn seeded() -> Config {
    Config {
        // Without optimization that takes half a minute.
        cases: if cfg!(debug_assertions) && env::var_os("BAREVERBS_ALL_CASES").is_none() {
            40
        } else {
            1000
        },
        rng_seed: RngSeed::Fixed(0x15b3_1019),
        failure_persistence: None,
        ..Config::default()
    }
}

/// Memory for a ring, with a guard before and behind it that nothing may change.
struct Memory {
    all: NonNull<u8>,
    layout: Layout,
}

const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xa5;

impl Memory {
    fn new(len: usize, fill: u8) -> Self {
        let layout = Layout::from_size_align(len + 2 * GUARD, GUARD).expect("a few pages");
        // SAFETY: the layout is not empty.
        let all = NonNull::new(unsafe { alloc(layout) });
        let all = all.unwrap_or_else(|| handle_alloc_error(layout));
        let memory = Self { all, layout };
        // SAFETY: all of the allocation, then what lies between the guards.
        unsafe {
            all.write_bytes(GUARD_BYTE, layout.size());
            memory.ptr::<u8>().write_bytes(fill, len);
        }
        memory
    }

    fn len(&self) -> usize {
        self.layout.size() - 2 * GUARD
    }

    fn ptr<T>(&self) -> NonNull<T> {
        // SAFETY: behind the first guard.
        unsafe { self.all.add(GUARD) }.cast()
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len());
        for (offset, &byte) in bytes.iter().enumerate() {
            // SAFETY: inside the allocation by the check above.
            unsafe { self.ptr::<u8>().add(at + offset).write_volatile(byte) };
        }
    }

    /// The bytes between the guards, which are as they were.
    fn bytes(&self) -> Vec<u8> {
        let read = |at: usize| {
            // SAFETY: inside the allocation.
            unsafe { self.all.add(at).read_volatile() }
        };
        let guards = (0..GUARD).chain(GUARD + self.len()..self.layout.size());
        assert!(guards.map(read).all(|byte| byte == GUARD_BYTE));
        (GUARD..GUARD + self.len()).map(read).collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.all.as_ptr(), self.layout) };
    }
}

/// Counters to begin with: at the start, and where 16, 24 and 32 bits wrap.
fn starts() -> impl Strategy<Value = u32> {
    let before = prop_oneof![Just(1_u32 << 16), Just(1 << 24), Just(0)];
    prop_oneof![
        Just(0),
        (before, 0..40_u32).prop_map(|(at, n)| at.wrapping_sub(n))
    ]
}

fn sges(most: usize) -> impl Strategy<Value = Vec<Sge>> {
    let length = prop_oneof![1 => Just(0), 4 => 1..0x7fff_ffff_u32];
    let sge = (any::<u64>(), length, any::<u32>());
    vec_of(sge, 0..=most).prop_map(|sges| {
        let sge = |(addr, length, key)| Sge::new(addr, length, LKey(key));
        sges.into_iter().map(sge).collect()
    })
}

/// A data segment, byte by byte.
fn data_segment(sge: &Sge) -> Vec<u8> {
    let length = sge.length.to_be_bytes();
    [
        &length[..],
        &sge.lkey.0.to_be_bytes(),
        &sge.addr.to_be_bytes(),
    ]
    .concat()
}

const QPN: u32 = 0x12_3456;

#[derive(Debug, Clone)]
enum SendStep {
    Post {
        wr_id: u64,
        fixed: u8,
        data: Data,
    },
    /// One of those that are outstanding completes.
    Complete(prop::sample::Index),
    /// A completion names any block.
    Any(u16),
}

#[derive(Debug, Clone)]
enum Data {
    Sges(Vec<Sge>),
    Inline(Vec<u8>),
}

fn send_steps() -> impl Strategy<Value = Vec<SendStep>> {
    let data = prop_oneof![
        sges(14).prop_map(Data::Sges),
        vec_of(any::<u8>(), 0..240).prop_map(Data::Inline)
    ];
    let post = (any::<u64>(), 0..3_u8, data);
    vec_of(
        prop_oneof![
            4 => post.prop_map(|(wr_id, fixed, data)| SendStep::Post { wr_id, fixed, data }),
            2 => any::<prop::sample::Index>().prop_map(SendStep::Complete),
            1 => any::<u16>().prop_map(SendStep::Any),
        ],
        1..200,
    )
}

struct Sent {
    block: u32,
    wr_id: u64,
}

/// Writes data in the way that a send queue chooses for it.
fn write_data<const FIXED: usize>(data: impl Payload, wqe: Wqe<'_>) -> u32 {
    match data.is_usual::<Rc>(FIXED, u8::MAX, Wqe::SHORT, wqe) {
        true => data.write_usual(FIXED, wqe),
        false => data.write(FIXED, wqe),
    }
}

/// Writes a WQE as a send queue does, and the same bytes as they have to lie in memory; the size is in segments.
fn write_wqe<const FIXED: usize>(
    ring: &SendRing,
    block: u16,
    (head, wr_id): (u32, u64),
    data: &Data,
) -> (u32, Vec<u8>) {
    let wqe = ring.wqe(Cursor::new(Qpn::from_low_bits(QPN)).behind(block.into()));
    let size = match data {
        Data::Sges(sges) => match sges.as_slice() {
            [one] => write_data::<FIXED>(*one, wqe),
            sges => write_data::<FIXED>(sges, wqe),
        },
        Data::Inline(bytes) => write_data::<FIXED>(Inline(bytes), wqe),
    };
    wqe.put(0, ControlWord(!wr_id), ControlFlags(wr_id));
    let mut bytes = [(!wr_id).to_be_bytes(), wr_id.to_be_bytes()].concat();
    if FIXED >= 32 {
        wqe.put(16, ControlWord(1), ControlFlags(u64::from(head)));
        bytes.extend(1_u64.to_be_bytes());
        bytes.extend(u64::from(head).to_be_bytes());
    }
    if FIXED == 64 {
        wqe.put_words::<32, 4>([wr_id; 4]);
        bytes.extend(wr_id.to_ne_bytes().repeat(4));
    }
    match data {
        Data::Sges(sges) => {
            let used = sges.iter().filter(|sge| sge.length != 0);
            bytes.extend(used.flat_map(data_segment));
        }
        Data::Inline(data) if data.is_empty() => {}
        Data::Inline(data) => {
            bytes.extend((1 << 31 | data.len() as u32).to_be_bytes());
            bytes.extend(data);
        }
    }
    assert_eq!(size as usize, bytes.len().div_ceil(SEGMENT_UNIT));
    wqe.record(head, wr_id);
    (size, bytes)
}

/// Most blocks of a WQE that [`send_steps`] makes.
fn blocks_of(fixed: usize, data: &Data) -> usize {
    let bytes = match data {
        Data::Sges(sges) => 16 * sges.len(),
        Data::Inline(data) => 4 + data.len(),
    };
    (fixed + bytes).div_ceil(BASIC_BLOCK)
}

proptest! {
    #![proptest_config(seeded())]

    #[test]
    fn send_ring(
        (log_blocks, log_wrs, largest) in (0..7_u32, 0..6_u32, 1..6_usize),
        (first_block, first_head) in (starts(), starts()),
        steps in send_steps(),
    ) {
        let (blocks, wrs) = (1_usize << log_blocks, 1_usize << log_wrs);
        let largest = largest.min(blocks);
        let capacity = wrs.min(blocks / largest);
        let memory = Memory::new(blocks * BASIC_BLOCK, 0);
        let (heads, wr_ids) = (Memory::new(4 * blocks, 0), Memory::new(8 * wrs, 0));
        heads.write(0, &first_head.wrapping_sub(1).to_ne_bytes().repeat(blocks));
        let parts = SendRingParts {
            base: memory.ptr(),
            wr_ids: wr_ids.ptr(),
            heads: heads.ptr(),
            blocks: blocks as u32,
            wrs: wrs as u32,
        };
        let arrays = QpArrays {
            heads: heads.ptr(),
            blocks: blocks as u32,
            send_ids: wr_ids.ptr(),
            sends: wrs as u32,
            recv_ids: wr_ids.ptr(),
            recvs: 1,
        };
        let slot = QpSlot::new();
        // SAFETY: all of this memory lives until the end of the test.
        let ring = unsafe {
            slot.publish(arrays);
            SendRing::new(parts)
        };
        slot.sq_tail.store(first_head, Relaxed);
        slot.qpn_tag.store(QPN, Relaxed);
        let qp = slot.live(QPN).expect("it is alive");

        let mut image = vec![0; memory.len()];
        let mut outstanding: VecDeque<Sent> = VecDeque::new();
        let (mut block, mut head, mut tail) = (first_block, first_head, first_head);
        for step in steps {
            let named = match step {
                SendStep::Post { wr_id, fixed, data } => {
                    let fixed = [16, 32, 64][usize::from(fixed)];
                    if blocks_of(fixed, &data) > largest {
                        continue;
                    }
                    // As a send queue does: it looks for the poller's tail only when its own copy says full.
                    if head.wrapping_sub(tail) as usize == capacity {
                        tail = slot.sq_tail.load(Relaxed);
                    }
                    let full = head.wrapping_sub(tail) as usize == capacity;
                    prop_assert_eq!(full, outstanding.len() == capacity);
                    if full {
                        continue;
                    }
                    let (size, bytes) = match fixed {
                        16 => write_wqe::<16>(&ring, block as u16, (head, wr_id), &data),
                        32 => write_wqe::<32>(&ring, block as u16, (head, wr_id), &data),
                        _ => write_wqe::<64>(&ring, block as u16, (head, wr_id), &data),
                    };
                    let at = block as usize % blocks * BASIC_BLOCK;
                    for (offset, byte) in bytes.into_iter().enumerate() {
                        image[(at + offset) % memory.len()] = byte;
                    }
                    outstanding.push_back(Sent { block, wr_id });
                    block = block.wrapping_add(size.div_ceil(4));
                    head = head.wrapping_add(1);
                    None
                }
                SendStep::Complete(_) if outstanding.is_empty() => continue,
                SendStep::Complete(which) => {
                    let which = which.index(outstanding.len());
                    Some(outstanding[which].block as u16)
                }
                SendStep::Any(counter) => Some(counter),
            };
            if let Some(counter) = named {
                let place = |block: u32| block as usize % blocks;
                let which = outstanding
                    .iter()
                    .position(|sent| place(sent.block) == place(counter.into()));
                // All before it are completed, too.
                let sent = which.and_then(|which| outstanding.drain(..=which).next_back());
                prop_assert_eq!(qp.complete_send(counter), sent.map(|sent| sent.wr_id));
            }
            prop_assert_eq!(memory.bytes(), image.clone());
            let blocks = ring.block(Cursor::new(Qpn::from_low_bits(QPN)).behind(block)).map(u64::to_ne_bytes);
            let at = block as usize % (memory.len() / BASIC_BLOCK) * BASIC_BLOCK;
            prop_assert_eq!(blocks.as_flattened(), &image[at..at + BASIC_BLOCK]);
        }
        let _ = (heads.bytes(), wr_ids.bytes());
    }
}

#[derive(Debug, Clone)]
enum RecvStep {
    Post(u64, Vec<Sge>),
    Complete,
    Flush,
    Any(u16),
}

fn recv_steps() -> impl Strategy<Value = Vec<RecvStep>> {
    vec_of(
        prop_oneof![
            4 => (any::<u64>(), sges(9)).prop_map(|(id, sges)| RecvStep::Post(id, sges)),
            2 => Just(RecvStep::Complete),
            1 => Just(RecvStep::Flush),
            1 => any::<u16>().prop_map(RecvStep::Any),
        ],
        1..200,
    )
}

proptest! {
    #![proptest_config(seeded())]

    #[test]
    fn recv_ring(
        (log_entries, log_stride, lead) in (0..7_u32, 4..8_u32, any::<bool>()),
        first in starts(),
        steps in recv_steps(),
    ) {
        let (entries, stride) = (1_usize << log_entries, 1_usize << log_stride);
        // A WQE of an SRQ starts with its link.
        let lead = if lead && stride > SEGMENT_UNIT { SEGMENT_UNIT } else { 0 };
        let max_sge = (stride - lead) / SEGMENT_UNIT;
        let memory = Memory::new(entries * stride, 0x11);
        let (wr_ids, record) = (Memory::new(8 * entries, 0), Memory::new(RECORD_LEN, 0));
        let parts = RecvRingParts {
            // SAFETY: inside the first WQE.
            lists: unsafe { memory.ptr::<u8>().add(lead) },
            wr_ids: wr_ids.ptr(),
            entries: entries as u32,
            log_stride: log_stride as u8,
            max_sge: max_sge as u16,
            terminator: LKey(0x100),
        };
        let arrays = QpArrays {
            heads: wr_ids.ptr(),
            blocks: 1,
            send_ids: wr_ids.ptr(),
            sends: 1,
            recv_ids: wr_ids.ptr(),
            recvs: entries as u32,
        };
        let slot = QpSlot::new();
        // SAFETY: all of this memory lives until the end of the test.
        let (ring, record_words) = unsafe {
            slot.publish(arrays);
            (RecvRing::new(parts), DoorbellRecord::new(record.ptr()))
        };
        slot.rq_tail.store(first, Relaxed);
        slot.rq_head.store(first, Relaxed);
        slot.qpn_tag.store(QPN, Relaxed);
        let qp = slot.live(QPN).expect("it is alive");
        let mut queue = RecvQueue {
            ring,
            record: record_words,
            slot: &slot,
            head: first,
            limit: first.wrapping_add(entries as u32),
            capacity: entries as u32,
            late: 0,
        };

        let mut image = memory.bytes();
        let mut outstanding: VecDeque<u64> = VecDeque::new();
        let mut posted = first;
        for step in steps {
            match step {
                RecvStep::Post(wr_id, sges) => {
                    let result = queue.post(wr_id, &sges);
                    if outstanding.len() == entries {
                        let limit = entries as u32;
                        prop_assert_eq!(result, Err(PostError::QueueFull { limit }));
                        continue;
                    }
                    if sges.len() > max_sge {
                        let (given, limit) = (sges.len() as u32, max_sge as u16);
                        prop_assert_eq!(result, Err(PostError::TooManySges { given, limit }));
                        continue;
                    }
                    prop_assert_eq!(result, Ok(()));
                    let used = sges.iter().filter(|sge| sge.length != 0);
                    let mut list: Vec<u8> = used.flat_map(data_segment).collect();
                    if list.len() < max_sge * SEGMENT_UNIT {
                        list.extend(data_segment(&Sge::new(0, 0, LKey(0x100))));
                    }
                    let at = posted as usize % entries * stride + lead;
                    image[at..at + list.len()].copy_from_slice(&list);
                    posted = posted.wrapping_add(1);
                    outstanding.push_back(wr_id);
                    let counter = u32::from(posted as u16).to_be_bytes();
                    prop_assert_eq!(&record.bytes()[..4], counter);
                }
                RecvStep::Complete => {
                    let oldest = posted.wrapping_sub(outstanding.len() as u32) as u16;
                    prop_assert_eq!(qp.complete_recv(oldest), outstanding.pop_front());
                }
                RecvStep::Flush => prop_assert_eq!(qp.flush_recv(), outstanding.pop_front()),
                RecvStep::Any(counter) => {
                    let oldest = posted.wrapping_sub(outstanding.len() as u32) as usize;
                    let named = usize::from(counter) % entries == oldest % entries;
                    let expected = if named { outstanding.pop_front() } else { None };
                    prop_assert_eq!(qp.complete_recv(counter), expected);
                }
            }
            prop_assert_eq!(memory.bytes(), image.clone());
        }
        let _ = wr_ids.bytes();
    }
}

#[derive(Debug, Clone)]
enum CqStep {
    /// The device writes some.
    Write(usize),
    Take(usize),
    Publish,
    /// One of those in the ring is looked at without taking it.
    Look(u32),
    Resize(u32),
}

fn cq_steps() -> impl Strategy<Value = Vec<CqStep>> {
    vec_of(
        prop_oneof![
            3 => (0..70_usize).prop_map(CqStep::Write),
            3 => (0..70_usize).prop_map(CqStep::Take),
            2 => Just(CqStep::Publish),
            1 => (0..64_u32).prop_map(CqStep::Look),
            1 => (1..7_u32).prop_map(CqStep::Resize),
        ],
        1..100,
    )
}

/// A CQ's ring as the device has it.
struct Device {
    memory: Memory,
    log_size: u32,
    /// Index of the next CQE.
    next: u32,
    /// For the CQEs, to distinguish them.
    id: u16,
}

impl Device {
    fn new(log_size: u32, next: u32) -> Self {
        let memory = Memory::new(cqe::SIZE << log_size, OpOwn::INIT.0);
        let id = 0;
        Self {
            memory,
            log_size,
            next,
            id,
        }
    }

    fn size(&self) -> u32 {
        1 << self.log_size
    }

    fn write(&mut self, opcode: Opcode) -> u16 {
        self.id = self.id.wrapping_add(1);
        let mut entry = [self.id as u8; cqe::SIZE];
        entry[0x3c..0x3e].copy_from_slice(&self.id.to_be_bytes());
        entry[0x3f] = (opcode as u8) << 4 | (self.next >> self.log_size & 1) as u8;
        let at = (self.next % self.size()) as usize * cqe::SIZE;
        self.memory.write(at, &entry);
        self.next = self.next.wrapping_add(1);
        self.id
    }
}

proptest! {
    #![proptest_config(seeded())]

    #[test]
    fn cqe_ring(log_size in 1..7_u32, first in starts(), steps in cq_steps()) {
        let record = Memory::new(RECORD_LEN, 0);
        let mut device = Device::new(log_size, first);
        // SAFETY: all of this memory lives until the end of the test, or until the ring has left it.
        let (mut ring, record) = unsafe {
            let ring = CqeRing::new(device.memory.ptr(), device.size());
            (ring, DoorbellRecord::new(record.ptr()))
        };
        ring.start_at(first);
        let publish = |consumed: u32| {
            let mut word = CqConsumerRecord(0);
            word.set_consumer(consumed);
            record.consume(word);
        };
        publish(first);
        let mut published = first;
        let mut queue: VecDeque<u16> = VecDeque::new();
        for step in steps {
            // What the device may write until it reads a later consumer index.
            let free = (device.size() - device.next.wrapping_sub(published)) as usize;
            match step {
                CqStep::Write(count) => {
                    for _ in 0..count.min(free) {
                        queue.push_back(device.write(Opcode::Requester));
                    }
                }
                CqStep::Take(count) => {
                    for _ in 0..count {
                        let peeked = ring.peek();
                        let expected = queue.pop_front();
                        prop_assert_eq!(peeked.map(|(_, tail)| tail.wqe_counter()), expected);
                        let (Some((entry, _)), Some(id)) = (peeked, expected) else {
                            break;
                        };
                        prop_assert_eq!(&entry.to_bytes()[..0x3c], [id as u8; 0x3c]);
                        let before = ring.position();
                        ring.advance(entry);
                        prop_assert_ne!(ring.position(), before);
                    }
                }
                CqStep::Publish => {
                    published = ring.ci();
                    publish(published);
                }
                CqStep::Look(ahead) => {
                    let ahead = ahead % device.size();
                    let found = ring.owned(ring.ci().wrapping_add(ahead));
                    // Entries that were taken lie there until the device overwrites them, with the parity of their pass.
                    let expected = queue.get(ahead as usize).copied();
                    prop_assert_eq!(found.map(|(_, tail)| tail.wqe_counter()), expected);
                }
                CqStep::Resize(log_size) => {
                    let mut new = Device::new(log_size, device.next.wrapping_add(1));
                    if free == 0 || queue.len() >= new.size() as usize {
                        continue;
                    }
                    device.write(Opcode::ResizeCq);
                    new.id = device.id;
                    // SAFETY: as above.
                    unsafe { ring.move_to(new.memory.ptr(), new.size()) };
                    let _ = core::mem::replace(&mut device, new).memory.bytes();
                    published = ring.ci();
                    publish(published);
                }
            }
            let taken = device.next.wrapping_sub(queue.len() as u32);
            prop_assert_eq!(ring.ci(), taken);
            prop_assert_eq!(ring.size(), device.size());
            prop_assert_eq!(SharedRing::new(*ring.entries(), record).producer(), device.next & 0xff_ffff);
        }
        let _ = device.memory.bytes();
    }

    #[test]
    fn eqe_ring(
        log_size in 0..7_u8,
        first in starts(),
        steps in vec_of((0..70_usize, 0..70_usize), 1..100),
    ) {
        // Entries that were not written have the owner bit of odd passes.
        let first = first & !(1 << log_size);
        let memory = Memory::new(EQE_SIZE << log_size, 0);
        let dma = Dma {
            ptr: memory.ptr(),
            iova: 0,
            layout: Layout::from_size_align(memory.len(), 64).expect("small"),
        };
        // SAFETY: it is never freed through the ring.
        let mut ring = EqeRing::on(unsafe { DmaMemory::from_raw(dma) }, log_size);
        ring.start_at(first);
        // Those before the first were written in this pass.
        for entry in 0..first as usize % (1 << log_size) {
            memory.write((entry + 1) * EQE_SIZE - 1, &[owner_of_pass(first, log_size)]);
        }
        let mut queue: VecDeque<u8> = VecDeque::new();
        let mut next = first;
        for (written, taken) in steps {
            for _ in 0..written.min((1 << log_size) - queue.len()) {
                let mut entry = [next as u8; EQE_SIZE];
                entry[EQE_SIZE - 1] = owner_of_pass(next, log_size);
                let at = next as usize % (1 << log_size) * EQE_SIZE;
                memory.write(at, &entry);
                queue.push_back(next as u8);
                next = next.wrapping_add(1);
            }
            for _ in 0..taken {
                let entry = ring.next().map(|entry| entry.0[0]);
                prop_assert_eq!(entry, queue.pop_front());
            }
            prop_assert_eq!(ring.consumer(), next.wrapping_sub(queue.len() as u32));
        }
        let _ = memory.bytes();
    }

    #[test]
    fn srq_stack(log_entries in 0..6_u32, steps in vec_of((0..4_u8, any::<u16>(), any::<u64>()), 1..300)) {
        let entries = 1_u32 << log_entries;
        let (wr_ids, states) = (Memory::new(8 << log_entries, 0), Memory::new(4 << log_entries, 0));
        let slot = SrqSlot::new();
        // SAFETY: all of this memory lives until the end of the test.
        unsafe { slot.publish(wr_ids.ptr(), states.ptr(), entries) };
        let mut free: Vec<u32> = (0..entries).collect();
        let mut posted: Vec<(u32, u64)> = Vec::new();
        let mut returned: Vec<u32> = Vec::new();
        for (step, counter, wr_id) in steps {
            match step {
                0 | 1 => {
                    if let Some(index) = free.pop() {
                        wr_ids.write(index as usize * 8, &wr_id.to_ne_bytes());
                        slot.post(index);
                        posted.push((index, wr_id));
                    }
                }
                2 => {
                    // Mostly one that may be posted.
                    let counter = if wr_id % 8 == 0 { counter } else { counter % entries as u16 };
                    let held = posted.iter().position(|held| held.0 == counter.into());
                    let held = held.map(|at| posted.remove(at));
                    prop_assert_eq!(slot.complete(counter), held.map(|held| held.1));
                    returned.extend(held.map(|held| held.0));
                }
                _ => {
                    let mut taken = Vec::new();
                    slot.take_returned(|index| taken.push(index));
                    returned.reverse();
                    prop_assert_eq!(&taken, &returned);
                    returned.clear();
                    free.extend(taken);
                }
            }
        }
        let _ = (wr_ids.bytes(), states.bytes());
    }
}
