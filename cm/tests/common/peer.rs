//! One engine, and the other end played by hand.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::time::Duration;

use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

use super::{SERVICE, engine, gid, params, path};

pub const NOW: Duration = Duration::from_secs(5);
pub const GUID: u64 = 0x1234_5678_9abc_def0;

/// One engine, and the other end played by hand.
pub struct Bench {
    pub engine: Engine<'static>,
    pub mad: [u8; MAD_LEN],
}

pub fn server() -> Bench {
    server_with(Config::new(1, 0xb))
}

pub fn server_with(config: Config) -> Bench {
    let mut engine = engine(config, 16);
    engine.listen(SERVICE, 4, false, 77).unwrap();
    Bench {
        engine,
        mad: [0; MAD_LEN],
    }
}

pub fn req(comm_id: u32, qpn: u32) -> Req<'static> {
    Req {
        local_comm_id: comm_id,
        service_id: SERVICE,
        local_ca_guid: GUID,
        local_qpn: qpn,
        starting_psn: 0x1111,
        responder_resources: 3,
        initiator_depth: 5,
        remote_cm_response_timeout: 20,
        local_cm_response_timeout: 12,
        retry_count: 6,
        rnr_retry_count: 5,
        max_cm_retries: 3,
        pkey: 0xffff,
        path_mtu: 3,
        primary_local_gid: gid(0),
        primary_remote_gid: gid(1),
        primary_hop_limit: 64,
        primary_ack_timeout: 19,
        ..Req::ZERO
    }
}

impl Bench {
    pub fn deliver_at(
        &mut self,
        now: Duration,
        message: Message<'_>,
    ) -> Result<Attribute, Ignored> {
        let mut mad = [0xa5; MAD_LEN];
        message
            .emit(&Header::send(message.attribute(), 0x7_0000_0042), &mut mad)
            .unwrap();
        self.engine.handle_mad(now, &path(1), &mad)
    }

    pub fn deliver(&mut self, message: Message<'_>) -> Result<Attribute, Ignored> {
        self.deliver_at(NOW, message)
    }

    pub fn say_at(&mut self, now: Duration) -> Option<(Transmit, Header, Message<'_>)> {
        self.mad = [0xa5; MAD_LEN];
        let transmit = self.engine.poll_transmit(now, &mut self.mad)?;
        let mad = Mad::new(&self.mad).unwrap();
        Some((transmit, mad.header(), mad.message().unwrap()))
    }

    pub fn said(&mut self) -> Message<'_> {
        self.say_at(NOW).expect("the engine says nothing").2
    }

    pub fn silent(&mut self) {
        if let Some((_, _, message)) = self.say_at(NOW) {
            panic!("{message:?}");
        }
    }

    pub fn request(&mut self, comm_id: u32, qpn: u32) -> ConnectionId {
        self.deliver(Message::Req(req(comm_id, qpn))).unwrap();
        let event = self.engine.poll_event().unwrap();
        assert!(
            matches!(
                event.kind,
                EventKind::ConnectRequest {
                    listener_user: 77,
                    ..
                }
            ),
            "{event:?}"
        );
        event.connection
    }

    /// A connection up to REP.
    pub fn replied(&mut self, comm_id: u32, qpn: u32) -> ConnectionId {
        let id = self.request(comm_id, qpn);
        self.engine
            .reply(
                NOW,
                id,
                &ReplyParams {
                    private_data: b"hi",
                    ..ReplyParams::new(0x300)
                },
            )
            .unwrap();
        let Message::Rep(rep) = self.said() else {
            panic!()
        };
        assert_eq!(
            (rep.local_comm_id, rep.remote_comm_id),
            (id.comm_id(), comm_id)
        );
        id
    }

    pub fn established(&mut self, comm_id: u32, qpn: u32) -> ConnectionId {
        let id = self.replied(comm_id, qpn);
        self.deliver(Message::Rtu(Rtu {
            local_comm_id: comm_id,
            remote_comm_id: id.comm_id(),
            ..Rtu::ZERO
        }))
        .unwrap();
        assert!(matches!(
            self.engine.poll_event().unwrap().kind,
            EventKind::Established { .. }
        ));
        id
    }

    pub fn state(&self, id: ConnectionId) -> State {
        self.engine.state(id).unwrap()
    }

    #[track_caller]
    pub fn refused(&mut self, remote: u32, message: u8, reason: RejectReason, info: &[u8]) {
        let Message::Rej(rej) = self.said() else {
            panic!()
        };
        assert_eq!(
            (rej.remote_comm_id, rej.message, rej.reason()),
            (remote, message, reason)
        );
        assert_eq!(rej.additional_info(), info);
    }
}

pub fn dreq(id: ConnectionId, comm_id: u32, qpn: u32) -> Message<'static> {
    Message::Dreq(Dreq {
        local_comm_id: comm_id,
        remote_comm_id: id.comm_id(),
        remote_qpn: qpn,
        ..Dreq::ZERO
    })
}

pub fn client() -> (Bench, ConnectionId) {
    let mut bench = Bench {
        engine: engine(Config::new(3, 0xa), 16),
        mad: [0; MAD_LEN],
    };
    let timers = Timers {
        early: None,
        max_retries: 1,
        ..Timers::default()
    };
    let id = bench
        .engine
        .connect(NOW, &ConnectParams { timers, ..params() })
        .unwrap();
    assert!(matches!(bench.said(), Message::Req(_)));
    (bench, id)
}

pub fn rep(id: ConnectionId, comm_id: u32, qpn: u32) -> Rep<'static> {
    Rep {
        local_comm_id: comm_id,
        remote_comm_id: id.comm_id(),
        local_ca_guid: GUID,
        local_qpn: qpn,
        starting_psn: 0x2222,
        responder_resources: 3,
        initiator_depth: 5,
        rnr_retry_count: 2,
        target_ack_delay: 17,
        ..Rep::ZERO
    }
}
