//! Memory keys: page sizes, offsets, page rights, bus addresses, bindings, and every refusal of CREATE_MKEY.

use crate::common::queues::*;
use crate::common::{Failure, Node};
use bareverbs_firmware_cmds::domain::DeallocPdIn;
use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, DestroyMkeyIn, Mkc, QueryMkeyIn};
use connectx_model::Syndrome;

const WRITE: u8 = 0x08;
const READ: u8 = 0x10;
const SEND: u8 = 0x0a;
const LOCAL_PROTECTION: u8 = 0x04;
const REMOTE_ACCESS: u8 = 0x13;
const REMOTE_OPERATION: u8 = 0x14;

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

/// A key over a list of pages, with everything else up to `change`.
fn create(
    node: &mut Node,
    pd: u32,
    pages: &[u64],
    change: impl FnOnce(&mut CreateMkeyIn),
) -> Result<u32, Failure> {
    let mut list: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
    list.resize(list.len().next_multiple_of(16), 0);
    let octowords = (list.len() / 16) as u32;
    let mut create = CreateMkeyIn::new();
    create.set_translations_octword_actual_size(octowords);
    create
        .memory_key_mkey_entry_mut()
        .set_access_mode_1_0(1)
        .set_lr(true)
        .set_lw(true)
        .set_rr(true)
        .set_rw(true)
        .set_qpn(0xff_ffff)
        .set_mkey_7_0(7)
        .set_pd(pd)
        .set_len(4096)
        .set_translations_octword_size(octowords)
        .set_log_page_size(12);
    change(&mut create);
    let variant = u32::from(create.memory_key_mkey_entry().mkey_7_0());
    let (output, _) = node.command_with(&create, &list, 0)?;
    Ok(output.mkey_index() << 8 | variant)
}

fn context(input: &mut CreateMkeyIn) -> &mut Mkc {
    input.memory_key_mkey_entry_mut()
}

struct Ends {
    pair: Pair,
    qp: Qp,
    cq: Cq,
    peer: Qp,
    peer_cq: Cq,
}

fn ends() -> Ends {
    let mut pair = Pair::new();
    let [(qp, cq), (peer, peer_cq)] = pair.connect(RC);
    Ends {
        pair,
        qp,
        cq,
        peer,
        peer_cq,
    }
}

impl Ends {
    /// Writes a few bytes inline to the peer; the syndrome, or 0.
    fn write(&mut self, addr: u64, key: u32, data: &[u8]) -> u8 {
        let segments = [remote_segment(addr, key), inline_segment(data)].concat();
        self.work(WRITE, &segments)
    }

    fn work(&mut self, opcode: u8, segments: &[u8]) -> u8 {
        self.pair
            .a
            .post_send(&mut self.qp, opcode, SIGNALED, 0, segments);
        self.pair.a.ring_send(&self.qp);
        self.pair.run();
        self.pair
            .a
            .poll(&mut self.cq)
            .expect("a completion")
            .syndrome
    }
}

#[test]
fn pages_of_any_size_and_order_are_found() {
    let mut ends = ends();
    let node = &mut ends.pair.b;
    // Two pages of 16 KiB, the second one first, and a region that starts inside its first page.
    let memory = node.host.alloc(65536, 65536);
    let pages = [memory + 16384, memory];
    let start = 0xabc_0000_3000;
    let key = create(node, ends.pair.pd[1], &pages, |input| {
        context(input)
            .set_log_page_size(14)
            .set_start_addr(start)
            .set_len(16384);
    })
    .unwrap();
    // 0x3000 into the first page; the next one begins 0x1000 later.
    assert_eq!(ends.write(start, key, b"first"), 0);
    assert_eq!(ends.write(start + 0xffc, key, b"over the edge"), 0);
    assert_eq!(ends.write(start + 16384 - 4, key, b"last"), 0);
    let host = &mut ends.pair.b.host;
    assert_eq!(host.bytes(memory + 16384 + 0x3000, 5), b"first");
    assert_eq!(host.bytes(memory + 16384 + 0x3ffc, 4), b"over");
    assert_eq!(host.bytes(memory, 9), b" the edge");
    assert_eq!(host.bytes(memory + 0x2ffc, 4), b"last");
    assert_eq!(ends.write(start + 16384 - 3, key, b"last"), REMOTE_ACCESS);
}

#[test]
fn the_byte_in_front_of_a_region_is_not_in_it() {
    let mut ends = ends();
    let memory = ends.pair.b.host.alloc(4096, 4096);
    let pd = ends.pair.pd[1];
    let key = create(&mut ends.pair.b, pd, &[memory], |input| {
        context(input).set_start_addr(0x100).set_len(16);
    })
    .unwrap();
    assert_eq!(ends.write(0x100, key, &[1; 16]), 0);
    assert_eq!(ends.write(0xff, key, &[1; 16]), REMOTE_ACCESS);
}

