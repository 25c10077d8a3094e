//! A card with an Ethernet send queue and a receive queue that everything is steered to.

use crate::common::queues::{Cq, Piece, data_segment};
use crate::common::{Failure, Node, page_list};
use bareverbs_firmware_cmds::counter::{AllocQCounterIn, QueryQCounterIn};
use bareverbs_firmware_cmds::domain::AllocTransportDomainIn;
use bareverbs_firmware_cmds::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, DestFormat, SetFlowTableRootIn, SetFteIn,
};
use bareverbs_firmware_cmds::rq::{CreateRqIn, ModifyRqIn, QueryRqIn, Rqc};
use bareverbs_firmware_cmds::sq::{CreateSqIn, ModifySqIn, QuerySqIn, Sqc};
use bareverbs_firmware_cmds::tir::{CreateRqtIn, CreateTirIn, Tirc};
use bareverbs_firmware_cmds::tis::CreateTisIn;
use connectx_model::{Config, Syndrome};

pub(crate) const RST: u8 = 0;
pub(crate) const RDY: u8 = 1;
pub(crate) const ERR: u8 = 3;

/// Opcodes of send WQEs, and of completions.
pub(crate) const NOP: u8 = 0x00;
pub(crate) const SEND: u8 = 0x0a;
pub(crate) const LSO: u8 = 0x0e;
pub(crate) const SENT: u8 = 0x0;
pub(crate) const RECEIVED: u8 = 0x2;
pub(crate) const SEND_FAILED: u8 = 0xd;
pub(crate) const RECEIVE_FAILED: u8 = 0xe;

/// Syndromes of failed completions.
pub(crate) const LENGTH: u8 = 1;
pub(crate) const OPERATION: u8 = 2;
pub(crate) const PROTECTION: u8 = 4;
pub(crate) const FLUSHED: u8 = 5;

/// Flags of an Ethernet segment.
pub(crate) const NETWORK: u8 = 1 << 6;
pub(crate) const TRANSPORT: u8 = 1 << 7;

pub(crate) fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

/// A queue of either kind, in the host's memory.
pub(crate) struct Queue {
    pub(crate) number: u32,
    pub(crate) ring: u64,
    pub(crate) record: u64,
    pub(crate) log_size: u8,
    pub(crate) log_stride: u8,
    pub(crate) posted: u16,
}

/// An Ethernet segment; inline headers, or a tag to insert, behind the first 14 bytes.
pub(crate) fn ethernet_segment(
    checksums: u8,
    mss: u16,
    inline: &[u8],
    tag: Option<u16>,
) -> Vec<u8> {
    let mut segment = vec![0; 12];
    segment[4] = checksums;
    segment[6..8].copy_from_slice(&mss.to_be_bytes());
    match tag {
        Some(tag) => {
            segment.extend(0x8000u16.to_be_bytes());
            segment.extend(tag.to_be_bytes());
        }
        None => {
            segment.extend((inline.len() as u16).to_be_bytes());
            segment.extend(inline);
            segment.resize(segment.len().next_multiple_of(16).max(16), 0);
        }
    }
    segment
}

/// A whole completion.
pub(crate) struct Entry(pub(crate) [u8; 64]);

impl Entry {
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    pub(crate) fn half(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.0[at..at + 2].try_into().unwrap())
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.0[0x3f] >> 4
    }

    pub(crate) fn counter(&self) -> u16 {
        self.half(0x3c)
    }

    pub(crate) fn length(&self) -> u32 {
        self.word(0x2c)
    }

    pub(crate) fn syndrome(&self) -> u8 {
        self.0[0x37]
    }
}

pub(crate) struct Lab {
    pub(crate) node: Node,
    pub(crate) pd: u32,
    pub(crate) domain: u32,
    pub(crate) tis: u32,
    pub(crate) counter: u8,
    pub(crate) memory: u64,
    pub(crate) key: u32,
    pub(crate) sends: Cq,
    pub(crate) receives: Cq,
    pub(crate) sq: Queue,
    pub(crate) rq: Queue,
    pub(crate) tir: u32,
}

