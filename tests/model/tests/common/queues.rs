//! Queues and work requests, in raw bytes.

use super::{Failure, Node, page_list};
use bareverbs_firmware_cmds::cq::CreateCqIn;
use bareverbs_firmware_cmds::domain::AllocPdIn;
use bareverbs_firmware_cmds::mkey::CreateMkeyIn;
use bareverbs_firmware_cmds::qp::{
    CreateQpIn, Init2rtrQpIn, Qp2ErrIn, Qp2RstIn, Qpc, Rst2initQpIn, Rtr2rtsQpIn,
};
use bareverbs_firmware_cmds::roce::SetRoceAddressIn;
use bareverbs_firmware_cmds::vport::ModifyNicVportContextIn;

pub const RC: u8 = 0;
pub const UC: u8 = 1;
pub const UD: u8 = 2;
pub const QP1: u8 = 8;

pub const LOCAL_WRITE: u32 = 1;
pub const REMOTE_READ: u32 = 2;
pub const REMOTE_WRITE: u32 = 4;
pub const ATOMIC: u32 = 8;
pub const ALL: u32 = 15;

/// Fence, completion and solicited bits of a WQE.
pub const SIGNALED: u8 = 0x08;
pub const SOLICITED: u8 = 0x02;

/// Layout of the entries of a completion queue: size by its number in the context, and the format of compressed ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct CqPlan {
    pub cqe_sz: u8,
    pub compressed: Option<u8>,
}

/// A completion queue.
pub struct Cq {
    pub number: u32,
    pub ring: u64,
    pub record: u64,
    pub log_size: u8,
    pub stride: u64,
    pub consumer: u32,
    pub arm_number: u32,
}

/// A completion, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cqe {
    pub opcode: u8,
    pub solicited: bool,
    pub syndrome: u8,
    pub qpn: u32,
    pub wqe_opcode: u8,
    pub counter: u16,
    pub byte_count: u32,
    pub user_index: u32,
    pub immediate: u32,
    pub flags_rqpn: u32,
}

impl Cqe {
    pub fn of(entry: &[u8; 64]) -> Self {
        let opcode = entry[63] >> 4;
        let word = |at: usize| u32::from_be_bytes(entry[at..at + 4].try_into().unwrap());
        Self {
            opcode,
            solicited: entry[63] & 2 != 0,
            syndrome: if opcode >= 0xc { entry[0x37] } else { 0 },
            qpn: word(0x38) & 0xff_ffff,
            wqe_opcode: entry[0x38],
            counter: u16::from_be_bytes([entry[0x3c], entry[0x3d]]),
            byte_count: word(0x2c),
            user_index: word(0x20) & 0xff_ffff,
            immediate: word(0x24),
            flags_rqpn: word(0x18),
        }
    }
}

/// A QP with its receive queue at the ring's start and the send queue behind it.
pub struct Qp {
    pub number: u32,
    pub st: u8,
    pub pd: u32,
    pub ring: u64,
    pub record: u64,
    pub uar: u32,
    pub log_rq: u8,
    pub log_sq: u8,
    pub sq: u16,
    pub rq: u16,
}

pub const RQ_STRIDE: u64 = 64;

/// Attributes that a QP is created with.
#[derive(Clone, Copy)]
pub struct QpPlan {
    pub st: u8,
    pub pd: u32,
    pub send_cq: u32,
    pub receive_cq: u32,
    pub srq: Option<u32>,
    pub user_index: u32,
}

/// One piece of memory: key, address, length.
pub type Piece = (u32, u64, u32);

pub fn data_segment(piece: Piece) -> Vec<u8> {
    let (key, addr, len) = piece;
    let mut segment = len.to_be_bytes().to_vec();
    segment.extend(key.to_be_bytes());
    segment.extend(addr.to_be_bytes());
    segment
}

pub fn inline_segment(data: &[u8]) -> Vec<u8> {
    let mut segment = (1 << 31 | data.len() as u32).to_be_bytes().to_vec();
    segment.extend(data);
    segment.resize(segment.len().next_multiple_of(16), 0);
    segment
}

