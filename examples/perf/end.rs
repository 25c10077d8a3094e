//! Two connected queue pairs with their buffers.

use std::time::Duration;

use bareverbs::verbs::{
    Access, AhAttr, Buffer, Cq, CqInit, Device, Gid, GidEntry, Mtu, Pd, Platform, PortState, Qp,
    QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType, Qpn, Rc, Remote, Sge, WcStatus,
};

use super::Result;

/// How long a port may take to come up, and how long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(30);

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// One end of the connection. Its buffer has a half for what is sent and one for what comes.
pub(crate) struct End<'d, P: Platform> {
    pub(crate) device: &'d Device<'d, P>,
    pub(crate) qp: Qp<'d, P, Rc>,
    pub(crate) send_cq: Cq<'d, P>,
    pub(crate) recv_cq: Cq<'d, P>,
    pub(crate) buffer: Buffer<'d, P>,
    /// Goes after what is in it, or the device could not let go of it.
    _pd: Pd<'d, P>,
    half: usize,
}

/// Both ends.
pub(crate) struct Pair<'d, P: Platform>(pub(crate) [End<'d, P>; 2]);

impl<'d, P: Platform> Pair<'d, P> {
    /// Connects two devices for messages of up to `largest` bytes, `deepest` of them in flight.
    pub(crate) fn connect(
        devices: &'d [Device<'d, P>; 2],
        largest: u32,
        deepest: u32,
        mtu: Mtu,
    ) -> Result<Self> {
        let [first, second] = devices;
        let mut ends = [
            End::new(first, largest, deepest)?,
            End::new(second, largest, deepest)?,
        ];
        let addresses = [Address::of(first)?, Address::of(second)?];
        let qpns = [ends[0].qp.qpn(), ends[1].qp.qpn()];
        for own in [0, 1] {
            let other = 1 - own;
            ends[own].make_ready(&addresses[own], &addresses[other], qpns[other], mtu)?;
        }
        Ok(Self(ends))
    }
}

/// Where a device is on the network.
struct Address {
    mac: [u8; 6],
    gid: Gid,
    index: u16,
}

impl Address {
    fn of<P: Platform>(device: &Device<'_, P>) -> Result<Self> {
        let deadline = device.platform().now() + PATIENCE;
        while device.query_port()?.state != PortState::Active {
            if !device.wait(deadline)? {
                return Err("a port is down; is the cable plugged in?".into());
            }
        }
        let mac = device.mac()?;
        let gid = Gid::link_local(mac);
        let index = device.free_gid_index().ok_or("the GID table is full")?;
        device.set_gid(index, GidEntry::roce_v2(gid, mac))?;
        Ok(Self { mac, gid, index })
    }
}

impl<'d, P: Platform> End<'d, P> {
    fn new(device: &'d Device<'d, P>, largest: u32, deepest: u32) -> Result<Self> {
        let pd: Pd<'d, P> = device.alloc_pd()?;
        let send_cq = device.create_cq(CqInit::new(deepest))?;
        let recv_cq = device.create_cq(CqInit::new(2 * deepest))?;
        let qp = pd.create_qp::<Rc>(&mut QpInitAttr {
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            srq: None,
            cap: QpCap {
                max_send_wr: deepest,
                max_recv_wr: 2 * deepest,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: true,
        })?;
        // Atomics want 8 bytes at a multiple of 8.
        let half = (largest as usize).next_multiple_of(64);
        let buffer = pd.alloc_buffer(2 * half, ALL)?;
        Ok(Self {
            device,
            qp,
            send_cq,
            recv_cq,
            buffer,
            _pd: pd,
            half,
        })
    }

    fn make_ready(&mut self, own: &Address, other: &Address, peer: Qpn, mtu: Mtu) -> Result<()> {
        let capabilities = self.device.capabilities();
        // At most 16, so it fits.
        let reads = |limit: u32| limit.min(16) as u8;
        let mut attr = QpAttr {
            path_mtu: mtu,
            dest_qp_num: peer,
            qp_access_flags: ALL,
            ah_attr: AhAttr {
                dgid: other.gid,
                sgid_index: own.index,
                hop_limit: 64,
                dmac: other.mac,
                ..AhAttr::default()
            },
            max_rd_atomic: reads(capabilities.max_initiator_depth()),
            max_dest_rd_atomic: reads(capabilities.max_responder_resources()),
            min_rnr_timer: 1,
            port_num: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::DEFAULT
        };
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            attr.qp_state = to;
            let row = bareverbs::verbs::qp::transition(Rc::KIND, self.qp.state(), to);
            let required = row.ok_or("no such transition")?.required;
            self.qp.modify(&attr, required | QpAttrMask::STATE)?;
        }
        Ok(())
    }

    /// What is sent.
    pub(crate) fn outbox(&self, size: u32) -> Result<Sge> {
        Ok(self.buffer.sge(0, size as usize).ok_or("too large")?)
    }

    /// Where messages come.
    pub(crate) fn inbox(&self, size: u32) -> Result<Sge> {
        Ok(self
            .buffer
            .sge(self.half, size as usize)
            .ok_or("too large")?)
    }

    /// The inbox for the other end.
    pub(crate) fn remote(&self) -> Remote {
        Remote {
            addr: self.buffer.addr() + self.half as u64,
            rkey: self.buffer.rkey(),
        }
    }

    /// Marks the last byte of what is sent.
    pub(crate) fn mark(&self, size: u32, mark: u8) -> Result<()> {
        Ok(self.buffer.copy_in(size as usize - 1, &[mark])?)
    }

    /// The last byte of what came.
    pub(crate) fn last_byte(&self, size: u32) -> Result<u8> {
        let mut byte = [0];
        let at = self.half + size as usize - 1;
        self.buffer.copy_out(at, &mut byte)?;
        Ok(byte[0])
    }

    /// Spins until there is something, and keeps the device going meanwhile.
    pub(crate) fn spin<T>(
        &mut self,
        mut done: impl FnMut(&mut Self) -> Result<Option<T>>,
        given_up: &dyn Fn() -> bool,
    ) -> Result<T> {
        let deadline = self.device.platform().now() + PATIENCE;
        loop {
            for _ in 0..64 {
                if let Some(found) = done(self)? {
                    return Ok(found);
                }
                self.device.platform().relax();
            }
            self.device.poll()?;
            if given_up() {
                return Err("the other end failed".into());
            }
            if self.device.platform().now() > deadline {
                return Err(format!("nothing happened for {PATIENCE:?}").into());
            }
        }
    }

    /// Takes completions. How many there were.
    pub(crate) fn reap(cq: &mut Cq<'d, P>) -> Result<u32> {
        let mut count = 0;
        let mut batch = cq.batch()?;
        while let Some(completion) = batch.next() {
            let wc = completion.to_wc();
            if wc.status != WcStatus::Success {
                let vendor = wc.vendor_err;
                return Err(format!("{} (vendor error {vendor:#x})", wc.status).into());
            }
            count += 1;
        }
        Ok(count)
    }
}
