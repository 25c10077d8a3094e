//! Two queue pairs of one device that talk to each other inside it.

use std::sync::LazyLock;
use std::time::Duration;

use bareverbs::platform::VectorSet;
use bareverbs::verbs::{
    Access, AhAttr, AsyncEvent, Buffer, Cq, CqInit, Device, Mtu, Pd, Platform, Qp, QpAttr, QpCap,
    QpInitAttr, QpState, Qpn, RKey, Rc, RecvWr, Remote, SendData, SendFlags, SendOp, SendWr, Wc,
    WcStatus,
};
use bareverbs_examples::Result;

use super::wrong::{TIMEOUT, Wrong};

/// The longest message: more than a thousand packets, the last of one byte.
pub(super) const LARGEST: usize = (4 << 20) + 1;
/// Bytes behind a message that have to stay as they are.
pub(super) const GUARD: usize = 64;
pub(super) const UNTOUCHED: u8 = 0xee;

/// Bytes computed from their offset.
pub(super) static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..LARGEST as u64).map(byte).collect()
});

/// The operation that moves data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Send,
    Write,
    Read,
}

impl Op {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// The way of packets from one queue pair to the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loopback {
    pub(super) mtu: Mtu,
    pub(super) path: AhAttr,
}

/// A queue pair with its completions and its memory, in the order in which they have to go.
pub(super) struct End<'d, P: Platform> {
    qp: Qp<'d, P, Rc>,
    cq: Cq<'d, P>,
    pub(super) buffer: Buffer<'d, P>,
}

impl<'d, P: Platform> End<'d, P> {
    pub(super) fn new(device: &'d Device<'d, P>, pd: &Pd<'d, P>) -> Result<Self> {
        let mut access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        access.set(Access::REMOTE_ATOMIC, device.capabilities().has_atomics());
        let cq = device.create_cq(CqInit::new(16))?;
        let qp = pd.create_qp::<Rc>(&mut QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: QpCap {
                max_send_wr: 4,
                max_recv_wr: 4,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: true,
        })?;
        let buffer = pd.alloc_buffer(LARGEST + GUARD, access)?;
        Ok(Self { qp, cq, buffer })
    }

    pub(super) fn connect(&mut self, peer: Qpn, loopback: &Loopback) -> Result<()> {
        let attr = QpAttr {
            path_mtu: loopback.mtu,
            dest_qp_num: peer,
            qp_access_flags: self.buffer.access(),
            ah_attr: loopback.path,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::DEFAULT
        };
        Ok(self.qp.bring_to_rts(&attr)?)
    }

    /// Posts a request about the first `size` bytes.
    fn post(&mut self, op: SendOp<'_>, size: usize) -> Result<()> {
        let sge = [self.buffer.sge(0, size).ok_or("too large")?];
        self.qp.send_queue().post(&SendWr {
            wr_id: size as u64,
            op,
            flags: SendFlags::SIGNALED,
            // An entry of length 0 would mean 2 GiB.
            data: SendData::Sges(if size == 0 { &[] } else { &sge }),
        })?;
        Ok(())
    }

    fn post_recv(&mut self) -> Result<()> {
        let sges = [self.buffer.sge(0, LARGEST + GUARD).ok_or("too large")?];
        let wr = RecvWr {
            wr_id: 0,
            sges: &sges,
        };
        Ok(self.qp.recv_queue().post_list(&[wr])?)
    }

    /// The next completion, which has to have this status.
    fn complete(&mut self, expected: WcStatus) -> Result<Wc> {
        let device = self.qp.device();
        let deadline = device.platform().now() + TIMEOUT;
        loop {
            if let Some(completion) = self.cq.poll()? {
                let wc = completion.to_wc();
                if wc.status == expected {
                    return Ok(wc);
                }
                let wrong = Wrong::Completion {
                    status: wc.status,
                    vendor_err: wc.vendor_err,
                    expected,
                };
                return Err(wrong.into());
            }
            if device.platform().now() > deadline {
                return Err(Wrong::Missing("completion").into());
            }
            device.platform().relax();
            device.poll()?;
        }
    }

    fn remote(&self) -> Remote {
        Remote {
            addr: self.buffer.addr(),
            rkey: self.buffer.rkey(),
        }
    }

    /// Checks that the first `size` bytes are those of the pattern, and that nothing behind them was touched.
    pub(super) fn check(&self, size: usize) -> Result<()> {
        let mut bytes = vec![0; size + GUARD];
        self.buffer.copy_out(0, &mut bytes)?;
        let expected = [&PATTERN[..size], &[UNTOUCHED; GUARD]].concat();
        let differ = |at: &usize| bytes[*at] != expected[*at];
        if bytes != expected
            && let Some(at) = (0..bytes.len()).find(differ)
        {
            let (is, expected) = (bytes[at], expected[at]);
            let wrong = Wrong::Byte {
                size,
                at,
                is,
                expected,
            };
            return Err(wrong.into());
        }
        Ok(())
    }
}

