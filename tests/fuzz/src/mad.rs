//! Messages that are malformed, mistimed or nearly right, into the codec and the engine, with calls and time between them.

use std::time::Duration;

use bareverbs_cm::engine::*;
use bareverbs_cm::mad::*;

use crate::input::{Input, STEPS};
use crate::message::{self, SERVICE};

/// Few, so that they run out.
const SLOTS: usize = 6;

fn gid(node: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, node + 1]
}

fn path() -> Address {
    Address {
        local_gid: gid(1),
        remote_gid: gid(0),
        pkey: 0xffff,
        hop_limit: 64,
        ..Address::default()
    }
}

/// Each message that can be read can be written, and reads the same again.
fn codec(bytes: &[u8]) {
    let Ok(mad) = Mad::new(bytes) else {
        return;
    };
    let Ok(message) = mad.message() else {
        return;
    };
    let mut again = [0xa5; MAD_LEN];
    message
        .emit(&mad.header(), &mut again)
        .expect("what was read can be written");
    let twice = Mad::new(&again).expect("what was written can be read");
    assert_eq!(twice.header(), mad.header());
    assert_eq!(twice.message(), Ok(message));
    let private_data = match message {
        Message::Req(req) => {
            let _ = req.ece(mad.modifier());
            req.private_data
        }
        Message::SidrReq(req) => req.private_data,
        Message::Rej(rej) => {
            let info = rej.reject_info();
            let mut bytes = [0; 72];
            let len = info.emit(&mut bytes);
            assert_eq!(RejectInfo::parse(rej.reason(), &bytes[..len]), info);
            return;
        }
        _ => return,
    };
    if let Ok((header, rest)) = CmaHeader::parse(private_data) {
        let mut bytes = [0xa5; CmaHeader::LEN];
        header.emit(&mut bytes).expect("one family");
        let (same, _) = CmaHeader::parse(&bytes).expect("a header");
        assert_eq!(same, header);
        assert_eq!(rest.len() + CmaHeader::LEN, private_data.len());
    }
}

/// An engine, and the state of its user.
struct Run<'s> {
    engine: Engine<'s>,
    now: Duration,
    ids: Vec<ConnectionId>,
    requests: Vec<SidrId>,
}

impl Run<'_> {
    fn receive(&mut self, mad: &[u8]) {
        codec(mad);
        let _ = self.engine.handle_mad(self.now, &path(), mad);
    }

    /// Everything that the engine says is a good message.
    fn say(&mut self) {
        let mut mad = [0xa5; MAD_LEN];
        let mut turns = 0;
        while let Some(transmit) = self.engine.poll_transmit(self.now, &mut mad) {
            let said = Mad::new(&mad).expect("a good MAD");
            assert_eq!(said.attribute(), transmit.attribute);
            said.message().expect("a good message");
            codec(&mad);
            mad = [0xa5; MAD_LEN];
            turns += 1;
            assert!(turns < 1000, "the engine does not stop");
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.engine.poll_sidr_event() {
            match event.kind {
                SidrEventKind::Request { .. } => {
                    assert!(!self.requests.contains(&event.id));
                    self.requests.push(event.id);
                }
                _ => self.requests.retain(|other| *other != event.id),
            }
        }
        while let Some(event) = self.engine.poll_event() {
            let id = event.connection;
            if !self.ids.contains(&id) {
                assert!(
                    matches!(event.kind, EventKind::ConnectRequest { .. }),
                    "{event:?}"
                );
                self.ids.push(id);
            }
        }
    }

    fn call(&mut self, input: &mut Input<'_>) {
        let (now, kind, detail) = (self.now, input.byte(), input.byte());
        let Some(id) = input.one_of(&self.ids) else {
            let params = ConnectParams {
                service_id: SERVICE,
                local_qpn: 0x100 + u32::from(detail % 4),
                private_data: input.bytes(usize::from(kind) % 100),
                ..ConnectParams::new(path())
            };
            if let Ok(id) = self.engine.connect(now, &params) {
                self.ids.push(id);
            }
            return;
        };
        let engine = &mut self.engine;
        let lid = AlternatePath {
            local_lid: u16::from(detail % 3),
            ..AlternatePath::default()
        };
        let private = input.bytes(usize::from(input_len(detail)));
        // Whether it makes sense just now is the engine's to say.
        let _ = match kind % 13 {
            0 => {
                let params = ReplyParams {
                    private_data: private,
                    ..ReplyParams::new(0x200 + u32::from(detail % 4))
                };
                engine.reply(now, id, &params)
            }
            1 => engine.ready(id, private),
            2 => engine.mra(id, detail),
            3 => engine.reject(now, id, RejectReason(u16::from(detail)), b"i", private),
            4 => engine.disconnect(now, id, private),
            5 => engine.load_alternate(now, id, &lid, private),
            6 => engine.answer_alternate(now, id, AprStatus(detail % 8), b"i", private),
            7 => {
                let timers = Timers {
                    remote_response: detail,
                    local_response: 255 - detail,
                    max_retries: detail % 17,
                    early: (detail & 1 != 0).then_some(Duration::from_millis(detail.into())),
                };
                engine.set_timers(id, &timers)
            }
            8 => engine.notify_established(id).map(|_| ()),
            9 => engine.set_user(id, detail.into()),
            10 => {
                let again = engine.retry(now, id, private);
                again.map(|again| self.ids.push(again))
            }
            11 => engine.qp_params(id).and(engine.remote_ece(id)).map(|_| ()),
            _ => {
                self.ids.retain(|other| *other != id);
                engine.release(now, id)
            }
        };
    }

    fn sidr_call(&mut self, input: &mut Input<'_>) {
        let (now, kind) = (self.now, input.byte());
        let Some(id) = input.one_of(&self.requests) else {
            let params = SidrParams::new(SERVICE, path());
            if let Ok(id) = self.engine.sidr_request(now, &params) {
                self.requests.push(id);
            }
            return;
        };
        let _ = match kind % 3 {
            0 => self.engine.sidr_reply(now, id, &SidrReply::new(1, 2)),
            1 => self
                .engine
                .sidr_reject(now, id, SidrStatus(kind), b"i", b"p"),
            _ => {
                self.requests.retain(|other| *other != id);
                self.engine.sidr_release(now, id)
            }
        };
    }

    /// The name of one of ours, of either kind, or any number.
    fn name(&self, input: &mut Input<'_>) -> u32 {
        let kind = input.byte();
        if kind & 1 == 0 {
            let id = input.one_of(&self.ids).map(ConnectionId::comm_id);
            id.unwrap_or(kind.into())
        } else {
            let id = input.one_of(&self.requests).map(|id| id.request_id());
            id.unwrap_or(kind.into())
        }
    }
}

