//! Reliable connections of one card to itself, several on one completion queue, with every byte verified.

use std::time::Duration;

use crate::card::{Card, ip};
use crate::draw::CardDraw;
use crate::pattern::pattern;
use crate::refusal::{StepError, wrong};
use bareverbs_core::{
    Access, AhAttr, Buffer, Cq, CqInit, Gid, Mtu, Pd, Platform, Qp, QpAttr, QpAttrMask, QpCap,
    QpInitAttr, QpState, Qpn, Rc, RecvWr, Remote, SendData, SendFlags, SendOp, SendWr, VectorSet,
    Wc, WcStatus,
};
use bareverbs_in_process::ModelPlatform;

/// The limit of every step, on every card.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Long enough for everything that was posted to be done.
const QUIET: Duration = Duration::from_millis(200);

const BULK: usize = 5001;
const MESSAGE: usize = 700;
const COUNTER: usize = 0;
const FETCHED: usize = 8;
const SOURCE: usize = 64;
const TARGET: usize = SOURCE + BULK + 7;
const BACK: usize = TARGET + BULK + 8;
const OUTBOX: usize = BACK + BULK + 9;
const INBOX: usize = OUTBOX + MESSAGE;
const LEN: usize = INBOX + MESSAGE;

const RECEIVE: u64 = 50;
const ADDED: u64 = 7;

/// A queue pair and its memory.
struct End<'d> {
    qp: Qp<'d, ModelPlatform, Rc>,
    buffer: Buffer<'d, ModelPlatform>,
}

/// How a queue pair reaches its peer.
struct Path {
    mtu: Mtu,
    address: AhAttr,
    reads: u8,
}

/// The whole test; whether there was a way to do it.
pub(super) fn run(device: &Card<'_>, card: &CardDraw, has_gid: bool) -> Result<bool, StepError> {
    if !card.force_loopback && !has_gid {
        return Ok(false);
    }
    let caps = device.capabilities();
    let depth = caps
        .max_initiator_depth()
        .min(caps.max_responder_resources());
    let path = Path {
        mtu: device.query_port()?.active_mtu,
        address: if card.force_loopback {
            AhAttr {
                force_loopback: true,
                ..AhAttr::default()
            }
        } else {
            AhAttr {
                dgid: Gid::from(ip_of(device)?),
                dmac: device.mac()?,
                hop_limit: 1,
                ..AhAttr::default()
            }
        },
        reads: u8::try_from(depth).unwrap_or(u8::MAX),
    };
    let pd = device.alloc_pd()?;
    let mut cq = device.create_cq(CqInit::new(64))?;
    let mut ends = [
        end(&pd, &cq, card.atomics)?,
        end(&pd, &cq, card.atomics)?,
        end(&pd, &cq, card.atomics)?,
        end(&pd, &cq, card.atomics)?,
    ];
    connect(&mut ends, &path)?;
    let seed = card.model.quirks.seed;
    for round in 0..2 {
        exchange(device, &mut cq, &mut ends, card.atomics, round, seed)?;
    }
    start_over(device, &mut cq, &mut ends, &path)?;
    for end in &ends {
        end.buffer.fill(0, LEN, 0).map_err(beyond_buffer)?;
    }
    exchange(device, &mut cq, &mut ends, card.atomics, 0, seed ^ 1)?;
    destroy_one(device, &mut cq, ends)?;
    Ok(true)
}

fn ip_of(device: &Card<'_>) -> Result<std::net::IpAddr, StepError> {
    let entry = device.port_gid(0);
    match entry.and_then(|entry| entry.gid.to_ipv4()) {
        Some(address) => Ok(address.into()),
        None => wrong(format!("GID 0 is {entry:?}, not like {}", ip(0))),
    }
}

fn beyond_buffer(error: impl core::fmt::Debug) -> StepError {
    StepError::Wrong(format!("beyond the buffer: {error:?}"))
}

fn end<'d>(
    pd: &Pd<'d, ModelPlatform>,
    cq: &Cq<'d, ModelPlatform>,
    atomics: bool,
) -> Result<End<'d>, StepError> {
    let mut access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    access.set(Access::REMOTE_ATOMIC, atomics);
    let qp = pd.create_qp::<Rc>(&mut QpInitAttr {
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        cap: QpCap {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        sq_sig_all: false,
    })?;
    let buffer = pd.alloc_buffer(LEN, access)?;
    Ok(End { qp, buffer })
}

