//! Requests that are built call by call, as they are drawn: what they put on the ring beside the same requests posted as values.

use bareverbs_core::ah::{AddressHandle, AhAttr};
use bareverbs_core::{
    Cq, Destination, LKey, OpenBatch, PostError, QpType, Qpn, RKey, Rc, SendData, SendFlags,
    SendOp, SendQueue, SendWr, Sge, Srqn, Uc, Ud, WcStatus, XrcSend,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::rig::{FakeQp, Rig, cap, doorbells, pair};
use crate::support::Fake;
use crate::{REMOTE, poll};

type Open<'q, 'd, K> = OpenBatch<'q, 'd, &'d Fake, K>;

const SRQN: Srqn = Srqn::from_low_bits(0x12_3456);
const DEPTH: u32 = 6;

/// A type of QPs: how a request of it begins, gets its target, and is posted as a value.
trait Kind: QpType + Sized {
    const OPS: &'static [SendOp<'static>];
    fn begin(open: &mut Open<'_, '_, Self>, wr_id: u64, flags: SendFlags, op: SendOp<'static>);
    fn set_target(_: &mut Open<'_, '_, Self>, _: &AddressHandle) {}
    fn push<'d>(
        queue: &mut SendQueue<'d, &'d Fake, Self>,
        ah: &AddressHandle,
        requests: &[SendWr<'_>],
    ) -> Result<(), PostError> {
        let _ = ah;
        let mut batch = queue.batch();
        requests.iter().try_for_each(|request| batch.push(request))
    }
}

const CONNECTED: [SendOp<'static>; 4] = [
    SendOp::Send,
    SendOp::SendImm(0x0102_0304),
    SendOp::Write(REMOTE),
    SendOp::WriteImm(REMOTE, 5),
];
const RELIABLE: [SendOp<'static>; 8] = [
    CONNECTED[0],
    CONNECTED[1],
    CONNECTED[2],
    CONNECTED[3],
    SendOp::SendInv(RKey(4)),
    SendOp::Read(REMOTE),
    SendOp::CompareSwap {
        remote: REMOTE,
        compare: 6,
        swap: 7,
    },
    SendOp::FetchAdd {
        remote: REMOTE,
        add: 8,
    },
];

macro_rules! begin {
    ($open:ident, $wr_id:ident, $flags:ident, $op:ident) => {
        match $op {
            SendOp::Send => $open.send($wr_id, $flags),
            SendOp::SendImm(imm) => $open.send_imm($wr_id, $flags, imm),
            SendOp::SendInv(key) => $open.send_inv($wr_id, $flags, key),
            SendOp::Write(remote) => $open.write($wr_id, $flags, remote),
            SendOp::WriteImm(remote, imm) => $open.write_imm($wr_id, $flags, remote, imm),
            SendOp::Read(remote) => $open.read($wr_id, $flags, remote),
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } => $open.compare_swap($wr_id, $flags, remote, compare, swap),
            SendOp::FetchAdd { remote, add } => $open.fetch_add($wr_id, $flags, remote, add),
            SendOp::SendTo(_) | SendOp::SendToImm(..) => unreachable!("not drawn"),
        }
    };
}

impl Kind for Rc {
    const OPS: &'static [SendOp<'static>] = &RELIABLE;
    fn begin(open: &mut Open<'_, '_, Self>, wr_id: u64, flags: SendFlags, op: SendOp<'static>) {
        begin!(open, wr_id, flags, op);
    }
}

impl Kind for Uc {
    const OPS: &'static [SendOp<'static>] = &CONNECTED;
    fn begin(open: &mut Open<'_, '_, Self>, wr_id: u64, flags: SendFlags, op: SendOp<'static>) {
        match op {
            SendOp::Send => open.send(wr_id, flags),
            SendOp::SendImm(imm) => open.send_imm(wr_id, flags, imm),
            SendOp::Write(remote) => open.write(wr_id, flags, remote),
            SendOp::WriteImm(remote, imm) => open.write_imm(wr_id, flags, remote, imm),
            _ => unreachable!("not drawn"),
        }
    }
}

