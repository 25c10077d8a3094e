//! A device that writes invalid entries into completion queues: nothing of it may reach beyond a queue's own buffers.

// UNSAFETY: writes where the device would.
#![expect(unsafe_code)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bareverbs_core::{
    Access, Config, CqInit, Cqs, Device, EthernetQueue, EthernetReceiveError, Inline, PageChunks,
    QpInitAttr, Qps, Resources, Srqs, StridingInit, WcStatus,
};
use bareverbs_in_process::{Builder, Tap, Tapped};
use connectx_model::Config as Card;

use crate::lab::SIGNALED;
use crate::support::{INIT, NONE, frame};

/// Bytes of the completion queues of [`INIT`]: one more than eight, rounded up.
const RING: usize = 16 * 64;

/// Records the address of memory with a completion queue's size.
#[derive(Default)]
pub(crate) struct Rings {
    pub(crate) rings: Mutex<Vec<usize>>,
    /// Doorbells are lost, so that the device writes no completions itself.
    pub(crate) deaf: AtomicBool,
    /// All that was allocated, with its size.
    pub(crate) memory: Mutex<Vec<(usize, usize)>>,
}

impl Tap for Rings {
    fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Relaxed)
    }
    fn allocated(&self, at: usize, len: usize) {
        if len == RING {
            self.rings.lock().unwrap().push(at);
        }
        self.memory.lock().unwrap().push((at, len));
    }
}

pub(crate) type Forger = Tapped<Rings>;

/// A card whose completion queues the test writes. Nothing of the driver's is left afterwards, and the card has reached
/// nothing else.
pub(crate) fn with_forger(test: impl for<'a> FnOnce(&'a Forger, &Device<'_, &'a Forger>)) {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped();
    let forger = Tapped::new(world.platform(0), Rings::default());
    let mut resources = Box::new(Resources::<Qps<2>, Cqs<4>, Srqs<1>, PageChunks<256>>::new());
    let device = Device::open(&forger, Config::DEFAULT, resources.storage()).expect("bring-up");
    test(&forger, &device);
    device.close().expect("closed");
    assert_eq!(world.take_faults(0), []);
    assert_eq!(world.accounting(0).allocated, 0);
}

/// SplitMix64.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A random completion: the fields that are checked are right half of the time.
pub(crate) fn forge(seed: &mut u64, index: u32, qpn: u32, counter: u16) -> [u8; 64] {
    let mut cqe = [0; 64];
    for word in cqe.as_chunks_mut::<8>().0 {
        *word = random(seed).to_ne_bytes();
    }
    let user_index = (random(seed) & 1) as u32;
    let mut perhaps = |at: usize, bytes: &[u8]| {
        if random(seed) & 3 != 0 {
            cqe[at..at + bytes.len()].copy_from_slice(bytes);
        }
    };
    perhaps(0x20, &user_index.to_be_bytes());
    perhaps(0x38, &qpn.to_be_bytes());
    perhaps(0x3c, &counter.to_be_bytes());
    let length = (random(seed) % 3000) as u32;
    cqe[0x2c..0x30].copy_from_slice(&length.to_be_bytes());
    let opcodes = [0x0, 0x2, 0x2, 0xd, 0xe, 0x5, 0x1, 0x3, 0xb];
    let opcode = opcodes[(random(seed) % opcodes.len() as u64) as usize];
    let format = match random(seed) & 31 {
        odd @ 1..4 => (odd as u8) << 2,
        _ => 0,
    };
    cqe[0x3f] = opcode << 4 | format | u8::from(index & 16 != 0);
    cqe
}

#[test]
fn nonsense_in_completion_queues() {
    with_forger(|forger, device| {
        let pd = device.alloc_pd().unwrap();
        let mut seed = 0x5eed;
        println!("seed {seed:#x}");
        let mut totals = [0_u64; 5];
        for _ in 0..300 {
            forger.rings.lock().unwrap().clear();
            let queue = pd.create_ethernet_queue(&INIT).unwrap();
            for (total, more) in totals.iter_mut().zip(lie_to(forger, queue, &mut seed)) {
                *total += more;
            }
        }
        let [frames, malformed, receive_garbage, send_garbage, stopped] = totals;
        assert!(frames > 100 && malformed > 100, "{totals:?}");
        assert!(receive_garbage > 1000 && send_garbage > 1000, "{totals:?}");
        assert!(stopped > 100, "{totals:?}");
    });
}

