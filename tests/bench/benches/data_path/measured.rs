//! The measured loops and, out of line, the operation in each.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bareverbs_core::ah::AddressHandle;
use bareverbs_core::{
    Completion, CompressedForwarder, Cq, DcAddress, Dci, Destination, ForwardCounters,
    ForwardError, Forwarder, Inline, PostError, Qpn, Rc, RecvQueue, Remote, SendFlags, SendQueue,
    SendWr, Sge, Ud, Wc, WcStatus,
};

use crate::platform::{Combining, Counting};

type Sends<'d> = SendQueue<'d, Counting, Rc>;
type Combined<'d> = SendQueue<'d, Combining, Rc>;
type Datagrams<'d> = SendQueue<'d, Counting, Ud>;
type Initiator<'d> = SendQueue<'d, Counting, Dci>;

/// The loop of all others with nothing in it: what is subtracted from each row, as from the peers' rows. The call of an
/// operation, its arguments and the check of its result are part of it.
#[inline(never)]
pub(crate) fn nothing(count: usize) {
    for _ in 0..count {
        black_box(());
    }
}

/// No operation: what the search for calls that panic has to find.
#[inline(never)]
pub(crate) fn checked(data: &[u64], index: usize) -> u64 {
    data[index]
}

macro_rules! posting {
    ($(($name:ident, $op:ident, $Queue:ty, |$queue:ident, $id:ident, $($arg:ident: $Arg:ty),*| $body:expr);)*) => {$(
        #[inline(never)]
        pub(crate) fn $name(queue: &mut $Queue, count: usize, $($arg: $Arg),*) {
            for i in 0..count {
                assert!($op(queue, i as u64, $($arg),*).is_ok());
            }
        }

        #[inline(never)]
        fn $op($queue: &mut $Queue, $id: u64, $($arg: $Arg),*) -> Result<(), PostError> {
            $body
        }
    )*};
}

posting! {
    (send, op_send, Sends<'_>, |queue, id, flags: SendFlags, sge: Sge| queue.batch().send(id, flags, sge));
    (post, op_post, Sends<'_>, |queue, _id, wr: &SendWr<'_>| queue.post(wr));
    (send_inline_const, op_send_inline_const, Sends<'_>, |queue, id, flags: SendFlags, data: &[u8; 32]| {
        queue.batch().send(id, flags, Inline(data))
    });
    (send_inline_dyn, op_send_inline_dyn, Sends<'_>, |queue, id, flags: SendFlags, data: &[u8]| {
        queue.batch().send(id, flags, Inline(data))
    });
    (write_inline, op_write_inline, Sends<'_>, |queue, id, flags: SendFlags, remote: &Remote, data: &[u8]| {
        queue.batch().write(id, flags, *remote, Inline(data))
    });
    (write, op_write, Sends<'_>, |queue, id, flags: SendFlags, remote: &Remote, sge: &Sge| {
        queue.batch().write(id, flags, *remote, *sge)
    });
    (read, op_read, Sends<'_>, |queue, id, flags: SendFlags, remote: &Remote, sge: &Sge| {
        queue.batch().read(id, flags, *remote, std::slice::from_ref(sge))
    });
    (send_ud, op_send_ud, Datagrams<'_>, |queue, id, flags: SendFlags, ah: &AddressHandle, sge: Sge| {
        let to = Destination { ah, remote_qpn: Qpn::from_low_bits(0x42), remote_qkey: 0x1111_1111 };
        queue.batch().send_to(id, flags, to, sge)
    });
    (send_dc, op_send_dc, Initiator<'_>, |queue, id, flags: SendFlags, to: &DcAddress, sge: Sge| {
        queue.batch().send(id, flags, to, sge)
    });
    (send_blue_flame, op_send_blue_flame, Combined<'_>, |queue, id, flags: SendFlags, sge: Sge| {
        queue.batch().send(id, flags, sge)
    });
    (send_inline_blue_flame, op_send_inline_blue_flame, Combined<'_>, |queue, id, flags: SendFlags, data: &[u8]| {
        queue.batch().send(id, flags, Inline(data))
    });
    (write_inline_blue_flame, op_write_inline_blue_flame, Combined<'_>, |queue, id, flags: SendFlags, remote: &Remote, data: &[u8]| {
        queue.batch().write(id, flags, *remote, Inline(data))
    });
    (recv, op_recv, RecvQueue<'_>, |queue, id, sge: &Sge| queue.post(id, std::slice::from_ref(sge)));
}

