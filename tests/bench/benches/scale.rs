//! Nanoseconds of a post and of a completion, by the number of QPs that take turns in an order that a seed draws: queues of 16,
//! batches of 256. `cargo rig peers scale` runs it beside rdma-core's provider; alone its figures say little.
//!
//! Arguments: numbers of QPs. For each, a line: `scale`, the number, the median batch's nanoseconds of a post and of a completion.
//! Or `threads`: what two threads do, each with a device, a QP and a CQ of its own, as a multiple of what one does.
//!
//! The device is a script that answers commands, a BAR of plain memory, and completions written ahead.

#[path = "data_path/doorbells.rs"]
mod doorbells;
#[path = "../../../core/tests/support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::hint::black_box;
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Instant;

use bareverbs_core::{
    Config, Cq, CqInit, CqSlot, Device, DeviceSlot, Gid, GidEntry, LKey, PageChunk, Pd, Qp, QpAttr,
    QpAttrMask, QpCap, QpInitAttr, QpSlot, QpState, QpType, Rc, SendFlags, Sge, Storage, WcStatus,
};
use bareverbs_firmware_cmds::cq::CreateCqIn;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::CreateQpIn;
use zerocopy::FromBytes;

use doorbells::Doorbells;
use support::Fake;
use support::firmware::{Action, Posted};
use support::random::Random;

/// Numbers of QPs that are measured without arguments.
const COUNTS: [usize; 2] = [16, 1024];
const BATCH: usize = 256;
const LIST: usize = 16;
const DEPTH: usize = 16;
/// Turns of one thread and of two, and the operations of each: so many that it does not count when the system moves a thread.
const TURNS: usize = 9;
const OPERATIONS_OF_A_THREAD: usize = 40 * OPERATIONS;
/// Operations of a measurement, at least.
const OPERATIONS: usize = 400_000;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const SGE: Sge = Sge::new(0x7f00_0000_1000, 0x1000, LKey(0x0011_2201));

/// The device that is measured.
type Scripted = Doorbells<false>;

/// State of the fake device.
#[derive(Default)]
struct Known {
    next: u32,
    /// The ring of the last CQ, and the log of its size.
    cq: (u64, u8),
    /// Of each QP by number: its user index.
    users: HashMap<u32, u32>,
}

fn answer(known: &Mutex<Known>, posted: &Posted) -> Action {
    let mut known = known.lock().expect("not poisoned");
    let mut output = vec![0; posted.output_len.max(16)];
    let number = known.next + 0x10;
    match Opcode::from_number(posted.opcode) {
        Some(Opcode::CreateCq) => {
            let (create, pages) = CreateCqIn::read_from_prefix(&posted.input).expect("long enough");
            let context = create.cq_context();
            let page = pages
                .first_chunk()
                .map_or(0, |page| u64::from_be_bytes(*page));
            let offset = u64::from(context.page_offset()) << 6 << context.log_page_size();
            known.cq = (page + offset, context.log_cq_size());
        }
        Some(Opcode::CreateQp) => {
            let (create, _) = CreateQpIn::read_from_prefix(&posted.input).expect("long enough");
            known.users.insert(number, create.qpc().user_index());
        }
        Some(Opcode::AllocPd) => {}
        Some(Opcode::AllocUar) => {
            output[11] = 3;
            return Action::Answer(output);
        }
        _ => return Action::Normal,
    }
    known.next += 1;
    output[8..12].copy_from_slice(&number.to_be_bytes());
    Action::Answer(output)
}

fn main() {
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    if asked == ["threads"] {
        return two_threads();
    }
    let asked: Vec<usize> = asked
        .iter()
        .map(|argument| argument.parse().expect("a number of QPs"))
        .collect();
    let counts = if asked.is_empty() {
        &COUNTS[..]
    } else {
        &asked
    };
    for &count in counts {
        let Times { post, poll, .. } = measure(count, OPERATIONS, || {});
        println!("scale {count} {post:.2} {poll:.2}");
    }
}