/// Length of the memory that can be sent from and received to.
pub(crate) const MEMORY: u64 = 0x20_0000;

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with(Config::new(1))
    }

    pub(crate) fn with(config: Config) -> Self {
        let mut node = Node::new(config);
        node.initialize();
        node.give(64);
        let pd = node.alloc_pd();
        let domain = node.command(&AllocTransportDomainIn::new()).unwrap();
        let domain = domain.transport_domain();
        let mut create = CreateTisIn::new();
        create.ctx_mut().set_transport_domain(domain);
        let tis = node.command(&create).unwrap().tisn();
        let eq = node.create_eq(7, 0, 0);
        let sends = node.create_cq(6, eq);
        let receives = node.create_cq(6, eq);
        let memory = node.host.alloc(MEMORY as usize, 4096);
        let key = node.register(pd, memory, memory, MEMORY, 1);
        let counter = node.command(&AllocQCounterIn::new()).unwrap();
        let nothing = || Queue {
            number: 0,
            ring: 0,
            record: 0,
            log_size: 0,
            log_stride: 0,
            posted: 0,
        };
        let mut lab = Self {
            node,
            pd,
            domain,
            tis,
            counter: counter.counter_set_id(),
            memory,
            key,
            sends,
            receives,
            sq: nothing(),
            rq: nothing(),
            tir: 0,
        };
        lab.sq = lab.try_sq(|_| {}).unwrap();
        lab.rq = lab.try_rq(|_| {}).unwrap();
        lab.move_sq(RST, RDY).unwrap();
        lab.move_rq(RST, RDY).unwrap();
        let rq = lab.rq.number;
        lab.tir = lab
            .try_tir(|tir| {
                tir.set_inline_rqn(rq);
            })
            .unwrap();
        let tir = lab.tir;
        lab.steer(tir, 0);
        lab
    }

    fn memory_for(&mut self, log_stride: u8, log_size: u8) -> Queue {
        let bytes = 1usize << (log_stride + log_size);
        Queue {
            number: 0,
            ring: self.node.host.alloc(bytes.max(4096), 4096),
            record: self.node.host.alloc(8, 64),
            log_size,
            log_stride,
            posted: 0,
        }
    }

    /// A send queue of 16 blocks, but for what `change` does to its context.
    pub(crate) fn try_sq(&mut self, change: impl FnOnce(&mut Sqc)) -> Result<Queue, Failure> {
        let mut queue = self.memory_for(6, 4);
        let mut create = CreateSqIn::new();
        let context = create.ctx_mut();
        context
            .set_cqn(self.sends.number)
            .set_tis_lst_sz(1)
            .set_tis_num_0(self.tis)
            .set_flush_in_error_en(true)
            .set_user_index(0x11);
        context
            .wq_mut()
            .set_wq_type(1)
            .set_pd(self.pd)
            .set_uar_page(self.node.uar)
            .set_dbr_addr(queue.record)
            .set_log_wq_stride(queue.log_stride)
            .set_log_wq_sz(queue.log_size);
        change(context);
        let pages = page_list(queue.ring, 64 << queue.log_size);
        let (output, _) = self.node.command_with(&create, &pages, 0)?;
        queue.number = output.sqn();
        Ok(queue)
    }

    /// A cyclic receive queue of 16 WQEs of two segments, but for what `change` does to its context.
    pub(crate) fn try_rq(&mut self, change: impl FnOnce(&mut Rqc)) -> Result<Queue, Failure> {
        let mut queue = self.memory_for(5, 4);
        let mut create = CreateRqIn::new();
        let context = create.ctx_mut();
        context
            .set_cqn(self.receives.number)
            .set_flush_in_error_en(true)
            .set_counter_set_id(self.counter)
            .set_user_index(0x22);
        context
            .wq_mut()
            .set_wq_type(1)
            .set_pd(self.pd)
            .set_dbr_addr(queue.record)
            .set_log_wq_stride(queue.log_stride)
            .set_log_wq_sz(queue.log_size);
        change(context);
        let pages = page_list(queue.ring, 32 << queue.log_size);
        let (output, _) = self.node.command_with(&create, &pages, 0)?;
        queue.number = output.rqn();
        Ok(queue)
    }

    /// A direct TIR, but for what `change` does to its context.
    pub(crate) fn try_tir(&mut self, change: impl FnOnce(&mut Tirc)) -> Result<u32, Failure> {
        let mut create = CreateTirIn::new();
        let context = create.ctx_mut();
        context.set_transport_domain(self.domain);
        change(context);
        Ok(self.node.command(&create)?.tirn())
    }

    pub(crate) fn try_rqt(&mut self, queues: &[u32], max: u16) -> Result<u32, Failure> {
        let mut create = CreateRqtIn::new();
        create
            .rqt_context_mut()
            .set_rqt_actual_size(queues.len() as u16)
            .set_rqt_max_size(max);
        let list: Vec<u8> = queues.iter().flat_map(|rqn| rqn.to_be_bytes()).collect();
        let (output, _) = self.node.command_with(&create, &list, 0)?;
        Ok(output.rqtn())
    }

    pub(crate) fn modify_sq(&mut self, sqn: u32, from: u8, to: u8) -> Result<(), Failure> {
        let mut modify = ModifySqIn::new();
        modify.set_sqn(sqn).set_sq_state(from);
        modify.ctx_mut().set_state(to);
        self.node.command(&modify).map(drop)
    }

    pub(crate) fn modify_rq(&mut self, rqn: u32, from: u8, to: u8) -> Result<(), Failure> {
        let mut modify = ModifyRqIn::new();
        modify.set_rqn(rqn).set_rq_state(from);
        modify.ctx_mut().set_state(to);
        self.node.command(&modify).map(drop)
    }

    pub(crate) fn move_sq(&mut self, from: u8, to: u8) -> Result<(), Failure> {
        self.modify_sq(self.sq.number, from, to)
    }

    pub(crate) fn move_rq(&mut self, from: u8, to: u8) -> Result<(), Failure> {
        self.modify_rq(self.rq.number, from, to)
    }

    pub(crate) fn sq_context(&mut self) -> Sqc {
        let mut query = QuerySqIn::new();
        query.set_sqn(self.sq.number);
        *self.node.command(&query).unwrap().sq_context()
    }

    pub(crate) fn rq_context(&mut self) -> Rqc {
        let mut query = QueryRqIn::new();
        query.set_rqn(self.rq.number);
        *self.node.command(&query).unwrap().rq_context()
    }

    /// Sends every frame to a TIR, with a tag.
    pub(crate) fn steer(&mut self, tir: u32, flow_tag: u32) -> u32 {
        let mut create = CreateFlowTableIn::new();
        create.flow_table_context_mut().set_log_size(0);
        let table = self.node.command(&create).unwrap().table_id();
        let mut create = CreateFlowGroupIn::new();
        create.set_table_id(table);
        let group = self.node.command(&create).unwrap().group_id();
        let mut entry = SetFteIn::new();
        entry.set_table_id(table);
        entry
            .flow_context_mut()
            .set_group_id(group)
            .set_action(4)
            .set_flow_tag(flow_tag)
            .set_destination_list_size(1);
        let mut to = DestFormat::ZERO;
        to.set_destination_type(2).set_destination_id(tir);
        self.node.command_with(&entry, &to.0, 0).unwrap();
        let mut root = SetFlowTableRootIn::new();
        root.set_table_id(table);
        self.node.command(&root).unwrap();
        table
    }

    /// Puts a WQE into the send queue; the segments follow the control segment.
    pub(crate) fn post(&mut self, opcode: u8, flags: u8, segments: &[u8]) -> u16 {
        let number = self.sq.number;
        self.post_as(opcode, flags, number, segments)
    }

    pub(crate) fn post_as(&mut self, opcode: u8, flags: u8, number: u32, segments: &[u8]) -> u16 {
        let units = 1 + segments.len().div_ceil(16);
        let index = self.sq.posted;
        let mut wqe = (u32::from(index) << 8 | u32::from(opcode))
            .to_be_bytes()
            .to_vec();
        wqe.extend((number << 8 | units as u32).to_be_bytes());
        wqe.extend([0, 0, 0, flags, 0, 0, 0, 0]);
        wqe.extend(segments);
        for (nth, part) in wqe.chunks(64).enumerate() {
            let block = (u64::from(index) + nth as u64) % (1 << self.sq.log_size);
            self.node.host.put(self.sq.ring + block * 64, part);
        }
        self.sq.posted = index.wrapping_add(units.div_ceil(4) as u16);
        index
    }

    /// Doorbell record, then doorbell.
    pub(crate) fn ring(&mut self) {
        self.node
            .host
            .put32(self.sq.record + 4, u32::from(self.sq.posted));
        let uar = u64::from(self.node.uar) * 4096;
        self.node
            .write64(uar + 0x800, u64::from(self.sq.number) << 8);
        self.node.advance();
    }

    /// Puts data where it can be sent from.
    pub(crate) fn piece(&mut self, at: u64, data: &[u8]) -> Piece {
        self.node.host.put(self.memory + at, data);
        (self.key, self.memory + at, data.len() as u32)
    }

    /// Sends a frame out of memory, and takes what came out on the cable.
    pub(crate) fn send(&mut self, checksums: u8, frame: &[u8]) -> Vec<Vec<u8>> {
        let piece = self.piece(0, frame);
        let mut segments = ethernet_segment(checksums, 0, &[], None);
        segments.extend(data_segment(piece));
        self.post(SEND, 8, &segments);
        self.ring();
        std::mem::take(&mut self.node.host.frames)
    }

    /// Posts a buffer in pieces.
    pub(crate) fn post_buffer(&mut self, pieces: &[Piece]) -> u16 {
        let index = self.rq.posted;
        let stride = 1u64 << self.rq.log_stride;
        let at = self.rq.ring + u64::from(index) % (1 << self.rq.log_size) * stride;
        let mut wqe: Vec<u8> = pieces
            .iter()
            .flat_map(|&piece| data_segment(piece))
            .collect();
        if wqe.len() < stride as usize {
            wqe.extend(data_segment((0x100, 0, 0)));
        }
        self.node.host.put(at, &wqe);
        self.rq.posted = index.wrapping_add(1);
        self.node
            .host
            .put32(self.rq.record, u32::from(self.rq.posted));
        index
    }

    /// Where the `nth` of the buffers is that [`fill`](Self::fill) posts.
    pub(crate) fn buffer(&self, nth: u16) -> u64 {
        self.memory + 0x10_0000 + u64::from(nth % 16) * 2048
    }

    /// Posts buffers of 2 KiB.
    pub(crate) fn fill(&mut self, count: u16) {
        for _ in 0..count {
            let piece = (self.key, self.buffer(self.rq.posted), 2048);
            self.post_buffer(&[piece]);
        }
    }

    /// A frame comes in from the cable.
    pub(crate) fn receive(&mut self, frame: &[u8]) {
        self.node.model.receive(&mut self.node.host, frame);
        self.node.advance();
    }

    fn entry(node: &mut Node, cq: &mut Cq) -> Option<Entry> {
        let at = cq.ring + u64::from(cq.consumer & ((1 << cq.log_size) - 1)) * 64;
        node.poll(cq)?;
        Some(Entry(node.host.bytes(at, 64).try_into().unwrap()))
    }

    pub(crate) fn sent(&mut self) -> Option<Entry> {
        Self::entry(&mut self.node, &mut self.sends)
    }

    pub(crate) fn received(&mut self) -> Option<Entry> {
        Self::entry(&mut self.node, &mut self.receives)
    }

    pub(crate) fn out_of_buffer(&mut self) -> u32 {
        let mut query = QueryQCounterIn::new();
        query.set_counter_set_id(self.counter);
        self.node.command(&query).unwrap().out_of_buffer()
    }
}