/// Where datagrams go.
fn destination(ah: &AddressHandle) -> Destination<'_> {
    Destination {
        ah,
        remote_qpn: Qpn::from_low_bits(0x77),
        remote_qkey: 0x1234_5678,
    }
}

impl Kind for Ud {
    const OPS: &'static [SendOp<'static>] = &[CONNECTED[0], CONNECTED[1]];
    fn begin(open: &mut Open<'_, '_, Self>, wr_id: u64, flags: SendFlags, op: SendOp<'static>) {
        match op {
            SendOp::Send => open.send_to(wr_id, flags),
            SendOp::SendImm(imm) => open.send_to_imm(wr_id, flags, imm),
            _ => unreachable!("not drawn"),
        }
    }
    fn set_target(open: &mut Open<'_, '_, Self>, ah: &AddressHandle) {
        open.set_ud_addr(destination(ah));
    }
    fn push<'d>(
        queue: &mut SendQueue<'d, &'d Fake, Self>,
        ah: &AddressHandle,
        requests: &[SendWr<'_>],
    ) -> Result<(), PostError> {
        let mut batch = queue.batch();
        requests.iter().try_for_each(|request| {
            let op = match request.op {
                SendOp::SendImm(imm) => SendOp::SendToImm(destination(ah), imm),
                _ => SendOp::SendTo(destination(ah)),
            };
            batch.push(&SendWr { op, ..*request })
        })
    }
}

impl Kind for XrcSend {
    const OPS: &'static [SendOp<'static>] = &RELIABLE;
    fn begin(open: &mut Open<'_, '_, Self>, wr_id: u64, flags: SendFlags, op: SendOp<'static>) {
        begin!(open, wr_id, flags, op);
    }
    fn set_target(open: &mut Open<'_, '_, Self>, _: &AddressHandle) {
        open.set_xrc_srqn(SRQN);
    }
    fn push<'d>(
        queue: &mut SendQueue<'d, &'d Fake, Self>,
        _: &AddressHandle,
        requests: &[SendWr<'_>],
    ) -> Result<(), PostError> {
        let mut batch = queue.batch();
        let mut requests = requests.iter();
        requests.try_for_each(|request| batch.push_xrc(SRQN, request))
    }
}

#[derive(Debug, Clone)]
enum Data {
    None,
    Sges(Vec<Sge>),
    Inline(Vec<Vec<u8>>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    BeforeData,
    AfterData,
    Never,
}

#[derive(Debug, Clone)]
struct Request {
    op: usize,
    flags: u32,
    data: Data,
    target: Target,
}

#[derive(Debug, Clone)]
struct Round {
    requests: Vec<Request>,
    aborts: bool,
    /// `true` if all that was posted completes afterwards.
    retires: bool,
}

fn sge() -> impl Strategy<Value = Sge> {
    let length = prop_oneof![8 => 1..5000_u32, 2 => Just(0), 1 => (1_u32 << 31)..];
    (any::<u64>(), length, any::<u32>())
        .prop_map(|(addr, length, key)| Sge::new(addr, length, LKey(key)))
}

fn request() -> impl Strategy<Value = Request> {
    let data = prop_oneof![
        1 => Just(Data::None),
        4 => sge().prop_map(|sge| Data::Sges(vec![sge])),
        3 => vec(sge(), 0..6).prop_map(Data::Sges),
        4 => vec(vec(any::<u8>(), 0..70), 0..4).prop_map(Data::Inline),
    ];
    let target = prop_oneof![9 => Just(Target::BeforeData), 9 => Just(Target::AfterData), 1 => Just(Target::Never)];
    (0..64_usize, 0..8_u32, data, target).prop_map(|(op, flags, data, target)| Request {
        op,
        flags,
        data,
        target,
    })
}

fn round() -> impl Strategy<Value = Round> {
    let parts = (
        vec(request(), 0..4),
        prop::bool::weighted(0.2),
        any::<bool>(),
    );
    parts.prop_map(|(requests, aborts, retires)| Round {
        requests,
        aborts,
        retires,
    })
}

/// A QP with a CQ of its own, and what the test knows of it.
struct End<'d, K: QpType> {
    cq: Cq<'d, &'d Fake>,
    qp: FakeQp<'d, K>,
    qpn: u32,
}

