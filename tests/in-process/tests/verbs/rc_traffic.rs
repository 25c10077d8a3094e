//! Traffic of a reliable connection: sends, writes, reads and atomics of every length, one by one and in lists.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bareverbs_core::{
    Gid, GidEntry, Inline, LKey, Rc, SendFlags, Sge, SrqAttr, WcFlags, WcOpcode, WcStatus,
};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;
use connectx_model::link::Cable;
use connectx_model::link::trace::Tracer;
use connectx_model::roce::packet::Packet;

use crate::lab::{
    ALL, CAP, End, LENGTHS, MS, SIGNALED, SILENT, got, lab, lab_with, ok, pattern, run,
};
use crate::seam;

#[test]
fn rc_sends_of_every_length() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        for (id, len) in LENGTHS.into_iter().enumerate() {
            let id = id as u64;
            a.fill(0, len, id);
            b.receive(id, 0, 1 << 15);
            let sge = a.sge(0, len);
            a.qp.send_queue()
                .batch()
                .send(100 + id, SIGNALED, sge)
                .unwrap();
            let wc = got(lab.wait(&mut b.cq), id, WcOpcode::Recv);
            assert_eq!(
                (wc.byte_len as usize, wc.qp_num, wc.flags),
                (len, b.qp.qpn(), WcFlags::empty())
            );
            ok(lab.wait(&mut a.cq), 100 + id, WcOpcode::Send);
            b.assert_pattern(0, len, id);
        }
    });
}

/// On virtual functions, and between one and a physical one.
#[test]
fn rc_sends_of_virtual_functions() {
    for physical in [0, 1] {
        let card = |card: connectx_model::Config| match card.mac[5] {
            unit if unit == physical => card,
            _ => card.virtual_function(),
        };
        lab_with(card, |lab| {
            let [mut a, mut b] = lab.pair::<Rc>();
            a.fill(0, 5000, 7);
            b.receive(1, 0, 1 << 15);
            let sge = a.sge(0, 5000);
            a.qp.send_queue().batch().send(2, SIGNALED, sge).unwrap();
            ok(lab.wait(&mut b.cq), 1, WcOpcode::Recv);
            ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
            b.assert_pattern(0, 5000, 7);
        });
    }
}

#[test]
fn rc_scatter_gather_inline_and_immediate() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        for offset in [0, 8192, 16384] {
            a.fill(offset, 700, offset as u64);
        }
        let gather = [
            a.sge(0, 700),
            a.sge(8192, 1),
            Sge::new(0, 0, LKey(0)),
            a.sge(16384, 500),
        ];
        let scatter = [b.sge(100, 300), b.sge(1000, 901)];
        b.qp.recv_queue().post(1, &scatter).unwrap();
        a.qp.send_queue()
            .batch()
            .send_imm(2, SIGNALED, 0xdead_beef, &gather[..])
            .unwrap();
        let wc = got(lab.wait(&mut b.cq), 1, WcOpcode::Recv);
        assert_eq!(
            (wc.byte_len, wc.flags, wc.imm_data),
            (1201, WcFlags::WITH_IMM, 0xdead_beef)
        );
        ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
        let expected = [
            &pattern(700, 0)[..],
            &pattern(1, 8192),
            &pattern(500, 16384),
        ]
        .concat();
        let mut found = vec![0; 1201];
        b.buffer.copy_out(100, &mut found[..300]).unwrap();
        b.buffer.copy_out(1000, &mut found[300..]).unwrap();
        assert_eq!(found, expected);

        // Inline: the source may change at once. Enough of them to go round the ring several times.
        for id in 0..200u64 {
            let len = (id as usize * 7) % 129;
            let mut data = pattern(len, id);
            b.receive(id, 0, 256);
            a.qp.send_queue()
                .batch()
                .send(id, SIGNALED, Inline(&data))
                .unwrap();
            data.fill(0xee);
            assert_eq!(
                got(lab.wait(&mut b.cq), id, WcOpcode::Recv).byte_len as usize,
                len
            );
            ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
            b.assert_pattern(0, len, id);
        }
    });
}