/// Two ends, the first of which asks.
pub(super) struct Pair<'d, P: Platform>(pub(super) [End<'d, P>; 2]);

impl<P: Platform> Pair<'_, P> {
    pub(super) fn qpns(&self) -> [Qpn; 2] {
        self.0.each_ref().map(|end| end.qp.qpn())
    }

    pub(super) fn connect(&mut self, loopback: &Loopback) -> Result<()> {
        let [a, b] = self.qpns();
        self.0[0].connect(b, loopback)?;
        self.0[1].connect(a, loopback)
    }

    /// Moves a message and looks at every byte of it.
    pub(super) fn transfer(&mut self, op: Op, size: usize) -> Result<()> {
        let [a, b] = &mut self.0;
        let (from, to) = match op {
            Op::Read => (&b.buffer, &a.buffer),
            Op::Send | Op::Write => (&a.buffer, &b.buffer),
        };
        from.copy_in(0, &PATTERN[..size])?;
        to.fill(0, size + GUARD, UNTOUCHED)?;
        match op {
            Op::Send => {
                b.post_recv()?;
                a.post(SendOp::Send, size)?;
            }
            Op::Write => a.post(SendOp::Write(b.remote()), size)?,
            Op::Read => a.post(SendOp::Read(b.remote()), size)?,
        }
        let _ = a.complete(WcStatus::Success)?;
        if op == Op::Send {
            let is = b.complete(WcStatus::Success)?.byte_len as usize;
            if is != size {
                return Err(Wrong::Length { is, expected: size }.into());
            }
        }
        let to = if op == Op::Read { a } else { b };
        to.check(size)
    }

    /// A fetch-and-add, and a compare-and-swap that finds what that left.
    pub(super) fn atomics(&mut self) -> Result<String> {
        let [a, b] = &mut self.0;
        let (start, add, swap) = (0x0102_0304_0506_0708, 0xff, u64::MAX);
        let word = |buffer: &Buffer<'_, P>| -> Result<u64> {
            let mut word = [0; 8];
            buffer.copy_out(0, &mut word)?;
            Ok(u64::from_ne_bytes(word))
        };
        let remote = b.remote();
        b.buffer.copy_in(0, &u64::to_ne_bytes(start))?;
        let add_to = SendOp::FetchAdd { remote, add };
        let compare = start + add;
        let swap_with = SendOp::CompareSwap {
            remote,
            compare,
            swap,
        };
        for (op, before, after) in [(add_to, start, compare), (swap_with, compare, swap)] {
            a.post(op, 8)?;
            let _ = a.complete(WcStatus::Success)?;
            for (is, expected) in [(word(&a.buffer)?, before), (word(&b.buffer)?, after)] {
                if is != expected {
                    return Err(Wrong::Atomic { is, expected }.into());
                }
            }
        }
        Ok("fetch-and-add, compare-and-swap".into())
    }

    /// Sleeps until a completion's interrupt. How long that took.
    pub(super) fn interrupt(&mut self) -> Result<Duration> {
        let [a, b] = &mut self.0;
        let device = a.qp.device();
        let platform = device.platform();
        let vectors = VectorSet::one(device.interrupt_vector(0));
        // Those of what went before.
        device.poll()?;
        platform.wait_interrupt(vectors, platform.now());
        a.cq.arm(false);
        let began = platform.now();
        a.post(SendOp::Write(b.remote()), 1)?;
        while !a.cq.take_event() {
            if !platform.wait_interrupt(vectors, began + TIMEOUT) {
                return Err(Wrong::Missing("interrupt").into());
            }
            device.poll()?;
        }
        let took = platform.now() - began;
        let _ = a.complete(WcStatus::Success)?;
        Ok(took)
    }

    /// A WRITE with a key that is none is an error at both ends, and changes nothing.
    pub(super) fn wrong_key(&mut self) -> Result<WcStatus> {
        let [a, b] = &mut self.0;
        let mut remote = b.remote();
        // The low byte distinguishes the present owner of a key from earlier ones.
        remote.rkey = RKey(remote.rkey.0 ^ 0xff);
        b.buffer.fill(0, GUARD, UNTOUCHED)?;
        b.post_recv()?;
        a.post(SendOp::Write(remote), 8)?;
        let status = a.complete(WcStatus::RemAccessErr)?.status;
        let _ = b.complete(WcStatus::WrFlushErr)?;
        b.check(0)?;
        let device = a.qp.device();
        let deadline = device.platform().now() + TIMEOUT;
        let reported = AsyncEvent::QpAccessError { qpn: b.qp.qpn() };
        loop {
            match device.get_async_event(deadline)? {
                Some(event) if event == reported => break,
                // The port may come up at any time.
                Some(_) => {}
                None => return Err(Wrong::Missing("asynchronous event").into()),
            }
        }
        let expected = QpState::Err;
        for end in [a, b] {
            let is = end.qp.query()?.attr.qp_state;
            if is != expected {
                return Err(Wrong::State { is, expected }.into());
            }
        }
        Ok(status)
    }
}