#[test]
fn page_rights_count_when_they_are_given() {
    // Bit 0 lets reads in, bit 1 writes.
    for (rights, write, read) in [(3, 0, 0), (1, REMOTE_ACCESS, 0), (2, 0, REMOTE_ACCESS)] {
        for (opcode, expected) in [(WRITE, write), (READ, read)] {
            let mut ends = ends();
            let memory = ends.pair.b.host.alloc(4096, 4096);
            let local = ends.pair.a.host.alloc(4096, 4096);
            let pd = ends.pair.pd[1];
            let key = create(&mut ends.pair.b, pd, &[memory | rights], |input| {
                input.set_pg_access(true);
            })
            .unwrap();
            let local_key = ends.pair.a.register(ends.pair.pd[0], local, 0, 64, ALL);
            let segments = [remote_segment(0, key), data_segment((local_key, 0, 16))].concat();
            let syndrome = ends.work(opcode, &segments);
            // A refusal by the page alone is found late and may come back as either kind of NAK.
            let fits = syndrome == expected || expected != 0 && syndrome == REMOTE_OPERATION;
            assert!(fits, "rights {rights}, opcode {opcode:#x}: {syndrome:#x}");
        }
    }
}

#[test]
fn a_key_of_bus_addresses_reaches_them_all() {
    let mut ends = ends();
    let memory = ends.pair.b.host.alloc(4096, 4096);
    let pd = ends.pair.pd[1];
    let key = create(&mut ends.pair.b, pd, &[], |input| {
        context(input)
            .set_access_mode_1_0(0)
            .set_length64(true)
            .set_len(0);
    })
    .unwrap();
    assert_eq!(ends.write(memory + 77, key, b"bus"), 0);
    assert_eq!(ends.pair.b.host.bytes(memory + 77, 3), b"bus");
    // What is not memory at all is an IOMMU fault, which the host sees.
    assert_ne!(ends.write(0x1000, key, b"bus"), 0);
    assert_eq!(ends.pair.b.host.faults.len(), 1);
}

#[test]
fn a_key_can_belong_to_one_queue_pair() {
    let mut ends = ends();
    let memory = ends.pair.b.host.alloc(4096, 4096);
    let pd = ends.pair.pd[1];
    let own = ends.peer.number;
    let bound = |node: &mut Node, qpn: u32| {
        create(node, pd, &[memory], |input| {
            context(input).set_qpn(qpn);
        })
    };
    let key = bound(&mut ends.pair.b, own).unwrap();
    assert_eq!(ends.write(0, key, b"mine"), 0);
    assert_eq!(
        bound(&mut ends.pair.b, 0x1234).err(),
        Some(refused(Syndrome::MkeyQp))
    );
    let cq = ends.pair.b.create_cq(4, 1);
    let other = ends.pair.b.create_qp(QpPlan {
        st: RC,
        pd,
        send_cq: cq.number,
        receive_cq: cq.number,
        srq: None,
        user_index: 1,
    });
    let key = bound(&mut ends.pair.b, other.number).unwrap();
    assert_eq!(ends.write(0, key, b"not mine"), REMOTE_ACCESS);
}

#[test]
fn receives_need_the_right_to_write() {
    let mut ends = ends();
    let memory = ends.pair.b.host.alloc(4096, 4096);
    let pd = ends.pair.pd[1];
    let key = create(&mut ends.pair.b, pd, &[memory], |input| {
        context(input).set_lw(false);
    })
    .unwrap();
    ends.pair.b.post_receive(&mut ends.peer, &[(key, 0, 64)]);
    assert_eq!(ends.work(SEND, &inline_segment(b"no")), REMOTE_OPERATION);
    let got = ends.pair.b.poll(&mut ends.peer_cq).unwrap();
    assert_eq!((got.opcode, got.syndrome), (0xe, LOCAL_PROTECTION));
    assert_eq!(ends.pair.b.host.bytes(memory, 2), [0, 0]);
}

#[test]
fn a_free_key_gives_nothing() {
    let mut ends = ends();
    let memory = ends.pair.b.host.alloc(4096, 4096);
    let pd = ends.pair.pd[1];
    let key = create(&mut ends.pair.b, pd, &[memory], |input| {
        context(input).set_free(true);
    })
    .unwrap();
    assert_eq!(ends.write(0, key, b"no"), REMOTE_ACCESS);
}

