//! Completions that no device writes, for the queues of frames: with and without strides, and of raw packet QPs.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use bareverbs_core::{
    Access, Config, CqInit, Cqs, Device, EthernetInit, EthernetSendFlags, Inline, PageChunks,
    QpInitAttr, Qps, Resources, SendFlags, Srqs, StridingInit,
};
use bareverbs_in_process::{Builder, World};
use connectx_model::Config as Card;

use crate::hostile::{Hostile, hostile};
use crate::input::{Input, STEPS};

/// Entries of the completion queues, and their bytes.
const ENTRIES: usize = 16;
const RING: usize = ENTRIES * 64;
const LONGEST: usize = 1518;

/// A card that is up, once for all inputs: its queues are each input's own.
struct Up {
    world: World,
    card: &'static Hostile,
    device: Device<'static, &'static Hostile>,
}

fn bring_up() -> Up {
    let world = Builder::new()
        .function(Card::new(1))
        .function(Card::new(2))
        .stepped();
    // They last as long as the process.
    let card: &Hostile = Box::leak(Box::new(hostile(world.platform(0))));
    let resources = Box::new(Resources::<Qps<2>, Cqs<4>, Srqs<1>, PageChunks<256>>::new());
    let device = Device::open(card, Config::DEFAULT, Box::leak(resources).storage());
    Up {
        world,
        card,
        device: device.expect("bring-up"),
    }
}

/// Runs an input.
///
/// # Panics
/// If anything comes of it that may not.
pub fn run(data: &[u8]) {
    static CARD: OnceLock<Mutex<Up>> = OnceLock::new();
    let up = CARD.get_or_init(|| Mutex::new(bring_up()));
    let up = up.lock().unwrap_or_else(PoisonError::into_inner);
    let Up {
        world,
        card,
        device,
    } = &*up;
    let mut input = Input::new(data);
    match input.byte() % 3 {
        0 => strides(card, device, &mut input),
        1 => frames(card, device, &mut input),
        _ => raw(card, device, &mut input),
    }
    assert_eq!(world.take_faults(0), []);
}

/// The next completion: most of it is right, unless the input says otherwise.
fn completion(input: &mut Input<'_>, turn: usize) -> [u8; 64] {
    let kind = input.byte();
    let mut cqe = [0; 64];
    let opcode = [2, 0, 0xd, 0xe, 5, 1, 3, 0xb][usize::from(kind & 7)];
    cqe[0x3f] = opcode << 4 | u8::from(turn & ENTRIES != 0);
    // How long, and how many strides.
    cqe[0x2c..0x30].copy_from_slice(&[input.byte() & 0x81, 1 + input.byte() % 8, 0, input.byte()]);
    cqe[0x3c..0x3e].copy_from_slice(&u16::from(input.byte()).to_be_bytes());
    if kind & 8 != 0 {
        let at = usize::from(input.byte() % 64);
        let bytes = input.bytes(usize::from(input_len(kind)).min(64 - at));
        cqe[at..at + bytes.len()].copy_from_slice(bytes);
    }
    cqe
}

fn input_len(kind: u8) -> u8 {
    1 << (kind >> 5 & 3)
}

/// Writes into all completion queues of the queue that was made last.
fn lie(card: &Hostile, input: &mut Input<'_>, turn: usize) {
    for ring in card.of_size(RING) {
        let cqe = completion(input, turn);
        card.write(ring, turn % ENTRIES * 64, &cqe);
    }
}

fn strides(card: &Hostile, device: &Device<'_, &Hostile>, input: &mut Input<'_>) {
    let pd = device.alloc_pd().expect("a PD");
    let domain = device.alloc_ethernet_domain().expect("a domain");
    let init = StridingInit {
        requests: 1 + u32::from(input.byte() & 1),
        strides: 8,
        stride_len: 256,
        frame_len: Some(LONGEST),
        ..StridingInit::default()
    };
    let mut queue = domain.create_striding_receive(&pd, &init).expect("a queue");
    card.set_deaf(true);
    let (mut held, mut bytes) = (Vec::new(), [0; 2048]);
    for turn in 0..STEPS {
        if input.is_empty() {
            break;
        }
        lie(card, input, turn);
        match queue.receive() {
            Ok(Some(frame)) => {
                let len = queue.copy_to(&frame, &mut bytes);
                assert!(len == frame.len() && (14..=LONGEST).contains(&len));
                let sge = queue.sge(&frame).expect("memory");
                let mine = sge.addr..sge.addr + u64::from(sge.length);
                let apart = |other: &std::ops::Range<u64>| {
                    mine.end <= other.start || other.end <= mine.start
                };
                assert!(held.iter().all(|(_, other)| apart(other)));
                held.push((frame, mine));
            }
            Ok(None) => {}
            Err(_) => break,
        }
        if input.byte() & 3 == 0 {
            for (frame, _) in held.drain(..) {
                queue.give_back(frame).expect("it was held");
            }
        }
    }
    card.set_deaf(false);
    queue.destroy().expect("destroyed");
    domain.destroy().expect("destroyed");
}

