//! Keys whose list names pieces of other keys, and registration through the kernel's queue pair for that.

use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, Mkc, QueryMkeyIn};
use bareverbs_firmware_cmds::qp::Init2rtrQpIn;
use connectx_model::Syndrome;

use crate::common::queues::*;
use crate::common::{Failure, Node};
use crate::refused;
use crate::windows::*;

const REG_UMR: u8 = 0x0c;
/// The key must not be free now.
const IF_USED: u8 = 0x40;
const PAGE_SIZE: u64 = 1 << 1;
const PD: u64 = 1 << 7;
const LOCAL: u64 = 3 << 17;

/// A key over pieces of others.
fn create_indirect(
    node: &mut Node,
    pd: u32,
    list: &[Piece],
    change: impl FnOnce(&mut Mkc),
) -> Result<u32, Failure> {
    let list: Vec<u8> = list.iter().flat_map(|&piece| data_segment(piece)).collect();
    let octowords = (list.len() / 16) as u32;
    let mut create = CreateMkeyIn::new();
    create.set_translations_octword_actual_size(octowords);
    let context = create.memory_key_mkey_entry_mut();
    context
        .set_access_mode_1_0(2)
        .set_lr(true)
        .set_lw(true)
        .set_rr(true)
        .set_rw(true)
        .set_qpn(ANY_QP)
        .set_mkey_7_0(3)
        .set_pd(pd)
        .set_translations_octword_size(octowords);
    change(context);
    let (output, _) = node.command_with(&create, &list, 0)?;
    Ok(output.mkey_index() << 8 | 3)
}

#[test]
fn pieces_of_several_keys_are_one() {
    let mut s = scene();
    let pd = s.pair.pd[1];
    let other = s.pair.b.host.alloc(4096, 4096);
    let other_key = s.pair.b.register(pd, other, 0x40_0000, 4096, LOCAL_WRITE);
    let list = [
        (s.lkey, BASE + 10, 3),
        (other_key, 0x40_0100, 4),
        (s.lkey, BASE + 5000, 5),
    ];
    let node = &mut s.pair.b;
    let key = create_indirect(node, pd, &list, |context| {
        context.set_start_addr(0x5000).set_len(12);
    })
    .unwrap();
    // One of these on top of it, from its second byte on.
    let upper = create_indirect(node, pd, &[(key, 0x5001, 10)], |context| {
        context.set_len(10);
    })
    .unwrap();
    assert_eq!(s.write(0x5000, key, b"abcdefghijkl"), 0);
    let host = &mut s.pair.b.host;
    assert_eq!(host.bytes(s.memory + 10, 4), b"abc\0");
    assert_eq!(host.bytes(other + 0x100, 5), b"defg\0");
    assert_eq!(host.bytes(s.memory + 5000, 6), b"hijkl\0");
    assert_eq!(s.write(0, upper, b"BCDEFGHIJK"), 0);
    let host = &mut s.pair.b.host;
    assert_eq!(host.bytes(s.memory + 10, 3), b"aBC");
    assert_eq!(host.bytes(other + 0x100, 4), b"DEFG");
    assert_eq!(host.bytes(s.memory + 5000, 5), b"HIJKl");

    let mut query = QueryMkeyIn::new();
    query.set_mkey_index(key >> 8);
    let answer = s.pair.b.command(&query).unwrap();
    assert_eq!(answer.bsf0_klm0_pas_mtt0_1()[..], data_segment(list[0]));
    assert_eq!(answer.bsf1_klm1_pas_mtt2_3()[..], data_segment(list[1]));
}

#[test]
fn pieces_of_one_size_need_no_lengths() {
    let mut s = scene();
    let pd = s.pair.pd[1];
    // Two pages, the second one first.
    let list = [(s.lkey, BASE + 4096, 0), (s.lkey, BASE, 0)];
    let key = create_indirect(&mut s.pair.b, pd, &list, |context| {
        context
            .set_access_mode_1_0(3)
            .set_log_page_size(12)
            .set_start_addr(0x5ffe)
            .set_len(8);
    })
    .unwrap();
    assert_eq!(s.write(0x5ffe, key, b"abcdefgh"), 0);
    let host = &mut s.pair.b.host;
    assert_eq!(host.bytes(s.memory + 8190, 2), b"ab");
    assert_eq!(host.bytes(s.memory, 6), b"cdefgh");
}

