//! User contexts and user memory, as programs use them that drive the device through DevX: rdma-core's VFIO driver, DPDK.

use crate::common::queues::*;
use crate::common::{Failure, Node};
use bareverbs_firmware_cmds::command::Command;
use bareverbs_firmware_cmds::cq::{CreateCqIn, DestroyCqIn, QueryCqIn};
use bareverbs_firmware_cmds::domain::{AllocPdIn, DeallocPdIn};
use bareverbs_firmware_cmds::mkey::{CreateMkeyIn, DestroyMkeyIn};
use bareverbs_firmware_cmds::qp::{CreateQpIn, DestroyQpIn, Qp2ErrIn, QueryQpIn};
use bareverbs_firmware_cmds::uar::AllocUarIn;
use bareverbs_firmware_cmds::umem::{
    CreateUctxIn, CreateUmemIn, DestroyUctxIn, DestroyUmemIn, UCTX_CAP_RAW_TX,
};
use connectx_model::{Config, ObjectKind, Syndrome};

const SEND: u8 = 0x0a;
const WRITE: u8 = 0x08;
const READ: u8 = 0x10;

fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

/// The same command of a user.
fn by<C: Command>(uid: u16, command: &C) -> C {
    let mut bytes = command.as_bytes().to_vec();
    bytes[2..4].copy_from_slice(&uid.to_be_bytes());
    C::read_from_bytes(&bytes).unwrap()
}

fn node(unit: u8) -> Node {
    let mut node = Node::new(Config::new(unit));
    node.initialize();
    node
}

/// `len` bytes from `start` on, in pages of 4 KiB with these access bits.
fn umem(start: u64, len: u64, rights: u64) -> (CreateUmemIn, Vec<u8>) {
    let first = start & !0xfff;
    let count = (start + len - first).div_ceil(4096);
    let mut create = CreateUmemIn::new();
    create
        .umem_mut()
        .set_page_offset((start & 0xfff) as u32)
        .set_num_of_mtt(count);
    let list = (0..count).flat_map(|page| ((first + page * 4096) | rights).to_be_bytes());
    (create, list.collect())
}

fn create_umem(node: &mut Node, uid: u16, start: u64, len: u64) -> Result<u32, Failure> {
    let (create, list) = umem(start, len, 3);
    let created = node.command_with(&by(uid, &create), &list, 0);
    created.map(|(output, _)| output.umem_id())
}

fn create_user(node: &mut Node, cap: u32) -> u16 {
    let mut create = CreateUctxIn::new();
    create.uctx_mut().set_cap(cap);
    node.command(&create).unwrap().uid()
}

/// Where things are in one piece of user memory.
const CQ_AT: u64 = 0x40;
const RECORDS_AT: u64 = 0x1100;
const QP_AT: u64 = 0x1240;
const PIECE: u64 = 0x4000;
const LOG_CQ: u8 = 6;
const LOG_RQ: u8 = 4;
const LOG_SQ: u8 = 6;

/// A user's queues, all in one user memory, which does not begin where a page does.
struct User {
    uid: u16,
    pd: u32,
    uar: u32,
    umem: u32,
    start: u64,
    cq: Cq,
    qp: Qp,
}

fn cq_command(user: (u16, u32, u32, u32), eqn: u32) -> CreateCqIn {
    let (uid, _, uar, umem) = user;
    let mut create = CreateCqIn::new();
    create
        .set_cq_umem_valid(true)
        .set_cq_umem_id(umem)
        .set_cq_umem_offset(CQ_AT);
    create
        .cq_context_mut()
        .set_log_cq_size(LOG_CQ)
        .set_uar_page(uar)
        .set_c_eqn_or_apu_element(eqn)
        .set_dbr_umem_valid(true)
        .set_dbr_umem_id(umem)
        .set_dbr_addr(RECORDS_AT);
    by(uid, &create)
}

fn qp_command(user: (u16, u32, u32, u32), cqn: u32) -> CreateQpIn {
    let (uid, pd, uar, umem) = user;
    let mut create = CreateQpIn::new();
    create
        .set_wq_umem_valid(true)
        .set_wq_umem_id(umem)
        .set_wq_umem_offset(QP_AT);
    create
        .qpc_mut()
        .set_st(RC)
        .set_pm_state(3)
        .set_pd(pd)
        .set_log_rq_size(LOG_RQ)
        .set_log_rq_stride(2)
        .set_log_sq_size(LOG_SQ)
        .set_uar_page(uar)
        .set_cqn_snd(cqn)
        .set_cqn_rcv(cqn)
        .set_dbr_umem_valid(true)
        .set_dbr_umem_id(umem)
        .set_dbr_addr(RECORDS_AT + 0x40);
    by(uid, &create)
}