fn frames(card: &Hostile, device: &Device<'_, &Hostile>, input: &mut Input<'_>) {
    let pd = device.alloc_pd().expect("a PD");
    let init = EthernetInit {
        send_frames: 8,
        recv_frames: 8,
        frame_len: Some(LONGEST),
        ..EthernetInit::default()
    };
    let mut queue = pd.create_ethernet_queue(&init).expect("a queue");
    card.set_deaf(true);
    let mut bytes = [0; 4096];
    for turn in 0..STEPS {
        if input.is_empty() {
            break;
        }
        lie(card, input, turn);
        let (send, receive) = queue.split();
        let _ = send.send(&[2; 60], EthernetSendFlags::empty());
        let _ = send.poll();
        assert_eq!(send.outstanding() + send.free(), 8);
        if let Ok(Some(received)) = receive.receive() {
            let len = received.copy_to(&mut bytes);
            assert!((14..=LONGEST).contains(&len));
        }
    }
    card.set_deaf(false);
    queue.destroy().expect("destroyed");
}

fn raw(card: &Hostile, device: &Device<'_, &Hostile>, input: &mut Input<'_>) {
    let pd = device.alloc_pd().expect("a PD");
    let domain = device.alloc_ethernet_domain().expect("a domain");
    let mut cq = device.create_cq(CqInit::new(15)).expect("a CQ");
    let mut init = QpInitAttr::new(&cq, 8);
    init.cap.max_inline_data = 60;
    let mut qp = domain.create_raw_packet_qp(&pd, &mut init).expect("a QP");
    qp.bring_to_rts().expect("RTS");
    card.set_deaf(true);
    let buffer = pd.alloc_buffer(4096, Access::LOCAL_WRITE).expect("memory");
    let number = qp.qpn().number().to_be_bytes();
    // By identifier: sends are even, receives odd.
    let mut outstanding = VecDeque::new();
    for turn in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let next = 2 * turn as u64;
        if qp.send_queue().free() > 0 {
            let frame = Inline(&[0; 60]);
            let posted = qp
                .send_queue()
                .batch()
                .send_packet(next, SendFlags::SIGNALED, frame);
            posted.expect("room");
            outstanding.push_back(next);
        }
        if qp.recv_queue().free() > 0 {
            let sge = buffer.sge(0, 2048).expect("inside");
            qp.recv_queue().post(next + 1, &[sge]).expect("room");
            outstanding.push_back(next + 1);
        }
        let mut cqe = completion(input, turn);
        cqe[0x38..0x3c].copy_from_slice(&number);
        for ring in card.of_size(RING) {
            card.write(ring, turn % ENTRIES * 64, &cqe);
        }
        let Ok(Some(completion)) = cq.poll() else {
            continue;
        };
        let wc = completion.to_wc();
        let at = outstanding.iter().position(|&id| id == wc.wr_id);
        let at = at.unwrap_or_else(|| panic!("{wc:?} was not outstanding"));
        // Receives complete in order; a send stands for those before it.
        if wc.wr_id & 1 == 1 {
            assert!(outstanding.iter().take(at).all(|id| id & 1 == 0));
            outstanding.remove(at);
        } else {
            outstanding.retain(|&id| id & 1 == 1 || id > wc.wr_id);
        }
    }
    card.set_deaf(false);
    drop(buffer);
    qp.destroy().expect("destroyed");
    cq.destroy().map_err(|(_, error)| error).expect("destroyed");
    domain.destroy().expect("destroyed");
}
