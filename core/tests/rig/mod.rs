//! The device's side of the data path for tests: records where rings lie, reads WQEs, writes CQEs.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bareverbs_core::{
    Config, Cq, CqInit, Cqs, Device, Gid, GidEntry, PageChunks, Pd, Qp, QpAttr, QpAttrMask, QpCap,
    QpInitAttr, QpState, QpType, Qps, Resources, Srqs,
};
use bareverbs_firmware_cmds::cq::{CreateCqIn, ModifyCqIn};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::CreateQpIn;
use bareverbs_firmware_cmds::srq::{CreateRmpIn, CreateSrqIn};
use zerocopy::FromBytes;

use crate::support::Fake;
use crate::support::firmware::{Action, Posted};

pub(crate) type Memory = Resources<Qps<4>, Cqs<4>, Srqs<2>, PageChunks<8>>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct CqObject {
    pub(crate) ring: u64,
    pub(crate) log_size: u8,
    pub(crate) record: u64,
    pub(crate) producer: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct QpObject {
    pub(crate) create: CreateQpIn,
    pub(crate) ring: u64,
    pub(crate) user_index: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct SrqObject {
    pub(crate) ring: u64,
    pub(crate) stride: u64,
    pub(crate) record: u64,
}

#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) next: u32,
    pub(crate) qpn: u32,
    pub(crate) cqs: HashMap<u32, CqObject>,
    pub(crate) qps: HashMap<u32, QpObject>,
    pub(crate) srqs: HashMap<u32, SrqObject>,
    /// The n-th command with this opcode gets this instead of an answer.
    pub(crate) instead: Vec<(Opcode, Action)>,
    /// Context that QUERY_QP answers with.
    pub(crate) queried: Vec<u8>,
}

/// The firmware and the device behind it.
#[derive(Debug, Clone)]
pub(crate) struct Rig(Arc<Mutex<Objects>>);

pub(crate) fn fake(issi: u32) -> Fake {
    Fake::with(|inner| {
        inner.issi = issi;
        for caps in [&mut inner.hca, &mut inner.hca_max] {
            caps.set_xrc(true)
                .set_max_wqe_sz_sq(1024)
                .set_max_wqe_sz_rq(512)
                .set_log_max_cq_sz(22)
                .set_log_max_srq_sz(15)
                .set_cq_resize(true)
                .set_cq_moderation(true)
                .set_cqe_compression(true)
                .set_log_max_ra_req_qp(4)
                .set_log_max_ra_res_qp(4);
        }
    })
}

pub(crate) fn open<'a>(
    fake: &'a Fake,
    memory: &'a mut Memory,
    config: Config,
) -> Device<'a, &'a Fake> {
    let device = Device::open(fake, config, memory.storage()).expect("bring-up");
    let gid = Gid::from_ipv4([10, 0, 0, 1].into());
    let entry = GidEntry::roce_v2(gid, [2, 0, 0, 0, 0, 7]);
    device.set_gid(0, entry).expect("GID");
    device
}

/// Where a ring starts: `page_offset` counts 64ths of a page.
fn first_page(pages: &[u8], log_page_size: u8, page_offset: u8) -> u64 {
    let page = 4096_u64 << log_page_size;
    u64::from_be_bytes(pages[..8].try_into().unwrap()) + u64::from(page_offset) * (page / 64)
}