fn user(node: &mut Node, uid: u16) -> User {
    if node.events.is_empty() {
        node.create_eq(6, 0, 0);
    }
    let eqn = node.events[0].number;
    let uar = node.command(&by(uid, &AllocUarIn::new())).unwrap().uar();
    let pd = node.command(&by(uid, &AllocPdIn::new())).unwrap().pd();
    let start = node.host.alloc(PIECE as usize + 0x200, 4096) + 0x200;
    let id = create_umem(node, uid, start, PIECE - 0x200).unwrap();
    let ring = start + CQ_AT;
    for entry in node.host.bytes(ring, 64 << LOG_CQ).chunks_exact_mut(64) {
        entry[63] = 0xf0;
    }
    let who = (uid, pd, uar, id);
    let number = node.command(&cq_command(who, eqn)).unwrap().cqn();
    let cq = Cq {
        number,
        ring,
        record: start + RECORDS_AT,
        log_size: LOG_CQ,
        stride: 64,
        consumer: 0,
        arm_number: 0,
    };
    let qpn = node.command(&qp_command(who, number)).unwrap().qpn();
    let qp = Qp {
        number: qpn,
        st: RC,
        pd,
        ring: start + QP_AT,
        record: start + RECORDS_AT + 0x40,
        uar,
        log_rq: LOG_RQ,
        log_sq: LOG_SQ,
        sq: 0,
        rq: 0,
    };
    User {
        uid,
        pd,
        uar,
        umem: id,
        start,
        cq,
        qp,
    }
}

/// A key over user memory, from an offset on.
fn mkey(user: &User, id: u32, offset: u64, virt: u64, len: u64) -> CreateMkeyIn {
    let mut create = CreateMkeyIn::new();
    create
        .set_mkey_umem_valid(true)
        .set_mkey_umem_id(id)
        .set_mkey_umem_offset(offset);
    create
        .memory_key_mkey_entry_mut()
        .set_access_mode_1_0(1)
        .set_lr(true)
        .set_lw(true)
        .set_rr(true)
        .set_rw(true)
        .set_qpn(0xff_ffff)
        .set_pd(user.pd)
        .set_start_addr(virt)
        .set_len(len)
        .set_log_page_size(12);
    by(user.uid, &create)
}

/// Queues, records and keys in user memory move data like those in page lists: of the kernel's user and of one of its own.
#[test]
fn queues_in_user_memory_move_data() {
    for own in [false, true] {
        let (mut a, mut b) = (node(1), node(2));
        let mut ends = [&mut a, &mut b].map(|node| {
            let uid = if own { create_user(node, 0) } else { 0 };
            let user = user(node, uid);
            let memory = node.host.alloc(0x3000, 4096) + 0x345;
            let id = create_umem(node, uid, memory, 0x2000).unwrap();
            // The key begins 0x11 bytes into the user memory.
            let virt = 0x7700_0000_0000 + 0x356;
            let key = node.command(&mkey(&user, id, 0x11, virt, 0x1800)).unwrap();
            (user, memory + 0x11, virt, key.mkey_index() << 8)
        });
        let gids = [a.address(1), b.address(2)];
        let macs = [a.model.config().mac, b.model.config().mac];
        let numbers = [ends[0].0.qp.number, ends[1].0.qp.number];
        for (node, at) in [(&mut a, 0), (&mut b, 1)] {
            let qp = &ends[at].0.qp;
            // Transitions are commands of the same user; the kernel may make them as well.
            node.make_init(qp);
            let other = 1 - at;
            node.make_rtr(qp, numbers[other], 100, Some((gids[other], macs[other])));
            node.make_rts(qp, 100);
        }
        let [(from, sent, here, key), (to, got, there, rkey)] = &mut ends;
        let data: Vec<u8> = (0..0x1700u32).map(|n| (n * 7 + n / 256) as u8).collect();
        a.host.put(*sent, &data);
        let piece = (*key, *here, 0x1700);
        b.post_receive(&mut to.qp, &[(*rkey, *there, 0x1700)]);
        a.post_send(&mut from.qp, SEND, SIGNALED, 0, &data_segment(piece));
        a.ring_send(&from.qp);
        crate::common::exchange(&mut a, &mut b);
        assert_eq!(b.host.bytes(*got, 0x1700), data);
        assert_eq!(b.poll_all(&mut to.cq).len(), 1);
        assert_eq!(a.poll_all(&mut from.cq).len(), 1);

        b.host.bytes(*got, 0x1700).fill(0);
        let mut request = remote_segment(*there, *rkey);
        request.extend(data_segment(piece));
        a.post_send(&mut from.qp, WRITE, SIGNALED, 0, &request);
        a.ring_send(&from.qp);
        crate::common::exchange(&mut a, &mut b);
        assert_eq!(b.host.bytes(*got, 0x1700), data);

        a.host.bytes(*sent, 0x1700).fill(0);
        a.post_send(&mut from.qp, READ, SIGNALED, 0, &request);
        a.ring_send(&from.qp);
        crate::common::exchange(&mut a, &mut b);
        assert_eq!(a.host.bytes(*sent, 0x1700), data);
        let done = a.poll_all(&mut from.cq);
        assert!(done.iter().all(|cqe| cqe.syndrome == 0), "{done:?}");
        assert_eq!(done.len(), 2);
        assert!(a.host.faults.is_empty() && b.host.faults.is_empty());
    }
}

