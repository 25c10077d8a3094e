//! Work requests that fail on a connection: by the peer's memory keys, without a receive, with a full CQ. The requests
//! behind them are flushed.

use std::time::Duration;

use crate::support::*;
use bareverbs_cm::rdma::{ConnParam, EventType, IdOption, RdmaError, SendFlags};
use bareverbs_core::qp::{QpState, Remote, SendOp};
use bareverbs_core::{AsyncEvent, CqError, CqInit, RKey, Wc, WcStatus};

/// Every completion of an end that is there.
fn completions(nodes: &mut Nodes<'_, '_, '_>, end: &End<'_>) -> [Vec<Wc>; 2] {
    let endpoint = nodes.cms[end.node].endpoint(end.id).expect("a QP");
    [endpoint.send_cq, endpoint.recv_cq].map(|cq| {
        let cq = cq.expect("a CQ of the manager's");
        let mut all = Vec::new();
        while let Some(completion) = cq.poll().expect("a good CQ") {
            all.push(completion.to_wc());
        }
        all
    })
}

/// Waits until an end has this many completions of sends and receives.
fn wait(nodes: &mut Nodes<'_, '_, '_>, end: &End<'_>, counts: [usize; 2]) -> [Vec<Wc>; 2] {
    let mut all = [Vec::new(), Vec::new()];
    nodes
        .until("completions", TIMEOUT, |nodes| {
            for (all, more) in all.iter_mut().zip(completions(nodes, end)) {
                all.extend(more);
            }
            let enough = all
                .iter()
                .zip(counts)
                .all(|(all, count)| all.len() >= count);
            Ok(enough.then_some(()))
        })
        .unwrap_or_else(|failure| panic!("{failure}: {all:?}"));
    assert_eq!(all.each_ref().map(Vec::len), counts, "{all:?}");
    all
}