impl<K: Kind> End<'_, K> {
    fn blocks(&self, rig: &Rig) -> u64 {
        1 << rig.lock().qps[&self.qpn].create.qpc().log_sq_size()
    }

    fn wipe(&self, fake: &Fake, rig: &Rig) {
        let zero = vec![0; self.blocks(rig) as usize * 64];
        fake.lock().dma_write(rig.sq(self.qpn), &zero);
    }

    /// So many WQEs from this block on, without the QP's number, and where each starts.
    fn wqes(&self, fake: &Fake, rig: &Rig, from: u16, count: usize) -> Vec<(u16, Vec<u8>)> {
        let segments = self.blocks(rig) * 4;
        let segment = |at: u64| {
            let at = at % segments;
            fake.lock().dma_read(rig.sq(self.qpn) + at * 16, 16)
        };
        let mut at = from;
        let wqes = (0..count).map(|_| {
            let first = u64::from(at) * 4;
            let size = u64::from(segment(first)[7] & 0x3f);
            let mut wqe: Vec<u8> = (0..size).flat_map(|n| segment(first + n)).collect();
            wqe[4..7].fill(0);
            let start = at;
            at = at.wrapping_add(size.div_ceil(4) as u16);
            (start, wqe)
        });
        wqes.collect()
    }

    /// All up to the request at this block completes; its identifier, if that is accepted.
    fn retire(&mut self, fake: &Fake, rig: &Rig, block: u16) -> Option<u64> {
        rig.complete(fake, self.cq.cqn().number(), self.qpn, 0, block, 0x0a);
        let wc = poll(&mut self.cq)?;
        assert_eq!(wc.status, WcStatus::Success);
        Some(wc.wr_id)
    }
}

