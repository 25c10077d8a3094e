//! Memory windows, bound as rdma-core binds them.

use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, DestroyMkeyIn, Mkc, QueryMkeyIn};
use zerocopy::IntoBytes;

use crate::common::Node;
use crate::common::queues::*;
use crate::{SEND, WRITE};

pub(crate) const UMR: u8 = 0x25;
const READ: u8 = 0x10;
const SEND_INVALIDATE: u8 = 0x01;

pub(crate) const INLINE: u8 = 0x80;
/// The key must be free now.
pub(crate) const IF_FREE: u8 = 0x20;
const OFFSET: u8 = 0x10;
const CHECK_QP: u8 = 0x08;

pub(crate) const LEN: u64 = 1;
pub(crate) const START: u64 = 1 << 6;
pub(crate) const KEY: u64 = 1 << 13;
const QPN: u64 = 1 << 14;
pub(crate) const RIGHTS: u64 = 0xf << 18;
pub(crate) const FREE: u64 = 1 << 29;

pub(crate) const ANY_QP: u32 = 0xff_ffff;
/// Syndromes of completions.
const FLUSHED: u8 = 0x05;
pub(crate) const BIND_FAILED: u8 = 0x06;
pub(crate) const REMOTE_ACCESS: u8 = 0x13;

/// A window as mlx5_ib makes it: free, space for four entries.
pub(crate) fn create_window(node: &mut Node, pd: u32, two: bool) -> u32 {
    let mut create = CreateMkeyIn::new();
    create
        .memory_key_mkey_entry_mut()
        .set_free(true)
        .set_translations_octword_size(4)
        .set_pd(pd)
        .set_umr_en(true)
        .set_lr(true)
        .set_access_mode_1_0(2)
        .set_en_rinval(two)
        .set_qpn(ANY_QP)
        .set_mkey_7_0(0x10);
    node.command(&create).unwrap().mkey_index() << 8 | 0x10
}

/// The segments of a UMR behind the control segment.
pub(crate) fn umr(flags: u8, octowords: u16, mask: u64, context: &Mkc, list: &[u8]) -> Vec<u8> {
    let mut segments = vec![0u8; 48];
    segments[0] = flags;
    segments[4..6].copy_from_slice(&octowords.to_be_bytes());
    segments[8..16].copy_from_slice(&mask.to_be_bytes());
    segments.extend(context.as_bytes());
    segments.extend(list);
    segments
}

pub(crate) struct Bind {
    /// The new key: only its low byte counts.
    key: u32,
    lkey: u32,
    addr: u64,
    len: u32,
    access: u32,
    /// The queue pair, for windows of type 2.
    two: Option<u32>,
}

/// WQE that rdma-core's provider posts for IBV_WR_BIND_MW.
pub(crate) fn bind(bind: &Bind) -> Vec<u8> {
    let mut context = Mkc::ZERO;
    context
        .set_mkey_7_0(bind.key as u8)
        .set_qpn(bind.two.filter(|_| bind.len != 0).unwrap_or(ANY_QP))
        .set_free(bind.len == 0);
    let mut mask = FREE | KEY;
    let mut flags = OFFSET | INLINE;
    if bind.two.is_some() {
        mask |= QPN;
        flags |= if bind.len == 0 { CHECK_QP } else { IF_FREE };
    }
    if bind.len == 0 {
        return umr(flags, 0, mask, &context, &[]);
    }
    context
        .set_lw(bind.access & LOCAL_WRITE != 0)
        .set_rr(bind.access & REMOTE_READ != 0)
        .set_rw(bind.access & REMOTE_WRITE != 0)
        .set_a(bind.access & ATOMIC != 0)
        .set_start_addr(bind.addr)
        .set_len(bind.len.into());
    let mut list = data_segment((bind.lkey, bind.addr, bind.len));
    list.resize(64, 0);
    umr(flags, 4, mask | LEN | START | RIGHTS, &context, &list)
}

