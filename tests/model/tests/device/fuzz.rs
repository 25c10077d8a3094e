//! Anything a driver or the wire may do, at random: the model refuses, answers or ignores, and never panics.
//!
//! A failure prints its seed; run that one alone with `FUZZ_SEED=… cargo test -p connectx-model --test device fuzz`.

use crate::common::queues::*;
use crate::common::{BASE, Node, page_list};
use bareverbs_firmware_cmds::cq::{CreateCqIn, DestroyCqIn, ModifyCqIn, QueryCqIn};
use bareverbs_firmware_cmds::domain::{AllocPdIn, AllocXrcdIn, DeallocPdIn};
use bareverbs_firmware_cmds::eq::{CreateEqIn, QueryEqIn};
use bareverbs_firmware_cmds::hca::NopIn;
use bareverbs_firmware_cmds::mad::{AttachToMcgIn, MadIfcIn};
use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, DestroyMkeyIn, QueryMkeyIn};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::{
    CreateQpIn, DestroyQpIn, Init2rtrQpIn, Qp2ErrIn, Qp2RstIn, QueryQpIn, Rst2initQpIn,
    Rtr2rtsQpIn, Rts2rtsQpIn,
};
use bareverbs_firmware_cmds::register::AccessRegisterIn;
use bareverbs_firmware_cmds::roce::SetRoceAddressIn;
use bareverbs_firmware_cmds::srq::{ArmXrcSrqIn, CreateRmpIn, CreateXrcSrqIn, ModifyRmpIn};
use bareverbs_firmware_cmds::uar::{AllocUarIn, DeallocUarIn};
use bareverbs_firmware_cmds::vport::ModifyNicVportContextIn;
use connectx_model::Config;
use std::time::Duration;
use zerocopy::IntoBytes;

/// A small generator (SplitMix64); good enough to reach corners, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Mostly small numbers and addresses that exist, sometimes anything.
    fn interesting(&mut self) -> u64 {
        match self.below(6) {
            0 => self.next(),
            1 => BASE + self.below(1 << 20) * 8,
            2 => 0,
            3 => u64::MAX >> self.below(64),
            _ => self.below(64),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let value = self.next().to_be_bytes();
            chunk.copy_from_slice(&value[..chunk.len()]);
        }
    }
}

/// Names the seed when a test dies.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("FUZZ_SEED={}", self.0);
        }
    }
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("FUZZ_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => vec![seed],
        None => (1..=count).collect(),
    }
}

fn random_command(random: &mut Random) -> (Vec<u8>, usize) {
    let opcode = if random.one_in(10) {
        random.next() as u16
    } else {
        let all = Opcode::ALL;
        all[random.below(all.len() as u64) as usize].number()
    };
    // Random teardowns would leave no function to test.
    let lifecycle = matches!(opcode, 0x103 | 0x105);
    let opcode = if lifecycle && !random.one_in(50) {
        0x80d
    } else {
        opcode
    };
    let len = match random.below(4) {
        0 => 8 + random.below(0x40) as usize,
        _ => 0x10 + random.below(0x400) as usize,
    };
    let mut input = vec![0; len];
    input[..2].copy_from_slice(&opcode.to_be_bytes());
    if random.one_in(2) {
        input[7] = random.below(8) as u8;
    }
    for _ in 0..random.below(24) {
        let at = (8 + random.below(len as u64) as usize) & !3;
        let value = random.interesting();
        let value = if random.one_in(3) {
            value << random.below(32)
        } else {
            value
        };
        if let Some(word) = input.get_mut(at..at + 4) {
            word.copy_from_slice(&(value as u32).to_be_bytes());
        }
    }
    if random.one_in(20) {
        random.fill(&mut input[8..]);
    }
    (input, 8 + random.below(0x1100) as usize)
}

fn poke(node: &mut Node, random: &mut Random) {
    let offset = match random.below(5) {
        0 => random.below(0x2100),
        1 => u64::from(node.uar) * 4096 + random.below(0x1000),
        2 => {
            u64::from(node.uar) * 4096
                + [0x20, 0x24, 0x40, 0x48, 0x800, 0x804][random.below(6) as usize]
        }
        3 => random.below(33 << 20),
        _ => random.next(),
    };
    let mut data = [0; 64];
    random.fill(&mut data);
    if random.one_in(2) {
        data[..8].copy_from_slice(&(random.interesting() << 8).to_be_bytes());
    }
    let len = [1, 2, 4, 8, 64][random.below(5) as usize];
    // The command queue stays where it is, and the card is not stopped.
    let moves = offset < 0x20 + 8;
    if random.one_in(2) || moves {
        node.model
            .bar_read(&mut node.host, offset, &mut data[..len]);
    } else {
        node.model.bar_write(&mut node.host, offset, &data[..len]);
    }
}

