//! Anything at random: work requests, frames, commands. The card refuses, drops or answers, and stays alive.
//!
//! A failure prints its seed; run that one alone with `FUZZ_SEED=… cargo test -p connectx-model --test ethernet`.

use crate::common::page_list;
use crate::common::queues::data_segment;
use crate::lab::*;
use bareverbs_firmware_cmds::hca::NopIn;
use bareverbs_firmware_cmds::rq::{CreateRqIn, DestroyRqIn, ModifyRqIn, QueryRqIn};
use bareverbs_firmware_cmds::sq::{CreateSqIn, DestroySqIn, ModifySqIn, QuerySqIn};
use bareverbs_firmware_cmds::tir::{
    CreateRqtIn, CreateTirIn, DestroyRqtIn, DestroyTirIn, ModifyRqtIn, ModifyTirIn, QueryRqtIn,
};
use bareverbs_firmware_cmds::tis::{CreateTisIn, DestroyTisIn, ModifyTisIn};
use connectx_model::Config;
use std::time::Duration;
use zerocopy::IntoBytes;

/// SplitMix64: good enough to reach corners, and the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Names the seed when a test dies.
pub(crate) struct Seed(pub(crate) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("FUZZ_SEED={}", self.0);
        }
    }
}

pub(crate) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("FUZZ_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => vec![seed],
        None => (1..=count).collect(),
    }
}

