//! Two cards on a cable with a connection between them that each end writes through: for rates of one thread and of two.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bareverbs_core::qp::{Remote, SendData, SendFlags, SendOp, SendWr};
use bareverbs_core::{
    Access, AhAttr, Buffer, Config, Cq, CqInit, Cqs, Device, Gid, Mtu, PageChunks, Pd, Platform,
    Qp, QpAttr, QpCap, QpInitAttr, Qps, Rc, Resources, Srqs, WcStatus,
};
use bareverbs_in_process::{Builder, ModelPlatform};

/// Messages to a doorbell; the last one makes a completion.
pub const BATCH: usize = 16;
/// Doorbells whose completions are outstanding at most.
const IN_FLIGHT: u32 = 8;
const LONGEST: usize = 64 << 10;

/// The threads that drive the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// One thread does both in turns, and nothing else runs: the clock is virtual.
    One,
    /// Each has a thread, on the real clock.
    Two,
}

/// A port with its QP, CQ and buffer.
struct Lane<'d> {
    device: &'d Device<'d, ModelPlatform>,
    qp: Qp<'d, ModelPlatform, Rc>,
    cq: Cq<'d, ModelPlatform>,
    near: Buffer<'d, ModelPlatform>,
    far: Remote,
    posted: u32,
    done: u32,
}

impl Lane<'_> {
    /// Posts a doorbell's messages if there is room, takes what is done, and lets the card work.
    fn turn(&mut self, size: usize, doorbells: u32) {
        let sges = [self.near.sge(0, size).expect("in range")];
        if self.posted < doorbells && self.posted - self.done < IN_FLIGHT {
            let wrs: [SendWr<'_>; BATCH] = std::array::from_fn(|index| SendWr {
                wr_id: index as u64,
                op: SendOp::Write(self.far),
                flags: if index + 1 == BATCH {
                    SendFlags::SIGNALED
                } else {
                    SendFlags::empty()
                },
                data: SendData::Sges(&sges),
            });
            self.qp.send_queue().post_list(&wrs).expect("queue space");
            self.posted += 1;
        }
        while let Some(completion) = self.cq.poll().expect("CQ") {
            assert_eq!(completion.to_wc().status, WcStatus::Success);
            self.done += 1;
        }
        self.device.platform().relax();
    }
}

/// Two ends that are connected.
pub struct Lanes<'d> {
    lanes: [Lane<'d>; 2],
    threads: Threads,
}

impl Lanes<'_> {
    /// Messages per second when each end writes so many doorbells' messages of a size.
    pub fn rate(&mut self, size: usize, doorbells: [u32; 2]) -> f64 {
        let [a, b] = &mut self.lanes;
        for lane in [&mut *a, &mut *b] {
            (lane.posted, lane.done) = (0, 0);
        }
        let start = Instant::now();
        match self.threads {
            Threads::One => {
                while a.done < doorbells[0] || b.done < doorbells[1] {
                    a.turn(size, doorbells[0]);
                    b.turn(size, doorbells[1]);
                }
            }
            Threads::Two => {
                // An end that has nothing to write answers the other one.
                let done = AtomicUsize::new(0);
                std::thread::scope(|scope| {
                    for (lane, doorbells) in [a, b].into_iter().zip(doorbells) {
                        let done = &done;
                        scope.spawn(move || {
                            while lane.done < doorbells {
                                lane.turn(size, doorbells);
                            }
                            done.fetch_add(1, Ordering::SeqCst);
                            while done.load(Ordering::SeqCst) < 2 {
                                lane.turn(size, doorbells);
                            }
                        });
                    }
                });
            }
        }
        let messages = f64::from(doorbells[0] + doorbells[1]) * BATCH as f64;
        messages / start.elapsed().as_secs_f64()
    }
}

/// Makes the two ends.
///
/// # Panics
/// If that fails: a benchmark has nothing to recover.
pub fn with(threads: Threads, work: impl FnOnce(&mut Lanes<'_>)) {
    let builder = Builder::new()
        .function(connectx_model::Config::new(1))
        .function(connectx_model::Config::new(2));
    let world = match threads {
        Threads::One => builder.stepped(),
        Threads::Two => builder.threaded(),
    };
    let mut resources: [Resources<Qps<4>, Cqs<4>, Srqs<1>, PageChunks<64>>; 2] =
        [Resources::new(), Resources::new()];
    let address = |node: usize| std::net::Ipv4Addr::new(10, 0, 0, node as u8 + 1);
    let [first, second] = &mut resources;
    let devices = [(0, first.storage()), (1, second.storage())]
        .map(|(node, storage)| world.open(node, Config::DEFAULT, storage, &[address(node).into()]));
    let pds: [Pd<'_, _>; 2] = devices
        .each_ref()
        .map(|device| device.alloc_pd().expect("PD"));
    let mut ends = [0, 1].map(|node| {
        let cq = devices[node].create_cq(CqInit::new(63)).expect("CQ");
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: QpCap {
                max_send_wr: IN_FLIGHT * BATCH as u32,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: false,
        };
        let qp = pds[node].create_qp::<Rc>(&mut init).expect("QP");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        // One half is read, the other one written by the peer.
        let near = pds[node].alloc_buffer(2 * LONGEST, access).expect("memory");
        (qp, cq, near)
    });
    let [a, b] = [0, 1].map(|node| (ends[node].0.qpn(), ends[node].2.addr(), ends[node].2.rkey()));
    for (node, (qpn, ..)) in [b, a].into_iter().enumerate() {
        let attr = QpAttr {
            path_mtu: Mtu::B4096,
            dest_qp_num: qpn,
            qp_access_flags: Access::REMOTE_WRITE,
            ah_attr: AhAttr {
                dgid: Gid::from_ipv4(address(1 - node)),
                hop_limit: 64,
                dmac: devices[1 - node].mac().expect("MAC"),
                ..AhAttr::default()
            },
            port_num: 1,
            // Where two threads have one core, an acknowledgement may be late by a share of its time.
            timeout: 0,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::DEFAULT
        };
        ends[node].0.bring_to_rts(&attr).expect("connected");
    }
    let [first, second] = ends;
    let lane = |node: usize, (qp, cq, near), (_, addr, rkey)| Lane {
        device: &devices[node],
        qp,
        cq,
        near,
        far: Remote {
            addr: addr + LONGEST as u64,
            rkey,
        },
        posted: 0,
        done: 0,
    };
    work(&mut Lanes {
        lanes: [lane(0, first, b), lane(1, second, a)],
        threads,
    });
}