/// Measures two threads, each with a device, a QP and a CQ, as a multiple of one: both in turns, by the clock from the
/// start of the first to the end of the last, so that other work on the machine makes it less, and never more.
fn two_threads() {
    let mut ratios: Vec<f64> = (0..TURNS)
        .map(|_| {
            let one = measure(1, OPERATIONS_OF_A_THREAD, || {}).all;
            let together = Barrier::new(2);
            let work = || {
                measure(1, OPERATIONS_OF_A_THREAD, || {
                    together.wait();
                })
            };
            let [first, second] = thread::scope(|scope| {
                let threads = [scope.spawn(work), scope.spawn(work)];
                threads.map(|thread| thread.join().expect("measured").all)
            });
            let both = first.end.max(second.end) - first.start.min(second.start);
            2.0 * (one.end - one.start).as_secs_f64() / both.as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let (middle, best) = (ratios[TURNS / 2], ratios[TURNS - 1]);
    println!("threads {middle:.2} {best:.2}");
}

/// The device's view of a QP.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    number: u32,
    user: u32,
    next: u16,
}

fn shuffle(places: &mut [Place], random: &mut Random) {
    for last in (1..places.len()).rev() {
        let other = random.next() % (last as u64 + 1);
        places.swap(last, other as usize);
    }
}

/// A QP that is connected, as far as the script knows.
fn create<'d>(pd: &Pd<'d, Scripted>, cq: &Cq<'d, Scripted>, depth: usize) -> Qp<'d, Scripted, Rc> {
    let mut init = QpInitAttr {
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        cap: QpCap {
            max_send_wr: depth as u32,
            max_recv_wr: depth as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        sq_sig_all: false,
    };
    let mut qp = pd.create_qp::<Rc>(&mut init).expect("QP");
    for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let row = bareverbs_core::qp::transition(Rc::KIND, qp.state(), to).expect("a transition");
        let mut attr = QpAttr {
            qp_state: to,
            ..QpAttr::DEFAULT
        };
        attr.ah_attr.dmac = [2, 0, 0, 0, 0, 1];
        qp.modify(&attr, row.required | QpAttrMask::STATE)
            .expect("modified");
    }
    qp
}

/// Times of a measurement.
struct Times {
    /// Nanoseconds of a post and of a completion, of the median batch.
    post: f64,
    poll: f64,
    /// All posts and completions, and what the script does between them.
    all: Range<Instant>,
}

/// Posts and polls; `begin` is called when everything is set up.
fn measure(count: usize, operations: usize, begin: impl FnOnce()) -> Times {
    let depth = DEPTH.max(BATCH / count);
    let fake = Fake::with(|inner| {
        for caps in [&mut inner.hca, &mut inner.hca_max] {
            caps.set_max_wqe_sz_sq(1024)
                .set_max_wqe_sz_rq(512)
                .set_log_max_cq_sz(22);
        }
    });
    let known = Arc::new(Mutex::new(Known::default()));
    let script = known.clone();
    fake.script(move |posted| answer(&script, posted));
    let platform = Scripted::new(fake);
    let mut device = DeviceSlot::new();
    let mut qps: Vec<QpSlot> = (0..count).map(|_| QpSlot::new()).collect();
    let mut cqs = [const { CqSlot::new() }; 1];
    let mut chunks: Vec<PageChunk> = (0..8).map(|_| PageChunk::new()).collect();
    let storage = Storage::new(&mut device, &mut qps, &mut cqs, &mut [], &mut chunks);
    let device = Device::open(platform, Config::DEFAULT, storage).expect("bring-up");
    let gid = Gid::from_ipv4([10, 0, 0, 1].into());
    let entry = GidEntry::roce_v2(gid, [2, 0, 0, 0, 0, 7]);
    device.set_gid(0, entry).expect("GID");
    let pd = device.alloc_pd().expect("PD");
    let mut cq = device.create_cq(CqInit::new(BATCH as u32)).expect("CQ");
    let mut qps: Vec<Qp<'_, Scripted, Rc>> = (0..count).map(|_| create(&pd, &cq, depth)).collect();
    let mut places: Vec<Place> = qps
        .iter()
        .enumerate()
        .map(|(index, qp)| {
            let number = qp.qpn().number();
            let user = known.lock().expect("not poisoned").users[&number];
            Place {
                index,
                number,
                user,
                next: 0,
            }
        })
        .collect();
    let (ring, log_size) = known.lock().expect("not poisoned").cq;

    // Posts before their completions are taken: to the last whole batch of all.
    let posted = if count < BATCH {
        BATCH
    } else {
        count / BATCH * BATCH
    };
    let mut random = Random(SEED);
    let (mut posts, mut polls) = (Vec::new(), Vec::new());
    let (mut produced, mut all) = (0_u32, 0_u64);
    let rounds = operations.div_ceil(posted);
    begin();
    let start = Instant::now();
    for _ in 0..rounds {
        // One post to each, in one order, or several where they are few; then the completions in another.
        shuffle(&mut places, &mut random);
        for first in (0..posted).step_by(BATCH) {
            let begin = Instant::now();
            for i in first..first + BATCH {
                let qp = &mut qps[places[i % count].index];
                let done =
                    qp.send_queue()
                        .batch()
                        .send(i as u64, SendFlags::SIGNALED, black_box(SGE));
                assert!(done.is_ok());
            }
            posts.push(begin.elapsed());
        }
        shuffle(&mut places[..count.min(posted)], &mut random);
        for first in (0..posted).step_by(BATCH) {
            for i in first..first + BATCH {
                let place = &mut places[i % count];
                let mut cqe = [0; 64];
                cqe[0x20..0x24].copy_from_slice(&place.user.to_be_bytes());
                cqe[0x38..0x3c].copy_from_slice(&(0x0a << 24 | place.number).to_be_bytes());
                cqe[0x3c..0x3e].copy_from_slice(&place.next.to_be_bytes());
                cqe[0x3f] = (produced >> log_size & 1) as u8;
                let at = u64::from(produced & ((1 << log_size) - 1)) * 64;
                device.platform().fake.lock().dma_write(ring + at, &cqe);
                produced += 1;
                place.next = place.next.wrapping_add(1);
            }
            let begin = Instant::now();
            let mut found = 0;
            for _ in 0..BATCH / LIST {
                let mut batch = cq.batch().expect("CQ");
                for _ in 0..LIST {
                    let id = batch.next_with(|completion| {
                        let is_good = completion.status() == WcStatus::Success;
                        is_good.then(|| completion.wr_id())
                    });
                    let Some(id) = id else { break };
                    all += id.unwrap_or(0);
                    found += 1;
                }
            }
            polls.push(begin.elapsed());
            assert_eq!(found, BATCH);
        }
    }
    let of_a_round = posted as u64 * (posted as u64 - 1) / 2;
    assert_eq!(
        all,
        of_a_round * rounds as u64,
        "each completion has its identifier"
    );
    let end = Instant::now();
    let [post, poll] = [posts, polls].map(|mut times| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e9 / BATCH as f64
    });
    Times {
        post,
        poll,
        all: start..end,
    }
}