/// A frame that is mostly sound: IPv4 or IPv6, TCP or UDP or something else, tags, and then some bytes changed.
fn frame(random: &mut Random, to: [u8; 6]) -> Vec<u8> {
    let mut frame = [&to[..], &OTHER].concat();
    for _ in 0..random.below(3) {
        let kind = [[0x81, 0x00], [0x88, 0xa8]][random.below(2) as usize];
        frame.extend(kind);
        frame.extend(random.bytes(2));
    }
    let len = random.below(1200) as usize;
    let body = random.bytes(len);
    let protocol = [6, 17, 1, 0, 44, 60][random.below(6) as usize];
    if random.one_in(2) {
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((20 + body.len() as u16).to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(random.bytes(8));
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((body.len() as u16).to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend(random.bytes(32));
    }
    frame.extend(body);
    if random.one_in(3) {
        for _ in 0..random.below(4) {
            let at = 12 + random.below(frame.len() as u64 - 12) as usize;
            frame[at] = random.next() as u8;
        }
    }
    if random.one_in(4) {
        frame.truncate(random.below(frame.len() as u64) as usize);
    }
    frame
}

#[test]
fn work_requests() {
    let mut frames = 0;
    for seed in seeds(90) {
        let _seed = Seed(seed);
        let mut random = Random(seed);
        let mut lab = Lab::new();
        for _ in 0..60 {
            let data = frame(&mut random, OTHER);
            let inline = random.below(60).min(data.len() as u64) as usize;
            let piece = lab.piece(random.below(0x8000), &data[inline..]);
            let tag = random.one_in(4).then(|| random.next() as u16);
            let inline = if tag.is_some() { &[] } else { &data[..inline] };
            let mss = random.below(300) as u16;
            let flags = (random.next() as u8) & (NETWORK | TRANSPORT);
            let mut segments = ethernet_segment(flags, mss, inline, tag);
            for _ in 0..random.below(3) {
                segments.extend(data_segment(piece));
            }
            if random.one_in(4) {
                let at = random.below(segments.len() as u64) as usize;
                segments[at] ^= 1 << random.below(8);
            }
            // No more than the 63 units that fit a WQE, and the 16 blocks of the queue.
            segments.truncate(992);
            let opcode = match random.below(10) {
                0 => random.next() as u8,
                1 => NOP,
                2..=4 => LSO,
                _ => SEND,
            };
            lab.post(opcode, random.next() as u8, &segments);
            if random.one_in(30) {
                lab.sq.posted = random.next() as u16;
            }
            lab.ring();
            for frame in std::mem::take(&mut lab.node.host.frames) {
                assert!((60..=4218).contains(&frame.len()));
                frames += 1;
            }
            while lab.sent().is_some() {}
            if lab.sq_context().state() == ERR {
                lab.move_sq(ERR, RST).unwrap();
                lab.sq.posted = 0;
                lab.node.host.put32(lab.sq.record + 4, 0);
                lab.move_sq(RST, RDY).unwrap();
            }
        }
        lab.node.command(&NopIn::new()).unwrap();
    }
    assert!(frames > 1500, "only {frames} frames went out");
}

#[test]
fn frames_and_their_checksums() {
    let mut received = 0;
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut random = Random(seed);
        let mut lab = Lab::new();
        let strip = random.one_in(2);
        if !strip {
            lab.rq = lab
                .try_rq(|context| {
                    context.set_vsd(true);
                })
                .unwrap();
            lab.move_rq(RST, RDY).unwrap();
        }
        let table = lab.try_rqt(&[lab.rq.number; 4], 8).unwrap();
        let symmetric = random.one_in(2);
        let bits = random.next();
        let tir = lab
            .try_tir(|context| {
                context
                    .set_disp_type(1)
                    .set_indirect_table(table)
                    .set_rx_hash_fn((bits % 3) as u8)
                    .set_rx_hash_symmetric(symmetric)
                    .rx_hash_field_selector_outer_mut()
                    .set_selected_fields((bits >> 8) as u32 & 0x1f)
                    .set_l3_prot_type(bits >> 16 & 1 != 0)
                    .set_l4_prot_type(bits >> 17 & 1 != 0);
            })
            .unwrap();
        lab.steer(tir, 7);
        for _ in 0..200 {
            let frame = frame(&mut random, OWN);
            if !random.one_in(20) {
                let nth = lab.rq.posted;
                let space = if random.one_in(10) { 100 } else { 2048 };
                let piece = (lab.key, lab.buffer(nth), space);
                if random.one_in(50) {
                    lab.post_buffer(&[(random.next() as u32, random.next(), 100)]);
                } else {
                    lab.post_buffer(&[piece]);
                }
            }
            lab.receive(&frame);
            while let Some(entry) = lab.received() {
                if entry.opcode() != RECEIVED {
                    continue;
                }
                received += 1;
                let at = lab.buffer(entry.counter());
                let data = lab.node.host.bytes(at, entry.length() as usize).to_vec();
                driver_accepts(&entry, &data);
            }
            if lab.rq_context().state() == ERR {
                lab.move_rq(ERR, RST).unwrap();
                lab.rq.posted = 0;
                lab.node.host.put32(lab.rq.record, 0);
                lab.move_rq(RST, RDY).unwrap();
            }
        }
        lab.node.command(&NopIn::new()).unwrap();
    }
    assert!(received > 3000, "only {received} frames were received");
}

/// Does with a completion what Linux's driver does: the sum that the card gives, corrected for tags in front and padding
/// behind, has to be that of all bytes behind the Ethernet header, or the kernel says "hw csum failure".
fn driver_accepts(entry: &Entry, data: &[u8]) {
    if data.len() <= 60 {
        return;
    }
    let mut at = 12;
    let kind = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
    while matches!(kind(at), 0x8100 | 0x88a8) {
        at += 4;
    }
    let network = at + 2;
    let half = |at: usize| usize::from(kind(at));
    let end = match kind(at) {
        0x0800 if data.len() >= network + 20 => network + half(network + 2),
        0x86dd if data.len() >= network + 40 => network + 40 + half(network + 4),
        _ => return,
    };
    let end = end.min(data.len());
    let mut total = u32::from(entry.half(0x14));
    let mut add = |value: u16| {
        total += u32::from(value);
        total = (total & 0xffff) + (total >> 16);
    };
    add(sum(&data[14..network]));
    let padding = sum(&data[end..]);
    // What starts at an odd place counts with its bytes swapped.
    add(if (end - 14) % 2 == 1 {
        padding.swap_bytes()
    } else {
        padding
    });
    let expected = sum(&data[14..]);
    // All ones are zero in one's complement.
    let same = total as u16 % 0xffff == expected % 0xffff;
    assert!(same, "{total:#x} instead of {expected:#x} of {data:x?}");
}

/// Commands that make sense with numbers that may not exist any more, and some bits flipped.
#[test]
fn commands() {
    let mut succeeded = 0;
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut random = Random(seed);
        let mut lab = Lab::with(Config {
            strict: seed % 2 == 0,
            ..Config::new(1)
        });
        let memory = lab.node.host.alloc(4096, 4096);
        let mut numbers = [lab.tis, lab.tir, 1, lab.sq.number, lab.rq.number];
        for _ in 0..300 {
            let near: Vec<u32> = numbers
                .iter()
                .map(|number| match random.below(8) {
                    0 => number - 1,
                    1 => number + 1,
                    _ => *number,
                })
                .collect();
            let [tis, tir, rqt, sq, rq] = near[..] else {
                unreachable!()
            };
            let mut input = command(&mut lab, &mut random, memory, [tis, tir, rqt, sq, rq]);
            if random.one_in(3) {
                for _ in 0..random.below(4) {
                    let at = 2 + random.below(input.len() as u64 - 2) as usize;
                    input[at] ^= 1 << random.below(8);
                }
            }
            if let Ok(answer) = lab.node.raw(&input, 0x110) {
                succeeded += 1;
                let number = u32::from_be_bytes(answer[8..12].try_into().unwrap()) & 0xff_ffff;
                let opcode = u16::from_be_bytes([input[0], input[1]]);
                if let Some(kind) = [0x912, 0x900, 0x916, 0x904, 0x908]
                    .iter()
                    .position(|&create| create == opcode)
                {
                    numbers[kind] = number;
                }
            }
            if random.one_in(3) {
                let uar = u64::from(lab.node.uar) * 4096;
                lab.node.write64(uar + 0x800, u64::from(numbers[3]) << 8);
            }
            if random.one_in(3) {
                let frame = frame(&mut random, OWN);
                lab.receive(&frame);
            }
            lab.node.sleep(Duration::from_micros(random.below(300)));
        }
        assert_eq!(lab.node.model.health_syndrome(), 0);
        lab.node.command(&NopIn::new()).unwrap();
        lab.node.shut_down();
    }
    assert!(succeeded > 2000, "only {succeeded} commands succeeded");
}