/// WQE that rdma-core's provider posts for IBV_WR_LOCAL_INV.
fn local_invalidate() -> Vec<u8> {
    let mut context = Mkc::ZERO;
    context.set_qpn(ANY_QP).set_free(true);
    let mask = FREE | KEY | QPN;
    umr(OFFSET | INLINE | CHECK_QP, 0, mask, &context, &[])
}

pub(crate) struct Scene {
    pub(crate) pair: Pair,
    /// The peer that reaches through windows.
    peer: Qp,
    peer_cq: Cq,
    owner: Qp,
    owner_cq: Cq,
    pub(crate) memory: u64,
    pub(crate) lkey: u32,
}

/// Where the region begins in its address space.
pub(crate) const BASE: u64 = 0x7_0000;

pub(crate) fn scene() -> Scene {
    let mut pair = Pair::new();
    let [(peer, peer_cq), (owner, owner_cq)] = pair.connect(RC);
    let memory = pair.b.host.alloc(8192, 4096);
    let lkey = pair.b.register(pair.pd[1], memory, BASE, 8192, LOCAL_WRITE);
    Scene {
        pair,
        peer,
        peer_cq,
        owner,
        owner_cq,
        memory,
        lkey,
    }
}

impl Scene {
    /// Posts to the owner's send queue; the syndrome, or 0.
    pub(crate) fn own(&mut self, opcode: u8, imm: u32, segments: &[u8]) -> u8 {
        let node = &mut self.pair.b;
        node.post_send(&mut self.owner, opcode, SIGNALED, imm, segments);
        node.ring_send(&self.owner);
        self.pair.run();
        let done = self.pair.b.poll(&mut self.owner_cq).unwrap();
        assert_eq!(done.wqe_opcode, opcode);
        done.syndrome
    }

    pub(crate) fn write(&mut self, addr: u64, key: u32, data: &[u8]) -> u8 {
        let segments = [remote_segment(addr, key), inline_segment(data)].concat();
        let node = &mut self.pair.a;
        node.post_send(&mut self.peer, WRITE, SIGNALED, 0, &segments);
        node.ring_send(&self.peer);
        self.pair.run();
        self.pair.a.poll(&mut self.peer_cq).unwrap().syndrome
    }

    fn window(&mut self, two: bool) -> u32 {
        let pd = self.pair.pd[1];
        create_window(&mut self.pair.b, pd, two)
    }

    pub(crate) fn bind(&self, key: u32) -> Bind {
        Bind {
            key,
            lkey: self.lkey,
            addr: BASE + 100,
            len: 5000,
            access: REMOTE_WRITE,
            two: None,
        }
    }

    fn is_free(&mut self, key: u32) -> bool {
        let mut query = QueryMkeyIn::new();
        query.set_mkey_index(key >> 8);
        let answer = self.pair.b.command(&query).unwrap();
        answer.memory_key_mkey_entry().free()
    }
}

#[test]
fn a_window_lets_in_what_its_region_keeps_out() {
    let mut s = scene();
    let old = s.window(false);
    assert!(s.is_free(old));
    let key = old + 1;
    let segments = bind(&s.bind(key));
    assert_eq!(s.own(UMR, old, &segments), 0);
    assert!(!s.is_free(key));
    // Over the edge of a page.
    assert_eq!(s.write(BASE + 4090, key, b"over the edge"), 0);
    assert_eq!(s.pair.b.host.bytes(s.memory + 4090, 13), b"over the edge");
    assert_eq!(s.write(BASE + 100, key, b"first"), 0);
    assert_eq!(s.write(BASE + 5096, key, b"last"), 0);

    // Bound again, elsewhere and under another key.
    let next = old + 2;
    let segments = bind(&Bind {
        addr: BASE + 6000,
        len: 8,
        ..s.bind(next)
    });
    assert_eq!(s.own(UMR, key, &segments), 0);
    assert_eq!(s.write(BASE + 6000, next, b"elsewher"), 0);
    assert_eq!(s.write(BASE + 4090, key, b"gone"), REMOTE_ACCESS);
}

