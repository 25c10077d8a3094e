//! Draws of ids of the connection manager and their connections, from the port to itself.
//!
//! Each id has an event channel of its own, so that the order of events of different ids is not compared.

use super::draw::Draw;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Bound,
    Addressed,
    Routed,
    Listens,
    Asks,
    IsAsked,
    Connected,
    Closed,
    /// It is not known whether it is bound.
    Unknown,
    Gone,
}

struct Id {
    name: String,
    channel: String,
    stage: Stage,
    queue_pair: bool,
    /// It is bound to a device: on Linux, `rdma_connect` of others ends the program.
    device: bool,
    peer: Option<usize>,
}

/// A draw of a call, or of some.
type Call = fn(&mut Ids);

/// The ids of a script.
struct Ids {
    draw: Draw,
    all: Vec<Id>,
    /// Numbers of names, and of ports.
    count: u32,
}

/// The port of the listener.
const PORT: u32 = 7000;

/// Draws that many calls of connections.
pub(super) fn draw(draw: Draw, wanted: usize) -> Draw {
    let mut ids = Ids {
        draw,
        all: Vec::new(),
        count: 0,
    };
    ids.listener();
    while ids.draw.lines.len() < wanted && ids.count < 40 {
        ids.call();
    }
    // Events that the script has not fetched are there after a while.
    let mut channels: Vec<String> = ids.all.iter().map(|id| id.channel.clone()).collect();
    channels.sort_unstable();
    channels.dedup();
    for (place, channel) in channels.iter().enumerate() {
        let wait = if place == 0 { " wait=60" } else { "" };
        ids.say(format!("left {channel}{wait}"));
    }
    // Before their channels go, which the runner destroys in an order of its own.
    for id in (0..ids.all.len()).rev() {
        ids.destroy_id(id);
    }
    ids.draw
}

impl Ids {
    fn say(&mut self, line: impl Into<String>) {
        self.draw.say(line);
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        self.draw.one(of)
    }

    fn name(&self, id: usize) -> String {
        self.all[id].name.clone()
    }