fn command(lab: &mut Lab, random: &mut Random, memory: u64, numbers: [u32; 5]) -> Vec<u8> {
    let [tis, tir, rqt, sq, rq] = numbers;
    let (pd, domain, uar) = (lab.pd, lab.domain, lab.node.uar);
    let (sends, receives) = (lab.sends.number, lab.receives.number);
    let mut state = || [RST, RDY, ERR][random.below(3) as usize];
    let (from, to) = (state(), state());
    let mut tail = Vec::new();
    macro_rules! bytes {
        ($In:ty, |$input:ident| $fill:block) => {{
            let mut $input = <$In>::new();
            $fill
            $input.as_bytes().to_vec()
        }};
    }
    let mut input = match random.below(18) {
        0 => bytes!(CreateTisIn, |i| {
            i.ctx_mut().set_transport_domain(domain);
        }),
        1 => bytes!(ModifyTisIn, |i| {
            i.set_tisn(tis).bitmask_mut().set_prio(true);
        }),
        2 => bytes!(DestroyTisIn, |i| {
            i.set_tisn(tis);
        }),
        3 => bytes!(CreateTirIn, |i| {
            i.ctx_mut()
                .set_transport_domain(domain)
                .set_disp_type(random.below(2) as u8)
                .set_inline_rqn(rq)
                .set_indirect_table(rqt);
        }),
        4 => bytes!(ModifyTirIn, |i| {
            i.set_tirn(tir)
                .bitmask_mut()
                .set_hash(true)
                .set_self_lb_en(true);
            i.ctx_mut().set_rx_hash_fn(random.below(3) as u8);
        }),
        5 => bytes!(DestroyTirIn, |i| {
            i.set_tirn(tir);
        }),
        6 => {
            tail = rq.to_be_bytes().repeat(4);
            bytes!(CreateRqtIn, |i| {
                i.rqt_context_mut()
                    .set_rqt_max_size(random.below(5) as u16)
                    .set_rqt_actual_size(random.below(5) as u16);
            })
        }
        7 => {
            tail = rq.to_be_bytes().repeat(4);
            bytes!(ModifyRqtIn, |i| {
                i.set_rqtn(rqt).bitmask_mut().set_rqn_list(true);
                i.ctx_mut().set_rqt_actual_size(random.below(5) as u16);
            })
        }
        8 => bytes!(DestroyRqtIn, |i| {
            i.set_rqtn(rqt);
        }),
        9 => bytes!(QueryRqtIn, |i| {
            i.set_rqtn(rqt);
        }),
        10 | 11 => {
            tail = page_list(memory, 4096);
            bytes!(CreateSqIn, |i| {
                let context = i.ctx_mut();
                context
                    .set_cqn(sends)
                    .set_tis_lst_sz(1)
                    .set_tis_num_0(tis)
                    .set_flush_in_error_en(random.one_in(2));
                context
                    .wq_mut()
                    .set_wq_type(1)
                    .set_pd(pd)
                    .set_uar_page(uar)
                    .set_dbr_addr(memory)
                    .set_log_wq_stride(6)
                    .set_log_wq_sz(random.below(8) as u8);
            })
        }
        12 => bytes!(ModifySqIn, |i| {
            i.set_sqn(sq).set_sq_state(from).ctx_mut().set_state(to);
        }),
        13 => match random.below(3) {
            0 => bytes!(DestroySqIn, |i| {
                i.set_sqn(sq);
            }),
            _ => bytes!(QuerySqIn, |i| {
                i.set_sqn(sq);
            }),
        },
        14 | 15 => {
            tail = page_list(memory, 4096);
            bytes!(CreateRqIn, |i| {
                let context = i.ctx_mut();
                context
                    .set_cqn(receives)
                    .set_vsd(random.one_in(2))
                    .set_flush_in_error_en(random.one_in(2));
                context
                    .wq_mut()
                    .set_wq_type(random.below(2) as u8)
                    .set_pd(pd)
                    .set_dbr_addr(memory)
                    .set_log_wq_stride(4 + random.below(3) as u8)
                    .set_log_wq_sz(random.below(8) as u8);
            })
        }
        16 => bytes!(ModifyRqIn, |i| {
            i.set_rqn(rq).set_rq_state(from).ctx_mut().set_state(to);
        }),
        _ => match random.below(3) {
            0 => bytes!(DestroyRqIn, |i| {
                i.set_rqn(rq);
            }),
            _ => bytes!(QueryRqIn, |i| {
                i.set_rqn(rq);
            }),
        },
    };
    input.extend(tail);
    input
}