#[test]
fn a_window_ends_where_it_ends() {
    type Wrong = fn(&Scene, u32) -> (u64, u32, usize);
    let wrongs: [Wrong; 4] = [
        |_, key| (BASE + 99, key, 4),
        |_, key| (BASE + 5097, key, 4),
        |_, key| (BASE + 200, key + 1, 4),
        // The region itself allows no remote access.
        |s, _| (BASE + 200, s.lkey, 4),
    ];
    for wrong in wrongs {
        let mut s = scene();
        let key = s.window(false) + 1;
        let segments = bind(&s.bind(key));
        assert_eq!(s.own(UMR, key, &segments), 0);
        let (addr, key, len) = wrong(&s, key);
        assert_eq!(s.write(addr, key, &vec![1; len]), REMOTE_ACCESS);
    }
}

#[test]
fn rights_are_the_windows_and_the_regions() {
    // Only reading.
    let mut s = scene();
    let key = s.window(false) + 1;
    let segments = bind(&Bind {
        access: REMOTE_READ,
        ..s.bind(key)
    });
    assert_eq!(s.own(UMR, key, &segments), 0);
    let local = s.pair.a.host.alloc(4096, 4096);
    let lkey = s.pair.a.register(s.pair.pd[0], local, 0, 4096, ALL);
    s.pair.b.host.put(s.memory + 300, b"look");
    let segments = [remote_segment(BASE + 300, key), data_segment((lkey, 0, 4))].concat();
    let node = &mut s.pair.a;
    node.post_send(&mut s.peer, READ, SIGNALED, 0, &segments);
    node.ring_send(&s.peer);
    s.pair.run();
    assert_eq!(s.pair.a.poll(&mut s.peer_cq).unwrap().syndrome, 0);
    assert_eq!(s.pair.a.host.bytes(local, 4), b"look");
    assert_eq!(s.write(BASE + 300, key, b"touch"), REMOTE_ACCESS);

    // A window for writing on a region that its own side may not write.
    let mut s = scene();
    let pd = s.pair.pd[1];
    s.lkey = s.pair.b.register(pd, s.memory, BASE, 8192, 0);
    let key = s.window(false) + 1;
    let segments = bind(&s.bind(key));
    assert_eq!(s.own(UMR, key, &segments), 0);
    assert_eq!(s.write(BASE + 300, key, b"touch"), REMOTE_ACCESS);

    // On a region of another protection domain, and on one that is gone.
    for gone in [false, true] {
        let mut s = scene();
        let pd = if gone {
            s.pair.pd[1]
        } else {
            s.pair.b.alloc_pd()
        };
        s.lkey = s.pair.b.register(pd, s.memory, BASE, 8192, ALL);
        let key = s.window(false) + 1;
        let segments = bind(&s.bind(key));
        assert_eq!(s.own(UMR, key, &segments), 0);
        if gone {
            let mut destroy = DestroyMkeyIn::new();
            destroy.set_mkey_index(s.lkey >> 8);
            s.pair.b.command(&destroy).unwrap();
        }
        assert_eq!(s.write(BASE + 300, key, b"touch"), REMOTE_ACCESS);
    }
}

#[test]
fn an_empty_binding_unbinds() {
    let mut s = scene();
    let key = s.window(false) + 1;
    let segments = bind(&s.bind(key));
    assert_eq!(s.own(UMR, key, &segments), 0);
    let segments = bind(&Bind {
        len: 0,
        ..s.bind(key)
    });
    assert_eq!(s.own(UMR, key, &segments), 0);
    assert!(s.is_free(key));
    assert_eq!(s.write(BASE + 300, key, b"touch"), REMOTE_ACCESS);
}