#[test]
fn rc_writes_reads_and_atomics() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        for (id, len) in LENGTHS.into_iter().enumerate() {
            let id = id as u64;
            a.fill(0, len, id);
            let (sge, back, remote) = (a.sge(0, len), a.sge(30_000, len), b.remote(77));
            let mut batch = a.qp.send_queue().batch();
            batch.write(id, SILENT, remote, sge).unwrap();
            batch.read(1000 + id, SIGNALED, remote, &[back]).unwrap();
            batch.ring();
            drop(batch);
            let wc = got(lab.wait(&mut a.cq), 1000 + id, WcOpcode::RdmaRead);
            assert_eq!(wc.byte_len as usize, len);
            b.assert_pattern(77, len, id);
            a.assert_pattern(30_000, len, id);
        }
        b.receive(5, 0, 0);
        let (sge, remote) = (a.sge(0, 300), b.remote(0));
        a.qp.send_queue()
            .batch()
            .write_imm(6, SIGNALED, remote, 9, sge)
            .unwrap();
        let wc = got(lab.wait(&mut b.cq), 5, WcOpcode::RecvRdmaWithImm);
        assert_eq!(
            (wc.imm_data, wc.byte_len, wc.flags),
            (9, 300, WcFlags::WITH_IMM)
        );
        ok(lab.wait(&mut a.cq), 6, WcOpcode::RdmaWrite);

        // Atomics work on integers of the host.
        b.buffer.copy_in(64, &100_u64.to_ne_bytes()).unwrap();
        let word = |end: &End<'_, Rc>, at| {
            let mut bytes = [0; 8];
            end.buffer.copy_out(at, &mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        };
        let (result, remote) = (a.sge(0, 8), b.remote(64));
        a.qp.send_queue()
            .batch()
            .fetch_add(7, SIGNALED, remote, 5, result)
            .unwrap();
        assert_eq!(got(lab.wait(&mut a.cq), 7, WcOpcode::FetchAdd).byte_len, 8);
        assert_eq!((word(&a, 0), word(&b, 64)), (100, 105));
        for (id, compare, after) in [(8, 1, 105), (9, 105, 42)] {
            a.qp.send_queue()
                .batch()
                .compare_swap(id, SIGNALED, remote, compare, 42, result)
                .unwrap();
            ok(lab.wait(&mut a.cq), id, WcOpcode::CompSwap);
            assert_eq!((word(&a, 0), word(&b, 64)), (105, after));
        }
    });
}

/// Unsignaled requests complete with the next signaled one, lists with one doorbell arrive whole and in order.
#[test]
fn lists_and_selective_signalling() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let mut next = 0;
        for round in 0..40u64 {
            let count = 1 + round % 16;
            for n in 0..count {
                b.receive(next + n, n as usize * 64, 64);
                a.fill(n as usize * 64, 64, round << 8 | n);
            }
            let sges: Vec<_> = (0..count).map(|n| a.sge(n as usize * 64, 64)).collect();
            let mut batch = a.qp.send_queue().batch();
            for (n, sge) in (0..count).zip(&sges) {
                let last = n + 1 == count;
                batch
                    .send(next + n, if last { SIGNALED } else { SILENT }, *sge)
                    .unwrap();
            }
            drop(batch);
            for n in 0..count {
                ok(lab.wait(&mut b.cq), next + n, WcOpcode::Recv);
                b.assert_pattern(n as usize * 64, 64, round << 8 | n);
            }
            next += count;
            ok(lab.wait(&mut a.cq), next - 1, WcOpcode::Send);
            assert_eq!(a.qp.send_queue().free(), a.qp.cap().max_send_wr);
        }
        assert_eq!(lab.try_wait(&mut a.cq, MS), None);
    });
}

/// A fenced send waits for the READ before it, whose result it carries.
#[test]
fn fence() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        for round in 0..20 {
            b.fill(0, 8000, round);
            b.receive(round, 16_000, 8000);
            let (sge, remote) = (a.sge(0, 8000), b.remote(0));
            let mut batch = a.qp.send_queue().batch();
            batch.read(1, SILENT, remote, &[sge]).unwrap();
            batch.send(2, SIGNALED | SendFlags::FENCE, sge).unwrap();
            drop(batch);
            ok(lab.wait(&mut b.cq), round, WcOpcode::Recv);
            b.assert_pattern(16_000, 8000, round);
            ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
        }
    });
}

