//! The device that the operations are measured against, and its QPs.

// UNSAFETY: reads what was written to the doorbells.
#![expect(unsafe_code)]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex};

use bareverbs_core::ah::{AddressHandle, AhAttr};
use bareverbs_core::cq::{CqEntries, MiniFormat};
use bareverbs_core::{
    Config, Cq, CqInit, Cqs, DcAddress, DcTarget, Dci, Device, Gid, GidEntry, LKey, PageChunks, Pd,
    Platform, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType, Qpn, Qps, RKey, Rc,
    Remote, Resources, SendData, SendFlags, SendOp, SendWr, Sge, Srqs, Ud,
};
use bareverbs_firmware_cmds::cq::CreateCqIn;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::CreateQpIn;
use bareverbs_firmware_cmds::rq::CreateRqIn;
use bareverbs_firmware_cmds::sq::CreateSqIn;
use zerocopy::FromBytes;

use crate::doorbells::Doorbells;
use crate::forwarding::of_port;
use crate::support::Fake;
use crate::support::firmware::{Action, Posted};
use crate::{BATCH, measured};

const SGE: Sge = Sge::new(0x7f00_0000_1000, 0x1000, LKey(0x0011_2201));
const REMOTE: Remote = Remote {
    addr: 0x1122_3344_5566_7788,
    rkey: RKey(0xaabb_cc01),
};

/// As on vfio-pci.
pub(crate) type Counting = Doorbells<false>;
/// As on bare metal.
pub(crate) type Combining = Doorbells<true>;

/// Where the rings lie that the device made, by the order of creation.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    next: u32,
    uars: u32,
    /// By number: ring, log of its size, completions written.
    pub(crate) cqs: HashMap<u32, (u64, u8, u32)>,
    /// By number: ring, create command.
    qps: HashMap<u32, (u64, CreateQpIn)>,
    /// A lane's queues.
    pub(crate) receiver: Option<(u32, CreateRqIn)>,
    pub(crate) sender: Option<(u32, u64, CreateSqIn)>,
}

/// The opened device.
pub(crate) struct Setup<const COMBINING: bool = false> {
    pub(crate) device: Device<'static, Doorbells<COMBINING>>,
    pub(crate) rings: Arc<Mutex<Rings>>,
}

/// Where a ring begins: the offset counts 64ths of a page.
fn ring(pages: &[u8], log_page_size: u8, offset: u8) -> u64 {
    let page = pages
        .first_chunk()
        .map_or(0, |page| u64::from_be_bytes(*page));
    page + (u64::from(offset) << 6 << log_page_size)
}

fn answer(rings: &Mutex<Rings>, posted: &Posted) -> Action {
    let mut rings = rings.lock().expect("not poisoned");
    let number = rings.next + 0x10;
    match Opcode::from_number(posted.opcode) {
        Some(Opcode::CreateCq) => {
            let (create, pages) = CreateCqIn::read_from_prefix(&posted.input).expect("long enough");
            let context = create.cq_context();
            let ring = ring(pages, context.log_page_size(), context.page_offset());
            rings.cqs.insert(number, (ring, context.log_cq_size(), 0));
        }
        Some(Opcode::CreateQp) => {
            let (create, pages) = CreateQpIn::read_from_prefix(&posted.input).expect("long enough");
            let qpc = create.qpc();
            let ring = ring(pages, qpc.log_page_size(), qpc.page_offset());
            rings.qps.insert(number, (ring, create));
        }
        Some(Opcode::CreateRq) => {
            let (create, _) = CreateRqIn::read_from_prefix(&posted.input).expect("long enough");
            rings.receiver = Some((number, create));
        }
        Some(Opcode::CreateSq) => {
            let (create, pages) = CreateSqIn::read_from_prefix(&posted.input).expect("long enough");
            let wq = create.ctx().wq();
            let ring = ring(pages, wq.log_wq_pg_sz(), wq.page_offset());
            rings.sender = Some((number, ring, create));
        }
        Some(Opcode::QueryHcaCap | Opcode::QueryNicVportContext) => return of_port(posted),
        Some(Opcode::AllocPd | Opcode::AllocTransportDomain | Opcode::CreateTis) => {}
        Some(Opcode::AllocUar) => {
            // Pages 3 and 4 of the BAR.
            let mut output = vec![0; posted.output_len.max(16)];
            output[11] = 3 + rings.uars as u8;
            rings.uars += 1;
            return Action::Answer(output);
        }
        _ => return Action::Normal,
    }
    rings.next += 1;
    let mut output = vec![0; posted.output_len.max(16)];
    output[8..12].copy_from_slice(&number.to_be_bytes());
    Action::Answer(output)
}