/// User memory is busy while a queue, a record or a key lies in it, and can be destroyed afterwards.
#[test]
fn user_memory_in_use_cannot_be_destroyed() {
    let mut node = node(1);
    let user = user(&mut node, 0);
    let mut destroy = DestroyUmemIn::new();
    destroy.set_umem_id(user.umem);
    assert_eq!(
        node.command(&destroy).err(),
        Some(refused(Syndrome::UmemBusy))
    );
    let key = mkey(&user, user.umem, 0, user.start, 0x100);
    let key = node.command(&key).unwrap().mkey_index();
    let mut qp = DestroyQpIn::new();
    node.command(qp.set_qpn(user.qp.number)).unwrap();
    let mut cq = DestroyCqIn::new();
    node.command(cq.set_cqn(user.cq.number)).unwrap();
    assert_eq!(
        node.command(&destroy).err(),
        Some(refused(Syndrome::UmemBusy))
    );
    let mut mkey = DestroyMkeyIn::new();
    node.command(mkey.set_mkey_index(key)).unwrap();
    node.command(&destroy).unwrap();
    assert_eq!(
        node.command(&destroy).err(),
        Some(refused(Syndrome::UmemUnknown))
    );
}

/// Each way to say where a queue lies that is wrong is refused, and nothing is left of it.
#[test]
fn queues_have_to_lie_in_their_user_memory() {
    let mut node = node(1);
    let user = user(&mut node, 0);
    let eqn = node.events[0].number;
    let who = (0, user.pd, user.uar, user.umem);
    type CqChange = fn(&mut CreateCqIn);
    let cases: &[(Syndrome, CqChange)] = &[
        (Syndrome::CqUmem, |c| {
            c.set_cq_umem_id(77);
        }),
        (Syndrome::CqUmem, |c| {
            c.cq_context_mut().set_dbr_umem_id(77);
        }),
        (Syndrome::UmemRange, |c| {
            c.set_cq_umem_offset(PIECE - 0x200 - (64 << LOG_CQ) + 64);
        }),
        (Syndrome::UmemRange, |c| {
            c.set_cq_umem_offset(u64::MAX - 64);
        }),
        (Syndrome::UmemRange, |c| {
            c.cq_context_mut().set_dbr_addr(PIECE - 0x200 + 8);
        }),
        (Syndrome::CqRecord, |c| {
            c.cq_context_mut().set_dbr_addr(RECORDS_AT + 4);
        }),
        // Without the flags it is a list again, and there is none.
        (Syndrome::CqPages, |c| {
            c.set_cq_umem_valid(false);
        }),
    ];
    for (syndrome, change) in cases {
        let mut create = cq_command(who, eqn);
        change(&mut create);
        assert_eq!(node.command(&create).err(), Some(refused(*syndrome)));
    }
    let qp = |change: fn(&mut CreateQpIn)| {
        let mut create = qp_command(who, user.cq.number);
        change(&mut create);
        create
    };
    let end = qp(|c| {
        c.set_wq_umem_offset(PIECE - 0x200 - 64);
    });
    assert_eq!(node.command(&end).err(), Some(refused(Syndrome::UmemRange)));
    let unknown = qp(|c| {
        c.set_wq_umem_id(0);
    });
    assert_eq!(
        node.command(&unknown).err(),
        Some(refused(Syndrome::QpUmem))
    );
    // A key reaches over the end, and one whose first byte would not lie where its page has it.
    let over = mkey(&user, user.umem, PIECE - 0x300, 0x1300, 0x200);
    assert_eq!(
        node.command(&over).err(),
        Some(refused(Syndrome::UmemRange))
    );
    let odd = mkey(&user, user.umem, 0, 0x1234, 0x200);
    assert_eq!(
        node.command(&odd).err(),
        Some(refused(Syndrome::MkeyUnaligned))
    );
}