/// The one's complement sum, folded.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut total: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

pub(crate) const OTHER: [u8; 6] = [2, 0xc9, 0, 0, 0, 2];
pub(crate) const OWN: [u8; 6] = [2, 0xc9, 0, 0, 0, 1];

/// A UDP datagram over IPv4 without checksums.
pub(crate) fn udp_frame(to: [u8; 6], from: [u8; 6], ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x08, 0, 0x45, 0]].concat();
    frame.extend((28 + data.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    frame.extend(ports.0.to_be_bytes());
    frame.extend(ports.1.to_be_bytes());
    frame.extend((8 + data.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(data);
    frame
}

/// The same with both checksums, computed here.
pub(crate) fn good_udp_frame(
    to: [u8; 6],
    from: [u8; 6],
    ports: (u16, u16),
    data: &[u8],
) -> Vec<u8> {
    let mut frame = udp_frame(to, from, ports, data);
    let header = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&header.to_be_bytes());
    let mut pseudo = frame[26..34].to_vec();
    pseudo.extend([0, 17]);
    pseudo.extend((frame.len() as u16 - 34).to_be_bytes());
    pseudo.extend(&frame[34..]);
    let value = !sum(&pseudo);
    frame[40..42].copy_from_slice(&value.to_be_bytes());
    frame
}