/// Fills the queue's completion queues with random entries, and counts what comes of it: frames, malformed ones,
/// garbage on either side, and whether the queue detects that it was stopped.
fn lie_to(forger: &Forger, mut queue: EthernetQueue<'_, &Forger>, seed: &mut u64) -> [u64; 5] {
    let rings = forger.rings.lock().unwrap().clone();
    let [send_ring, receive_ring] = rings[..] else {
        panic!("{rings:?}");
    };
    let shown = format!("{queue:?}");
    let numbers = ["sqn: 0x", "rqn: 0x"].map(|name| number_behind(&shown, name));
    let sent = frame([2; 6], queue.mac(), 60, 1);
    forger.deaf.store(true, Ordering::Relaxed);
    let mut frames = 0;
    let mut bytes = [0; 4096];
    for index in 0..200_u32 {
        // The counter that would be right as long as nothing was stopped, or nearly.
        let counter = (index / 2) as u16 + (random(seed) % 3) as u16;
        for (ring, qpn) in [(send_ring, numbers[0]), (receive_ring, numbers[1])] {
            let cqe = forge(seed, index, qpn, counter);
            let at = (ring + (index as usize & 15) * 64) as *mut [u8; 64];
            // SAFETY: inside the ring, which exists as long as the queue, and which the driver does not read now.
            unsafe { at.write_volatile(cqe) };
        }
        let (send, receive) = queue.split();
        let _ = send.send(&sent, NONE);
        send.poll().unwrap();
        assert_eq!(send.outstanding() + send.free(), 8);
        if let Ok(Some(received)) = receive.receive() {
            let length = received.copy_to(&mut bytes);
            assert!((14..=1518).contains(&length));
            frames += 1;
        }
    }
    forger.deaf.store(false, Ordering::Relaxed);
    let counters = queue.receive_half().counters();
    assert_eq!(counters.received, frames);
    let (send, receive) = queue.split();
    let stopped = u64::from(send.failure().is_some()) + u64::from(receive.failure().is_some());
    let send_garbage = send.garbage_completions();
    queue.destroy().unwrap();
    [
        frames,
        counters.malformed,
        counters.garbage_completions,
        send_garbage,
        stopped,
    ]
}

/// The same under a raw packet QP: what the driver takes for a completion is of a work request that was posted and that
/// nothing was said of before.
#[test]
fn nonsense_under_raw_packets() {
    with_forger(|forger, device| {
        let pd = device.alloc_pd().unwrap();
        let domain = device.alloc_ethernet_domain().unwrap();
        let mut seed = 0x5eee;
        println!("seed {seed:#x}");
        let (mut sends, mut receives, mut failed, mut garbage) = (0, 0, 0, 0);
        for _ in 0..200 {
            forger.rings.lock().unwrap().clear();
            forger.deaf.store(false, Ordering::Relaxed);
            let mut cq = device.create_cq(CqInit::new(15)).unwrap();
            let ring = forger.rings.lock().unwrap()[0];
            let mut init = QpInitAttr::new(&cq, 8);
            init.cap.max_inline_data = 60;
            let mut qp = domain.create_raw_packet_qp(&pd, &mut init).unwrap();
            qp.bring_to_rts().unwrap();
            forger.deaf.store(true, Ordering::Relaxed);
            let buffer = pd.alloc_buffer(4096, Access::LOCAL_WRITE).unwrap();
            // By identifier: sends are even, receives odd.
            let mut outstanding = std::collections::VecDeque::new();
            for index in 0..200_u32 {
                let next = u64::from(index);
                if qp.send_queue().free() > 0 {
                    let frame = Inline(&[0; 60]);
                    let posted = qp
                        .send_queue()
                        .batch()
                        .send_packet(2 * next, SIGNALED, frame);
                    posted.unwrap();
                    outstanding.push_back(2 * next);
                }
                if qp.recv_queue().free() > 0 {
                    let sge = buffer.sge(0, 2048).unwrap();
                    qp.recv_queue().post(2 * next + 1, &[sge]).unwrap();
                    outstanding.push_back(2 * next + 1);
                }
                let counter = (index / 4) as u16 + (random(&mut seed) % 3) as u16;
                let cqe = forge(&mut seed, index, qp.qpn().number(), counter);
                let at = (ring + (index as usize & 15) * 64) as *mut [u8; 64];
                // SAFETY: inside the ring, which exists as long as the CQ, and which the driver does not read now.
                unsafe { at.write_volatile(cqe) };
                let Some(completion) = cq.poll().unwrap() else {
                    continue;
                };
                let wc = completion.to_wc();
                assert_eq!(wc.qp_num, qp.qpn());
                let receive = wc.wr_id & 1 == 1;
                let at = outstanding.iter().position(|&id| id == wc.wr_id);
                let at = at.unwrap_or_else(|| panic!("{wc:?} was not outstanding"));
                // Receives complete in order; a send stands for those before it.
                if receive {
                    assert!(outstanding.iter().take(at).all(|id| id & 1 == 0));
                    outstanding.remove(at);
                    receives += 1;
                } else {
                    outstanding.retain(|&id| id & 1 == 1 || id > wc.wr_id);
                    sends += 1;
                }
                failed += u32::from(wc.status != WcStatus::Success);
                assert!(wc.flags.is_empty() || receive);
            }
            garbage += cq.garbage_completions();
            forger.deaf.store(false, Ordering::Relaxed);
            qp.destroy().unwrap();
            cq.destroy().map_err(|(_, error)| error).unwrap();
        }
        println!("{sends} {receives} {failed} {garbage}");
        assert!(sends > 300 && receives > 300 && failed > 100 && garbage > 1000);
    });
}