#[test]
fn what_makes_no_user_memory_is_refused() {
    let mut node = node(1);
    let memory = node.host.alloc(0x2000, 0x2000);
    let (good, list) = umem(memory, 0x2000, 3);
    let mut refuse = |syndrome, change: fn(&mut CreateUmemIn), list: &[u8]| {
        let mut create = good;
        change(&mut create);
        let answer = node.command_with(&create, list, 0).err();
        assert_eq!(answer, Some(refused(syndrome)));
    };
    refuse(Syndrome::UmemList, |_| {}, &list[..8]);
    refuse(
        Syndrome::UmemList,
        |c| {
            c.umem_mut().set_num_of_mtt(0);
        },
        &list,
    );
    refuse(
        Syndrome::UmemList,
        |c| {
            c.umem_mut().set_num_of_mtt(u64::MAX);
        },
        &list,
    );
    refuse(
        Syndrome::UmemPageSize,
        |c| {
            c.umem_mut().set_page_offset(0x1000);
        },
        &list,
    );
    refuse(
        Syndrome::UmemUnaligned,
        |c| {
            // None of these pages is aligned to this size.
            c.umem_mut().set_log_page_size(31);
            c.umem_mut().set_page_offset(0x8000_0000);
        },
        &list,
    );
    refuse(
        Syndrome::UmemUnaligned,
        |c| {
            c.umem_mut().set_log_page_size(1);
        },
        &[&(memory + 0x1000).to_be_bytes()[..], &list[8..]].concat(),
    );
    refuse(
        Syndrome::UmemAts,
        |c| {
            c.umem_mut().set_ats(true);
        },
        &list,
    );
}

/// A completion queue in user memory that the device may only read fails as one whose memory is gone.
#[test]
fn the_device_writes_to_no_memory_that_it_may_only_read() {
    let mut pair = Pair::new();
    let [mut a, mut b] = pair.connect(RC);
    let memory = pair.a.host.alloc(4096, 4096);
    let (create, list) = umem(memory, 4096, 1);
    let id = pair.a.command_with(&create, &list, 0).unwrap().0.umem_id();
    let mut key = CreateMkeyIn::new();
    key.set_mkey_umem_valid(true).set_mkey_umem_id(id);
    key.memory_key_mkey_entry_mut()
        .set_access_mode_1_0(1)
        .set_lr(true)
        .set_lw(true)
        .set_rw(true)
        .set_qpn(0xff_ffff)
        .set_pd(pair.pd[0])
        .set_len(4096)
        .set_log_page_size(12);
    let key = pair.a.command(&key).unwrap().mkey_index() << 8;
    // As the target of a READ.
    let remote = pair.b.host.alloc(4096, 4096);
    let rkey = pair.b.register(pair.pd[1], remote, 0, 4096, ALL);
    let mut request = remote_segment(0, rkey);
    request.extend(data_segment((key, 0, 64)));
    pair.a.post_send(&mut a.0, READ, SIGNALED, 0, &request);
    pair.a.ring_send(&a.0);
    pair.run();
    let done = pair.a.poll_all(&mut a.1);
    assert_eq!(done.len(), 1);
    assert_ne!(done[0].syndrome, 0);
    assert!(pair.b.poll_all(&mut b.1).is_empty());
}