/// The part of a list's element that differs from one to the next.
pub(crate) type Element = (Sge, SendFlags);

#[inline(never)]
pub(crate) fn send_16(queue: &mut Sends<'_>, count: usize, elements: &[Element; 16]) {
    for i in 0..count / 16 {
        assert!(op_send_16(queue, i as u64 * 16, elements).is_ok());
    }
}

#[inline(never)]
fn op_send_16(queue: &mut Sends<'_>, id: u64, elements: &[Element; 16]) -> Result<(), PostError> {
    let mut batch = queue.batch();
    for (id, &(sge, flags)) in (id..).zip(elements) {
        batch.send(id, flags, sge)?;
    }
    batch.ring();
    Ok(())
}

#[inline(never)]
pub(crate) fn recv_16(queue: &mut RecvQueue<'_>, count: usize, sges: &[Sge; 16]) {
    for i in 0..count / 16 {
        assert!(op_recv_16(queue, i as u64 * 16, sges).is_ok());
    }
}

#[inline(never)]
fn op_recv_16(queue: &mut RecvQueue<'_>, id: u64, sges: &[Sge; 16]) -> Result<(), PostError> {
    let mut batch = queue.batch();
    for (id, sge) in (id..).zip(sges) {
        batch.post(id, std::slice::from_ref(sge))?;
    }
    batch.ring();
    Ok(())
}

/// Polls one by one; returns the sum of the identifiers.
#[inline(never)]
pub(crate) fn poll(cq: &mut Cq<'_, Counting>, count: usize) -> u64 {
    let mut sum = 0;
    for _ in 0..count {
        if let Some((id, WcStatus::Success)) = op_poll(cq) {
            sum += id;
        }
    }
    sum
}

#[inline(never)]
fn op_poll(cq: &mut Cq<'_, Counting>) -> Option<(u64, WcStatus)> {
    let completion = cq.poll().ok()??;
    Some((completion.wr_id(), completion.status()))
}

#[inline(never)]
pub(crate) fn poll_empty(cq: &mut Cq<'_, Counting>, count: usize) {
    for _ in 0..count {
        black_box(op_poll_empty(cq));
    }
}

#[inline(never)]
fn op_poll_empty(cq: &mut Cq<'_, Counting>) -> bool {
    matches!(cq.poll(), Ok(None))
}

macro_rules! polling {
    ($(($name:ident, $op:ident, $mark:literal, |$completion:ident| $sum:expr);)*) => {$(
        /// Polls in batches of sixteen; returns the sum of what was read. The mark keeps the linker from folding functions
        /// that do the same into one, which callgrind could not distinguish.
        #[inline(never)]
        pub(crate) fn $name(cq: &mut Cq<'_, Counting>, count: usize) -> u64 {
            let mut sum = 0;
            for _ in 0..count / 16 {
                sum += $op(cq);
            }
            black_box($mark);
            sum
        }

        #[inline(never)]
        fn $op(cq: &mut Cq<'_, Counting>) -> u64 {
            let (mut sum, mut other) = (0, 0);
            let Ok(mut batch) = cq.batch() else { return 0 };
            for _ in 0..16 {
                let read = batch.next_with(|$completion| {
                    if $completion.status() == WcStatus::Success { $sum } else { (0, 0) }
                });
                let Some((id, fields)) = read else { break };
                sum += id;
                other ^= fields;
            }
            black_box::<u32>(other);
            sum
        }
    )*};
}

/// Reads opcode, QP, length and flags beside the identifier.
#[inline(always)]
fn read_all(completion: &Completion<'_>) -> (u64, u32) {
    let fields = completion.opcode() as u32
        ^ completion.qp_num().number()
        ^ completion.byte_len()
        ^ completion.flags().bits();
    (completion.wr_id(), fields)
}