/// Lengths of private data around the limits.
const fn input_len(detail: u8) -> u8 {
    [0, 4, 92, 148, 168, 196, 224, 255][(detail >> 5) as usize]
}

/// Runs an input. With every input, the engine sends valid messages only, never panics, and when its user has released
/// everything, nothing is left.
///
/// # Panics
/// If that is not so.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, seed) = (input.byte(), input.byte());
    let mut config = Config::new(seed.into(), 0xb);
    config.auto_drep = flags & 1 == 0;
    config.reject_overflow = flags & 2 == 0;
    config.reject_unknown = flags & 4 == 0;
    config.auto_mra = (flags & 8 == 0).then_some(24);
    config.reserved = u32::from(flags >> 4) % 3;
    let mut slots = [Slot::EMPTY; SLOTS];
    let mut listeners = [ListenerSlot::EMPTY; 2];
    let mut replies = [ReplySlot::EMPTY; 4];
    let mut sidr = [SidrSlot::EMPTY; 4];
    let mut alternates = [AlternateSlot::EMPTY; 2];
    let storage = Storage {
        connections: &mut slots,
        listeners: &mut listeners,
        replies: &mut replies,
        sidr: &mut sidr,
        alternates: &mut alternates[..usize::from(flags >> 6) % 3],
    };
    let mut run = Run {
        engine: Engine::new(config, storage),
        now: Duration::from_secs(5),
        ids: Vec::new(),
        requests: Vec::new(),
    };
    let listener = run.engine.listen(SERVICE, 3, false, 77).expect("a slot");
    run.engine.listen_sidr(SERVICE, 3, 78).expect("a slot");
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let step = input.byte();
        match step % 8 {
            // As it is.
            0 => {
                let len = if step & 0x80 == 0 {
                    MAD_LEN
                } else {
                    input.byte().into()
                };
                run.receive(input.bytes(len));
            }
            // To one of ours.
            1 => {
                let name = run.name(&mut input);
                let mut mad = [0; MAD_LEN];
                let bytes = input.bytes(MAD_LEN);
                mad[..bytes.len()].copy_from_slice(bytes);
                mad[DATA + 4..DATA + 8].copy_from_slice(&name.to_be_bytes());
                run.receive(&mad);
            }
            2 | 3 => {
                let name = run.name(&mut input);
                let mad = message::any(&mut input, name);
                for _ in 0..=u8::from(step & 0x80 != 0) {
                    run.receive(&mad);
                }
            }
            4 => {
                let scale = input.byte() % 32;
                run.now += Duration::from_micros(1 << scale);
                if step & 0x80 != 0 {
                    run.engine.handle_timeout(run.now);
                }
            }
            5 => run.call(&mut input),
            6 => run.sidr_call(&mut input),
            _ if step & 0x80 == 0 => run.events(),
            _ => run.say(),
        }
    }
    wind_down(run, listener);
}

fn wind_down(mut run: Run<'_>, listener: ListenerId) {
    run.events();
    for id in std::mem::take(&mut run.ids) {
        let _ = run.engine.release(run.now, id);
    }
    for id in std::mem::take(&mut run.requests) {
        let _ = run.engine.sidr_release(run.now, id);
    }
    let _ = run.engine.unlisten(listener);
    for _ in 0..40 {
        run.now += Duration::from_secs(60);
        run.say();
    }
    while run.engine.poll_event().is_some() {}
    while run.engine.poll_sidr_event().is_some() {}
    let engine = &run.engine;
    assert_eq!((engine.in_use(), engine.sidr_in_use()), (0, 0));
    assert_eq!(engine.next_deadline(), None);
}