/// The hexadecimal number behind `name`.
fn number_behind(shown: &str, name: &str) -> u32 {
    let digits = shown.split(name).nth(1).expect("a number");
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap();
    u32::from_str_radix(&digits[..end], 16).unwrap()
}

/// A striding queue that is told what cannot be: strides beyond the request, fillers without end, tags that were not asked
/// for, requests that were not posted. Frames lie in the buffer and do not overlap, whatever is said.
#[test]
fn nonsense_about_strides() {
    with_forger(|forger, device| {
        let pd = device.alloc_pd().unwrap();
        let domain = device.alloc_ethernet_domain().unwrap();
        let mut seed = 0x57;
        println!("seed {seed:#x}");
        let (mut frames, mut faults, mut malformed, mut unused, mut garbage) = (0, 0, 0, 0, 0);
        for _ in 0..300 {
            forger.rings.lock().unwrap().clear();
            let init = StridingInit {
                requests: 1,
                strides: 8,
                stride_len: 256,
                frame_len: Some(1518),
                ..StridingInit::default()
            };
            let mut queue = domain.create_striding_receive(&pd, &init).unwrap();
            let [ring] = forger.rings.lock().unwrap()[..] else {
                panic!("one completion queue");
            };
            let (mut used, mut held) = (0_u64, Vec::new());
            let mut bytes = [0; 2048];
            for index in 0..200_usize {
                let mut perhaps = |right: u64, other: u64| {
                    if random(&mut seed) & 15 == 0 {
                        other
                    } else {
                        right
                    }
                };
                let strides = 1 + perhaps(index as u64 % 3, 0x7ffe);
                let filler = perhaps(0, 1) << 31;
                let length = perhaps(60 + index as u64, 0xffff);
                let stride = perhaps(used, 9);
                let request = perhaps(0, 3);
                let user = perhaps(0, 7);
                let opcode = perhaps(2, 0xe);
                let vlan = perhaps(0, 1) as u8;
                let mut cqe = [0; 64];
                cqe[2..4].copy_from_slice(&(request as u16).to_be_bytes());
                cqe[0x1d] = vlan;
                cqe[0x20..0x24].copy_from_slice(&(user as u32).to_be_bytes());
                let count = (filler | strides << 16 | length) as u32;
                cqe[0x2c..0x30].copy_from_slice(&count.to_be_bytes());
                cqe[0x37] = random(&mut seed) as u8 % 6;
                cqe[0x3c..0x3e].copy_from_slice(&(stride as u16).to_be_bytes());
                cqe[0x3f] = (opcode as u8) << 4 | u8::from(index & 16 != 0);
                let at = (ring + (index & 15) * 64) as *mut [u8; 64];
                // SAFETY: inside the ring, which exists as long as the queue, and which the driver does not read now.
                unsafe { at.write_volatile(cqe) };
                match queue.receive() {
                    Ok(Some(frame)) => {
                        let length = queue.copy_to(&frame, &mut bytes);
                        assert!(length == frame.len() && (14..=1518).contains(&length));
                        let sge = queue.sge(&frame).unwrap();
                        let mine = sge.addr..sge.addr + u64::from(sge.length);
                        for (_, other) in &held {
                            let other: &core::ops::Range<u64> = other;
                            assert!(mine.end <= other.start || other.end <= mine.start);
                        }
                        used = (used + strides) % 8;
                        frames += 1;
                        held.push((frame, mine));
                    }
                    Ok(None) => used = (used + strides) % 8,
                    Err(EthernetReceiveError::Strides(_)) => {
                        faults += 1;
                        break;
                    }
                    Err(_) => break,
                }
                if random(&mut seed) & 3 == 0 {
                    for (frame, _) in held.drain(..) {
                        queue.give_back(frame).unwrap();
                    }
                }
            }
            assert!(queue.posted() <= 1);
            let counters = queue.counters();
            malformed += counters.malformed;
            unused += counters.unused_strides;
            garbage += counters.garbage_completions;
            queue.destroy().unwrap();
        }
        let totals = [frames, faults, malformed, unused, garbage];
        assert!(totals.iter().all(|&total| total > 30), "{totals:?}");
        domain.destroy().unwrap();
    });
}