#[test]
fn random_commands_and_registers() {
    let mut answered = 0u64;
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut random = Random(seed);
        let mut node = Node::new(Config {
            strict: seed % 2 == 0,
            supported_issi: 1 << (seed % 3 != 0) as u32,
            ..match seed % 5 {
                0 => Config::new(1).virtual_function(),
                1 | 2 => Config::new(1).with_blue_flame(),
                _ => Config::new(1),
            }
        });
        node.initialize();
        // Everything but what a capability would have to offer: port modules, temperature, general notifications.
        node.create_eq(10, !(1 << 0x16 | 1 << 0x17 | 1 << 0x22), 0);
        node.create_eq(10, 0, 1);
        if seed % 3 != 0 {
            node.address(1);
        }
        let pd = node.alloc_pd();
        let cq = node.create_cq(4, 1);
        let mut qp = node.create_qp(QpPlan {
            st: [RC, UC, UD, QP1][seed as usize % 4],
            pd,
            send_cq: cq.number,
            receive_cq: cq.number,
            srq: None,
            user_index: 0,
        });
        node.make_init(&qp);
        for _ in 0..400 {
            match random.below(8) {
                0..=4 => {
                    let (input, outlen) = random_command(&mut random);
                    let slot = random.below(4) as u32;
                    node.post(slot, &input, outlen);
                    node.ring(1 << slot);
                }
                5 | 6 => poke(&mut node, &mut random),
                _ => {
                    let mut wqe = vec![0; 16 * random.below(8) as usize];
                    random.fill(&mut wqe);
                    let opcode = random.next() as u8;
                    node.post_send(&mut qp, opcode, random.next() as u8, 0, &wqe);
                    node.ring_send(&qp);
                }
            }
            node.sleep(Duration::from_micros(random.below(2000)));
            for at in 0..node.events.len() {
                while node.next_event(at).is_some() {}
                node.arm_eq(at);
            }
        }
        answered += node.model.stats().commands;
    }
    assert!(answered > 1000, "only {answered} commands were answered");
}

#[test]
fn random_work_requests() {
    const OPCODES: [u8; 12] = [0, 1, 8, 9, 0xa, 0xb, 0x10, 0x11, 0x12, 0x25, 0x14, 0x18];
    for seed in seeds(150) {
        let _seed = Seed(seed);
        let mut random = Random(seed);
        let mut pair = Pair::new();
        let st = if random.one_in(3) { UC } else { RC };
        let [(mut qp_a, _), (mut qp_b, _)] = pair.connect(st);
        let memory = pair.b.host.alloc(8192, 4096);
        let key_b = pair.b.register(pair.pd[1], memory, 0, 8192, ALL);
        let memory = pair.a.host.alloc(8192, 4096);
        let key_a = pair.a.register(pair.pd[0], memory, 0, 8192, ALL);
        for _ in 0..30 {
            let opcode = OPCODES[random.below(OPCODES.len() as u64) as usize];
            let mut segments = Vec::new();
            if random.below(3) != 0 {
                segments.extend(remote_segment(random.below(9000), key_b));
            }
            for _ in 0..random.below(4) {
                let len = random.below(5000) as u32;
                match random.below(4) {
                    0 => segments.extend(inline_segment(&vec![7; len as usize % 100])),
                    1 => segments.extend(data_segment((random.next() as u32, random.next(), len))),
                    _ => segments.extend(data_segment((key_a, random.below(9000), len))),
                }
            }
            if random.one_in(8) {
                let at = random.below(segments.len().max(1) as u64) as usize;
                if let Some(byte) = segments.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            pair.b.post_receive(
                &mut qp_b,
                &[(key_b, random.below(9000), random.below(6000) as u32)],
            );
            pair.a.post_send(
                &mut qp_a,
                opcode,
                random.next() as u8,
                random.next() as u32,
                &segments,
            );
            if random.one_in(20) {
                // A doorbell record with a random value.
                qp_a.sq = qp_a.sq.wrapping_add(random.next() as u16);
            }
            pair.a.ring_send(&qp_a);
            pair.run();
        }
        let time = Duration::from_secs(60);
        pair.a.sleep(time);
        pair.b.sleep(time);
        pair.run();
    }
}

#[test]
fn random_frames() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut random = Random(seed);
        let mut pair = Pair::new();
        let [(mut qp_a, _), (mut qp_b, mut cq_b)] = pair.connect(RC);
        let memory = pair.b.host.alloc(8192, 4096);
        let key_b = pair.b.register(pair.pd[1], memory, 0, 8192, ALL);
        for _ in 0..100 {
            pair.b.post_receive(&mut qp_b, &[(key_b, 0, 4096)]);
            let segments = [remote_segment(0, key_b), inline_segment(&[3; 60])].concat();
            pair.a.post_send(
                &mut qp_a,
                [8, 9, 0x0a][random.below(3) as usize],
                SIGNALED,
                0,
                &segments,
            );
            pair.a.ring_send(&qp_a);
            pair.a.sleep(Duration::from_micros(10));
            for mut frame in std::mem::take(&mut pair.a.host.frames) {
                for _ in 0..random.below(4) {
                    let at = random.below(frame.len() as u64) as usize;
                    frame[at] ^= random.next() as u8;
                }
                let cut = if random.one_in(6) {
                    random.below(frame.len() as u64) as usize
                } else {
                    frame.len()
                };
                // Without a valid ICRC nothing would get past the first check.
                if random.below(4) != 0 {
                    connectx_model::roce::packet::reseal(&mut frame[..cut]);
                }
                pair.b.model.receive(&mut pair.b.host, &frame[..cut]);
            }
            if random.one_in(5) {
                let mut noise = vec![0; random.below(200) as usize];
                random.fill(&mut noise);
                pair.b.model.receive(&mut pair.b.host, &noise);
            }
            pair.b.sleep(Duration::from_micros(10));
            pair.b.poll_all(&mut cq_b);
            for frame in std::mem::take(&mut pair.b.host.frames) {
                pair.a.model.receive(&mut pair.a.host, &frame);
            }
        }
    }
}