/// The device chooses source ports by itself until the driver has said that it does (SET_HCA_CAP, RoCE).
#[test]
fn source_ports_are_those_of_the_queue_pair() {
    for offered in [true, false] {
        let ports = Arc::new(Mutex::new(BTreeSet::new()));
        let seen = Arc::clone(&ports);
        let link = Tracer::new(Cable::new(), move |_, from, frame: &[u8]| {
            if let (0, Ok(packet)) = (from, Packet::parse(frame)) {
                seen.lock()
                    .unwrap()
                    .insert(packet.repr.headers.path.udp_source_port);
            }
        });
        let card = |unit| {
            let mut card = seam::card(Card::new(unit));
            card.roce_max.set_sw_r_roce_src_udp_port(offered);
            card
        };
        let world = Builder::with_link(Box::new(link), 1)
            .function(card(1))
            .function(card(2))
            .stepped();
        run(&world, |lab| {
            let mut ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(1, CAP)];
            lab.connect(&mut ends, &|attr| attr.ah_attr.flow_label = 0x12345);
            let [a, b] = &mut ends;
            b.receive(1, 0, 64);
            let mut batch = a.qp.send_queue().batch();
            batch.send(2, SIGNALED, Inline(b"x")).unwrap();
            drop(batch);
            ok(lab.wait(&mut b.cq), 1, WcOpcode::Recv);
        });
        // `rdma_flow_label_to_udp_sport` of 0x12345.
        let chosen = 0xe341;
        let expected = if offered { chosen } else { 0xc000 };
        assert_eq!(*ports.lock().unwrap(), BTreeSet::from([expected]));
    }
}

/// A device with a reserved key for the end of a scatter list finds the end.
#[test]
fn scatter_lists_end_with_the_key_that_the_device_names() {
    for key in [None, Some(0x100), Some(0x1300)] {
        lab_with(
            |mut card| {
                for caps in [&mut card.general, &mut card.general_max] {
                    caps.set_terminate_scatter_list_mkey(key.is_some());
                }
                card.terminate_scatter_list_mkey = key.unwrap_or(0);
                card
            },
            |lab| {
                let mut attr = SrqAttr {
                    max_wr: 7,
                    max_sge: 3,
                    srq_limit: 0,
                };
                let mut srq = lab.sides[1].pd.create_srq(&mut attr).unwrap();
                let pool = lab.sides[1].pd.alloc_buffer(64, ALL).unwrap();
                srq.post(3, &[pool.sge(0, 64).unwrap()]).unwrap();
                for shared in [None, Some(&srq)] {
                    let mut ends = [
                        lab.end::<Rc>(0, CAP),
                        lab.end_with::<Rc>(1, CAP, 63, shared),
                    ];
                    lab.connect(&mut ends, &|_| {});
                    let [a, b] = &mut ends;
                    if shared.is_none() {
                        b.receive(3, 0, 64);
                    }
                    let sge = a.sge(0, 65);
                    let mut batch = a.qp.send_queue().batch();
                    batch.send(2, SIGNALED, sge).unwrap();
                    drop(batch);
                    // Too long by one byte, and not a violation of the key that the list ends with.
                    let wc = lab.wait(&mut b.cq);
                    assert_eq!((wc.status, wc.wr_id), (WcStatus::LocLenErr, 3), "{key:x?}");
                    drop(ends);
                }
                srq.destroy().map_err(|(_, error)| error).unwrap();
            },
        );
    }
}

/// Frames reach an address of the function's own choice where the port has a table of whose the addresses are.
#[test]
fn a_chosen_mac_is_entered_in_the_table_of_a_port_with_several_functions() {
    lab_with(
        |mut card| {
            for caps in [&mut card.general, &mut card.general_max] {
                caps.set_eswitch_manager(true).set_log_max_l2_table(4);
            }
            card
        },
        |lab| {
            let side = &lab.sides[1];
            let gid = Gid::from_ipv4([10, 0, 0, 9].into());
            for last in [1, 2, 3] {
                let mac = [2, 0x11, 0x22, 0x33, 0x44, last];
                side.device.set_mac(mac).unwrap();
                assert_eq!(side.device.mac().unwrap(), mac);
                side.device.set_gid(1, GidEntry::roce_v2(gid, mac)).unwrap();
                let mut ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(1, CAP)];
                lab.connect(&mut ends, &|attr| {
                    if attr.ah_attr.dgid == side.gid {
                        (attr.ah_attr.dgid, attr.ah_attr.dmac) = (gid, mac);
                    } else {
                        attr.ah_attr.sgid_index = 1;
                    }
                });
                let [a, b] = &mut ends;
                b.receive(1, 0, 64);
                let mut batch = a.qp.send_queue().batch();
                batch.send(2, SIGNALED, Inline(b"x")).unwrap();
                drop(batch);
                ok(lab.wait(&mut b.cq), 1, WcOpcode::Recv);
                ok(lab.wait(&mut a.cq), 2, WcOpcode::Send);
            }
        },
    );
}