pub fn remote_segment(addr: u64, key: u32) -> Vec<u8> {
    let mut segment = addr.to_be_bytes().to_vec();
    segment.extend(key.to_be_bytes());
    segment.extend([0; 4]);
    segment
}

pub fn address_vector(qpn: u32, qkey: u32, gid: &[u8; 16], index: u8, mac: [u8; 6]) -> Vec<u8> {
    let mut av = vec![0; 48];
    av[0..4].copy_from_slice(&qkey.to_be_bytes());
    av[8..12].copy_from_slice(&(1 << 31 | qpn).to_be_bytes());
    av[0x0e..0x10].copy_from_slice(&0xc123u16.to_be_bytes());
    av[0x14..0x1a].copy_from_slice(&mac);
    av[0x1b] = 64;
    av[0x1c..0x20].copy_from_slice(&(1u32 << 30 | u32::from(index) << 20).to_be_bytes());
    av[0x20..0x30].copy_from_slice(gid);
    av
}

impl Node {
    pub fn alloc_pd(&mut self) -> u32 {
        self.command(&AllocPdIn::new()).unwrap().pd()
    }

    /// RoCE on, and the address ::ffff:10.0.0.`unit` at index 0.
    pub fn address(&mut self, unit: u8) -> [u8; 16] {
        let mut modify = ModifyNicVportContextIn::new();
        modify.field_select_mut().set_roce_en(true);
        modify.nic_vport_context_mut().set_roce_en(true);
        self.command(&modify).unwrap();
        let mac = self.model.config().mac;
        let gid = gid(unit);
        let mut set = SetRoceAddressIn::new();
        let entry = set.roce_address_mut();
        entry.source_l3_address_mut().copy_from_slice(&gid);
        entry
            .set_roce_version(2)
            .set_roce_l3_type(0)
            .set_source_mac_47_32(u16::from_be_bytes([mac[0], mac[1]]))
            .set_source_mac_31_0(u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
        self.command(&set).unwrap();
        gid
    }

    pub fn create_cq(&mut self, log_size: u8, eq: usize) -> Cq {
        self.try_create_cq(log_size, eq).unwrap()
    }

    pub fn try_create_cq(&mut self, log_size: u8, eq: usize) -> Result<Cq, Failure> {
        self.try_create_cq_as(log_size, eq, CqPlan::default())
    }

    pub fn try_create_cq_as(
        &mut self,
        log_size: u8,
        eq: usize,
        plan: CqPlan,
    ) -> Result<Cq, Failure> {
        let stride = if plan.cqe_sz == 0 { 64 } else { 128 };
        let len = (stride as usize) << log_size;
        let ring = self.host.alloc(len, 4096);
        for entry in self.host.bytes(ring, len).chunks_exact_mut(64) {
            entry[63] = 0xf0;
        }
        let record = self.host.alloc(8, 64);
        let mut create = CreateCqIn::new();
        create
            .cq_context_mut()
            .set_log_cq_size(log_size)
            .set_cqe_sz(plan.cqe_sz)
            .set_cqe_comp_en(plan.compressed.is_some())
            .set_mini_cqe_res_format(plan.compressed.unwrap_or(0))
            .set_uar_page(self.uar)
            .set_c_eqn_or_apu_element(self.events[eq].number)
            .set_dbr_addr(record);
        let (output, _) = self.command_with(&create, &page_list(ring, len), 0)?;
        Ok(Cq {
            number: output.cqn(),
            ring,
            record,
            log_size,
            stride,
            consumer: 0,
            arm_number: 0,
        })
    }

    pub fn poll(&mut self, cq: &mut Cq) -> Option<Cqe> {
        let size = 1u32 << cq.log_size;
        let at = cq.ring + u64::from(cq.consumer & (size - 1)) * cq.stride + (cq.stride - 64);
        let entry: [u8; 64] = self.host.bytes(at, 64).try_into().unwrap();
        let opcode = entry[63] >> 4;
        if opcode == 0xf || u32::from(entry[63] & 1) != (cq.consumer >> cq.log_size) & 1 {
            return None;
        }
        cq.consumer += 1;
        self.host.put32(cq.record, cq.consumer & 0xff_ffff);
        Some(Cqe::of(&entry))
    }

    pub fn poll_all(&mut self, cq: &mut Cq) -> Vec<Cqe> {
        std::iter::from_fn(|| self.poll(cq)).collect()
    }

    pub fn arm(&mut self, cq: &mut Cq, solicited: bool) {
        let value = cq.arm_number << 28 | u32::from(solicited) << 24 | cq.consumer & 0xff_ffff;
        self.host.put32(cq.record + 4, value);
        let uar = u64::from(self.uar) * 4096;
        self.write64(uar + 0x20, u64::from(value) << 32 | u64::from(cq.number));
    }

    /// Registers memory: page list of 4 KiB pages, virtual address as given.
    pub fn register(&mut self, pd: u32, memory: u64, virt: u64, len: u64, access: u32) -> u32 {
        self.try_register(pd, memory, virt, len, access).unwrap()
    }

    pub fn try_register(
        &mut self,
        pd: u32,
        memory: u64,
        virt: u64,
        len: u64,
        access: u32,
    ) -> Result<u32, Failure> {
        assert_eq!(memory & 0xfff, virt & 0xfff);
        let span = (virt & 0xfff) + len;
        let mut list = page_list(memory & !0xfff, span as usize);
        list.resize(list.len().next_multiple_of(16), 0);
        let octowords = (list.len() / 16) as u32;
        let variant = 0x5a;
        let mut create = CreateMkeyIn::new();
        create.set_translations_octword_actual_size(octowords);
        create
            .memory_key_mkey_entry_mut()
            .set_access_mode_1_0(1)
            .set_lr(true)
            .set_lw(access & LOCAL_WRITE != 0)
            .set_rr(access & REMOTE_READ != 0)
            .set_rw(access & REMOTE_WRITE != 0)
            .set_a(access & ATOMIC != 0)
            .set_qpn(0xff_ffff)
            .set_mkey_7_0(variant)
            .set_pd(pd)
            .set_start_addr(virt)
            .set_len(len)
            .set_translations_octword_size(octowords)
            .set_log_page_size(12);
        let (output, _) = self.command_with(&create, &list, 0)?;
        Ok(output.mkey_index() << 8 | u32::from(variant))
    }

    pub fn create_qp(&mut self, plan: QpPlan) -> Qp {
        self.try_create_qp(plan, |_| {}).unwrap()
    }

    pub fn try_create_qp(
        &mut self,
        plan: QpPlan,
        change: impl FnOnce(&mut Qpc),
    ) -> Result<Qp, Failure> {
        let (log_rq, log_sq) = (4, 6);
        let len = ((RQ_STRIDE << log_rq) + (64 << log_sq)) as usize;
        let ring = self.host.alloc(len, 4096);
        let record = self.host.alloc(8, 64);
        let mut create = CreateQpIn::new();
        let qpc = create.qpc_mut();
        qpc.set_st(plan.st)
            .set_pm_state(3)
            .set_pd(plan.pd)
            .set_log_rq_size(log_rq)
            .set_log_rq_stride(2)
            .set_log_sq_size(log_sq)
            .set_uar_page(self.uar)
            .set_user_index(plan.user_index)
            .set_cqn_snd(plan.send_cq)
            .set_cqn_rcv(plan.receive_cq)
            .set_dbr_addr(record);
        let mut log_rq = log_rq;
        if let Some(srq) = plan.srq {
            qpc.set_rq_type(1)
                .set_srqn_rmpn_xrqn(srq)
                .set_log_rq_size(0)
                .set_log_rq_stride(0);
            log_rq = 0;
        }
        change(qpc);
        let (output, _) = self.command_with(&create, &page_list(ring, len), 0)?;
        Ok(Qp {
            number: output.qpn(),
            st: plan.st,
            pd: plan.pd,
            ring,
            record,
            uar: self.uar,
            log_rq,
            log_sq,
            sq: 0,
            rq: 0,
        })
    }

    pub fn make_init(&mut self, qp: &Qp) {
        let mut modify = Rst2initQpIn::new();
        modify.set_qpn(qp.number);
        let qpc = modify.qpc_mut();
        qpc.set_st(qp.st).set_pm_state(3).set_pd(qp.pd);
        qpc.set_rwe(true).set_q_key(0x1111_1111);
        qpc.primary_address_path_mut().set_vhca_port_num(1);
        self.command(&modify).unwrap();
    }

    pub fn make_rtr(
        &mut self,
        qp: &Qp,
        remote_qpn: u32,
        psn: u32,
        to: Option<([u8; 16], [u8; 6])>,
    ) {
        self.try_make_rtr(qp, remote_qpn, psn, to).unwrap();
    }

    pub fn try_make_rtr(
        &mut self,
        qp: &Qp,
        remote_qpn: u32,
        psn: u32,
        to: Option<([u8; 16], [u8; 6])>,
    ) -> Result<(), Failure> {
        let mut modify = Init2rtrQpIn::new();
        modify.set_qpn(qp.number);
        let config = self.model.config();
        let atomics = config.general.atomic()
            && config.atomic.atomic_operations() & 3 != 0
            && config.atomic.atomic_size_qp() & 8 != 0;
        let qpc = modify.qpc_mut();
        qpc.set_st(qp.st).set_pm_state(3).set_pd(qp.pd).set_mtu(3);
        qpc.set_log_msg_max(30);
        if let Some((gid, mac)) = to {
            // The access flags come with their bits here: at INIT the depth is not known yet.
            modify.set_opt_param_mask(0xe);
            let qpc = modify.qpc_mut();
            qpc.set_rre(true)
                .set_rwe(true)
                .set_rae(atomics)
                .set_atomic_mode(u8::from(atomics))
                .set_remote_qpn(remote_qpn)
                .set_next_rcv_psn(psn)
                .set_log_rra_max(2)
                .set_min_rnr_nak(1);
            let path = qpc.primary_address_path_mut();
            path.rgid_rip_mut().copy_from_slice(&gid);
            path.set_src_addr_index(0)
                .set_hop_limit(64)
                .set_udp_sport(0xc001)
                .set_rmac_47_32(u16::from_be_bytes([mac[0], mac[1]]))
                .set_rmac_31_0(u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
        }
        self.command(&modify).map(|_| ())
    }

    pub fn make_rts(&mut self, qp: &Qp, psn: u32) {
        let mut modify = Rtr2rtsQpIn::new();
        modify.set_qpn(qp.number);
        let qpc = modify.qpc_mut();
        qpc.set_st(qp.st)
            .set_pm_state(3)
            .set_next_send_psn(psn)
            .set_retry_count(7)
            .set_rnr_retry(7)
            .set_log_sra_max(2);
        qpc.primary_address_path_mut().set_ack_timeout(14);
        self.command(&modify).unwrap();
    }

    pub fn make_error(&mut self, qp: &Qp) {
        let mut modify = Qp2ErrIn::new();
        modify.set_qpn(qp.number);
        self.command(&modify).unwrap();
    }

    pub fn make_reset(&mut self, qp: &mut Qp) {
        let mut modify = Qp2RstIn::new();
        modify.set_qpn(qp.number);
        self.command(&modify).unwrap();
        qp.sq = 0;
        qp.rq = 0;
        self.host.put64(qp.record, 0);
    }

    /// Puts a send WQE into the ring; the segments follow the control segment.
    pub fn post_send(
        &mut self,
        qp: &mut Qp,
        opcode: u8,
        flags: u8,
        imm: u32,
        segments: &[u8],
    ) -> u16 {
        let octowords = 1 + segments.len().div_ceil(16);
        let mut wqe = Vec::new();
        wqe.extend((u32::from(qp.sq) << 8 | u32::from(opcode)).to_be_bytes());
        wqe.extend((qp.number << 8 | octowords as u32).to_be_bytes());
        wqe.extend([0, 0, 0, flags]);
        wqe.extend(imm.to_be_bytes());
        wqe.extend(segments);
        let sq = qp.ring
            + (if qp.log_rq == 0 {
                16
            } else {
                RQ_STRIDE << qp.log_rq
            });
        let sq = if qp.log_rq == 0 { qp.ring } else { sq };
        let blocks = 1u64 << qp.log_sq;
        for (n, part) in wqe.chunks(64).enumerate() {
            let at = (u64::from(qp.sq) + n as u64) % blocks * 64;
            self.host.put(sq + at, part);
        }
        let index = qp.sq;
        qp.sq = qp.sq.wrapping_add(octowords.div_ceil(4) as u16);
        index
    }

    /// Doorbell record, then doorbell.
    pub fn ring_send(&mut self, qp: &Qp) {
        self.host.put32(qp.record + 4, u32::from(qp.sq));
        let uar = u64::from(qp.uar) * 4096;
        self.write64(uar + 0x800, u64::from(qp.number) << 8);
    }

    pub fn post_receive(&mut self, qp: &mut Qp, pieces: &[Piece]) -> u16 {
        let entries = 1u64 << qp.log_rq;
        let at = qp.ring + u64::from(qp.rq) % entries * RQ_STRIDE;
        let mut wqe: Vec<u8> = pieces
            .iter()
            .flat_map(|&piece| data_segment(piece))
            .collect();
        if wqe.len() < RQ_STRIDE as usize {
            wqe.extend(data_segment((0x100, 0, 0)));
        }
        self.host.put(at, &wqe);
        let index = qp.rq;
        qp.rq = qp.rq.wrapping_add(1);
        self.host.put32(qp.record, u32::from(qp.rq));
        index
    }
}

pub fn gid(unit: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, unit]
}

/// Two cards on one cable, each initialized, with an address, an event queue and a protection domain.
pub struct Pair {
    pub a: Node,
    pub b: Node,
    pub pd: [u32; 2],
}

/// All asynchronous events but commands and pages.
pub const ASYNC: u64 = 0x1f_03be;

impl Pair {
    pub fn new() -> Self {
        Self::of([1, 2].map(connectx_model::Config::new))
    }