#[test]
fn what_cannot_be_a_key_is_refused() {
    let mut pair = Pair::new();
    let pd = pair.pd[0];
    let node = &mut pair.a;
    let memory = node.host.alloc(16384, 16384);
    type Change = fn(&mut CreateMkeyIn);
    let cases: [(Change, Syndrome); 9] = [
        (
            |i| {
                context(i).set_pd(0xffff);
            },
            Syndrome::MkeyPd,
        ),
        (
            |i| {
                context(i).set_access_mode_4_2(1).set_access_mode_1_0(0);
            },
            Syndrome::MkeyMode,
        ),
        (
            // Device memory that was not allocated.
            |i| {
                context(i).set_access_mode_4_2(1).set_access_mode_1_0(1);
            },
            Syndrome::MkeyMemic,
        ),
        (
            |i| {
                context(i).set_log_page_size(11);
            },
            Syndrome::MkeyPageSize,
        ),
        (
            |i| {
                context(i).set_len(4096 * 3);
            },
            Syndrome::MkeyShort,
        ),
        (
            |i| {
                context(i).set_start_addr(u64::MAX - 10);
            },
            Syndrome::MkeyWraps,
        ),
        (
            |i| {
                i.set_mkey_umem_valid(true);
            },
            Syndrome::MkeyUmem,
        ),
        (
            |i| {
                context(i).set_translations_octword_size(0);
            },
            Syndrome::MkeySize,
        ),
        (
            |i| {
                context(i).set_log_page_size(13);
            },
            Syndrome::MkeyUnaligned,
        ),
    ];
    for (change, syndrome) in cases {
        let made = create(node, pd, &[memory + 4096], change);
        assert_eq!(made, Err(refused(syndrome)), "{syndrome:?}");
    }
    assert_eq!(node.model.objects().mkeys, 0);
}

#[test]
fn keys_are_shown_held_and_destroyed() {
    let mut pair = Pair::new();
    let pd = pair.pd[0];
    let node = &mut pair.a;
    let memory = node.host.alloc(16384, 4096);
    let pages: Vec<u64> = (0..4).map(|page| memory + page * 4096).collect();
    let key = create(node, pd, &pages, |input| {
        context(input).set_len(16384);
    })
    .unwrap();
    let mut query = QueryMkeyIn::new();
    query.set_mkey_index(key >> 8);
    let shown = node.command(&query).unwrap();
    assert_eq!(shown.memory_key_mkey_entry().len(), 16384);
    assert_eq!(
        shown.bsf0_klm0_pas_mtt0_1()[8..],
        (memory + 4096).to_be_bytes()
    );
    assert_eq!(
        shown.bsf1_klm1_pas_mtt2_3()[8..],
        (memory + 3 * 4096).to_be_bytes()
    );
    let mut dealloc = DeallocPdIn::new();
    dealloc.set_pd(pd);
    assert_eq!(
        node.command(&dealloc).err(),
        Some(refused(Syndrome::PdBusy))
    );
    let mut destroy = DestroyMkeyIn::new();
    destroy.set_mkey_index(key >> 8);
    node.command(&destroy).unwrap();
    assert_eq!(
        node.command(&query).err(),
        Some(refused(Syndrome::MkeyUnknown))
    );
    assert_eq!(
        node.command(&destroy).err(),
        Some(refused(Syndrome::MkeyUnknown))
    );
    node.command(&dealloc).unwrap();
}

#[test]
fn every_remote_operation_needs_its_right() {
    const FETCH_ADD: u8 = 0x12;
    for opcode in [WRITE, READ, FETCH_ADD] {
        for granted in [true, false] {
            let mut ends = ends();
            let memory = ends.pair.b.host.alloc(4096, 4096);
            let local = ends.pair.a.host.alloc(4096, 4096);
            let local_key = ends.pair.a.register(ends.pair.pd[0], local, 0, 64, ALL);
            let pd = ends.pair.pd[1];
            let key = create(&mut ends.pair.b, pd, &[memory], |input| {
                context(input)
                    .set_rw(opcode != WRITE || granted)
                    .set_rr(opcode != READ || granted)
                    .set_a(opcode != FETCH_ADD || granted);
            })
            .unwrap();
            let mut segments = remote_segment(0, key);
            if opcode == FETCH_ADD {
                segments.extend([0; 16]);
            }
            segments.extend(data_segment((local_key, 0, 8)));
            let expected = if granted { 0 } else { REMOTE_ACCESS };
            assert_eq!(ends.work(opcode, &segments), expected, "opcode {opcode:#x}");
        }
    }
}

#[test]
fn the_peer_may_only_invalidate_what_allows_it() {
    const SEND_INVALIDATE: u8 = 0x01;
    for allowed in [true, false] {
        let mut ends = ends();
        let memory = ends.pair.b.host.alloc(4096, 4096);
        let pd = ends.pair.pd[1];
        let key = create(&mut ends.pair.b, pd, &[memory], |input| {
            context(input).set_en_rinval(allowed);
        })
        .unwrap();
        ends.pair.b.post_receive(&mut ends.peer, &[]);
        ends.pair
            .a
            .post_send(&mut ends.qp, SEND_INVALIDATE, SIGNALED, key, &[]);
        ends.pair.a.ring_send(&ends.qp);
        ends.pair.run();
        let done = ends.pair.a.poll(&mut ends.cq).unwrap();
        assert_eq!(done.syndrome == 0, allowed, "{done:x?}");
        let mut query = QueryMkeyIn::new();
        query.set_mkey_index(key >> 8);
        let shown = ends.pair.b.command(&query).unwrap();
        assert_eq!(shown.memory_key_mkey_entry().free(), allowed);
    }
}