#[test]
fn indirection_ends_somewhere() {
    // Every level is one more, and only so many are followed.
    let mut s = scene();
    let pd = s.pair.pd[1];
    let mut keys = vec![s.lkey];
    for _ in 0..5 {
        let below = *keys.last().unwrap();
        let start = if below == s.lkey { BASE } else { 0 };
        let list = [(below, start, 64)];
        let key = create_indirect(&mut s.pair.b, pd, &list, |context| {
            context.set_len(64);
        });
        keys.push(key.unwrap());
    }
    assert_eq!(s.write(0, keys[4], b"four"), 0);
    assert_eq!(s.pair.b.host.bytes(s.memory, 4), b"four");
    assert_eq!(s.write(0, keys[5], b"five"), REMOTE_ACCESS);

    // A list that is shorter than what the key promises.
    let mut s = scene();
    let list = [(s.lkey, BASE, 64)];
    let key = create_indirect(&mut s.pair.b, pd, &list, |context| {
        context.set_len(65);
    });
    assert_eq!(s.write(0, key.unwrap(), &[1; 65]), REMOTE_ACCESS);
    assert_eq!(s.pair.b.host.bytes(s.memory, 4), [0; 4]);
}

#[test]
fn lists_beyond_the_largest_are_refused() {
    let mut s = scene();
    let pd = s.pair.pd[1];
    let outcome = create_indirect(&mut s.pair.b, pd, &[], |context| {
        context
            .set_free(true)
            .set_translations_octword_size((1 << 16) + 1);
    });
    assert_eq!(outcome, Err(refused(Syndrome::MkeySize)));
}

/// The kernel's queue pair for registrations, in RTS, and the key of all bus addresses in its protection domain.
fn kernel(node: &mut Node) -> (Qp, Cq, u32, u32) {
    let pd = node.alloc_pd();
    let cq = node.create_cq(6, 1);
    let qp = node
        .try_create_qp(
            QpPlan {
                st: REG_UMR,
                pd,
                send_cq: cq.number,
                receive_cq: cq.number,
                srq: None,
                user_index: ANY_QP,
            },
            |qpc| {
                qpc.set_rq_type(3).set_log_rq_size(0).set_log_rq_stride(0);
            },
        )
        .map(|qp| Qp { log_rq: 0, ..qp })
        .unwrap();
    node.make_init(&qp);
    let mut modify = Init2rtrQpIn::new();
    modify.set_qpn(qp.number);
    modify.qpc_mut().set_st(REG_UMR).set_pm_state(3).set_pd(pd);
    node.command(&modify).unwrap();
    node.make_rts(&qp, 0);
    let mut create = CreateMkeyIn::new();
    create
        .memory_key_mkey_entry_mut()
        .set_access_mode_1_0(0)
        .set_lr(true)
        .set_lw(true)
        .set_length64(true)
        .set_qpn(ANY_QP)
        .set_mkey_7_0(1)
        .set_pd(pd);
    let key = node.command(&create).unwrap().mkey_index() << 8 | 1;
    (qp, cq, pd, key)
}

