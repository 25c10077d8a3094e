//! Answers of subnet administration that are malformed, mistimed or nearly right: to questions, subscriptions, services and
//! tables in segments (RMPP).

use std::time::Duration;

use bareverbs_cm::mad::MAD_LEN;
use bareverbs_cm::mad::sa::*;
use bareverbs_cm::sa::*;

use crate::input::{Input, STEPS};

/// Bytes of a table that is read. Small, so that tables are too long.
const ROOM: usize = 1024;
const QUESTIONS: usize = 3;
/// The MAD's parts lie at these offsets (IBTA volume 1, 13.4.3, 13.6.2.1 and 15.2.1).
const METHOD: usize = 3;
const STATUS: usize = 4;
const ATTRIBUTE: usize = 16;
const RMPP: usize = 24;
const ATTRIBUTE_OFFSET: usize = 44;

const PATH: PathRecord = PathRecord {
    dgid: [2; 16],
    sgid: [1; 16],
    ..PathRecord::ZERO
};
const MEMBER: McMemberRecord = McMemberRecord {
    mgid: [0xff; 16],
    port_gid: [1; 16],
    ..McMemberRecord::ZERO
};
const SERVICE: ServiceRecord = ServiceRecord {
    service_id: 7,
    service_gid: [1; 16],
    pkey: 0xffff,
    lease: 100,
    ..ServiceRecord::ZERO
};

/// A refusal is an answer.
fn ignored<T>(_: T) {}

/// All that may be asked, and what was asked on the wire.
struct Port<'a> {
    now: Duration,
    client: Client<'a>,
    subscriptions: Subscriptions<'a>,
    services: Services<'a>,
    tables: TableReader<'a>,
    ids: Vec<QuestionId>,
    asked: Vec<[u8; MAD_LEN]>,
}

/// Runs an input.
///
/// # Panics
/// If anything comes of it that may not.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let config = Config::new(input.byte().into());
    let mut questions = [QuestionSlot::EMPTY; QUESTIONS];
    let mut informs = [QuestionSlot::EMPTY; QUESTIONS];
    let mut about_services = [QuestionSlot::EMPTY; QUESTIONS];
    let mut slots = [SubscriptionSlot::EMPTY; 2];
    let mut reports = [ReportSlot::EMPTY; 2];
    let mut offers = [ServiceSlot::EMPTY; 2];
    let mut room = [0xa5; ROOM];
    let mut port = Port {
        now: Duration::from_secs(1),
        client: Client::new(config, &mut questions),
        subscriptions: Subscriptions::new(config, &mut informs, &mut slots, &mut reports),
        services: Services::new(config, &mut about_services, &mut offers),
        tables: TableReader::new(config, &mut room),
        ids: Vec::new(),
        asked: Vec::new(),
    };
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let step = input.byte();
        match step % 4 {
            0 | 1 => port.answer(&mut input),
            2 => port.call(&mut input, step >> 2),
            _ => port.now += Duration::from_micros(1 << (input.byte() % 30)),
        }
        port.turn();
    }
}