/// 0 with 1, and 2 with 3.
fn connect(ends: &mut [End<'_>; 4], path: &Path) -> Result<(), StepError> {
    let qpns = ends.each_ref().map(|end| end.qp.qpn());
    for (index, end) in ends.iter_mut().enumerate() {
        end.connect(qpns[index ^ 1], path)?;
    }
    Ok(())
}

impl End<'_> {
    fn connect(&mut self, peer: Qpn, path: &Path) -> Result<(), StepError> {
        let attr = QpAttr {
            path_mtu: path.mtu,
            dest_qp_num: peer,
            // Soon over the end.
            rq_psn: 0xff_fffd,
            sq_psn: 0xff_fffd,
            qp_access_flags: self.buffer.access(),
            ah_attr: path.address,
            max_rd_atomic: path.reads,
            max_dest_rd_atomic: path.reads,
            min_rnr_timer: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            port_num: 1,
            ..QpAttr::DEFAULT
        };
        Ok(self.qp.bring_to_rts(&attr)?)
    }

    fn post(&mut self, wr_id: u64, op: SendOp<'_>, at: usize, len: usize) -> Result<(), StepError> {
        let Some(sge) = self.buffer.sge(at, len) else {
            return wrong("beyond the buffer");
        };
        self.qp.send_queue().post(&SendWr {
            wr_id,
            op,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&[sge]),
        })?;
        Ok(())
    }

    fn receive(&mut self, wr_id: u64) -> Result<(), StepError> {
        let Some(sge) = self.buffer.sge(INBOX, MESSAGE) else {
            return wrong("beyond the buffer");
        };
        let sges = [sge];
        let posted = self
            .qp
            .recv_queue()
            .post_list(&[RecvWr { wr_id, sges: &sges }]);
        posted.map_err(|bad| StepError::Wrong(format!("receive: {bad:?}")))
    }

    fn at(&self, offset: usize) -> Remote {
        Remote {
            addr: self.buffer.addr() + offset as u64,
            rkey: self.buffer.rkey(),
        }
    }

    fn put(&self, offset: usize, bytes: &[u8]) -> Result<(), StepError> {
        self.buffer.copy_in(offset, bytes).map_err(beyond_buffer)
    }

    fn get(&self, offset: usize, len: usize) -> Result<Vec<u8>, StepError> {
        let mut bytes = vec![0; len];
        self.buffer
            .copy_out(offset, &mut bytes)
            .map_err(beyond_buffer)?;
        Ok(bytes)
    }

    fn holds(&self, what: &str, offset: usize, expected: &[u8]) -> Result<(), StepError> {
        let is = self.get(offset, expected.len())?;
        if is == expected {
            return Ok(());
        }
        let first = is.iter().zip(expected).position(|(a, b)| a != b);
        wrong(format!(
            "{what} at {}: byte {first:?} of {} differs",
            self.qp.qpn(),
            expected.len()
        ))
    }
}