/// Linux fills a key from its cache so: the list in memory, rights, protection domain and range at once; and takes it back
/// by giving it to itself, free.
#[test]
fn cached_keys_are_filled_taken_back_and_filled_again() {
    let mut s = scene();
    let node = &mut s.pair.b;
    let (mut qp, mut cq, kernel_pd, bus) = kernel(node);
    let mut create = CreateMkeyIn::new();
    create
        .memory_key_mkey_entry_mut()
        .set_free(true)
        .set_umr_en(true)
        .set_access_mode_1_0(1)
        .set_lr(true)
        .set_qpn(ANY_QP)
        .set_mkey_7_0(0x40)
        .set_pd(kernel_pd)
        // Space for two pages; the list below is sent in units of eight.
        .set_translations_octword_size(1)
        .set_log_page_size(12);
    let key = node.command(&create).unwrap().mkey_index() << 8 | 0x40;
    let table = node.host.alloc(64, 2048);
    let pd = s.pair.pd[1];
    let other_pd = node.alloc_pd();

    for (round, user_pd) in [(1u8, pd), (2, other_pd), (3, pd)] {
        let node = &mut s.pair.b;
        let first = s.memory + if round == 3 { 4096 } else { 0 };
        node.host.put64(table, first | 3);
        node.host.put64(table + 8, s.memory | 3);
        let mut context = Mkc::ZERO;
        context
            .set_lr(true)
            .set_lw(true)
            .set_rw(true)
            .set_pd(user_pd)
            .set_start_addr(0x9000)
            .set_len(8192)
            .set_log_page_size(12)
            .set_qpn(ANY_QP)
            .set_mkey_7_0(0x40);
        let mask = FREE | KEY | LOCAL | RIGHTS | PD | LEN | PAGE_SIZE | START;
        let list = data_segment((bus, table, 64));
        let fill = umr(IF_FREE, 4, mask, &context, &list);
        node.post_send(&mut qp, UMR, SIGNALED, key, &fill);
        node.ring_send(&qp);
        node.advance();
        assert_eq!(node.poll(&mut cq).unwrap().syndrome, 0);
        if user_pd == pd {
            assert_eq!(s.write(0x9000, key, &[round; 4]), 0);
            assert_eq!(s.pair.b.host.bytes(first, 4), [round; 4]);
        }
        let node = &mut s.pair.b;
        let mut context = Mkc::ZERO;
        context
            .set_free(true)
            .set_pd(kernel_pd)
            .set_qpn(ANY_QP)
            .set_mkey_7_0(0x40);
        let revoke = umr(INLINE, 0, PD | FREE, &context, &[]);
        node.post_send(&mut qp, UMR, SIGNALED, key, &revoke);
        node.ring_send(&qp);
        node.advance();
        assert_eq!(node.poll(&mut cq).unwrap().syndrome, 0);
    }
    assert_eq!(s.write(0x9000, key, b"gone"), REMOTE_ACCESS);
}

/// Rights and protection domain of a region that is in use, without touching its list: IBV_REREG_MR_CHANGE_ACCESS.
#[test]
fn rights_change_in_place() {
    let mut s = scene();
    let pd = s.pair.pd[1];
    let node = &mut s.pair.b;
    let (mut qp, mut cq, ..) = kernel(node);
    let mut create = CreateMkeyIn::new();
    let list = [s.memory, s.memory + 4096];
    let list: Vec<u8> = list.iter().flat_map(|page| page.to_be_bytes()).collect();
    create.set_translations_octword_actual_size(1);
    create
        .memory_key_mkey_entry_mut()
        .set_umr_en(true)
        .set_access_mode_1_0(1)
        .set_lr(true)
        .set_lw(true)
        .set_qpn(ANY_QP)
        .set_mkey_7_0(0x40)
        .set_pd(pd)
        .set_len(8192)
        .set_translations_octword_size(1)
        .set_log_page_size(12);
    let (output, _) = node.command_with(&create, &list, 0).unwrap();
    let key = output.mkey_index() << 8 | 0x40;
    let mut context = Mkc::ZERO;
    context
        .set_lr(true)
        .set_lw(true)
        .set_rw(true)
        .set_pd(pd)
        .set_qpn(ANY_QP)
        .set_mkey_7_0(0x40);
    let change = umr(IF_USED | INLINE, 0, LOCAL | RIGHTS | PD, &context, &[]);
    node.post_send(&mut qp, UMR, SIGNALED, key, &change);
    node.ring_send(&qp);
    node.advance();
    assert_eq!(node.poll(&mut cq).unwrap().syndrome, 0);
    assert_eq!(s.write(5000, key, b"now"), 0);
    assert_eq!(s.pair.b.host.bytes(s.memory + 5000, 3), b"now");
    // A queue pair of an application has to stay in its own protection domain.
    let pd = s.pair.b.alloc_pd();
    let foreign = create_window(&mut s.pair.b, pd, false);
    let segments = bind(&s.bind(foreign));
    assert_eq!(s.own(UMR, foreign, &segments), BIND_FAILED);
}