impl<const COMBINING: bool> Setup<COMBINING> {
    pub(crate) fn new() -> Self {
        let fake = Fake::with(|inner| {
            for caps in [&mut inner.hca, &mut inner.hca_max] {
                caps.set_max_wqe_sz_sq(1024)
                    .set_max_wqe_sz_rq(512)
                    .set_log_max_cq_sz(22)
                    .set_cqe_compression(true)
                    .set_dct(true)
                    .set_max_wqe_sz_sq_dc(1024)
                    .set_eth_net_offloads(true)
                    .set_nic_flow_table(true)
                    .set_log_max_wq_sz(15)
                    .set_bf(COMBINING)
                    .set_log_bf_reg_size(9);
            }
        });
        let rings = Arc::new(Mutex::new(Rings::default()));
        let script = rings.clone();
        fake.script(move |posted| answer(&script, posted));
        let platform = Doorbells::new(fake);
        // Left to the end of the process, as a program's main device is.
        let memory = Box::leak(Box::new(
            Resources::<Qps<5>, Cqs<8>, Srqs<0>, PageChunks<8>>::new(),
        ));
        let device = Device::open(platform, Config::DEFAULT, memory.storage()).expect("bring-up");
        let gid = Gid::from_ipv4([10, 0, 0, 1].into());
        let entry = GidEntry::roce_v2(gid, [2, 0, 0, 0, 0, 7]);
        device.set_gid(0, entry).expect("GID");
        Self { device, rings }
    }

    pub(crate) fn fake(&self) -> &Fake {
        &self.device.platform().fake
    }
}

/// The QPs and CQs.
pub(crate) struct Bench<'d> {
    setup: &'d Setup,
    pd: Pd<'d, Counting>,
    rc: Qp<'d, Counting, Rc>,
    ud: Qp<'d, Counting, Ud>,
    dci: Qp<'d, Counting, Dci>,
    send_cq: Cq<'d, Counting>,
    recv_cq: Cq<'d, Counting>,
    /// Receives into a CQ that compresses.
    zipped: Qp<'d, Counting, Rc>,
    zipped_cq: Cq<'d, Counting>,
    ah: AddressHandle,
    dc: DcAddress,
    /// WQE counters of what comes next: RC sends, UD sends, receives, receives whose completions are compressed, DC sends.
    next: [u16; 5],
}

/// The sum of the identifiers of a batch.
const IDENTIFIERS: u32 = (BATCH * (BATCH - 1) / 2) as u32;

const CAP: QpCap = QpCap {
    max_send_wr: 1024,
    max_recv_wr: 1024,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline_data: 220,
};

fn to_rts<P: Platform, T: QpType>(qp: &mut Qp<'_, P, T>) {
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let row = bareverbs_core::qp::transition(T::KIND, qp.state(), to).expect("a transition");
        let mut attr = QpAttr {
            qp_state: to,
            ..QpAttr::DEFAULT
        };
        attr.ah_attr.dmac = [2, 0, 0, 0, 0, 1];
        qp.modify(&attr, row.required | QpAttrMask::STATE)
            .expect("modified");
    }
}