/// Runs what was drawn on a QP of one type, beside one that posts values and one that tells what is refused.
fn run<K: Kind>(rounds: &[Round]) {
    with_device!(|fake, rig, device, pd| {
        let ah = AddressHandle::encode(
            &AhAttr {
                dmac: [2; 6],
                ..AhAttr::default()
            },
            None,
            0,
            0,
        )
        .unwrap();
        let end = || {
            let (cq, qp) = pair::<K>(&device, &pd, cap(DEPTH, 0, 3, 100), 64, false);
            let qpn = qp.qpn().number();
            End { cq, qp, qpn }
        };
        let (mut ours, mut reference, mut probe) = (end(), end(), end());
        let (mut block, mut probed, mut id) = (0_u16, 0_u16, 0_u64);
        let mut last = None;
        for round in rounds {
            ours.wipe(&fake, &rig);
            reference.wipe(&fake, &rig);
            doorbells(&fake);
            let before = rig.records(&fake, ours.qpn).1;
            let free = ours.qp.send_queue().free() as usize;
            let inline: Vec<Vec<u8>> = round
                .requests
                .iter()
                .map(|request| match &request.data {
                    Data::Inline(parts) => parts.concat(),
                    _ => Vec::new(),
                })
                .collect();
            let values: Vec<SendWr<'_>> = round
                .requests
                .iter()
                .zip(&inline)
                .zip(id..)
                .map(|((request, inline), wr_id)| SendWr {
                    wr_id,
                    op: K::OPS[request.op % K::OPS.len()],
                    flags: SendFlags::from_bits_truncate(request.flags),
                    data: match &request.data {
                        Data::None => SendData::Sges(&[]),
                        Data::Sges(sges) => SendData::Sges(sges),
                        Data::Inline(_) => SendData::Inline(inline),
                    },
                })
                .collect();
            id += values.len() as u64;

            // What is refused first, as posting it as a value says.
            let has_targets = !K::CONNECTED || K::KIND == XrcSend::KIND;
            let mut refused = None;
            let mut lacks_target = false;
            for (index, (request, value)) in round.requests.iter().zip(&values).enumerate() {
                if lacks_target {
                    refused.get_or_insert(PostError::Unsupported);
                }
                if index >= free {
                    refused.get_or_insert(PostError::QueueFull { limit: 0 });
                }
                match K::push(probe.qp.send_queue(), &ah, std::slice::from_ref(value)) {
                    Ok(()) => {
                        let (at, wqe) = probe.wqes(&fake, &rig, probed, 1).remove(0);
                        assert_eq!(probe.retire(&fake, &rig, at), Some(value.wr_id));
                        probed = at.wrapping_add((wqe.len() as u16).div_ceil(64));
                        lacks_target = has_targets && request.target == Target::Never;
                    }
                    Err(error) => {
                        refused.get_or_insert(error);
                        lacks_target = false;
                    }
                }
            }
            if lacks_target {
                refused.get_or_insert(PostError::Unsupported);
            }
            doorbells(&fake);

            let mut open = ours.qp.send_queue().open();
            for (request, value) in round.requests.iter().zip(&values) {
                K::begin(
                    &mut open,
                    value.wr_id,
                    value.flags,
                    K::OPS[request.op % K::OPS.len()],
                );
                if request.target == Target::BeforeData {
                    K::set_target(&mut open, &ah);
                }
                match &request.data {
                    Data::None => {}
                    Data::Sges(sges) => match sges[..] {
                        [sge] => open.set_sge(sge),
                        _ => open.set_sge_list(sges),
                    },
                    Data::Inline(parts) => match &parts[..] {
                        [bytes] => open.set_inline_data(bytes),
                        _ => open.set_inline_data_list(parts.iter().map(Vec::as_slice)),
                    },
                }
                if request.target == Target::AfterData {
                    K::set_target(&mut open, &ah);
                }
            }
            assert_eq!(rig.records(&fake, ours.qpn).1, before, "before the end");
            assert_eq!(doorbells(&fake), [], "before the end");
            let is_posted = if round.aborts {
                drop(open);
                false
            } else {
                let found = open.complete();
                drop(open);
                match (found, refused) {
                    (Ok(()), None) => true,
                    (Err(PostError::QueueFull { .. }), Some(PostError::QueueFull { .. })) => false,
                    (found, expected) => {
                        assert_eq!(found.err(), expected);
                        false
                    }
                }
            };
            let rung = doorbells(&fake);
            if !is_posted {
                assert_eq!(rung, []);
                assert_eq!(rig.records(&fake, ours.qpn).1, before);
                assert_eq!(ours.qp.send_queue().free() as usize, free);
                // A device that completes what was built and dropped is not believed.
                if !values.is_empty() && free > 0 {
                    assert_eq!(ours.retire(&fake, &rig, block), None);
                }
                continue;
            }
            K::push(reference.qp.send_queue(), &ah, &values).expect("not refused");
            let theirs = doorbells(&fake);
            assert_eq!(
                rig.records(&fake, ours.qpn).1,
                rig.records(&fake, reference.qpn).1
            );
            let without_number =
                |rung: &[(usize, u64)]| rung.last().map(|(_, value)| value & !0xffff_ff00);
            assert_eq!(rung.len(), usize::from(!values.is_empty()));
            assert_eq!(without_number(&rung), without_number(&theirs));
            let found = ours.wqes(&fake, &rig, block, values.len());
            assert_eq!(found, reference.wqes(&fake, &rig, block, values.len()));
            if let Some((at, wqe)) = found.last() {
                block = at.wrapping_add((wqe.len() as u16).div_ceil(64));
                last = Some((*at, id - 1));
            }
            if round.retires
                && let Some((at, id)) = last.take()
            {
                assert_eq!(ours.retire(&fake, &rig, at), Some(id));
                assert_eq!(reference.retire(&fake, &rig, at), Some(id));
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reliable_connections(rounds in vec(round(), 1..24)) {
        run::<Rc>(&rounds);
    }

    #[test]
    fn unreliable_connections(rounds in vec(round(), 1..24)) {
        run::<Uc>(&rounds);
    }

    #[test]
    fn datagrams(rounds in vec(round(), 1..24)) {
        run::<Ud>(&rounds);
    }

    #[test]
    fn extended_reliable_connections(rounds in vec(round(), 1..24)) {
        run::<XrcSend>(&rounds);
    }
}