fn outcomes(wcs: &[Wc]) -> Vec<(u64, WcStatus)> {
    wcs.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

/// Two connected ends, and what to do with them.
fn connected(what: &str, work: impl FnOnce(&mut Nodes<'_, '_, '_>, [&End<'_>; 2])) {
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let listener = nodes.listener(1, 4);
        let ends = nodes.connect(0).expect("connected");
        nodes
            .expect(1, EventType::Established, SECOND)
            .expect("RTU");
        work(nodes, [&ends[0], &ends[1]]);
        for node in 0..2 {
            let device = nodes.cms[node].device();
            assert_eq!(device.poll(), Ok(()), "{what}");
        }
        let _ = nodes.cms[0].disconnect(ends[0].id);
        drop(ends);
        finish(nodes, Some(0), 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}

#[test]
fn what_the_other_end_does_not_allow() {
    let len = |end: &End<'_>| end.memory.len() as u64;
    type Break = fn(Remote, u64) -> SendOp<'static>;
    let cases: [(&str, Break, WcStatus); 6] = [
        (
            "a WRITE with another key",
            |there, _| {
                SendOp::Write(Remote {
                    rkey: RKey(there.rkey.0 ^ 1),
                    ..there
                })
            },
            WcStatus::RemAccessErr,
        ),
        (
            "a READ with a key that does not exist",
            |there, _| {
                SendOp::Read(Remote {
                    rkey: RKey(0x00ff_ff00),
                    ..there
                })
            },
            WcStatus::RemAccessErr,
        ),
        (
            "a WRITE over the end",
            |there, len| {
                SendOp::Write(Remote {
                    addr: there.addr + len - 15,
                    ..there
                })
            },
            WcStatus::RemAccessErr,
        ),
        (
            "a READ in front of the start",
            |there, _| {
                SendOp::Read(Remote {
                    addr: there.addr - 1,
                    ..there
                })
            },
            WcStatus::RemAccessErr,
        ),
        (
            "an atomic with another key",
            |there, _| SendOp::FetchAdd {
                remote: Remote {
                    rkey: RKey(there.rkey.0 ^ 1),
                    ..there
                },
                add: 1,
            },
            WcStatus::RemAccessErr,
        ),
        (
            "an atomic on an address that is not aligned",
            |there, _| SendOp::FetchAdd {
                remote: Remote {
                    addr: there.addr + 4,
                    ..there
                },
                add: 1,
            },
            WcStatus::RemInvReqErr,
        ),
    ];
    for (what, op, status) in cases {
        connected(what, |nodes, [ours, theirs]| {
            let before = {
                let mut bytes = vec![0; theirs.memory.len()];
                theirs.memory.copy_out(0, &mut bytes).expect("inside");
                bytes
            };
            for wr_id in 0..4 {
                nodes.cms[1]
                    .post_recv(theirs.id, 50 + wr_id, theirs.memory.slice(..8).unwrap())
                    .expect("posted");
            }
            let op = op(ours.there(0), len(theirs));
            let size = if matches!(op, SendOp::FetchAdd { .. }) {
                8
            } else {
                16
            };
            ours.post(nodes, 1, op, 0, size).expect("posted");
            ours.post(nodes, 2, SendOp::Send, 0, 8).expect("posted");
            ours.post(nodes, 3, SendOp::Write(ours.there(0)), 0, 8)
                .expect("posted");
            let [sends, _] = wait(nodes, ours, [3, 0]);
            assert_eq!(
                outcomes(&sends),
                [
                    (1, status),
                    (2, WcStatus::WrFlushErr),
                    (3, WcStatus::WrFlushErr)
                ],
                "{what}"
            );
            // What comes later fails alike.
            ours.post(nodes, 4, SendOp::Send, 0, 8).expect("posted");
            let [sends, _] = wait(nodes, ours, [1, 0]);
            assert_eq!(outcomes(&sends), [(4, WcStatus::WrFlushErr)], "{what}");
            // The peer is in error as well, and gets the reason.
            let [_, receives] = wait(nodes, theirs, [0, 4]);
            let flushed: Vec<_> = (50..54).map(|id| (id, WcStatus::WrFlushErr)).collect();
            assert_eq!(outcomes(&receives), flushed, "{what}");
            let device = nodes.cms[1].device();
            let event = nodes.until("an event", SECOND, |_| {
                Ok(
                    std::iter::from_fn(|| device.next_async_event()).find(|event| {
                        matches!(
                            event,
                            AsyncEvent::QpAccessError { .. } | AsyncEvent::QpRequestError { .. }
                        )
                    }),
                )
            });
            assert!(event.is_ok(), "{what}: {event:?}");
            let mut bytes = vec![0; before.len()];
            theirs.memory.copy_out(0, &mut bytes).expect("inside");
            assert!(bytes == before, "{what}: it wrote all the same");
            for end in [ours, theirs] {
                let queried = nodes.cms[end.node]
                    .endpoint(end.id)
                    .expect("a QP")
                    .qp
                    .query()
                    .expect("queried");
                assert_eq!(queried.attr.qp_state, QpState::Err, "{what}");
            }
        });
    }
}

#[test]
fn a_message_longer_than_its_receive() {
    connected("too long", |nodes, [ours, theirs]| {
        nodes.cms[1]
            .post_recv(theirs.id, 50, theirs.memory.slice(..99).unwrap())
            .expect("posted");
        ours.post(nodes, 1, SendOp::Send, 0, 100).expect("posted");
        let [sends, _] = wait(nodes, ours, [1, 0]);
        assert_eq!(outcomes(&sends), [(1, WcStatus::RemInvReqErr)]);
        let [_, receives] = wait(nodes, theirs, [0, 1]);
        assert_eq!(outcomes(&receives), [(50, WcStatus::LocLenErr)]);
    });
}

/// The receiver's end sets the sender's retries without a receive in the handshake; the receiver's QP sets the wait between
/// them.
#[test]
fn without_a_receive() {
    // Exponent 14 of the table: 1.28 ms.
    let nap = Duration::from_micros(1280);
    for retries in [0, 2, 6, 7] {
        let what = format!("{retries} retries");
        let world = world(1);
        let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
            let listener = nodes.listener(1, 4);
            // Connections have it from their listener.
            nodes.cms[1]
                .set_option(listener, IdOption::MinRnrTimer(14))
                .expect("set");
            let id = nodes.resolved(0).expect("a way");
            nodes.cms[0].create_qp(id, None, &mut init()).expect("a QP");
            nodes.cms[0].connect(id, None).expect("asked");
            let request = nodes
                .expect(1, EventType::ConnectRequest, SECOND)
                .expect(&what);
            let cm = &mut nodes.cms[1];
            cm.create_qp(request.id, None, &mut init()).expect("a QP");
            let param = ConnParam {
                rnr_retry_count: retries,
                ..ConnParam::default()
            };
            cm.accept(request.id, Some(&param)).expect("accepted");
            nodes
                .expect(0, EventType::Established, SECOND)
                .expect(&what);
            let start = world.now();
            nodes.cms[0]
                .post_send_inline(id, 1, b"anyone?", SendFlags::SIGNALED)
                .expect("posted");
            let poll = |nodes: &mut Nodes<'_, '_, '_>| {
                let cq = nodes.cms[0].endpoint(id).expect("a QP").send_cq;
                let status = cq
                    .expect("a CQ")
                    .poll()
                    .expect("good")
                    .map(|wc| wc.status());
                Ok(status)
            };
            if retries < 7 {
                let status = nodes.until("the end of the retries", SECOND, poll);
                assert_eq!(status, Ok(WcStatus::RnrRetryExcErr), "{what}");
                let took = world.now() - start;
                let least = nap * u32::from(retries);
                // Looked at in steps that double.
                assert!(took >= least && took < 2 * least + nap, "{what}: {took:?}");
            } else {
                let status = nodes.until("nothing", SECOND, poll);
                assert!(status.is_err(), "{what}: {status:?}");
                let memory = nodes.cms[1].reg_msgs(request.id, 64).expect("memory");
                nodes.cms[1]
                    .post_recv(request.id, 9, memory.slice(..64).unwrap())
                    .expect("posted");
                let status = nodes.until("success", SECOND, poll);
                assert_eq!(status, Ok(WcStatus::Success), "{what}");
                let mut bytes = [0; 7];
                memory.copy_out(0, &mut bytes).expect("inside");
                assert_eq!(&bytes, b"anyone?");
            }
            finish(nodes, Some(0), 1, listener, &what);
        });
        assert_orderly(&world, &after, &what);
    }
}