/// One batch of each operation that goes through a register, on a queue that holds them all.
pub(crate) fn blue_flame(setup: &Setup<true>) {
    let device = &setup.device;
    let pd = device.alloc_pd().expect("PD");
    let cq = device.create_cq(CqInit::new(BATCH as u32)).expect("CQ");
    let mut init = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: CAP,
        sq_sig_all: false,
    };
    let mut qp = pd.create_qp::<Rc>(&mut init).expect("QP");
    to_rts(&mut qp);
    let data: [u8; 64] = std::array::from_fn(|i| i as u8);
    let flags = black_box(SendFlags::SIGNALED);
    measured::send_blue_flame(qp.send_queue(), BATCH, flags, black_box(SGE));
    measured::send_inline_blue_flame(qp.send_queue(), BATCH, flags, black_box(&data[..32]));
    measured::write_inline_blue_flame(
        qp.send_queue(),
        BATCH,
        flags,
        black_box(&REMOTE),
        black_box(&data[..]),
    );
    // The last one's two blocks, in one of the second register's buffers.
    let platform = device.platform();
    let (_, create) = setup.rings.lock().expect("not poisoned").qps[&qp.qpn().number()];
    let written = |word: usize| {
        let register = &platform.combining.0[(0xa00 + 0x100) / 8 + word];
        // SAFETY: plain memory of ours, which only this thread writes.
        u64::from_be(unsafe { register.get().read_volatile() })
    };
    assert_eq!(create.qpc().uar_page(), 4);
    assert_eq!(written(0) & 0xff_0000_00ff, 0x08_0000_0007);
    assert_eq!(written(2), REMOTE.addr);
    assert_eq!(written(4) >> 32, 0x8000_0040);
    // Control and address segments take 32 bytes and the length 4: the last 4 bytes are at 96.
    assert_eq!(written(12) >> 32, 0x3c3d_3e3f);
}

impl<'d> Bench<'d> {
    pub(crate) fn new(setup: &'d Setup) -> Self {
        let device = &setup.device;
        let pd = device.alloc_pd().expect("PD");
        let send_cq = device.create_cq(CqInit::new(BATCH as u32)).expect("CQ");
        let recv_cq = device.create_cq(CqInit::new(BATCH as u32)).expect("CQ");
        let mut init = QpInitAttr {
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: None,
            cap: CAP,
            sq_sig_all: false,
        };
        let mut rc = pd.create_qp::<Rc>(&mut init).expect("QP");
        init.cap = CAP;
        let mut ud = pd.create_qp::<Ud>(&mut init).expect("QP");
        init.cap = CAP;
        let mut dci = pd.create_qp::<Dci>(&mut init).expect("QP");
        let zipped_cq = device
            .create_cq(CqInit {
                entries: CqEntries::compressed(MiniFormat::Checksum),
                ..CqInit::new(BATCH as u32)
            })
            .expect("CQ");
        init.cap = CAP;
        init.recv_cq = &zipped_cq;
        let mut zipped = pd.create_qp::<Rc>(&mut init).expect("QP");
        to_rts(&mut zipped);
        to_rts(&mut rc);
        to_rts(&mut ud);
        to_rts(&mut dci);
        let attr = AhAttr {
            dmac: [2, 0, 0, 0, 0, 9],
            hop_limit: 64,
            flow_label: 0x12345,
            ..AhAttr::default()
        };
        let ah = device.create_ah(&attr).expect("AH");
        let target = DcTarget {
            ah: &ah,
            dctn: Qpn::from_low_bits(0x42),
            access_key: 0x1111_1111,
        };
        let dc = target.prepare();
        Self {
            setup,
            pd,
            rc,
            ud,
            dci,
            send_cq,
            recv_cq,
            zipped,
            zipped_cq,
            ah,
            dc,
            next: [0; 5],
        }
    }

    fn fake(&self) -> &Fake {
        self.setup.fake()
    }

