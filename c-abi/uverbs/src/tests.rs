//! Calls as libibverbs makes them, on a device model without a link.

// UNSAFETY: a device's file is opened, and memory of calls.
#![expect(unsafe_code)]

use libc::{c_int, c_void};
use zerocopy::{FromZeros, IntoBytes};

mod cm_calls;
mod devx_calls;
mod dm_calls;
mod import_calls;
mod matcher_calls;
mod on_demand;
mod program;
mod regions;

use crate::abi::*;
use crate::raw_abi::*;
use crate::thread;
use program::{Ring, alloc_pd, attr, command, method, open_context, plain};

/// Requests posted to a QP in the error state are flushed, each time that the QP comes there; the CQ, armed, sends an event.
fn a_queue_pair_flushes(fd: c_int, pd: u32, cq: u32, channel: c_int, cq_ring: &Ring) {
    let ring = Ring::new();
    let mut wanted = ExCreateQpIn::new_zeroed();
    (
        wanted.pd_handle,
        wanted.send_cq_handle,
        wanted.recv_cq_handle,
    ) = (pd, cq, cq);
    (wanted.max_send_wr, wanted.qp_type) = (4, 2);
    let created = wanted;
    let mut provided = Mlx5CreateQpIn::new_zeroed();
    (provided.buf_addr, provided.db_addr) = ring.addresses();
    provided.sq_wqe_count = 4;
    let create_of = |wanted: &ExCreateQpIn, provided: &Mlx5CreateQpIn| {
        let mut out = ExCreateQpOut::new_zeroed();
        let mut number = Mlx5CreateQpOut::new_zeroed();
        let rooms = [out.as_mut_bytes(), number.as_mut_bytes()];
        let inputs = [wanted.as_bytes(), provided.as_bytes()];
        let create = command::CREATE_QP | command::EXTENDED;
        command(fd, create, inputs, rooms).map(|()| out.base)
    };
    let create = |provided: &Mlx5CreateQpIn| create_of(&created, provided);
    for (ring, record) in [
        (8, 0),
        (0, 4),
        (0_u64.wrapping_sub(provided.buf_addr) - 64, 0),
    ] {
        let wrong = Mlx5CreateQpIn {
            buf_addr: provided.buf_addr + ring,
            db_addr: provided.db_addr + record,
            ..provided
        };
        assert_eq!(create(&wrong).unwrap_err(), libc::EINVAL);
    }
    let qp = create(&provided).unwrap();
    wanted.create_flags = 1 << 1;
    assert_eq!(create_of(&wanted, &provided).unwrap_err(), libc::EINVAL);

    // It is none of the objects that these destroy, and stays.
    let handle = qp.handle;
    for number in [command::DEALLOC_PD, command::DEREG_MR, command::DESTROY_AH] {
        let removed = plain::<u32>(fd, number, &HandleOnly { handle });
        assert_eq!(removed, Err(libc::EINVAL));
    }
    let modify = |state: u8, attr_mask: u32| {
        let mut modify = ModifyQpIn::new_zeroed();
        (modify.handle, modify.attr_mask) = (handle, attr_mask);
        (modify.qp_state, modify.port_num) = (state, 1);
        plain::<u32>(fd, command::MODIFY_QP, &modify)
    };
    assert_eq!(modify(1, 1 << 31), Err(libc::EOPNOTSUPP));
    assert_eq!(modify(1, 1 << 14), Err(libc::EINVAL));
    // The send queue begins with SEND, and asks for a completion.
    ring.put(0, 0x0a);
    ring.put(1, qp.qpn << 8 | 1);
    ring.put(2, 8);
    for turn in 0..2 {
        modify(1, 1 << 0 | 1 << 3 | 1 << 4 | 1 << 5).unwrap();
        modify(6, 1 << 0).unwrap();
        cq_ring.post(turn << 28 | turn);
        ring.post(1);
        let mut event = [0; 8];
        let mut asked = libc::pollfd {
            fd: channel,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the structure and the bytes can be written.
        let read = unsafe {
            assert_eq!(libc::poll(&mut asked, 1, 10_000), 1, "no event");
            libc::read(channel, event.as_mut_ptr().cast(), 8)
        };
        assert_eq!((read, u64::from_ne_bytes(event)), (8, 0x1234));
        modify(0, 1 << 0).unwrap();
        assert_eq!(ring.posted(), 0);
    }
    let destroy = DestroyIn {
        handle,
        ..FromZeros::new_zeroed()
    };
    plain::<DestroyQpOut>(fd, command::DESTROY_QP, &destroy).unwrap();
    let gone = plain::<DestroyQpOut>(fd, command::DESTROY_QP, &destroy);
    assert_eq!(gone.unwrap_err(), libc::EINVAL);
}

/// A raw packet QP, and one that hashes, with rules that send frames to them.
fn frames_and_rules(fd: c_int, pd: u32, cq: u32) {
    let (send, receive) = (Ring::new(), Ring::new());
    let mut wanted = ExCreateQpIn::new_zeroed();
    (wanted.pd_handle, wanted.qp_type) = (pd, 8);
    (wanted.send_cq_handle, wanted.recv_cq_handle) = (cq, cq);
    let mut provided = Mlx5CreateQpIn::new_zeroed();
    (provided.sq_buf_addr, provided.db_addr) = send.addresses();
    (provided.buf_addr, provided.rq_wqe_shift) = (receive.addresses().0, 4);
    let create = |wanted: &ExCreateQpIn, provided: &[u8]| {
        let mut out = ExCreateQpOut::new_zeroed();
        let mut number = Mlx5CreateQpOut::new_zeroed();
        let rooms = [out.as_mut_bytes(), number.as_mut_bytes()];
        let create = command::CREATE_QP | command::EXTENDED;
        command(fd, create, [wanted.as_bytes(), provided], rooms).map(|()| out.base)
    };
    // It has a queue, and known flags.
    assert_eq!(
        create(&wanted, provided.as_bytes()).unwrap_err(),
        libc::EINVAL
    );
    (provided.sq_wqe_count, provided.rq_wqe_count) = (4, 4);
    // The model has no check sequences.
    for create_flags in [1 << 8, 1 << 10] {
        let unknown = ExCreateQpIn {
            create_flags,
            ..wanted
        };
        let refused = create(&unknown, provided.as_bytes()).unwrap_err();
        assert_eq!(refused, libc::EOPNOTSUPP);
    }
    let qp = create(&wanted, provided.as_bytes()).unwrap();
    let modify = |handle: u32, state: u8, mask: u32| {
        let mut modify = ModifyQpIn::new_zeroed();
        (modify.handle, modify.attr_mask) = (handle, 1 | mask);
        (modify.qp_state, modify.port_num) = (state, 1);
        plain::<u32>(fd, command::MODIFY_QP, &modify)
    };
    assert_eq!(modify(qp.handle, 1, 0), Err(libc::EINVAL));
    let mut query = QueryQpIn::new_zeroed();
    query.handle = qp.handle;
    let found = || plain::<QueryQpOut>(fd, command::QUERY_QP, &query).unwrap();
    for _ in 0..2 {
        modify(qp.handle, 0, 0).unwrap();
        assert_eq!(found().qp_state, 0);
        modify(qp.handle, 1, 1 << 5).unwrap();
        for state in [2, 3] {
            modify(qp.handle, state, 0).unwrap();
        }
        assert_eq!(found().qp_state, 3);
    }
    // The ring's room, not what was asked for.
    assert_eq!((found().max_recv_wr, found().max_recv_sge), (4, 1));

    // Two entries of one receive queue, by the hash of IPv4's addresses.
    let mut queue = CreateWqIn::new_zeroed();
    (queue.pd_handle, queue.cq_handle, queue.max_wr) = (pd, cq, 4);
    let ring = Ring::new();
    let mut ring_of = Mlx5CreateWqIn::new_zeroed();
    (ring_of.buf_addr, ring_of.db_addr) = ring.addresses();
    (ring_of.rq_wqe_count, ring_of.rq_wqe_shift) = (4, 4);
    let mut made = CreateWqOut::new_zeroed();
    let inputs = [queue.as_bytes(), ring_of.as_bytes()];
    let rooms = [made.as_mut_bytes(), &mut []];
    command(fd, command::CREATE_WQ, inputs, rooms).unwrap();
    let mut ready = ModifyWqIn::new_zeroed();
    (ready.handle, ready.wq_state) = (made.handle, 1);
    assert_eq!(
        plain::<u32>(fd, command::MODIFY_WQ, &ready),
        Err(libc::EINVAL)
    );
    ready.attr_mask = 1;
    plain::<u32>(fd, command::MODIFY_WQ, &ready).unwrap();
    let entries = |log: u32| [0, log, made.handle, made.handle];
    let table = |log| plain::<CreateTableOut>(fd, command::CREATE_RWQ_IND_TBL, &entries(log));
    assert_eq!(table(2).unwrap_err(), libc::EINVAL);
    let table = table(1).unwrap();
    let mut hash = Mlx5CreateQpRssIn::new_zeroed();
    (hash.rx_hash_fields_mask, hash.rx_hash_function) = (0b0011, 1);
    let mut hashes = ExCreateQpIn::new_zeroed();
    let (other, _) = alloc_pd(fd);
    (hashes.pd_handle, hashes.qp_type, hashes.comp_mask) = (other, 8, 1);
    hashes.rwq_ind_tbl_handle = table.handle;
    assert_eq!(create(&hashes, hash.as_bytes()).unwrap_err(), libc::EINVAL);
    hash.rx_key_len = 40;
    let both = Mlx5CreateQpRssIn {
        rx_hash_fields_mask: 0b1111,
        ..hash
    };
    assert_eq!(create(&hashes, both.as_bytes()).unwrap_err(), libc::EINVAL);
    let hashes = create(&hashes, hash.as_bytes()).unwrap();
    assert_eq!(hashes.qpn, 0);
    assert_eq!(modify(hashes.handle, 1, 1 << 5), Err(libc::ENOSYS));

    matcher_calls::rules(fd, qp.handle, pd);

    // What is used stays until its users are gone.
    let mut rule = CreateFlowIn::new_zeroed();
    (rule.qp_handle, rule.port, rule.priority) = (qp.handle, 1, 16);
    let flow = |rule: &CreateFlowIn| plain::<CreateFlowOut>(fd, command::CREATE_FLOW, rule);
    assert_eq!(flow(&rule).unwrap_err(), libc::ENOMEM);
    rule.priority = 15;
    for (kind, flags, errno) in [(1, 0, libc::EOPNOTSUPP), (2, 2, libc::EINVAL)] {
        let default = CreateFlowIn {
            kind,
            flags,
            ..rule
        };
        assert_eq!(flow(&default).unwrap_err(), errno);
    }
    let flow = flow(&rule).unwrap();
    let gone = |number: u32, handle: u32| {
        let comp_mask = 0;
        plain::<[u32; 4]>(fd, number, &ExDestroyIn { comp_mask, handle }).map(drop)
    };
    let destroy_qp = |handle: u32| {
        let destroy = DestroyIn {
            handle,
            ..FromZeros::new_zeroed()
        };
        plain::<DestroyQpOut>(fd, command::DESTROY_QP, &destroy).map(drop)
    };
    assert_eq!(destroy_qp(qp.handle), Err(libc::EBUSY));
    assert_eq!(
        gone(command::DESTROY_RWQ_IND_TBL, table.handle),
        Err(libc::EBUSY)
    );
    assert_eq!(gone(command::DESTROY_WQ, made.handle), Err(libc::EBUSY));
    let dealloc = || plain::<u32>(fd, command::DEALLOC_PD, &HandleOnly { handle: other });
    assert_eq!(dealloc(), Err(libc::EBUSY));
    // The second time there is nothing.
    for expected in [Ok(()), Err(libc::EINVAL)] {
        let all = [
            gone(command::DESTROY_FLOW, flow.handle),
            destroy_qp(qp.handle),
            destroy_qp(hashes.handle),
            gone(command::DESTROY_RWQ_IND_TBL, table.handle),
            gone(command::DESTROY_WQ, made.handle),
        ];
        assert_eq!(all, [expected; 5]);
    }
    dealloc().unwrap();
}

/// SRQs of both kinds with a limit, and a domain that two opens of a file share.
fn a_limit_and_a_domain(fd: c_int, pd: u32, cq: u32, ring: &Ring) {
    let mut open = OpenXrcdIn::new_zeroed();
    open.fd = fd;
    let opened = |open: &OpenXrcdIn| plain::<HandleOnly>(fd, command::OPEN_XRCD, open);
    assert_eq!(opened(&open).unwrap_err(), libc::EAGAIN);
    open.oflags = libc::O_CREAT as u32;
    let mut first = opened(&open).unwrap().handle;
    let second = opened(&open).unwrap().handle;
    open.oflags |= libc::O_EXCL as u32;
    assert_eq!(opened(&open).unwrap_err(), libc::EINVAL);
    open.oflags = libc::O_CREAT as u32;

    let mut wanted = CreateXsrqIn::new_zeroed();
    (wanted.pd_handle, wanted.cq_handle, wanted.xrcd_handle) = (pd, cq, first);
    (wanted.max_wr, wanted.max_sge) = (4, 1);
    let mut provided = Mlx5CreateSrqIn::new_zeroed();
    (provided.buf_addr, provided.db_addr) = ring.addresses();
    for srq_type in [0, 1] {
        wanted.srq_type = srq_type;
        let mut made = CreateSrqOut::new_zeroed();
        let mut number = Mlx5CreateSrqOut::new_zeroed();
        let rooms = [made.as_mut_bytes(), number.as_mut_bytes()];
        let inputs = [wanted.as_bytes(), provided.as_bytes()];
        command(fd, command::CREATE_XSRQ, inputs, rooms).unwrap();
        assert_eq!((made.srqn, made.max_wr), (number.srqn, 7));
        let closed = plain::<u32>(fd, command::CLOSE_XRCD, &HandleOnly { handle: first });
        if srq_type == 1 {
            assert_eq!(closed, Err(libc::EBUSY));
        } else {
            assert_eq!(closed, Ok(0));
            first = opened(&open).unwrap().handle;
            wanted.xrcd_handle = first;
        }
        let mut modify = ModifySrqIn::new_zeroed();
        (modify.handle, modify.attr_mask, modify.srq_limit) = (made.handle, 2, 5);
        let modified =
            |modify: &ModifySrqIn| plain::<u32>(fd, command::MODIFY_SRQ, modify).map(drop);
        modified(&modify).unwrap();
        modify.srq_limit = 8;
        assert_eq!(modified(&modify), Err(libc::EINVAL));
        let mut named = DestroyIn::new_zeroed();
        named.handle = made.handle;
        let found: QuerySrqOut = plain(fd, command::QUERY_SRQ, &named).unwrap();
        // Nothing is posted: the limit was reached when it was armed, and is so no more. Its event was not read.
        assert_eq!((found.max_wr, found.max_sge, found.srq_limit), (7, 1, 0));
        let gone: DestroyQpOut = plain(fd, command::DESTROY_SRQ, &named).unwrap();
        assert_eq!(gone.events_reported, 0);
    }
    // A target of XRC holds the handle that it was made by.
    let mut target = ExCreateQpIn::new_zeroed();
    (target.pd_handle, target.qp_type) = (first, 10);
    let mut made = ExCreateQpOut::new_zeroed();
    let rooms = [made.as_mut_bytes(), &mut []];
    let inputs = [target.as_bytes(), &[]];
    let create = command::CREATE_QP | command::EXTENDED;
    command(fd, create, inputs, rooms).unwrap();
    let close = |handle| plain::<u32>(fd, command::CLOSE_XRCD, &HandleOnly { handle });
    assert_eq!([close(first), close(second)], [Err(libc::EBUSY), Ok(0)]);
    let named = DestroyIn {
        handle: made.base.handle,
        ..FromZeros::new_zeroed()
    };
    plain::<DestroyQpOut>(fd, command::DESTROY_QP, &named).unwrap();
    assert_eq!(close(first), Ok(0));
    open.oflags = 0;
    assert_eq!(opened(&open).unwrap_err(), libc::EAGAIN);
}

/// An address handle keeps its PD; a connection's hop limit is not the program's.
fn an_address_handle_and_a_path(fd: c_int, pd: u32, cq: u32) {
    let mut entry = GidEntryOut::new_zeroed();
    let room = entry.as_mut_bytes();
    let attrs = [
        attr(GID_ENTRY_PORT, 4, 1),
        attr(GID_ENTRY_INDEX, 4, 0),
        attr(GID_ENTRY_OUT, room.len(), room.as_mut_ptr() as u64),
    ];
    method(fd, (OBJECT_DEVICE, QUERY_GID_ENTRY), attrs).unwrap();
    let (own, _) = alloc_pd(fd);
    let mut asked = CreateAhIn::new_zeroed();
    (asked.dgid, asked.is_global, asked.port_num) = (entry.gid, 1, 1);
    let create = |asked: &CreateAhIn| plain::<HandleOnly>(fd, command::CREATE_AH, asked);
    assert_eq!(create(&asked).unwrap_err(), libc::EINVAL);
    asked.pd_handle = own;
    let ah = create(&asked).unwrap();
    let dealloc = || plain::<u32>(fd, command::DEALLOC_PD, &HandleOnly { handle: own });
    assert_eq!(dealloc(), Err(libc::EBUSY));
    plain::<u32>(fd, command::DESTROY_AH, &ah).unwrap();
    assert_eq!(dealloc(), Ok(0));

    let ring = Ring::new();
    let mut wanted = ExCreateQpIn::new_zeroed();
    (wanted.pd_handle, wanted.qp_type) = (pd, 2);
    (wanted.send_cq_handle, wanted.recv_cq_handle) = (cq, cq);
    let mut provided = Mlx5CreateQpIn::new_zeroed();
    (provided.buf_addr, provided.db_addr) = ring.addresses();
    provided.sq_wqe_count = 4;
    let mut out = ExCreateQpOut::new_zeroed();
    let rooms = [out.as_mut_bytes(), &mut []];
    let number = command::CREATE_QP | command::EXTENDED;
    let inputs = [wanted.as_bytes(), provided.as_bytes()];
    command(fd, number, inputs, rooms).unwrap();
    let handle = out.base.handle;
    let mut modify = ModifyQpIn::new_zeroed();
    (modify.handle, modify.port_num, modify.path_mtu) = (handle, 1, 3);
    modify.dest_qp_num = 2;
    modify.dest = Destination {
        dgid: entry.gid,
        hop_limit: 1,
        is_global: 1,
        port_num: 1,
        ..FromZeros::new_zeroed()
    };
    // INIT, and RTR with all that it needs.
    let rtr = 1 << 0 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20;
    for (state, mask) in [(1, 1 << 0 | 1 << 3 | 1 << 4 | 1 << 5), (2, rtr)] {
        (modify.qp_state, modify.attr_mask) = (state, mask);
        plain::<u32>(fd, command::MODIFY_QP, &modify).unwrap();
    }
    let mut query = QueryQpIn::new_zeroed();
    query.handle = handle;
    let found: QueryQpOut = plain(fd, command::QUERY_QP, &query).unwrap();
    assert_eq!(found.dest.hop_limit, 64);
    plain::<DestroyQpOut>(fd, command::DESTROY_QP, &query).unwrap();
}

#[test]
fn objects_come_and_go_by_commands() {
    // SAFETY: text of C's.
    let fd = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    // libibverbs asks so whether commands can be sent by calls, before it has a context.
    let asked = command(fd, command::QUERY_DEVICE, [&[], &[]], [&mut [], &mut []]);
    assert_eq!(asked, Err(libc::ENOSPC));
    let fd = open_context(0);

    let (pd, pdn) = alloc_pd(fd);
    let (other, other_pdn) = alloc_pd(fd);
    assert!(pd != other && pdn != other_pdn);
    let removed = |handle| plain::<u32>(fd, command::DEALLOC_PD, &HandleOnly { handle });
    assert_eq!(removed(other), Ok(0));
    assert_eq!(removed(other), Err(libc::EINVAL));

    // A region needs memory, and the right to write here before others may.
    let memory = [0_u8; 100];
    let mut region = RegMrIn::new_zeroed();
    (region.start, region.length) = (memory.as_ptr() as u64, 100);
    (region.hca_va, region.pd_handle) = (region.start, pd);
    region.access_flags = 2;
    let register = |region: &RegMrIn| plain::<RegMrOut>(fd, command::REG_MR, region);
    assert_eq!(register(&region).unwrap_err(), libc::EINVAL);
    region.access_flags = 3;
    let registered = register(&region).unwrap();
    assert_eq!(registered.lkey, registered.rkey);
    // Rights that there are not, those of persistent memory, and one that a device may ignore.
    for (flags, end) in [
        (1 << 30, Some(libc::EINVAL)),
        (1 << 10, Some(libc::EINVAL)),
        (1 << 8, Some(libc::EOPNOTSUPP)),
        (1 << 29, None),
    ] {
        region.access_flags = 1 | flags;
        assert_eq!(register(&region).err(), end, "{flags:#x}");
    }
    let mut again = ReregMrIn::new_zeroed();
    (again.handle, again.flags) = (registered.handle, 1 << 3);
    let again = plain::<ReregMrOut>(fd, command::REREG_MR, &again);
    assert_eq!(again.unwrap_err(), libc::EOPNOTSUPP);
    region.pd_handle = other;
    assert_eq!(register(&region).unwrap_err(), libc::EINVAL);
    // Memory that is not there: to register, to read a call and a command from, and to answer to.
    (
        region.pd_handle,
        region.access_flags,
        region.start,
        region.hca_va,
    ) = (pd, 1, 4096, 4096);
    assert_eq!(register(&region).unwrap_err(), libc::EFAULT);
    assert_eq!(thread::call(fd, 4096 as *mut c_void), libc::EFAULT);
    let invoke = |input, output| {
        let attrs = [
            attr(WRITE_CMD, 0, command::DEALLOC_PD.into()),
            attr(CORE_IN, 16, input),
            attr(CORE_OUT, 16, output),
        ];
        method(fd, (OBJECT_DEVICE, INVOKE_WRITE), attrs).err()
    };
    assert_eq!(invoke(4096, 0), Some(libc::EFAULT));
    let mut answer = HandleOnly::new_zeroed();
    let attrs = |output| {
        [
            attr(WRITE_CMD, 0, command::ALLOC_PD.into()),
            attr(CORE_OUT, 4, output),
        ]
    };
    let alloc = |output| method(fd, (OBJECT_DEVICE, INVOKE_WRITE), attrs(output)).err();
    assert_eq!(alloc(4096), Some(libc::EFAULT));
    assert_eq!(alloc(answer.as_mut_bytes().as_mut_ptr() as u64), None);

    // A CQ with a channel has events in it; a channel that was not made is refused.
    let channel: HandleOnly = plain(fd, command::CREATE_COMP_CHANNEL, &0_u64).unwrap();
    let ring = Ring::new();
    let mut wanted = ExCreateCqIn::new_zeroed();
    (wanted.cqe, wanted.comp_channel) = (31, channel.handle as i32);
    let mut provided = Mlx5CreateCqIn::new_zeroed();
    (provided.buf_addr, provided.db_addr) = ring.addresses();
    provided.cqe_size = 64;
    let create = |wanted: &ExCreateCqIn, provided: &Mlx5CreateCqIn| {
        let mut out = ExCreateCqOut::new_zeroed();
        let mut number = Mlx5CreateCqOut::new_zeroed();
        let rooms = [out.as_mut_bytes(), number.as_mut_bytes()];
        let inputs = [wanted.as_bytes(), provided.as_bytes()];
        let create = command::CREATE_CQ | command::EXTENDED;
        command(fd, create, inputs, rooms).map(|()| (out.base, number.cqn))
    };
    wanted.user_handle = 0x1234;
    let (cq, cqn) = create(&wanted, &provided).unwrap();
    assert_eq!(cq.cqe, 31);
    assert_ne!(cqn, 0);
    a_queue_pair_flushes(fd, pd, cq.handle, channel.handle as c_int, &ring);
    let wrong = [(0, 64, 31), (4, 64, 31), (0, 96, 31), (0, 64, 0)];
    for (offset, cqe_size, cqe) in wrong {
        let record = match offset {
            0 => provided.db_addr,
            _ => provided.db_addr + offset,
        };
        let other = Mlx5CreateCqIn {
            db_addr: record,
            cqe_size,
            ..provided
        };
        let result = create(&ExCreateCqIn { cqe, ..wanted }, &other);
        assert_eq!(result.is_ok(), (offset, cqe_size, cqe) == wrong[0]);
    }
    wanted.comp_channel = 12345;
    assert_eq!(create(&wanted, &provided).unwrap_err(), libc::EBADF);

    on_demand::regions(fd, pd);
    regions::change_under_their_keys(fd, pd);
    dm_calls::memory_on_the_device(fd, pd);
    a_limit_and_a_domain(fd, pd, cq.handle, &ring);
    an_address_handle_and_a_path(fd, pd, cq.handle);
    frames_and_rules(fd, pd, cq.handle);
    devx_calls::memory();
    devx_calls::events();

    // Commands that are not there, and descriptors that have no context.
    let none = command(fd, 99, [&[], &[]], [&mut [], &mut []]);
    assert_eq!(none, Err(libc::EOPNOTSUPP));
    let none = plain::<HandleOnly>(fd + 1000, command::CREATE_COMP_CHANNEL, &0_u64);
    assert_eq!(none.unwrap_err(), libc::EINVAL);
    thread::closed(fd, false);
    let gone = plain::<HandleOnly>(fd, command::CREATE_COMP_CHANNEL, &0_u64);
    assert_eq!(gone.unwrap_err(), libc::EINVAL);
}