/// A user's objects cannot be used, changed, queried or destroyed by another user; the kernel may do all of this.
#[test]
fn users_have_their_own_objects() {
    let mut node = node(1);
    let (first, second) = (create_user(&mut node, 0), create_user(&mut node, 0));
    assert_ne!(first, second);
    let mine = user(&mut node, first);
    let eqn = node.events[0].number;
    let other = |syndrome| Some(refused(syndrome));
    // Its objects named by another one's.
    let pd = node.command(&by(second, &AllocPdIn::new())).unwrap().pd();
    let uar = node.command(&by(second, &AllocUarIn::new())).unwrap().uar();
    let memory = node.host.alloc(PIECE as usize, 4096);
    let id = create_umem(&mut node, second, memory, PIECE).unwrap();
    let cq = |umem, uar| cq_command((second, pd, uar, umem), eqn);
    assert_eq!(
        node.command(&cq(mine.umem, uar)).err(),
        other(Syndrome::CqUmem)
    );
    assert_eq!(
        node.command(&cq(id, mine.uar)).err(),
        other(Syndrome::CqUar)
    );
    let cqn = node.command(&cq(id, uar)).unwrap().cqn();
    let qp = |pd, cqn| qp_command((second, pd, uar, id), cqn);
    assert_eq!(node.command(&qp(mine.pd, cqn)).err(), other(Syndrome::QpPd));
    let foreign = node.command(&qp(pd, mine.cq.number)).err();
    assert_eq!(foreign, other(Syndrome::QpSendCq));
    // Its objects changed, queried and destroyed by another one.
    let qpn = mine.qp.number;
    let denied = other(Syndrome::OtherUser);
    for uid in [second, 0] {
        let mut query = QueryQpIn::new();
        query.set_qpn(qpn);
        let queried = node.command(&by(uid, &query)).err();
        let mut query = QueryCqIn::new();
        query.set_cqn(mine.cq.number);
        let cq_queried = node.command(&by(uid, &query)).err();
        let mut fail = Qp2ErrIn::new();
        fail.set_qpn(qpn);
        let failed = node.command(&by(uid, &fail)).err();
        let expected = if uid == 0 { None } else { denied };
        assert_eq!([queried, cq_queried, failed], [expected; 3], "uid {uid}");
    }
    let mut destroy = DestroyQpIn::new();
    destroy.set_qpn(qpn);
    assert_eq!(node.command(&by(second, &destroy)).err(), denied);
    let mut dealloc = DeallocPdIn::new();
    dealloc.set_pd(mine.pd);
    assert_eq!(node.command(&by(second, &dealloc)).err(), denied);
    let mut umem = DestroyUmemIn::new();
    umem.set_umem_id(mine.umem);
    assert_eq!(node.command(&by(second, &umem)).err(), denied);
    node.command(&by(first, &destroy)).unwrap();
    // A domain of the kernel's gives way to memory, so no user may name it.
    let kernels = node.alloc_pd();
    assert_eq!(node.command(&qp(kernels, cqn)).err(), other(Syndrome::QpPd));
    // A number that comes back has a new owner.
    node.command(&qp(pd, cqn)).unwrap();
}

#[test]
fn a_user_context_with_objects_stays() {
    let mut node = node(1);
    let uid = create_user(&mut node, 0);
    let mut destroy = DestroyUctxIn::new();
    destroy.set_uid(uid);
    let pd = node.command(&by(uid, &AllocPdIn::new())).unwrap().pd();
    assert_eq!(
        node.command(&destroy).err(),
        Some(refused(Syndrome::UctxBusy))
    );
    let mut dealloc = DeallocPdIn::new();
    dealloc.set_pd(pd);
    node.command(&by(uid, &dealloc)).unwrap();
    assert_eq!(
        node.command(&by(uid, &destroy)).err(),
        Some(refused(Syndrome::UctxByUser))
    );
    node.command(&destroy).unwrap();
    assert_eq!(
        node.command(&destroy).err(),
        Some(refused(Syndrome::UctxUnknown))
    );
    let gone = node.command(&by(uid, &AllocPdIn::new())).err();
    assert_eq!(gone, Some(refused(Syndrome::UidNotZero)));
    let mut create = CreateUctxIn::new();
    create.uctx_mut().set_cap(1 << 7);
    assert_eq!(
        node.command(&create).err(),
        Some(refused(Syndrome::UctxCap))
    );
}

/// A card without the capabilities says so, and user contexts that a driver leaves are found at the end.
#[test]
fn capabilities_and_leaks() {
    let mut config = Config::new(1);
    for caps in [&mut config.general, &mut config.general_max] {
        caps.set_log_max_uctx(0).set_umem_uid_0(false);
    }
    let mut node = Node::new(config);
    node.initialize();
    let unsupported = node.command(&CreateUctxIn::new()).err();
    assert_eq!(unsupported, Some(refused(Syndrome::UctxUnsupported)));
    let memory = node.host.alloc(4096, 4096);
    let denied = create_umem(&mut node, 0, memory, 4096).err();
    assert_eq!(denied, Some(refused(Syndrome::UmemUnsupported)));

    let mut node = self::node(1);
    let uid = create_user(&mut node, UCTX_CAP_RAW_TX);
    create_umem(&mut node, uid, BASE_OF_NOTHING, 4096).unwrap();
    node.shut_down();
    let kinds: Vec<ObjectKind> = node.model.leaks().iter().map(|leak| leak.kind).collect();
    assert!(kinds.contains(&ObjectKind::Uctx) && kinds.contains(&ObjectKind::Umem));
}

/// Pages of user memory are looked at when they are used, not before.
const BASE_OF_NOTHING: u64 = 0x1_0000_0000;
