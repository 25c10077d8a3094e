//! This project's own driver on the server's functions.

use crate::card::Card;
use crate::support::LONG;
use bareverbs_core::{
    Access, AhAttr, Buffer, Config, Cq, CqInit, Cqs, Device, DeviceError, Gid, GidEntry, Mtu,
    PageChunks, Pd, Qp, QpAttr, QpAttrMask, QpCap, QpInitAttr, QpState, QpType, Qps, Rc, RecvWr,
    Remote, Resources, SendFlags, Sge, Srqs, Storage, Wc, WcStatus,
};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;

pub(crate) type Memory = Resources<Qps<16>, Cqs<16>, Srqs<1>, PageChunks<256>>;
const BUFFER: usize = 1 << 20;
const ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ);

/// Storage for a device.
pub(crate) fn memory() -> Box<Memory> {
    Box::new(Memory::new())
}

/// Brings a function up; interrupts are used, and the GID is made of `number`.
pub(crate) fn bring_up<'s>(socket: &Path, number: u8, storage: Storage<'s>) -> Device<'s, Card> {
    let mut config = Config::DEFAULT;
    config.interrupts = true;
    let device = Device::open(Card::open(socket), config, storage).expect("bring-up");
    let mac = device.mac().expect("MAC");
    device
        .set_gid(0, GidEntry::roce_v2(address(number).into(), mac))
        .expect("GID");
    device
}

fn address(number: u8) -> std::net::IpAddr {
    Ipv4Addr::new(10, 0, 0, number + 1).into()
}

/// A function that is up, with a PD.
pub(crate) struct Side<'d> {
    pub(crate) device: &'d Device<'d, Card>,
    pd: Pd<'d, Card>,
    number: u8,
}

impl<'d> Side<'d> {
    pub(crate) fn new(device: &'d Device<'d, Card>, number: u8) -> Self {
        Self {
            device,
            pd: device.alloc_pd().expect("PD"),
            number,
        }
    }

    fn end<T: QpType>(&self) -> End<'d, T> {
        let cq = self.device.create_cq(CqInit::new(127)).expect("CQ");
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: false,
        };
        let qp = self.pd.create_qp::<T>(&mut init).expect("QP");
        let buffer = self.pd.alloc_buffer(BUFFER, ACCESS).expect("buffer");
        End {
            device: self.device,
            qp,
            cq,
            buffer,
        }
    }
}

/// A QP with its own CQ and a buffer.
pub(crate) struct End<'d, T: QpType> {
    device: &'d Device<'d, Card>,
    pub(crate) qp: Qp<'d, Card, T>,
    cq: Cq<'d, Card>,
    buffer: Buffer<'d, Card>,
}

/// A connection over a good cable: it is patient, since machines that run tests are busy at times.
pub(crate) fn connect<'d>(sides: [&Side<'d>; 2]) -> [End<'d, Rc>; 2] {
    connect_with(sides, 18)
}

/// A connection that repeats what was not acknowledged in 4 µs << `timeout`, seven times.
pub(crate) fn connect_with<'d>(sides: [&Side<'d>; 2], timeout: u8) -> [End<'d, Rc>; 2] {
    let mut ends = sides.map(Side::end::<Rc>);
    let qpns = [ends[0].qp.qpn(), ends[1].qp.qpn()];
    for (at, end) in ends.iter_mut().enumerate() {
        let other = sides[1 - at];
        let mut attr = QpAttr {
            path_mtu: Mtu::B1024,
            dest_qp_num: qpns[1 - at],
            qp_access_flags: ACCESS,
            ah_attr: AhAttr {
                dgid: Gid::from(address(other.number)),
                sgid_index: 0,
                hop_limit: 64,
                dmac: other.device.mac().expect("MAC"),
                ..AhAttr::default()
            },
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            port_num: 1,
            timeout,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::DEFAULT
        };
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            attr.qp_state = to;
            let row = bareverbs_core::qp::transition(Rc::KIND, end.qp.state(), to).expect("a row");
            end.qp
                .modify(&attr, row.required | QpAttrMask::STATE)
                .expect("modified");
        }
    }
    ends
}