impl Rig {
    pub(crate) fn new(fake: &Fake) -> Self {
        let objects = Objects {
            next: 0x10,
            qpn: 0x100,
            cqs: HashMap::new(),
            qps: HashMap::new(),
            srqs: HashMap::new(),
            instead: Vec::new(),
            queried: Vec::new(),
        };
        let rig = Self(Arc::new(Mutex::new(objects)));
        let script = rig.clone();
        fake.script(move |posted| script.command(posted));
        rig
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn command(&self, posted: &Posted) -> Action {
        let mut objects = self.lock();
        let Some(opcode) = Opcode::from_number(posted.opcode) else {
            return Action::Normal;
        };
        if let Some(at) = objects
            .instead
            .iter()
            .position(|(wanted, _)| *wanted == opcode)
        {
            return objects.instead.remove(at).1;
        }
        objects.next += 1;
        let mut number = objects.next;
        let mut output = vec![0; posted.output_len.max(16)];
        match opcode {
            Opcode::CreateCq => {
                let (create, pages) = CreateCqIn::read_from_prefix(&posted.input).unwrap();
                let context = create.cq_context();
                let cq = CqObject {
                    ring: first_page(pages, context.log_page_size(), context.page_offset()),
                    log_size: context.log_cq_size(),
                    record: context.dbr_addr(),
                    producer: 0,
                };
                objects.cqs.insert(number, cq);
            }
            Opcode::CreateQp => {
                number = objects.qpn;
                objects.qpn += 1;
                let (create, pages) = CreateQpIn::read_from_prefix(&posted.input).unwrap();
                let qp = QpObject {
                    create,
                    ring: first_page(
                        pages,
                        create.qpc().log_page_size(),
                        create.qpc().page_offset(),
                    ),
                    user_index: create.qpc().user_index(),
                };
                objects.qps.insert(number, qp);
            }
            Opcode::CreateSrq => {
                let (create, pages) = CreateSrqIn::read_from_prefix(&posted.input).unwrap();
                let context = create.srq_context_entry();
                let srq = SrqObject {
                    ring: first_page(pages, context.log_page_size(), context.page_offset()),
                    stride: 16 << context.log_rq_stride(),
                    record: context.dbr_addr(),
                };
                objects.srqs.insert(number, srq);
            }
            Opcode::CreateRmp => {
                let (create, pages) = CreateRmpIn::read_from_prefix(&posted.input).unwrap();
                let wq = create.ctx().wq();
                let srq = SrqObject {
                    ring: first_page(pages, wq.log_wq_pg_sz(), wq.page_offset()),
                    stride: 1 << wq.log_wq_stride(),
                    record: wq.dbr_addr(),
                };
                objects.srqs.insert(number, srq);
            }
            Opcode::CreateMkey | Opcode::AllocPd | Opcode::AllocXrcd | Opcode::CreateXrcSrq => {}
            Opcode::QueryCq => {
                let cq = objects.cqs[&(posted.dword(8) & 0xff_ffff)];
                output[0x10 + 0x2c..][..4]
                    .copy_from_slice(&(cq.producer & 0xff_ffff).to_be_bytes());
                return Action::Answer(output);
            }
            Opcode::QueryQp => {
                let queried = objects.queried.clone();
                output[0x18..0x18 + queried.len()].copy_from_slice(&queried);
                return Action::Answer(output);
            }
            _ => return Action::Normal,
        }
        output[8..12].copy_from_slice(&number.to_be_bytes());
        Action::Answer(output)
    }

    /// Resizes a CQ. The device's RESIZE_CQ completion is in the old ring before the driver looks, as it is before the
    /// command's answer.
    pub(crate) fn resize(&self, fake: &Fake, cq: &mut Cq<'_, &Fake>, size: u32) {
        let cqn = cq.cqn().number();
        let mut bytes = [0; 64];
        bytes[0x3f] = 5 << 4;
        self.cqe(fake, cqn, bytes);
        cq.resize(size).expect("resized");
        let input = {
            let inner = fake.lock();
            let posted = inner
                .history
                .iter()
                .rev()
                .find(|posted| posted.is(Opcode::ModifyCq));
            posted.expect("MODIFY_CQ").input.clone()
        };
        let (modify, pages) = ModifyCqIn::read_from_prefix(&input).unwrap();
        assert_eq!((modify.op_mod(), modify.cqn()), (1, cqn));
        assert_eq!(modify.modify_field_select_resize_field_select(), 0b111);
        let mut objects = self.lock();
        let object = objects.cqs.get_mut(&cqn).unwrap();
        object.ring = first_page(
            pages,
            modify.cq_context().log_page_size(),
            modify.cq_context().page_offset(),
        );
        object.log_size = modify.cq_context().log_cq_size();
    }

    /// Writes a CQE with the right owner bit.
    pub(crate) fn cqe(&self, fake: &Fake, cqn: u32, mut bytes: [u8; 64]) {
        let mut objects = self.lock();
        let cq = objects.cqs.get_mut(&cqn).unwrap();
        let owner = cq.producer >> cq.log_size & 1;
        bytes[0x3f] = bytes[0x3f] & 0xfe | owner as u8;
        let at = cq.ring + u64::from(cq.producer & ((1 << cq.log_size) - 1)) * 64;
        cq.producer += 1;
        fake.lock().dma_write(at, &bytes);
    }

    /// A completion of a QP: opcode, WQE counter, and for requesters the WQE's opcode.
    pub(crate) fn complete(
        &self,
        fake: &Fake,
        cqn: u32,
        qpn: u32,
        op: u8,
        counter: u16,
        wqe_op: u8,
    ) {
        let user_index = self.lock().qps[&qpn].user_index;
        self.cqe(fake, cqn, cqe(user_index, qpn, op, counter, wqe_op));
    }

    /// Where the send ring starts.
    pub(crate) fn sq(&self, qpn: u32) -> u64 {
        let qp = self.lock().qps[&qpn];
        let qpc = qp.create.qpc();
        let rq = if qpc.rq_type() == 0 {
            16 << qpc.log_rq_stride() << qpc.log_rq_size()
        } else {
            0
        };
        qp.ring + rq
    }

    /// A piece of the send ring.
    pub(crate) fn send_wqe(&self, fake: &Fake, qpn: u32, block: u64, len: usize) -> Vec<u8> {
        let at = self.sq(qpn) + block * 64;
        fake.lock().dma_read(at, len)
    }

    /// The doorbell record: receive and send counters.
    pub(crate) fn records(&self, fake: &Fake, qpn: u32) -> (u32, u32) {
        let at = self.lock().qps[&qpn].create.qpc().dbr_addr();
        let bytes = fake.lock().dma_read(at, 8);
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        (word(0), word(4))
    }

    /// The CQ's record: consumer index and arm state.
    pub(crate) fn cq_records(&self, fake: &Fake, cqn: u32) -> (u32, u32) {
        let at = self.lock().cqs[&cqn].record;
        let bytes = fake.lock().dma_read(at, 8);
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        (word(0), word(4))
    }
}

pub(crate) fn cqe(user_index: u32, qpn: u32, op: u8, counter: u16, wqe_op: u8) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0x20..0x24].copy_from_slice(&user_index.to_be_bytes());
    bytes[0x38..0x3c].copy_from_slice(&(u32::from(wqe_op) << 24 | qpn).to_be_bytes());
    bytes[0x3c..0x3e].copy_from_slice(&counter.to_be_bytes());
    bytes[0x3f] = op << 4;
    bytes
}