#[test]
fn a_window_of_type_two_is_for_one_queue_pair() {
    let mut s = scene();
    let key = s.window(true) + 1;
    let two = |s: &Scene, key| Bind {
        two: Some(s.owner.number),
        ..s.bind(key)
    };
    let segments = bind(&two(&s, key));
    assert_eq!(s.own(UMR, key, &segments), 0);
    assert_eq!(s.write(BASE + 300, key, b"mine"), 0);

    // Through another connection it leads nowhere.
    let [(mut other, mut other_cq), _] = s.pair.connect(RC);
    let segments_of_write = [remote_segment(BASE + 300, key), inline_segment(b"x")].concat();
    let node = &mut s.pair.a;
    node.post_send(&mut other, WRITE, SIGNALED, 0, &segments_of_write);
    node.ring_send(&other);
    s.pair.run();
    let refused = s.pair.a.poll(&mut other_cq).unwrap();
    assert_eq!(refused.syndrome, REMOTE_ACCESS);

    // Nor can another queue pair take it away.
    let [_, (mut third, mut third_cq)] = s.pair.connect(RC);
    let node = &mut s.pair.b;
    node.post_send(&mut third, UMR, SIGNALED, key, &local_invalidate());
    node.ring_send(&third);
    s.pair.run();
    let failed = s.pair.b.poll(&mut third_cq).unwrap();
    assert_eq!(failed.syndrome, BIND_FAILED);
    assert!(!s.is_free(key));

    // Bound twice: the second time it is not free.
    let segments = bind(&two(&s, key + 1));
    assert_eq!(s.own(UMR, key, &segments), BIND_FAILED);
}

#[test]
fn a_window_of_type_two_is_invalidated_from_either_side() {
    let mut s = scene();
    let key = s.window(true) + 1;
    let segments = bind(&Bind {
        two: Some(s.owner.number),
        ..s.bind(key)
    });
    assert_eq!(s.own(UMR, key, &segments), 0);
    assert_eq!(s.own(UMR, key, &local_invalidate()), 0);
    assert!(s.is_free(key));

    assert_eq!(s.own(UMR, key, &segments), 0);
    assert_eq!(s.write(BASE + 300, key, b"mine"), 0);
    let piece = (s.lkey, BASE, 64);
    s.pair.b.post_receive(&mut s.owner, &[piece]);
    let node = &mut s.pair.a;
    node.post_send(
        &mut s.peer,
        SEND_INVALIDATE,
        SIGNALED,
        key,
        &inline_segment(b"done"),
    );
    node.ring_send(&s.peer);
    s.pair.run();
    assert_eq!(s.pair.a.poll(&mut s.peer_cq).unwrap().syndrome, 0);
    let received = s.pair.b.poll(&mut s.owner_cq).unwrap();
    assert_eq!((received.opcode, received.immediate), (4, key));
    assert!(s.is_free(key));
    assert_eq!(s.write(BASE + 300, key, b"gone"), REMOTE_ACCESS);
}

#[test]
fn a_window_of_type_one_is_not_the_peers_to_end() {
    let mut s = scene();
    let key = s.window(false) + 1;
    let segments = bind(&s.bind(key));
    assert_eq!(s.own(UMR, key, &segments), 0);
    let piece = (s.lkey, BASE, 64);
    s.pair.b.post_receive(&mut s.owner, &[piece]);
    let node = &mut s.pair.a;
    node.post_send(
        &mut s.peer,
        SEND_INVALIDATE,
        SIGNALED,
        key,
        &inline_segment(b"done"),
    );
    node.ring_send(&s.peer);
    s.pair.run();
    let failed = s.pair.a.poll(&mut s.peer_cq).unwrap();
    assert_eq!(failed.syndrome, REMOTE_ACCESS);
    assert!(!s.is_free(key));
}

#[test]
fn a_list_longer_than_its_space_is_refused() {
    let mut s = scene();
    let key = s.window(false) + 1;
    let mut segments = bind(&s.bind(key));
    segments[4..6].copy_from_slice(&8u16.to_be_bytes());
    segments.resize(segments.len() + 64, 0);
    assert_eq!(s.own(UMR, key, &segments), BIND_FAILED);
    let send = inline_segment(b"behind");
    assert_eq!(s.own(SEND, 0, &send), FLUSHED);
}