/// Numbers of objects that exist, did, or never will.
struct Numbers {
    pd: u32,
    cq: u32,
    qp: u32,
    srq: u32,
    eq: u32,
    mkey: u32,
    xrcd: u32,
}

/// A command that makes sense, for the next one to damage.
fn sensible_command(node: &mut Node, random: &mut Random, n: &mut Numbers) -> Vec<u8> {
    let memory = node.host.alloc(64, 64) & !0xfff;
    let list = page_list(memory, 16384);
    let mut tail = Vec::new();
    let uar = node.uar;
    let mut near = |number: u32| match random.below(6) {
        0 => number.saturating_sub(1),
        1 => number + 1,
        _ => number,
    };
    let (pd, cq, qp, srq, eq, mkey) = (
        near(n.pd),
        near(n.cq),
        near(n.qp),
        near(n.srq),
        near(n.eq),
        near(n.mkey),
    );
    macro_rules! bytes {
        ($In:ty, |$input:ident| $fill:block) => {{
            let mut $input = <$In>::new();
            $fill
            $input.as_bytes().to_vec()
        }};
    }
    let mut input = match random.below(31) {
        0 => AllocPdIn::new().as_bytes().to_vec(),
        1 => bytes!(DeallocPdIn, |i| {
            i.set_pd(pd);
        }),
        2 => AllocUarIn::new().as_bytes().to_vec(),
        3 => bytes!(DeallocUarIn, |i| {
            i.set_uar(uar);
        }),
        4 => AllocXrcdIn::new().as_bytes().to_vec(),
        5..=7 => {
            tail = list;
            bytes!(CreateCqIn, |i| {
                i.cq_context_mut()
                    .set_log_cq_size(random.below(9) as u8)
                    .set_uar_page(uar)
                    .set_c_eqn_or_apu_element(eq)
                    .set_cqe_sz(random.below(3) as u8)
                    .set_dbr_addr(memory);
            })
        }
        8 => bytes!(DestroyCqIn, |i| {
            i.set_cqn(cq);
        }),
        9 => bytes!(QueryCqIn, |i| {
            i.set_cqn(cq);
        }),
        10 => {
            tail = list;
            bytes!(ModifyCqIn, |i| {
                i.set_cqn(cq).set_op_mod(random.below(2) as u16);
                i.set_modify_field_select_resize_field_select(random.below(32) as u32);
                i.cq_context_mut().set_log_cq_size(random.below(9) as u8);
            })
        }
        11 => {
            tail = list;
            bytes!(CreateEqIn, |i| {
                i.eq_context_entry_mut()
                    .set_log_eq_size(random.below(9) as u8)
                    .set_uar_page(uar);
            })
        }
        12 => bytes!(QueryEqIn, |i| {
            i.set_eq_number(eq as u8);
        }),
        13 | 14 => {
            tail = list;
            bytes!(CreateMkeyIn, |i| {
                i.set_translations_octword_actual_size(2);
                i.set_pg_access(random.one_in(2));
                i.memory_key_mkey_entry_mut()
                    .set_access_mode_1_0(random.below(4) as u8)
                    .set_lr(true)
                    .set_lw(true)
                    .set_rr(true)
                    .set_rw(true)
                    .set_a(true)
                    .set_umr_en(true)
                    .set_qpn(0xff_ffff)
                    .set_pd(pd)
                    .set_start_addr(random.interesting())
                    .set_len(random.below(16384))
                    .set_translations_octword_size(2)
                    .set_log_page_size(12);
            })
        }
        15 => bytes!(DestroyMkeyIn, |i| {
            i.set_mkey_index(mkey);
        }),
        16 => bytes!(QueryMkeyIn, |i| {
            i.set_mkey_index(mkey);
        }),
        17..=19 => {
            tail = list;
            bytes!(CreateQpIn, |i| {
                i.qpc_mut()
                    .set_st([RC, UC, UD, 7, QP1, 3, 0xc][random.below(7) as usize])
                    .set_no_sq(random.one_in(4))
                    .set_pm_state(3)
                    .set_pd(pd)
                    .set_xrcd(n.xrcd)
                    .set_log_rq_size(random.below(5) as u8)
                    .set_log_rq_stride(random.below(8) as u8)
                    .set_log_sq_size(random.below(7) as u8)
                    .set_rq_type([0, 1, 3][random.below(3) as usize])
                    .set_srqn_rmpn_xrqn(srq)
                    .set_uar_page(uar)
                    .set_cqn_snd(cq)
                    .set_cqn_rcv(cq)
                    .set_dbr_addr(memory);
            })
        }
        20 => bytes!(DestroyQpIn, |i| {
            i.set_qpn(qp);
        }),
        21 => bytes!(Rst2initQpIn, |i| {
            i.set_qpn(qp);
            i.qpc_mut().set_pm_state(3);
            i.qpc_mut().primary_address_path_mut().set_vhca_port_num(1);
        }),
        22 => bytes!(Init2rtrQpIn, |i| {
            i.set_qpn(qp).set_opt_param_mask(random.below(32) as u32);
            i.qpc_mut()
                .set_pm_state(3)
                .set_mtu(3)
                .set_log_msg_max(20)
                .set_remote_qpn(qp);
        }),
        23 => bytes!(Rtr2rtsQpIn, |i| {
            i.set_qpn(qp);
            i.qpc_mut().set_pm_state(3);
        }),
        24 => bytes!(Rts2rtsQpIn, |i| {
            i.set_qpn(qp).set_opt_param_mask(random.next() as u32);
            i.qpc_mut().set_pm_state(3);
        }),
        25 => match random.below(3) {
            0 => bytes!(Qp2ErrIn, |i| {
                i.set_qpn(qp);
            }),
            1 => bytes!(Qp2RstIn, |i| {
                i.set_qpn(qp);
            }),
            _ => bytes!(QueryQpIn, |i| {
                i.set_qpn(qp);
            }),
        },
        26 => {
            tail = list;
            bytes!(CreateRmpIn, |i| {
                i.ctx_mut().set_state(1);
                i.ctx_mut()
                    .wq_mut()
                    .set_wq_type(random.below(2) as u8)
                    .set_pd(pd)
                    .set_log_wq_stride(random.below(12) as u8)
                    .set_log_wq_sz(random.below(7) as u8)
                    .set_dbr_addr(memory);
            })
        }
        27 => match random.below(3) {
            0 => bytes!(ModifyRmpIn, |i| {
                i.set_rmp_state(1).set_rmpn(srq);
                i.bitmask_mut().set_lwm(true);
                i.ctx_mut().set_state(1);
                i.ctx_mut().wq_mut().set_lwm(random.below(20) as u16);
            }),
            1 => bytes!(ArmXrcSrqIn, |i| {
                i.set_xrc_srqn(srq).set_lwm(random.below(20) as u16);
            }),
            _ => {
                tail = list;
                bytes!(CreateXrcSrqIn, |i| {
                    i.xrc_srq_context_entry_mut()
                        .set_log_xrc_srq_size(random.below(7) as u8)
                        .set_log_rq_stride(random.below(8) as u8)
                        .set_xrcd(n.xrcd)
                        .set_cqn(cq)
                        .set_pd(pd)
                        .set_db_record_addr_h((memory >> 32) as u32)
                        .set_db_record_addr_l(memory as u32 >> 2);
                })
            }
        },
        28 => bytes!(SetRoceAddressIn, |i| {
            i.set_roce_address_index(random.below(4) as u16);
            i.roce_address_mut()
                .source_l3_address_mut()
                .copy_from_slice(&gid(random.below(4) as u8));
            i.roce_address_mut().set_roce_version(2);
        }),
        29 => bytes!(ModifyNicVportContextIn, |i| {
            i.field_select_mut().set_roce_en(true).set_mtu(true);
            i.nic_vport_context_mut()
                .set_roce_en(true)
                .set_mtu(1000 + random.below(9000) as u16);
        }),
        _ => match random.below(3) {
            0 => bytes!(MadIfcIn, |i| {
                i.set_port(1).set_op_mod(random.below(4) as u16);
                let mad = i.mad_mut();
                mad.fill_with(|| random.below(256) as u8);
                let class = [0x01, 0x81, 0x04][random.below(3) as usize];
                mad[..4].copy_from_slice(&[1, class, 1, 1 + random.below(2) as u8]);
                mad[16..18].copy_from_slice(&(0x10 + random.below(16) as u16).to_be_bytes());
                mad[20..24].copy_from_slice(&(random.below(4) as u32).to_be_bytes());
            }),
            1 => bytes!(AttachToMcgIn, |i| {
                i.set_qpn(qp).multicast_gid_mut()[0] = 0xff;
            }),
            _ => {
                tail = vec![0, 1, 0, 0];
                tail.resize(256, 0);
                bytes!(AccessRegisterIn, |i| {
                    i.set_register_id(0x5000 + random.below(16) as u16)
                        .set_op_mod(random.below(2) as u16);
                })
            }
        },
    };
    input.extend(tail);
    input
}