pub(crate) fn cap(send: u32, recv: u32, sge: u32, inline: u32) -> QpCap {
    QpCap {
        max_send_wr: send,
        max_recv_wr: recv,
        max_send_sge: sge,
        max_recv_sge: sge,
        max_inline_data: inline,
    }
}

/// Doorbells rung since the last call, as (offset in the UAR page, value).
pub(crate) fn doorbells(fake: &Fake) -> Vec<(usize, u64)> {
    let all = std::mem::take(&mut fake.lock().doorbells);
    all.into_iter()
        .map(|(at, value)| (at & 0xfff, value))
        .filter(|(at, _)| *at == 0x20 || *at >= 0x800)
        .collect()
}

pub(crate) type FakeQp<'d, T> = Qp<'d, &'d Fake, T>;

/// One CQ and one QP in RTS.
pub(crate) fn pair<'d, T: QpType>(
    device: &'d Device<'d, &'d Fake>,
    pd: &Pd<'d, &'d Fake>,
    cap: QpCap,
    cqe: u32,
    sq_sig_all: bool,
) -> (Cq<'d, &'d Fake>, FakeQp<'d, T>) {
    let cq = device.create_cq(CqInit::new(cqe)).expect("CQ");
    let mut init = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap,
        sq_sig_all,
    };
    let mut qp = pd.create_qp::<T>(&mut init).expect("QP");
    to_rts(&mut qp);
    (cq, qp)
}

/// Through the states with what each needs and nothing more.
pub(crate) fn to_rts<T: QpType>(qp: &mut FakeQp<'_, T>) {
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let row = bareverbs_core::qp::transition(T::KIND, qp.state(), to).unwrap();
        let mut attr = QpAttr {
            qp_state: to,
            ..QpAttr::DEFAULT
        };
        attr.ah_attr.dmac = [2, 0, 0, 0, 0, 1];
        attr.ah_attr.dgid = bareverbs_core::Gid::from_ipv4([10, 0, 0, 2].into());
        qp.modify(&attr, row.required | QpAttrMask::STATE)
            .expect("transition");
    }
}