    /// The first as unit 1, the second as unit 2.
    pub fn of([first, second]: [connectx_model::Config; 2]) -> Self {
        let make = |config, unit: u8| {
            let mut node = Node::new(config);
            node.initialize();
            node.create_eq(7, ASYNC, 0);
            node.create_eq(7, 0, 1);
            node.address(unit);
            let pd = node.alloc_pd();
            (node, pd)
        };
        let ((a, pd_a), (b, pd_b)) = (make(first, 1), make(second, 2));
        Self {
            a,
            b,
            pd: [pd_a, pd_b],
        }
    }

    /// An RC (or UC) connection, each end with a CQ for both queues.
    pub fn connect(&mut self, st: u8) -> [(Qp, Cq); 2] {
        self.connect_as(st, CqPlan::default())
    }

    pub fn connect_as(&mut self, st: u8, plan: CqPlan) -> [(Qp, Cq); 2] {
        let make = |node: &mut Node, pd: u32, user_index: u32| {
            let cq = node.try_create_cq_as(6, 1, plan).unwrap();
            let qp = node.create_qp(QpPlan {
                st,
                pd,
                send_cq: cq.number,
                receive_cq: cq.number,
                srq: None,
                user_index,
            });
            node.make_init(&qp);
            (qp, cq)
        };
        let a = make(&mut self.a, self.pd[0], 0x11);
        let b = make(&mut self.b, self.pd[1], 0x22);
        let macs = [self.a.model.config().mac, self.b.model.config().mac];
        self.a
            .make_rtr(&a.0, b.0.number, 200, Some((gid(2), macs[1])));
        self.b
            .make_rtr(&b.0, a.0.number, 100, Some((gid(1), macs[0])));
        self.a.make_rts(&a.0, 100);
        self.b.make_rts(&b.0, 200);
        [a, b]
    }

    pub fn run(&mut self) {
        super::exchange(&mut self.a, &mut self.b);
    }
}