/// One request of each kind from each even end to the odd one beside it, all at once.
fn exchange(
    device: &Card<'_>,
    cq: &mut Cq<'_, ModelPlatform>,
    ends: &mut [End<'_>; 4],
    atomics: bool,
    round: u64,
    seed: u64,
) -> Result<(), StepError> {
    let salt = |pair: usize, what: u64| seed << 8 ^ round << 6 ^ (pair as u64) << 3 ^ what;
    let mut expected = Vec::new();
    let (pairs, _) = ends.as_chunks_mut::<2>();
    for (pair, [from, to]) in pairs.iter_mut().enumerate() {
        let id = pair as u64 * 100;
        from.put(SOURCE, &pattern(BULK, salt(pair, 0)))?;
        from.put(OUTBOX, &pattern(MESSAGE, salt(pair, 1)))?;
        to.put(SOURCE, &pattern(BULK, salt(pair, 2)))?;
        to.receive(id + RECEIVE)?;
        from.post(id, SendOp::Write(to.at(TARGET)), SOURCE, BULK)?;
        from.post(id + 1, SendOp::Read(to.at(SOURCE)), BACK, BULK)?;
        from.post(id + 2, SendOp::Send, OUTBOX, MESSAGE)?;
        expected.extend([id, id + 1, id + 2, id + RECEIVE]);
        if atomics {
            let add = SendOp::FetchAdd {
                remote: to.at(COUNTER),
                add: ADDED,
            };
            from.post(id + 3, add, FETCHED, 8)?;
            expected.push(id + 3);
        }
    }
    let qpns = ends.each_ref().map(|end| end.qp.qpn());
    let done = collect(device, cq, expected.len())?;
    for (pair, of) in qpns.chunks_exact(2).enumerate() {
        let sends = done.iter().filter(|wc| wc.qp_num == of[0]);
        let order: Vec<u64> = sends.map(|wc| wc.wr_id).collect();
        let id = pair as u64 * 100;
        let due: Vec<u64> = (id..id + 3 + u64::from(atomics)).collect();
        if order != due {
            return wrong(format!("completions {order:?} of {}, due {due:?}", of[0]));
        }
    }
    let mut ids: Vec<u64> = done.iter().map(|wc| wc.wr_id).collect();
    ids.sort_unstable();
    expected.sort_unstable();
    if ids != expected {
        return wrong(format!("completions {ids:?}, expected {expected:?}"));
    }
    let (pairs, _) = ends.as_chunks::<2>();
    for (pair, [from, to]) in pairs.iter().enumerate() {
        to.holds("WRITE", TARGET, &pattern(BULK, salt(pair, 0)))?;
        from.holds("READ", BACK, &pattern(BULK, salt(pair, 2)))?;
        to.holds("SEND", INBOX, &pattern(MESSAGE, salt(pair, 1)))?;
        if atomics {
            from.holds("fetched", FETCHED, &(round * ADDED).to_ne_bytes())?;
            let sum = (round + 1) * ADDED;
            to.holds("sum", COUNTER, &sum.to_ne_bytes())?;
        }
        to.holds("what is beside WRITE", TARGET + BULK, &[0])?;
    }
    Ok(())
}

/// A queue pair goes to RESET with its completions still in the queue that it shares with another one: only the other's
/// are found there, and it works again once it is connected again.
fn start_over(
    device: &Card<'_>,
    cq: &mut Cq<'_, ModelPlatform>,
    ends: &mut [End<'_>; 4],
    path: &Path,
) -> Result<(), StepError> {
    both_write(device, ends)?;
    let attr = QpAttr {
        qp_state: QpState::Reset,
        ..QpAttr::DEFAULT
    };
    for end in &mut ends[..2] {
        end.qp.modify(&attr, QpAttrMask::STATE)?;
    }
    only_the_second(device, cq)?;
    connect(ends, path)
}

/// The same with one that is destroyed.
fn destroy_one(
    device: &Card<'_>,
    cq: &mut Cq<'_, ModelPlatform>,
    mut ends: [End<'_>; 4],
) -> Result<(), StepError> {
    both_write(device, &mut ends)?;
    let [first, second, third, fourth] = ends;
    drop((first, second));
    only_the_second(device, cq)?;
    drop((third, fourth));
    Ok(())
}

/// Both pairs write, and the completions are not polled.
fn both_write(device: &Card<'_>, ends: &mut [End<'_>; 4]) -> Result<(), StepError> {
    for _ in 0..2 {
        let (pairs, _) = ends.as_chunks_mut::<2>();
        for (pair, [from, to]) in pairs.iter_mut().enumerate() {
            from.post(pair as u64, SendOp::Write(to.at(TARGET)), SOURCE, BULK)?;
        }
    }
    pass(device, QUIET)
}

fn only_the_second(device: &Card<'_>, cq: &mut Cq<'_, ModelPlatform>) -> Result<(), StepError> {
    let found = collect(device, cq, 2)?;
    let ids: Vec<u64> = found.iter().map(|wc| wc.wr_id).collect();
    if ids != [1, 1] {
        return wrong(format!(
            "completions {ids:?} instead of the other queue pair's"
        ));
    }
    pass(device, QUIET)?;
    match cq.poll()? {
        Some(more) => wrong(format!("one completion too many: {:?}", more.to_wc())),
        None => Ok(()),
    }
}

/// Lets time pass.
fn pass(device: &Card<'_>, time: Duration) -> Result<(), StepError> {
    let until = device.platform().now() + time;
    while device.platform().now() < until {
        device.platform().relax();
        device.poll()?;
    }
    Ok(())
}

/// So many completions, all of which have to be good.
fn collect(
    device: &Card<'_>,
    cq: &mut Cq<'_, ModelPlatform>,
    count: usize,
) -> Result<Vec<Wc>, StepError> {
    let platform = device.platform();
    let end = platform.now() + TIMEOUT;
    let mut found = Vec::new();
    let mut armed = false;
    loop {
        while let Some(completion) = cq.poll()? {
            let wc = completion.to_wc();
            if wc.status != WcStatus::Success {
                return wrong(format!("completion {wc:?}"));
            }
            found.push(wc);
        }
        if found.len() >= count {
            return Ok(found);
        }
        if platform.now() >= end {
            return wrong(format!("{} of {count} completions", found.len()));
        }
        device.poll()?;
        if platform.interrupt_vectors() == 0 {
            platform.relax();
        } else if armed {
            let vectors = VectorSet::one(device.interrupt_vector(0));
            platform.wait_interrupt(vectors, end);
            device.poll()?;
            // What woke us may have been something else: then the queue is still armed.
            armed = !cq.take_event();
        } else {
            cq.arm(false);
            // What came before it was armed gives no event.
            armed = true;
        }
    }
}
