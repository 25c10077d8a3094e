//! Shared receive queues of ids and of endpoints.

use crate::keep::keep;
use crate::pair::*;
use bareverbs_cm::rdma::*;
use bareverbs_core::mr::Buffer;
use bareverbs_core::{CqInit, SrqError, Wc, WcStatus};
use bareverbs_in_process::ModelPlatform;

/// Sends one message of a client, which need not wait for anything.
fn send(pair: &mut Pair, client: CmId, text: &[u8]) {
    let end = pair.world.now() + SECOND;
    let cm = &mut pair.cms[0];
    cm.post_send_inline(client, 9, text, SendFlags::SIGNALED)
        .unwrap();
    let sent = cm.get_send_comp_until(client, end).unwrap();
    assert_eq!((sent.wr_id, sent.status), (9, WcStatus::Success));
}

fn assert_got(wc: Wc, pool: &Buffer<'_, ModelPlatform>, slot: u64, text: &[u8]) {
    assert_eq!(
        (wc.wr_id, wc.status, wc.byte_len as usize),
        (slot, WcStatus::Success, text.len())
    );
    let mut bytes = vec![0; text.len()];
    pool.copy_out(slot as usize * 16, &mut bytes).unwrap();
    assert_eq!(bytes, text);
}

/// A connection from a new client to `listener`, whose end gets the SRQ of the listener.
fn connect(pair: &mut Pair, listener: CmId) -> (CmId, CmId) {
    let ours = pair.client();
    pair.cms[0].connect(ours, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    assert!(!request.conn.srq);
    let mut init = QpInit {
        srq: Some(pair.cms[1].srq_handle(listener).unwrap()),
        ..qp()
    };
    pair.cms[1].create_qp(request.id, None, &mut init).unwrap();
    // It has no receive queue.
    assert_eq!((init.cap.max_recv_wr, init.cap.max_recv_sge), (0, 0));
    pair.cms[1].accept(request.id, None).unwrap();
    let established = pair.expect(0, EventType::Established);
    assert!(established.conn.srq, "the reply says so");
    pair.expect(1, EventType::Established);
    (ours, request.id)
}

/// Three connections receive from the queue of their listener.
#[test]
fn connections_share_their_listeners_queue() {
    let mut pair = Pair::new();
    let before = objects(&pair, 1);
    let listener = pair.listener();
    assert_eq!(
        pair.cms[1].srq_handle(listener).err(),
        Some(RdmaError::NoSrq)
    );
    let mut attr = sizes(12);
    pair.cms[1].create_srq(listener, None, &mut attr).unwrap();
    assert!(attr.max_wr >= 12);
    assert_eq!(
        pair.cms[1].create_srq(listener, None, &mut attr),
        Err(RdmaError::SrqExists)
    );
    // It takes receives before there is any connection.
    let pool = pair.cms[1].reg_msgs(listener, 12 * 16).unwrap();
    for slot in 0..12 {
        pair.cms[1]
            .post_recv(
                listener,
                slot,
                pool.slice(slot as usize * 16..slot as usize * 16 + 16)
                    .unwrap(),
            )
            .unwrap();
    }
    pair.cms[1].srq(listener).unwrap().arm_limit(6).unwrap();
    let ends = [0; 3].map(|_| connect(&mut pair, listener));
    for round in 0..4u64 {
        for (number, (client, server)) in ends.into_iter().enumerate() {
            let text = [round as u8, number as u8, 0x5a];
            send(&mut pair, client, &text);
            let end = pair.world.now() + SECOND;
            // In the completion queue of this connection, out of the queue of all.
            let wc = pair.cms[1].get_recv_comp_until(server, end).unwrap();
            assert_got(wc, &pool, round * 3 + number as u64, &text);
        }
    }
    pair.world.advance(MS);
    pair.poll();
    assert!(pair.cms[1].srq(listener).unwrap().take_limit_event());
    // It cannot go under its users, nor can the listener.
    let busy = RdmaError::Srq(SrqError::Busy { users: 3 });
    assert_eq!(pair.cms[1].destroy_srq(listener), Err(busy));
    assert_eq!(pair.cms[1].destroy_id(listener), Err(busy));
    assert_eq!(pair.cms[1].destroy_ep(listener), Err(busy));
    assert_eq!(busy.errno(), errno::EBUSY);
    let (client, server) = connect(&mut pair, listener);
    pair.cms[1]
        .post_recv(listener, 0, pool.slice(..16).unwrap())
        .expect("all of it works as before");
    send(&mut pair, client, b"still");
    let end = pair.world.now() + SECOND;
    let wc = pair.cms[1].get_recv_comp_until(server, end).unwrap();
    assert_got(wc, &pool, 0, b"still");
    for (client, server) in ends.into_iter().chain([(client, server)]) {
        pair.cms[0].destroy_id(client).unwrap();
        pair.cms[1].destroy_id(server).unwrap();
    }
    drop(pool);
    pair.cms[1].destroy_id(listener).unwrap();
    assert_eq!(objects(&pair, 1), before);
}

/// A queue on the connecting id, which its own QP takes.
#[test]
fn an_id_with_a_queue_of_its_own() {
    let mut pair = Pair::new();
    let before = objects(&pair, 0);
    let listener = pair.listener();
    let id = pair.cms[0]
        .create_id(Some(pair.channels[0]), 5, PortSpace::Tcp)
        .unwrap();
    assert_eq!(
        pair.cms[0].create_srq(id, None, &mut sizes(4)),
        Err(RdmaError::NotBound)
    );
    pair.resolve(id, PORT);
    let refused = pair.cms[0].create_srq(id, None, &mut sizes(0)).unwrap_err();
    assert_eq!(refused.errno(), errno::EINVAL, "{refused}");

    let pd = keep(pair.cms[0].device().alloc_pd().unwrap());
    pair.cms[0].create_srq(id, Some(pd), &mut sizes(4)).unwrap();
    // Without a PD given, the QP is created in that of the queue.
    let mut init = qp();
    pair.cms[0].create_qp(id, None, &mut init).unwrap();
    assert_eq!(init.cap.max_recv_wr, 0);
    assert_eq!(pair.cms[0].pd(id).unwrap().pdn(), pd.pdn());
    let pool = pair.cms[0].reg_msgs(id, 64).unwrap();
    pair.cms[0]
        .post_recv(id, 1, pool.slice(16..32).unwrap())
        .unwrap();
    pair.cms[0].connect(id, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    assert!(request.conn.srq, "the request says so");
    pair.cms[1].create_qp(request.id, None, &mut qp()).unwrap();
    pair.cms[1].accept(request.id, None).unwrap();
    assert!(!pair.expect(0, EventType::Established).conn.srq);
    pair.expect(1, EventType::Established);
    pair.cms[1]
        .post_send_inline(request.id, 2, b"hello", SendFlags::SIGNALED)
        .unwrap();
    let end = pair.world.now() + SECOND;
    let wc = pair.cms[0].get_recv_comp_until(id, end).unwrap();
    assert_got(wc, &pool, 1, b"hello");

    let busy = RdmaError::Srq(SrqError::Busy { users: 1 });
    assert_eq!(pair.cms[0].destroy_srq(id), Err(busy));
    pair.cms[0].destroy_qp(id).unwrap();
    pair.cms[0].destroy_srq(id).unwrap();
    assert_eq!(pair.cms[0].destroy_srq(id), Err(RdmaError::NoSrq));
    // Again, and this time all of it goes with the id.
    pair.cms[0].create_srq(id, Some(pd), &mut sizes(4)).unwrap();
    pair.cms[0].create_qp(id, None, &mut qp()).unwrap();
    drop(pool);
    pair.cms[0].destroy_ep(id).unwrap();
    pair.cms[1].destroy_id(request.id).unwrap();
    pair.cms[1].destroy_id(listener).unwrap();
    // What is left is the PD, which is kept.
    assert_ne!(objects(&pair, 0), before);
    let mut command = bareverbs_core::firmware_cmds::domain::DeallocPdIn::new();
    command.set_pd(pd.pdn().number());
    pair.cms[0].device().execute(&command).unwrap();
    assert_eq!(objects(&pair, 0), before);
}

/// A synchronous listener keeps a CQ and an SRQ for the ids that `get_request` gives.
#[test]
fn endpoints_keep_queues_for_their_connections() {
    let mut pair = Pair::new();
    let before = objects(&pair, 1);
    let device = pair.cms[1].device();
    let pd = keep(device.alloc_pd().unwrap());
    let mut cq = device.create_cq(CqInit::new(31)).unwrap();
    let mut srq = pd.create_srq(&mut sizes(8)).unwrap();
    let info = getaddrinfo(None, Some("7174"), Some(&AddrInfo::hints(true))).unwrap();
    let mut init = QpInit {
        send_cq: Some(&cq),
        recv_cq: Some(&cq),
        srq: Some(srq.handle()),
        ..qp()
    };
    let listener = pair.cms[1]
        .create_ep(&info, Some(pd), Some(&mut init))
        .unwrap();
    drop(init);
    pair.cms[1].listen(listener, 4).unwrap();
    let pool = pd
        .alloc_buffer(8 * 16, bareverbs_core::Access::LOCAL_WRITE)
        .unwrap();
    for slot in 0..8 {
        let sge = pool.sge(slot as usize * 16, 16).unwrap();
        srq.post(slot, &[sge]).unwrap();
    }

    let mut ends = Vec::new();
    for number in 0..3u8 {
        let client = pair.client();
        pair.cms[0].connect(client, None).unwrap();
        let end = pair.world.now() + SECOND;
        let server = pair.cms[1].get_request_until(listener, end).unwrap();
        assert_eq!(pair.cms[1].pd(server).unwrap().pdn(), pd.pdn());
        pair.cms[1]
            .migrate_id(server, Some(pair.channels[1]))
            .unwrap();
        pair.cms[1].accept(server, None).unwrap();
        assert!(pair.expect(0, EventType::Established).conn.srq);
        pair.expect(1, EventType::Established);
        // There is no CQ of the manager's, and so nothing for it to poll.
        assert!(pair.cms[1].endpoint(server).unwrap().recv_cq.is_none());
        let error = pair.cms[1].try_get_recv_comp(server).unwrap_err();
        assert_eq!(error.errno(), errno::EINVAL);
        ends.push((number, client, server));
    }
    for &(number, client, server) in &ends {
        send(&mut pair, client, &[number; 4]);
        let wc = cq.poll().unwrap().expect("it was acknowledged").to_wc();
        assert_got(wc, &pool, number.into(), &[number; 4]);
        let qpn = pair.cms[1].endpoint(server).unwrap().qp.qpn();
        assert_eq!(wc.qp_num, qpn);
    }
    // The endpoint's share holds CQ and SRQ, and so do the connections.
    let Err((again, SrqError::Busy { users: 4 })) = srq.destroy() else {
        panic!("it is in use");
    };
    srq = again;
    for (_, client, server) in ends {
        pair.cms[0].destroy_id(client).unwrap();
        pair.cms[1].destroy_ep(server).unwrap();
    }
    let Err((again, SrqError::Busy { users: 1 })) = srq.destroy() else {
        panic!("the listener keeps it");
    };
    pair.cms[1].destroy_ep(listener).unwrap();
    again.destroy().expect("unused");
    cq.destroy().expect("unused");
    drop(pool);
    let mut command = bareverbs_core::firmware_cmds::domain::DeallocPdIn::new();
    command.set_pd(pd.pdn().number());
    device.execute(&command).unwrap();
    assert_eq!(objects(&pair, 1), before);
}

/// A failed creation leaves nothing behind: of the queue that is shared, the CQs, the QP.
#[test]
fn failures_leave_nothing() {
    let mut pair = Pair::new();
    let listener = pair.listener();
    pair.cms[1]
        .create_srq(listener, None, &mut sizes(4))
        .unwrap();
    let ours = pair.client();
    pair.cms[0].connect(ours, None).unwrap();
    let request = pair.expect(1, EventType::ConnectRequest);
    let before = objects(&pair, 1);
    let mut init = QpInit {
        srq: Some(pair.cms[1].srq_handle(listener).unwrap()),
        ..qp()
    };
    init.cap.max_send_sge = 10_000;
    let error = pair.cms[1]
        .create_qp(request.id, None, &mut init)
        .unwrap_err();
    assert_eq!(error.errno(), errno::EINVAL, "{error}");
    assert_eq!(objects(&pair, 1), before);
    // More SRQs than the storage holds.
    pair.cms[1]
        .create_srq(request.id, None, &mut sizes(4))
        .unwrap();
    let other = pair.client();
    pair.cms[0].connect(other, None).unwrap();
    let second = pair.expect(1, EventType::ConnectRequest).id;
    let error = pair.cms[1]
        .create_srq(second, None, &mut sizes(4))
        .unwrap_err();
    assert_eq!(error, RdmaError::Srq(SrqError::NoSlot { limit: 2 }));
    assert_eq!(error.errno(), errno::ENOMEM);
    // The handle in `init` still counts.
    let busy = RdmaError::Srq(SrqError::Busy { users: 1 });
    assert_eq!(pair.cms[1].destroy_srq(listener), Err(busy));
    drop(init);
    pair.cms[1].destroy_srq(listener).unwrap();
}