polling! {
    (poll_16_req, op_poll_16_req, 0, |completion| (completion.wr_id(), 0));
    (poll_16_resp, op_poll_16_resp, 1, |completion| (completion.wr_id(), 0));
    (poll_16_req_full, op_poll_16_req_full, 2, |completion| {
        read_all(&completion)
    });
    (poll_16_resp_full, op_poll_16_resp_full, 3, |completion| {
        read_all(&completion)
    });
}

/// All fields of sixteen completions into an array: `ibv_poll_cq`.
macro_rules! polling_wcs {
    ($(($name:ident, $op:ident, $mark:literal);)*) => {$(
        #[inline(never)]
        pub(crate) fn $name(cq: &mut Cq<'_, Counting>, count: usize) -> u64 {
            let mut wcs = [Wc::EMPTY; 16];
            let mut sum = 0;
            for _ in 0..count / 16 {
                let taken = $op(cq, &mut wcs);
                // The caller reads them, which is no part of the operation.
                sum += black_box(&wcs)[..taken].len() as u64;
            }
            black_box($mark);
            sum
        }

        #[inline(never)]
        fn $op(cq: &mut Cq<'_, Counting>, wcs: &mut [Wc; 16]) -> usize {
            cq.poll_wcs(wcs).unwrap_or(0)
        }
    )*};
}

polling_wcs! {
    (poll_wcs_req, op_poll_wcs_req, 4);
    (poll_wcs_resp, op_poll_wcs_resp, 5);
}

/// Takes sessions of 64; returns the sum of the identifiers and lengths.
#[inline(never)]
pub(crate) fn poll_compressed(cq: &mut Cq<'_, Counting>, count: usize) -> u64 {
    let mut sum = 0;
    for _ in 0..count / 64 {
        sum += op_poll_compressed(cq);
    }
    sum
}

#[inline(never)]
fn op_poll_compressed(cq: &mut Cq<'_, Counting>) -> u64 {
    let (mut sum, mut bytes) = (0, 0);
    let Ok(mut batch) = cq.batch() else { return 0 };
    batch.next_compressed(|completion| {
        sum += completion.wr_id();
        bytes ^= completion.byte_len();
    });
    black_box::<u32>(bytes);
    sum
}

/// Counters of a lane that a thread of `examples/l2fwd` keeps.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) sent: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) garbage: AtomicU64,
}

/// Forwards bursts of 32 frames, as `examples/l2fwd` does; its clock is not read here.
#[inline(never)]
pub(crate) fn l2fwd(lane: &mut Forwarder<'_, Counting>, count: usize, counted: &Count) {
    for _ in 0..count / 32 {
        assert!(matches!(op_l2fwd(lane, counted), Ok(32)));
    }
}

#[inline(never)]
fn op_l2fwd(lane: &mut Forwarder<'_, Counting>, count: &Count) -> Result<u32, ForwardError> {
    let went = lane.forward()?;
    store(count, lane.counters());
    Ok(went)
}

/// The same where the receiving device compresses: each burst is a session.
#[inline(never)]
pub(crate) fn l2fwd_compressed(
    lane: &mut CompressedForwarder<'_, Counting>,
    count: usize,
    counted: &Count,
) {
    for _ in 0..count / 32 {
        assert!(matches!(op_l2fwd_compressed(lane, counted), Ok(32)));
    }
}

#[inline(never)]
fn op_l2fwd_compressed(
    lane: &mut CompressedForwarder<'_, Counting>,
    count: &Count,
) -> Result<u32, ForwardError> {
    let went = lane.forward()?;
    store(count, lane.counters());
    Ok(went)
}

#[inline(always)]
fn store(count: &Count, counters: ForwardCounters) {
    count.sent.store(counters.sent, Relaxed);
    count.dropped.store(counters.dropped, Relaxed);
    count.garbage.store(counters.garbage_completions, Relaxed);
}

/// The classic interface, to check what was read.
pub(crate) fn poll_wcs(cq: &mut Cq<'_, Counting>, count: usize) -> u64 {
    let mut wcs = [Wc::EMPTY; 16];
    let mut sum = 0;
    for _ in 0..count / 16 {
        let taken = cq.poll_wcs(&mut wcs).unwrap_or(0);
        sum += wcs[..taken].iter().map(|wc| wc.wr_id).sum::<u64>();
    }
    sum
}