/// Bytes computed from their offset and a seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at ^ seed.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

impl<T: QpType> End<'_, T> {
    /// Waits for a completion, sleeping until an interrupt comes.
    pub(crate) fn wait(&mut self) -> Result<Wc, DeviceError> {
        let deadline = Instant::now() + LONG;
        let limit = bareverbs_core::Platform::now(self.device.platform()) + LONG;
        loop {
            if let Some(completion) = self.cq.poll().expect("the CQ works") {
                return Ok(completion.to_wc());
            }
            self.cq.arm(false);
            if let Some(completion) = self.cq.poll().expect("the CQ works") {
                return Ok(completion.to_wc());
            }
            self.device.wait(limit)?;
            assert!(Instant::now() < deadline, "no completion");
        }
    }

    fn sge(&self, offset: usize, len: usize) -> Sge {
        self.buffer.sge(offset, len).expect("inside the buffer")
    }
}

impl End<'_, Rc> {
    /// Writes `len` bytes into the other end's memory; how that went.
    pub(crate) fn write(
        &mut self,
        other: &End<'_, Rc>,
        len: usize,
        seed: u64,
    ) -> Result<WcStatus, DeviceError> {
        self.buffer.copy_in(0, &pattern(len, seed)).expect("space");
        self.write_again(other, len)
    }

    /// Writes what is in its memory into the other end's.
    pub(crate) fn write_again(
        &mut self,
        other: &End<'_, Rc>,
        len: usize,
    ) -> Result<WcStatus, DeviceError> {
        let remote = Remote {
            addr: other.buffer.addr(),
            rkey: other.buffer.rkey(),
        };
        let sge = self.sge(0, len);
        self.qp
            .send_queue()
            .batch()
            .write(1, SendFlags::SIGNALED, remote, sge)
            .expect("space");
        Ok(self.wait()?.status)
    }

    /// Returns `true` if its memory has the pattern of this seed.
    pub(crate) fn holds(&self, len: usize, seed: u64) -> bool {
        let mut data = vec![0; len];
        self.buffer.copy_out(0, &mut data).expect("inside");
        data == pattern(len, seed)
    }
}

/// A message there, one back, and the answer written and read by RDMA; all bytes compared.
pub(crate) fn ping([a, b]: &mut [End<'_, Rc>; 2], seed: u64, len: usize) {
    for turn in 0..2 {
        let (from, to) = if turn == 0 {
            (&mut *a, &mut *b)
        } else {
            (&mut *b, &mut *a)
        };
        let (id, seed) = (seed << 8 | turn, seed ^ turn << 40);
        let sges = [to.sge(BUFFER / 2, len)];
        to.qp
            .recv_queue()
            .post_list(&[RecvWr {
                wr_id: id,
                sges: &sges,
            }])
            .expect("space");
        from.buffer.copy_in(0, &pattern(len, seed)).expect("space");
        let sge = from.sge(0, len);
        from.qp
            .send_queue()
            .batch()
            .send(id, SendFlags::SIGNALED, sge)
            .expect("space");
        for end in [&mut *to, &mut *from] {
            let wc = end.wait().expect("the device works");
            assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, id), "{wc:?}");
        }
        let mut data = vec![0; len];
        to.buffer.copy_out(BUFFER / 2, &mut data).expect("inside");
        assert!(data == pattern(len, seed), "{len} bytes arrived changed");
    }
    assert_eq!(a.write(b, len, seed), Ok(WcStatus::Success));
    assert!(b.holds(len, seed), "{len} bytes were written changed");
    b.buffer.copy_in(0, &pattern(len, !seed)).expect("space");
    let remote = Remote {
        addr: b.buffer.addr(),
        rkey: b.buffer.rkey(),
    };
    let sges = [a.sge(0, len)];
    a.qp.send_queue()
        .batch()
        .read(7, SendFlags::SIGNALED, remote, &sges)
        .expect("space");
    let wc = a.wait().expect("the device works");
    assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
    assert!(a.holds(len, !seed), "{len} bytes were read changed");
}