    /// Writes `count` completions, of WQEs `step` blocks apart.
    fn complete(
        &self,
        (cqn, qpn): (u32, u32),
        op: u8,
        wqe_op: u8,
        first: u16,
        step: u16,
        count: usize,
    ) {
        let mut rings = self.setup.rings.lock().expect("not poisoned");
        let user_index = rings.qps[&qpn].1.qpc().user_index();
        let Some((ring, log_size, producer)) = rings.cqs.get_mut(&cqn) else {
            return;
        };
        for n in 0..count {
            let mut cqe = [0; 64];
            cqe[0x20..0x24].copy_from_slice(&user_index.to_be_bytes());
            cqe[0x2c..0x30].copy_from_slice(&4096_u32.to_be_bytes());
            cqe[0x38..0x3c].copy_from_slice(&(u32::from(wqe_op) << 24 | qpn).to_be_bytes());
            let counter = first.wrapping_add(step.wrapping_mul(n as u16));
            cqe[0x3c..0x3e].copy_from_slice(&counter.to_be_bytes());
            cqe[0x3f] = op << 4 | (*producer >> *log_size & 1) as u8;
            let at = u64::from(*producer & ((1 << *log_size) - 1)) * 64;
            self.fake().lock().dma_write(*ring + at, &cqe);
            *producer += 1;
        }
    }