impl Port<'_> {
    /// A MAD that answers what was asked, more or less: a copy of a question, with other bytes where the input says so.
    fn answer(&mut self, input: &mut Input<'_>) {
        let mut mad = input.one_of(&self.asked).unwrap_or([0; MAD_LEN]);
        let kind = input.byte();
        if kind & 1 != 0 {
            // The method of the response, GetTableResp or Report.
            mad[METHOD] = match kind >> 1 & 3 {
                0 => mad[METHOD] | 0x80,
                1 => 0x81,
                2 => 0x92,
                _ => 0x06,
            };
        }
        if kind & 8 != 0 {
            // Busy, redirected, or refused.
            mad[STATUS..ATTRIBUTE - 8].copy_from_slice(&[input.byte() & 7, input.byte(), 0, 0]);
        }
        if kind & 16 != 0 {
            let rmpp = [1, input.byte() % 6, 1 | input.byte() & 7, input.byte()];
            mad[RMPP..RMPP + 4].copy_from_slice(&rmpp);
            mad[RMPP + 4..RMPP + 8].copy_from_slice(&u32::from(input.byte()).to_be_bytes());
            mad[RMPP + 8..RMPP + 12].copy_from_slice(&u32::from(input.word()).to_be_bytes());
            mad[ATTRIBUTE_OFFSET + 1] = input.byte();
        }
        if kind & 32 != 0 {
            mad[ATTRIBUTE + 1] = input.byte();
        }
        for _ in 0..kind >> 6 {
            let (at, len) = (usize::from(input.byte()), usize::from(input.byte() % 32));
            let bytes = input.bytes(len.min(MAD_LEN - at));
            mad[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let now = self.now;
        let _ = self.client.handle_mad(now, &mad);
        for user in self.users() {
            user.handle_mad(now, &mad);
        }
    }

    fn users(&mut self) -> [&mut dyn SaUser; 4] {
        [
            &mut self.client,
            &mut self.subscriptions,
            &mut self.services,
            &mut self.tables,
        ]
    }

    fn call(&mut self, input: &mut Input<'_>, kind: u8) {
        let (now, deadline) = (self.now, self.now + Duration::from_secs(2));
        let components = u64::from(input.word());
        let trap = match input.byte() % 4 {
            0 => Trap::GidInService,
            1 => Trap::GidOutOfService,
            2 => Trap::GroupMade,
            _ => Trap::GroupDeleted,
        };
        let question = match kind % 16 {
            0 => Question::PortInfo,
            1 => Question::Path {
                wanted: PATH,
                components,
            },
            2 | 3 => Question::Member {
                method: if kind & 1 == 0 {
                    SaMethod::Set
                } else {
                    SaMethod::Delete
                },
                wanted: MEMBER,
                components,
            },
            4 => return ignored(self.subscriptions.subscribe(now, trap)),
            5 => return self.subscriptions.unsubscribe(now, trap),
            6 => return ignored(self.services.offer(now, &SERVICE)),
            7 => return self.services.withdraw(now, &SERVICE),
            8 => return ignored(self.services.find(now, &SERVICE, components, deadline)),
            9 => return ignored(self.tables.ask(now, &PATH, components, deadline)),
            10 => return ignored(self.tables.ask(now, &MEMBER, components, deadline)),
            11 => return ignored(self.tables.ask(now, &SERVICE, components, deadline)),
            12 => return self.tables.cancel(),
            13 => {
                if let Some(id) = self.ids.pop() {
                    self.client.cancel(id);
                }
                return;
            }
            _ => {
                for user in self.users() {
                    user.subnet_changed(now);
                }
                return;
            }
        };
        if let Ok(id) = self.client.ask(now, &question, deadline) {
            self.ids.push(id);
        }
    }

    /// Sends what is due, which comes to an end, and looks at what has come.
    fn turn(&mut self) {
        let (now, mut asked) = (self.now, std::mem::take(&mut self.asked));
        for user in self.users() {
            let (mut mad, mut turns) = ([0xa5; MAD_LEN], 0);
            while user.poll_transmit(now, &mut mad) {
                Segment::new(&mad).expect("a good MAD");
                let _ = user.redirection();
                asked.push(mad);
                turns += 1;
                assert!(turns < 100, "a user does not stop");
            }
            user.handle_timeout(now);
            assert!(user.next_deadline().is_none_or(|at| at > now));
        }
        let old = asked.len().saturating_sub(15);
        self.asked = asked.split_off(old);
        let client = &mut self.client;
        self.ids.retain(|id| client.outcome(*id).is_none());
        while self.subscriptions.next_report().is_some() {}
        let records = self.tables.table::<PathRecord>().and_then(Result::ok);
        let rows = records.map_or(0, |table| table.rows().map(<[u8]>::len).sum());
        let records = self.tables.table::<ServiceRecord>().and_then(Result::ok);
        let more = records.map_or(0, |table| table.iter().count() * 176);
        assert!(rows <= ROOM && more <= ROOM);
    }
}