#[test]
fn damaged_commands_and_what_they_leave_behind() {
    let mut succeeded = 0u64;
    for seed in seeds(80) {
        let _seed = Seed(seed);
        let mut random = Random(seed);
        let infiniband = random.one_in(3);
        let config = if infiniband {
            Config::new(1).infiniband()
        } else {
            Config::new(1)
        };
        let config = match seed % 5 {
            0 => config.virtual_function(),
            _ => config,
        };
        let mut node = Node::new(Config {
            strict: random.one_in(2),
            ..config
        });
        node.initialize();
        node.create_eq(10, ASYNC, 0);
        node.create_eq(10, 0, 1);
        if !infiniband {
            node.address(1);
        }
        let pd = node.alloc_pd();
        let cq = node.create_cq(4, 1);
        let mut numbers = Numbers {
            pd,
            cq: cq.number,
            qp: 0x40,
            srq: 1,
            eq: node.events[1].number,
            mkey: 0x10,
            xrcd: 1,
        };
        for _ in 0..400 {
            let mut input = sensible_command(&mut node, &mut random, &mut numbers);
            if random.one_in(3) {
                for _ in 0..random.below(4) {
                    let at = 2 + random.below(input.len() as u64 - 2) as usize;
                    input[at] ^= 1 << random.below(8);
                }
            }
            let outlen = if random.one_in(2) { 0x110 } else { 0x210 };
            if let Ok(answer) = node.raw(&input, outlen) {
                succeeded += 1;
                let number = u32::from_be_bytes(answer[8..12].try_into().unwrap());
                let opcode = u16::from_be_bytes([input[0], input[1]]);
                match opcode {
                    0x800 => numbers.pd = number,
                    0x80e => numbers.xrcd = number,
                    0x400 => numbers.cq = number,
                    0x500 => numbers.qp = number,
                    0x705 | 0x90c => numbers.srq = number,
                    0x200 => numbers.mkey = number,
                    _ => {}
                }
            }
            // Doorbells of the existing queues, with random records.
            if random.one_in(4) {
                let uar = u64::from(node.uar) * 4096;
                node.write64(uar + 0x800, u64::from(numbers.qp) << 8);
            }
            node.sleep(Duration::from_micros(random.below(300)));
            for at in 0..node.events.len() {
                while node.next_event(at).is_some() {}
                node.arm_eq(at);
            }
        }
        // The firmware is still running.
        assert_eq!(node.model.health_syndrome(), 0);
        node.command(&NopIn::new()).unwrap();
    }
    assert!(succeeded > 4000, "only {succeeded} commands succeeded");
}