    /// Completes a batch of RC sends, `step` blocks each, and polls it by `poll`.
    fn finish_sends(
        &mut self,
        step: u16,
        wqe_op: u8,
        poll: fn(&mut Cq<'_, Counting>, usize) -> u64,
    ) {
        let (cqn, qpn) = (self.send_cq.cqn().number(), self.rc.qpn().number());
        self.complete((cqn, qpn), 0, wqe_op, self.next[0], step, BATCH);
        self.next[0] = self.next[0].wrapping_add(step * BATCH as u16);
        let sum = poll(&mut self.send_cq, BATCH);
        assert_eq!(
            sum as u32, IDENTIFIERS,
            "each completion has its identifier"
        );
    }

    /// The same where the sum says only how many completions there were.
    fn finish_counted_sends(&mut self) {
        let (cqn, qpn) = (self.send_cq.cqn().number(), self.rc.qpn().number());
        self.complete((cqn, qpn), 0, 0x0a, self.next[0], 1, BATCH);
        self.next[0] = self.next[0].wrapping_add(BATCH as u16);
        assert_eq!(
            measured::poll_wcs_req(&mut self.send_cq, BATCH),
            BATCH as u64
        );
    }

    /// Sends that have an address vector: two blocks each.
    fn finish_addressed(&mut self, qpn: Qpn, which: usize) {
        let cqn = self.send_cq.cqn().number();
        let first = self.next[which];
        self.complete((cqn, qpn.number()), 0, 0x0a, first, 2, BATCH);
        self.next[which] = first.wrapping_add(2 * BATCH as u16);
        assert_eq!(
            measured::poll_wcs(&mut self.send_cq, BATCH),
            (0..BATCH as u64).sum::<u64>()
        );
    }

    fn finish_receives(&mut self, poll: fn(&mut Cq<'_, Counting>, usize) -> u64, sum: u32) {
        let (cqn, qpn) = (self.recv_cq.cqn().number(), self.rc.qpn().number());
        self.complete((cqn, qpn), 2, 0, self.next[2], 1, BATCH);
        self.next[2] = self.next[2].wrapping_add(BATCH as u16);
        assert_eq!(poll(&mut self.recv_cq, BATCH) as u32, sum);
    }

    /// Receives a batch whose completions come in sessions of 64, and polls it.
    fn finish_compressed(&mut self) {
        for id in 0..BATCH as u64 {
            self.zipped.recv_queue().post(id, &[SGE]).expect("space");
        }
        let (cqn, qpn) = (self.zipped_cq.cqn().number(), self.zipped.qpn().number());
        for _ in 0..BATCH / 64 {
            let mut rings = self.setup.rings.lock().expect("not poisoned");
            let user_index = rings.qps[&qpn].1.qpc().user_index();
            let Some((ring, log_size, producer)) = rings.cqs.get_mut(&cqn) else {
                return;
            };
            let write = |index: u32, entry: &[u8; 64]| {
                let at = u64::from(index & ((1 << *log_size) - 1)) * 64;
                self.fake().lock().dma_write(*ring + at, entry);
            };
            let mut array = [0; 64];
            for mini in array.as_chunks_mut::<8>().0 {
                mini[4..].copy_from_slice(&4096_u32.to_be_bytes());
            }
            write(*producer + 1, &array);
            for nth in 1..8 {
                write(*producer + nth * 8, &array);
            }
            let mut title = [0; 64];
            title[0x20..0x24].copy_from_slice(&user_index.to_be_bytes());
            title[0x2c..0x30].copy_from_slice(&64_u32.to_be_bytes());
            title[0x38..0x3c].copy_from_slice(&qpn.to_be_bytes());
            title[0x3c..0x3e].copy_from_slice(&self.next[3].to_be_bytes());
            title[0x3f] = 0x2c | (*producer >> *log_size & 1) as u8;
            write(*producer, &title);
            *producer += 64;
            self.next[3] = self.next[3].wrapping_add(64);
        }
        let sum = measured::poll_compressed(&mut self.zipped_cq, BATCH);
        assert_eq!(
            sum as u32, IDENTIFIERS,
            "each completion has its identifier"
        );
    }

    /// One batch of every operation.
    pub(crate) fn round(&mut self) {
        let data: [u8; 64] = std::array::from_fn(|i| i as u8);
        let short: &[u8; 32] = data.first_chunk().expect("longer");
        let flags = black_box(SendFlags::SIGNALED);
        measured::nothing(BATCH);

        measured::send(self.rc.send_queue(), BATCH, flags, black_box(SGE));
        self.finish_sends(1, 0x0a, measured::poll);
        let sges = [SGE];
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::Send,
            flags,
            data: SendData::Sges(&sges),
        };
        measured::post(self.rc.send_queue(), BATCH, black_box(&wr));
        self.finish_counted_sends();
        measured::send_inline_const(self.rc.send_queue(), BATCH, flags, black_box(short));
        self.finish_sends(1, 0x0a, measured::poll_16_req);
        measured::send_inline_dyn(self.rc.send_queue(), BATCH, flags, black_box(&data[..32]));
        self.finish_sends(1, 0x0a, measured::poll_16_req_full);
        measured::write_inline(
            self.rc.send_queue(),
            BATCH,
            flags,
            black_box(&REMOTE),
            black_box(&data[..]),
        );
        self.finish_sends(2, 0x08, measured::poll_wcs);
        measured::write(
            self.rc.send_queue(),
            BATCH,
            flags,
            black_box(&REMOTE),
            black_box(&SGE),
        );
        self.finish_sends(1, 0x08, measured::poll_wcs);
        measured::read(
            self.rc.send_queue(),
            BATCH,
            flags,
            black_box(&REMOTE),
            black_box(&SGE),
        );
        self.finish_sends(1, 0x10, measured::poll_wcs);
        measured::send_16(self.rc.send_queue(), BATCH, black_box(&[(SGE, flags); 16]));
        self.finish_sends(1, 0x0a, measured::poll_wcs);
        measured::send_ud(self.ud.send_queue(), BATCH, flags, &self.ah, black_box(SGE));
        self.finish_addressed(self.ud.qpn(), 1);
        measured::send_dc(
            self.dci.send_queue(),
            BATCH,
            flags,
            black_box(&self.dc),
            black_box(SGE),
        );
        self.finish_addressed(self.dci.qpn(), 4);

        measured::recv(self.rc.recv_queue(), BATCH, black_box(&SGE));
        self.finish_receives(measured::poll_16_resp, IDENTIFIERS);
        measured::recv_16(self.rc.recv_queue(), BATCH, black_box(&[SGE; 16]));
        self.finish_receives(measured::poll_16_resp_full, IDENTIFIERS);
        // The same posts once more, outside of the count.
        for id in 0..BATCH as u64 {
            self.rc.recv_queue().post(id, &sges).expect("space");
        }
        self.finish_receives(measured::poll_wcs_resp, BATCH as u32);
        self.finish_compressed();
        measured::poll_empty(&mut self.recv_cq, BATCH);
    }

    /// The first WQEs of each kind, word by word.
    pub(crate) fn check_bytes(&mut self) {
        let data: [u8; 64] = std::array::from_fn(|i| i as u8);
        let qpn = self.rc.qpn().number();
        let mut at = 0_u16;
        let mut expect = |bench: &mut Self, blocks: u16, opcode: u8, words: &[u32]| {
            let (ring, create) = bench.setup.rings.lock().expect("not poisoned").qps[&qpn];
            let rq = 16 << create.qpc().log_rq_stride() << create.qpc().log_rq_size();
            let bytes = bench
                .fake()
                .lock()
                .dma_read(ring + rq + u64::from(at) * 64, words.len() * 4);
            let found: Vec<u32> = bytes
                .chunks_exact(4)
                .map(|word| {
                    word.iter()
                        .fold(0, |value, &byte| value << 8 | u32::from(byte))
                })
                .collect();
            let units = words[1];
            assert_eq!(found[0], u32::from(at) << 8 | u32::from(opcode));
            assert_eq!(found[1], qpn << 8 | units);
            assert_eq!(found[2..], words[2..], "opcode {opcode:#x}");
            bench.complete((bench.send_cq.cqn().number(), qpn), 0, opcode, at, 1, 1);
            measured::poll_wcs(&mut bench.send_cq, 16);
            at += blocks;
        };
        let entry = [0x1000, 0x0011_2201, 0x7f00, 0x1000];
        let remote = [0x1122_3344, 0x5566_7788, 0xaabb_cc01, 0];
        let inline = |len: usize| {
            data[..len]
                .chunks_exact(4)
                .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
        };
        let flags = SendFlags::SIGNALED;
        measured::send(self.rc.send_queue(), 1, flags, SGE);
        expect(self, 1, 0x0a, &[&[0, 2, 8, 0][..], &entry].concat());
        measured::send_inline_dyn(self.rc.send_queue(), 1, flags, &data[..32]);
        let words: Vec<u32> = [0, 4, 8, 0, 0x8000_0020]
            .into_iter()
            .chain(inline(32))
            .collect();
        expect(self, 1, 0x0a, &words);
        measured::write_inline(self.rc.send_queue(), 1, flags, &REMOTE, &data);
        let words: Vec<u32> = [0, 7, 8, 0]
            .into_iter()
            .chain(remote)
            .chain([0x8000_0040])
            .chain(inline(64))
            .collect();
        expect(self, 2, 0x08, &words);
        measured::write(self.rc.send_queue(), 1, flags, &REMOTE, &SGE);
        expect(
            self,
            1,
            0x08,
            &[&[0, 3, 8, 0][..], &remote, &entry].concat(),
        );
        measured::read(self.rc.send_queue(), 1, flags, &REMOTE, &SGE);
        expect(
            self,
            1,
            0x10,
            &[&[0, 3, 8, 0][..], &remote, &entry].concat(),
        );
        self.next[0] = at;
    }

    /// DMA memory of QPs of some sizes.
    pub(crate) fn memory(&self) -> Vec<(&'static str, QpCap, usize)> {
        let shapes = [
            (
                "RC",
                QpCap {
                    max_send_wr: 1,
                    max_recv_wr: 1,
                    ..CAP
                },
            ),
            (
                "RC, no inline data",
                QpCap {
                    max_send_wr: 16,
                    max_recv_wr: 16,
                    max_inline_data: 0,
                    ..CAP
                },
            ),
            ("RC", CAP),
        ];
        let one = |(name, cap): (&'static str, QpCap)| {
            let mut init = QpInitAttr {
                send_cq: &self.send_cq,
                recv_cq: &self.recv_cq,
                srq: None,
                cap,
                sq_sig_all: false,
            };
            let qp = self.pd.create_qp::<Rc>(&mut init).expect("QP");
            (name, init.cap, qp.memory_len())
        };
        shapes.map(one).to_vec()
    }
}