#[test]
fn a_full_cq() {
    let what = "overrun";
    let world = world(1);
    let ((), after) = with_nodes(&world, 1, Size::default(), |nodes| {
        let listener = nodes.listener(1, 4);
        let mut cq = nodes.cms[0]
            .device()
            .create_cq(CqInit::new(3))
            .expect("a CQ");
        let capacity = cq.cqe();
        let id = nodes.resolved(0).expect("a way");
        let mut init = init();
        init.send_cq = Some(&cq);
        init.cap.max_send_wr = capacity + 3;
        nodes.cms[0].create_qp(id, None, &mut init).expect("a QP");
        nodes.cms[0].connect(id, None).expect("asked");
        let theirs = nodes.accept_bare(1).expect("accepted");
        nodes
            .expect(0, EventType::Established, SECOND)
            .expect("connected");
        let memory = nodes.cms[1].reg_msgs(theirs, 64).expect("memory");
        for _ in 0..8 {
            nodes.cms[1]
                .post_recv(theirs, 9, memory.slice(..64).unwrap())
                .expect("posted");
        }
        assert!(capacity < 8, "{capacity}");
        // A ring of a power of two, one of which is not promised.
        let ring = capacity + 1;
        for wr_id in 0..u64::from(ring) + 1 {
            nodes.cms[0]
                .post_send_inline(id, wr_id, b"one too many", SendFlags::SIGNALED)
                .expect("posted");
        }
        let device = nodes.cms[0].device();
        let cqn = cq.cqn();
        let event = nodes
            .until("an event", SECOND, |_| {
                let mut events = std::iter::from_fn(|| device.next_async_event());
                Ok(events.find(|event| matches!(event, AsyncEvent::CqError { .. })))
            })
            .expect(what);
        assert_eq!(event, AsyncEvent::CqError { cqn, syndrome: 1 });
        // What came before is still to be had; then the CQ says that it is lost.
        let mut good = 0;
        let error = loop {
            match cq.poll() {
                Ok(Some(completion)) => {
                    assert_eq!(completion.wr_id(), good, "{what}");
                    assert_eq!(completion.status(), WcStatus::Success, "{what}");
                    good += 1;
                }
                Ok(None) => panic!("{what}: {good} completions and no error"),
                Err(error) => break error,
            }
        };
        assert_eq!(good, u64::from(ring), "{what}");
        assert_eq!(error, CqError::Failed { cqn, syndrome: 1 });
        // The rest of the device goes on: another connection works.
        let state = nodes.cms[0]
            .endpoint(id)
            .expect("a QP")
            .qp
            .query()
            .expect("queried")
            .attr
            .qp_state;
        assert_eq!(state, QpState::Err, "{what}");
        let ends = nodes.connect(0).expect("another one");
        nodes.exchange(&ends, 5).expect("exchanged");
        nodes.disconnect(ends, 0).expect("disconnected");
        assert!(matches!(
            nodes.cms[0].destroy_id(id),
            Ok(()) | Err(RdmaError::NoSuchId)
        ));
        cq.destroy().map_err(|(_, error)| error).expect("idle");
        drop(memory);
        finish(nodes, Some(0), 1, listener, what);
    });
    assert_orderly(&world, &after, what);
}