    fn next(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    fn in_stage(&mut self, stages: &[Stage]) -> Option<usize> {
        let all: Vec<usize> = (0..self.all.len())
            .filter(|it| stages.contains(&self.all[*it].stage))
            .collect();
        self.draw.among(&all)
    }

    fn add(&mut self, name: &str, channel: &str, stage: Stage) -> usize {
        self.all.push(Id {
            name: name.into(),
            channel: channel.into(),
            stage,
            queue_pair: false,
            device: false,
            peer: None,
        });
        self.all.len() - 1
    }

    fn create(&mut self) -> usize {
        let number = self.next();
        let (name, channel) = (format!("a{number}"), format!("ca{number}"));
        self.say(format!("{channel} = rdma_create_event_channel"));
        self.say(format!(
            "{name} = rdma_create_id {channel} context={number}"
        ));
        self.add(&name, &channel, Stage::New)
    }

    fn listener(&mut self) {
        let id = self.create();
        let to = self.one(&["own", "any"]);
        let name = self.name(id);
        self.say(format!("rdma_bind_addr {name} {to}:{PORT}"));
        self.say(format!("rdma_listen {name} 8"));
        self.all[id].stage = Stage::Listens;
        self.all[id].device = to == "own";
    }

    fn event(&mut self, id: usize) {
        let line = format!("event {}", self.all[id].channel);
        self.say(line);
    }

    fn call(&mut self) {
        const CALLS: &[(u32, Call)] = &[
            (6, Ids::another),
            (8, Ids::bind),
            (10, Ids::set_option),
            (60, Ids::rise),
            (50, Ids::answer),
            (16, Ids::hang_up),
            (10, Ids::ask),
            (14, Ids::call_wrongly),
            (4, Ids::migrate),
            (24, Ids::data),
            (8, Ids::destroy),
            (10, Ids::destroy_with_peer),
            (4, Ids::listen_again),
            (8, Ids::hear_nothing),
            (4, Ids::look_up),
        ];
        let sum = CALLS.iter().map(|(weight, _)| weight).sum();
        let mut at = self.draw.rng.below(sum);
        for (weight, call) in CALLS {
            if at < *weight {
                return call(self);
            }
            at -= weight;
        }
    }

    fn another(&mut self) {
        self.create();
    }

    fn bind(&mut self) {
        let Some(id) = self.in_stage(&[Stage::New, Stage::Bound, Stage::Addressed, Stage::Routed])
        else {
            return;
        };
        let new = self.all[id].stage == Stage::New;
        let number = self.next();
        let to = self.one(&["own", "own", "own6", "any", "foreign"]);
        // A port that is taken, sometimes.
        let port = if self.draw.rng.chance(200) {
            PORT
        } else {
            PORT + number
        };
        let name = self.name(id);
        self.say(format!("rdma_bind_addr {name} {to}:{port}"));
        if new && to != "foreign" && to != "own6" && port != PORT {
            self.all[id].stage = Stage::Bound;
            self.all[id].device = to == "own";
        } else if new {
            self.all[id].stage = Stage::Unknown;
        }
    }

    fn set_option(&mut self) {
        let Some(id) = self.in_stage(&[Stage::New, Stage::Bound, Stage::Addressed, Stage::Routed])
        else {
            return;
        };
        let option = self.one(&[
            "RDMA_OPTION_ID_TOS value=8 size=4",
            "RDMA_OPTION_ID_REUSEADDR value=0 size=4",
            "RDMA_OPTION_ID_REUSEADDR value=1 size=1",
            "RDMA_OPTION_ID_AFONLY value=0 size=4",
            "RDMA_OPTION_ID_AFONLY value=1 size=8",
            "RDMA_OPTION_ID_ACK_TIMEOUT value=14 size=1",
            "RDMA_OPTION_ID_ACK_TIMEOUT value=16 size=1",
            "RDMA_OPTION_ID_ACK_TIMEOUT value=1 size=4",
            "99 value=1",
        ]);
        // One that comes when the route is resolved is too late for Linux (`drawn-class-late`).
        let early = matches!(self.all[id].stage, Stage::New | Stage::Bound);
        let option = match early && self.draw.rng.chance(150) {
            true => "RDMA_OPTION_ID_TOS value=8 size=1",
            false => option,
        };
        let name = self.name(id);
        self.say(format!("rdma_set_option {name} RDMA_OPTION_ID {option}"));
    }

    /// Takes an id a step further to a connection.
    fn rise(&mut self) {
        let Some(id) = self.in_stage(&[Stage::New, Stage::Bound, Stage::Addressed, Stage::Routed])
        else {
            return;
        };
        let name = self.name(id);
        match self.all[id].stage {
            Stage::New | Stage::Bound => {
                self.say(format!("rdma_resolve_addr {name} null own:{PORT} 2000"));
                self.event(id);
                self.all[id].stage = Stage::Addressed;
                self.all[id].device = true;
            }
            Stage::Addressed => {
                self.say(format!("rdma_resolve_route {name} 2000"));
                self.event(id);
                self.all[id].stage = Stage::Routed;
            }
            _ if !self.all[id].queue_pair => self.queue_pair(id),
            _ => self.connect(id),
        }
    }

    fn queue_pair(&mut self, id: usize) {
        let name = self.name(id);
        self.say(format!(
            "q{name} = rdma_create_qp {name} send_wr=8 recv_wr=8"
        ));
        self.all[id].queue_pair = true;
    }

    fn parameters(&mut self) -> String {
        let one = self.one(&[
            "",
            " responder=4",
            " responder=0",
            " responder=16",
            " initiator=16",
            " initiator=0",
        ]);
        let two = self.one(&[
            "",
            "",
            " retry=3",
            " flow=1",
            " data=hello",
            " bytes=1",
            " bytes=56",
        ]);
        format!("{one}{two}")
    }

    fn connect(&mut self, id: usize) {
        let listens = self.in_stage(&[Stage::Listens]);
        let name = self.name(id);
        let parameters = self.parameters();
        self.say(format!("rdma_connect {name}{parameters}"));
        let Some(listener) = listens else {
            // No id listens there.
            self.event(id);
            self.all[id].stage = Stage::Closed;
            return;
        };
        let number = self.next();
        let asked = format!("b{number}");
        let line = format!("{asked} = event {}", self.all[listener].channel);
        self.say(line);
        let channel = format!("cb{number}");
        self.say(format!("{channel} = rdma_create_event_channel"));
        self.say(format!("rdma_migrate_id {asked} {channel}"));
        let other = self.add(&asked, &channel, Stage::IsAsked);
        self.all[other].device = true;
        self.all[other].peer = Some(id);
        self.all[id].peer = Some(other);
        self.all[id].stage = Stage::Asks;
    }

    /// Accepts or rejects a request.
    fn answer(&mut self) {
        let Some(id) = self.in_stage(&[Stage::IsAsked]) else {
            return;
        };
        let Some(peer) = self.all[id].peer else {
            return;
        };
        let name = self.name(id);
        if self.draw.rng.chance(250) {
            let data = self.one(&["", " data=never", " bytes=148", " bytes=1"]);
            self.say(format!("rdma_reject {name}{data}"));
            self.event(peer);
            self.all[peer].stage = Stage::Closed;
            self.all[id].stage = Stage::Closed;
            return;
        }
        if !self.all[id].queue_pair {
            self.queue_pair(id);
        }
        let parameters = self.one(&["", " data=welcome", " bytes=196", " rnr=3", " flow=1"]);
        self.say(format!("rdma_accept {name}{parameters}"));
        self.event(peer);
        self.event(id);
        self.all[peer].stage = Stage::Connected;
        self.all[id].stage = Stage::Connected;
    }

    fn hang_up(&mut self) {
        if let Some(id) = self.in_stage(&[Stage::Connected]) {
            self.hang_up_of(id);
        }
    }

    fn hang_up_of(&mut self, id: usize) {
        let Some(peer) = self.all[id].peer else {
            return;
        };
        let (name, other) = (self.name(id), self.name(peer));
        self.say(format!("rdma_disconnect {name}"));
        self.event(peer);
        self.say(format!("rdma_disconnect {other}"));
        self.event(id);
        for it in [id, peer] {
            self.all[it].stage = Stage::Closed;
            if self.draw.rng.chance(300) {
                // TIMEWAIT_EXIT.
                self.event(it);
            }
        }
    }

    fn ask(&mut self) {
        let stages = [
            Stage::New,
            Stage::Bound,
            Stage::Addressed,
            Stage::Routed,
            Stage::Listens,
            Stage::Asks,
            Stage::IsAsked,
            Stage::Connected,
            Stage::Closed,
        ];
        let Some(id) = self.in_stage(&stages) else {
            return;
        };
        let name = self.name(id);
        if self.all[id].queue_pair && self.draw.rng.chance(500) {
            return self.say(format!("query_qp q{name} QP_STATE psn=any"));
        }
        self.say(format!("id {name}"));
    }

    /// Calls what an id's stage does not allow.
    fn call_wrongly(&mut self) {
        let stages = [
            Stage::Bound,
            Stage::Addressed,
            Stage::Routed,
            Stage::Listens,
            Stage::Asks,
            Stage::IsAsked,
            Stage::Connected,
            Stage::Closed,
        ];
        let Some(id) = self.in_stage(&stages) else {
            return;
        };
        let name = self.name(id);
        let stage = self.all[id].stage;
        let calls: &[&str] = match stage {
            Stage::Bound => &[
                "rdma_connect",
                "rdma_accept",
                "rdma_reject",
                "rdma_disconnect",
                "rdma_resolve_route",
            ],
            Stage::Addressed => &[
                "rdma_connect",
                "rdma_accept",
                "rdma_reject",
                "rdma_disconnect",
                "rdma_resolve_addr",
                "rdma_listen",
            ],
            Stage::Routed => &[
                "rdma_accept",
                "rdma_reject",
                "rdma_establish",
                "rdma_resolve_addr",
                "rdma_resolve_route",
                "rdma_listen",
            ],
            Stage::Listens => &[
                "rdma_connect",
                "rdma_resolve_addr",
                "rdma_resolve_route",
                "rdma_reject",
                "rdma_bind_addr",
                "rdma_accept",
                "rdma_disconnect",
                "rdma_establish",
            ],
            Stage::Asks => &[
                "rdma_connect",
                "rdma_resolve_addr",
                "rdma_resolve_route",
                "rdma_listen",
                "rdma_establish",
                "rdma_bind_addr",
            ],
            Stage::IsAsked => &[
                "rdma_connect",
                "rdma_resolve_addr",
                "rdma_resolve_route",
                "rdma_listen",
                "rdma_bind_addr",
                "rdma_establish",
            ],
            Stage::Connected => &[
                "rdma_connect",
                "rdma_resolve_addr",
                "rdma_resolve_route",
                "rdma_listen",
                "rdma_bind_addr",
                "rdma_establish",
                "rdma_reject",
                "rdma_accept",
            ],
            _ => &[
                "rdma_connect",
                "rdma_resolve_addr",
                "rdma_resolve_route",
                "rdma_listen",
                "rdma_bind_addr",
                "rdma_accept",
                "rdma_reject",
                "rdma_disconnect",
                "rdma_establish",
            ],
        };
        let call = self.one(calls);
        if !self.all[id].device && call != "rdma_bind_addr" {
            return;
        }
        // It refuses the request, of which a written script is.
        if (stage, call) == (Stage::IsAsked, "rdma_establish") && !self.all[id].queue_pair {
            return;
        }
        let more = match call {
            "rdma_resolve_addr" => format!(" null own:{PORT} 2000"),
            "rdma_resolve_route" => " 2000".to_string(),
            "rdma_listen" => " 1".to_string(),
            "rdma_bind_addr" => " own:7900".to_string(),
            _ => String::new(),
        };
        self.say(format!("{call} {name}{more}"));
        // A call that fails stops the queue pair.
        if (stage, call) == (Stage::Connected, "rdma_accept") {
            self.hang_up_of(id);
        }
        if self.all[id].queue_pair && self.draw.rng.chance(300) {
            self.say(format!("query_qp q{name} QP_STATE psn=any"));
        }
    }

    /// Destroys an id of which another end hears.
    fn destroy_with_peer(&mut self) {
        let Some(id) = self.in_stage(&[Stage::IsAsked, Stage::Connected]) else {
            return;
        };
        let Some(peer) = self.all[id].peer else {
            return;
        };
        self.destroy_id(id);
        self.event(peer);
        let connected = self.all[peer].stage == Stage::Connected;
        self.all[peer].stage = Stage::Closed;
        if connected && self.draw.rng.chance(500) {
            let name = self.name(peer);
            self.say(format!("rdma_disconnect {name}"));
        }
    }

    /// Destroys the listener, or makes another one.
    fn listen_again(&mut self) {
        match self.in_stage(&[Stage::Listens]) {
            None => self.listener(),
            Some(id) if self.draw.rng.chance(300) => self.destroy_id(id),
            Some(_) => {}
        }
    }

    /// Looks for an event where none comes.
    fn hear_nothing(&mut self) {
        let quiet = [
            Stage::New,
            Stage::Bound,
            Stage::Addressed,
            Stage::Routed,
            Stage::Listens,
            Stage::Asks,
            Stage::IsAsked,
            Stage::Connected,
        ];
        if let Some(id) = self.in_stage(&quiet) {
            let line = format!("event {} wait=10", self.all[id].channel);
            self.say(line);
        }
    }

    fn migrate(&mut self) {
        let stages = [
            Stage::New,
            Stage::Bound,
            Stage::Addressed,
            Stage::Routed,
            Stage::Connected,
            Stage::IsAsked,
            Stage::Listens,
        ];
        let Some(id) = self.in_stage(&stages) else {
            return;
        };
        let number = self.next();
        let (name, channel) = (self.name(id), format!("cm{number}"));
        self.say(format!("{channel} = rdma_create_event_channel"));
        self.say(format!("rdma_migrate_id {name} {channel}"));
        self.all[id].channel = channel;
    }

    /// Sends a message over a connection.
    fn data(&mut self) {
        let Some(id) = self.in_stage(&[Stage::Connected]) else {
            return;
        };
        let Some(peer) = self.all[id].peer else {
            return;
        };
        let number = self.next();
        let (name, other) = (self.name(id), self.name(peer));
        let (from, to) = (format!("ma{number}"), format!("mb{number}"));
        self.say(format!("buf{number} = memory PROT_READ|PROT_WRITE"));
        self.say(format!("{from} = rdma_reg_msgs {name} buf{number}"));
        self.say(format!("{to} = rdma_reg_msgs {other} buf{number}"));
        for _ in 0..=self.draw.rng.below(2) {
            let length = self.one(&[0, 1, 8, 64, 1023, 1024, 1025, 4096]);
            let vector = self.one(&["", " vector=1"]);
            self.say(format!(
                "rdma_post_recv {other} mr={to} len=4096 id=100{vector}"
            ));
            self.say(format!(
                "rdma_post_send {name} mr={from} len={length} id=1{vector}"
            ));
            self.say(format!("rdma_get_send_comp {name}"));
            self.say(format!("rdma_get_recv_comp {other}"));
        }
        self.say(format!("rdma_dereg_mr {from}"));
        self.say(format!("rdma_dereg_mr {to}"));
    }

    /// Destroys an id that has no connection.
    fn destroy(&mut self) {
        let Some(id) = self.in_stage(&[
            Stage::New,
            Stage::Bound,
            Stage::Addressed,
            Stage::Routed,
            Stage::Closed,
        ]) else {
            return;
        };
        self.destroy_id(id);
    }

    fn destroy_id(&mut self, id: usize) {
        if self.all[id].stage == Stage::Gone {
            return;
        }
        let name = self.name(id);
        if self.all[id].queue_pair {
            self.say(format!("rdma_destroy_qp {name}"));
        }
        self.say(format!("rdma_destroy_id {name}"));
        self.all[id].stage = Stage::Gone;
    }

    fn look_up(&mut self) {
        let number = self.next();
        let node = self.one(&["own", "own6", "foreign"]);
        let service = self.one(&["null", "7000", "65536"]);
        let flags = self.one(&["0", "RAI_PASSIVE", "RAI_NUMERICHOST", "RAI_NOROUTE"]);
        self.say(format!(
            "i{number} = rdma_getaddrinfo {node} {service} flags={flags}"
        ));
    }
}
