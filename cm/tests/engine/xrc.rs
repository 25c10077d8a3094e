//! Extended reliable connections: what REQ and REP say of them, as Linux writes it, and who takes them.

use crate::common::peer::*;
use crate::common::*;
use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

/// Transport 3 with the extended type 1, the initiator's QPN where all have it, and nothing about what it does not do.
#[test]
fn an_initiator_asks() {
    let mut client = engine(Config::new(3, 0xa), 4);
    let id = client
        .connect(
            NOW,
            &ConnectParams {
                transport: Transport::Xrc,
                responder_resources: 4,
                initiator_depth: 6,
                retry_count: 7,
                rnr_retry_count: 7,
                flow_control: true,
                srq: true,
                ..params()
            },
        )
        .unwrap();
    let mut mad = [0xa5; MAD_LEN];
    client.poll_transmit(NOW, &mut mad).unwrap();
    // The REQ starts at byte 24: transport in bits 5 and 6 of byte 43, the extended type in bits 5 to 7 of byte 51.
    assert_eq!(mad[24 + 43] & 0x06, 0x06);
    assert_eq!(mad[24 + 51] & 0x07, 1);
    let Message::Req(req) = Mad::new(&mad).unwrap().message().unwrap() else {
        panic!()
    };
    assert_eq!((req.transport, req.extended_transport), (3, 1));
    assert_eq!((req.local_qpn, req.initiator_depth), (0x11, 6));
    assert_eq!((req.responder_resources, req.srq), (0, 0));
    assert_eq!((req.retry_count, req.rnr_retry_count), (0, 0));
    assert_eq!(req.flow_control, 1);

    // A target's QPN stands where the end-to-end context is.
    let mut bench = Bench {
        engine: client,
        mad: [0; MAD_LEN],
    };
    let answer = Rep {
        local_eecn: 0x777,
        srq: 1,
        ..rep(id, 9, 0)
    };
    bench.deliver(Message::Rep(answer)).unwrap();
    let params = bench.engine.qp_params(id).unwrap();
    assert_eq!((params.dest_qpn, params.transport), (0x777, Transport::Xrc));
    assert!(params.peer_srq);
    // How often to repeat is the initiator's own business.
    assert_eq!((params.retry_count, params.rnr_retry_count), (7, 2));
    let event = bench.engine.poll_event().unwrap();
    assert!(matches!(event.kind, EventKind::Reply { .. }));
    bench.engine.ready(id, &[]).unwrap();
    assert!(matches!(bench.said(), Message::Rtu(_)));
    bench.engine.disconnect(NOW, id, &[]).unwrap();
    let Message::Dreq(dreq) = bench.said() else {
        panic!()
    };
    assert_eq!(dreq.remote_qpn, 0x777);
}

fn xrc_req() -> Req<'static> {
    Req {
        transport: 3,
        extended_transport: 1,
        ..req(1, 0x55)
    }
}

#[test]
fn a_target_answers() {
    let mut bench = Bench {
        engine: engine(Config::new(1, 0xb), 16),
        mad: [0; MAD_LEN],
    };
    bench.engine.listen_xrc(SERVICE, 4, 77).unwrap();
    bench.deliver(Message::Req(xrc_req())).unwrap();
    let id = bench.engine.poll_event().unwrap().connection;
    let params = bench.engine.qp_params(id).unwrap();
    assert_eq!((params.dest_qpn, params.transport), (0x55, Transport::Xrc));
    let reply = ReplyParams {
        responder_resources: 4,
        initiator_depth: 6,
        flow_control: true,
        rnr_retry_count: 3,
        ..ReplyParams::new(0x300)
    };
    bench.engine.reply(NOW, id, &reply).unwrap();
    for again in [false, true] {
        if again {
            let _ = bench.deliver(Message::Req(xrc_req()));
        }
        let Message::Rep(rep) = bench.said() else {
            panic!()
        };
        assert_eq!((rep.local_eecn, rep.local_qpn, rep.srq), (0x300, 0, 1));
        assert_eq!((rep.responder_resources, rep.initiator_depth), (4, 0));
        assert_eq!((rep.rnr_retry_count, rep.flow_control), (3, 0));
    }
    let rtu = Rtu {
        local_comm_id: 1,
        remote_comm_id: id.comm_id(),
        ..Rtu::ZERO
    };
    bench.deliver(Message::Rtu(rtu)).unwrap();
    assert_eq!(bench.state(id), State::Established);
    // Its number is that of the end-to-end context here, too.
    bench.deliver(dreq(id, 1, 0x300)).unwrap();
}

/// A listener takes one kind or the other, and no extended type that does not exist.
#[test]
fn listeners_take_what_they_listen_for() {
    let refused = RejectReason::INVALID_TRANSPORT_TYPE;
    for (extended, ask) in [
        (false, xrc_req()),
        (true, req(1, 0x55)),
        (
            true,
            Req {
                transport: 1,
                ..req(1, 0x55)
            },
        ),
        (
            true,
            Req {
                extended_transport: 0,
                ..xrc_req()
            },
        ),
        (
            true,
            Req {
                extended_transport: 2,
                ..xrc_req()
            },
        ),
        (
            true,
            Req {
                transport: 2,
                ..xrc_req()
            },
        ),
    ] {
        let mut bench = Bench {
            engine: engine(Config::new(1, 0xb), 16),
            mad: [0; MAD_LEN],
        };
        if extended {
            bench.engine.listen_xrc(SERVICE, 4, 77).unwrap();
        } else {
            bench.engine.listen(SERVICE, 4, true, 77).unwrap();
        }
        let _ = bench.deliver(Message::Req(ask));
        bench.refused(1, 0, refused, &[]);
        assert!(bench.engine.poll_event().is_none());
    }
}
