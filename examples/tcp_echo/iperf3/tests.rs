//! iperf3's client by its source (`iperf_client_api.c`), over connections that give and take bytes in pieces of drawn length;
//! and clients that do not keep to it.

use std::collections::VecDeque;
use std::time::Duration;

use connectx_model::link::rng::Rng;
use serde_json::Value;

use super::protocol::{Error, Frame, Parameters, parse_results};
use super::{CONNECTIONS, Connections, Life, Outcome, SILENCE, Server};
use bareverbs_examples::Result;

const COOKIE: &[u8; 37] = b"abcdefghijklmnopqrstuvwxyz234567abcd\0";

trait Draw {
    fn draw(&mut self, below: u64) -> u64;
}

impl Draw for Rng {
    fn draw(&mut self, below: u64) -> u64 {
        u64::from(self.below(below as u32))
    }
}

/// A connection, and what is on its way.
#[derive(Default)]
struct Pipe {
    open: bool,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    /// `true` once the client says no more.
    client_ended: bool,
    server_ended: bool,
    aborted: bool,
}

struct Pipes {
    pipes: Vec<Pipe>,
    rng: Rng,
}

impl Pipes {
    fn new(seed: u64) -> Self {
        Self {
            pipes: (0..CONNECTIONS).map(|_| Pipe::default()).collect(),
            rng: Rng::new(seed),
        }
    }

    /// A client's connection, on the first place that listens.
    fn connect(&mut self, first: &[u8]) -> usize {
        let at = self.pipes.iter().position(|pipe| !pipe.open);
        let at = at.expect("a place that listens");
        self.pipes[at].open = true;
        self.say(at, first);
        at
    }

    fn say(&mut self, at: usize, bytes: &[u8]) {
        self.pipes[at].to_server.extend(bytes);
    }

    fn say_json(&mut self, at: usize, json: &str) {
        self.say(at, &(json.len() as u32).to_be_bytes());
        self.say(at, json.as_bytes());
    }

    fn hear(&mut self, at: usize) -> Vec<u8> {
        self.pipes[at].to_client.drain(..).collect()
    }

    fn end(&mut self, at: usize) {
        self.pipes[at].client_ended = true;
    }

    fn piece(&mut self, most: usize) -> usize {
        // Often all of it, so that tests end.
        match self.rng.draw(3) {
            0 => self.rng.draw(most as u64 + 1) as usize,
            1 => most.min(1),
            _ => most,
        }
    }
}

impl Connections for Pipes {
    fn life(&self, at: usize) -> Life {
        let pipe = &self.pipes[at];
        let quiet = pipe.client_ended && pipe.to_server.is_empty();
        match pipe {
            Pipe { open: false, .. } => Life::Listening,
            Pipe { aborted: true, .. } => Life::Over,
            _ if quiet && pipe.server_ended => Life::Over,
            _ if quiet => Life::Ended,
            _ => Life::Open,
        }
    }

    fn read(&mut self, at: usize, space: &mut [u8]) -> usize {
        let most = space.len().min(self.pipes[at].to_server.len());
        let length = self.piece(most);
        for (place, byte) in space
            .iter_mut()
            .zip(self.pipes[at].to_server.drain(..length))
        {
            *place = byte;
        }
        length
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> usize {
        if self.pipes[at].server_ended || self.pipes[at].aborted {
            return 0;
        }
        let space = 20_000_usize.saturating_sub(self.pipes[at].to_client.len());
        let length = self.piece(bytes.len().min(space));
        self.pipes[at].to_client.extend(&bytes[..length]);
        length
    }

    fn close(&mut self, at: usize) {
        self.pipes[at].server_ended = true;
    }

    fn abort(&mut self, at: usize) {
        self.pipes[at].aborted = true;
    }

    fn listen(&mut self, at: usize) -> Result<()> {
        self.pipes[at] = Pipe::default();
        Ok(())
    }
}

/// A server, what leads to it, and the time.
struct Scene {
    pipes: Pipes,
    server: Server,
    now: Duration,
    outcomes: Vec<Outcome>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut pipes = Pipes::new(seed);
        let server = Server::new(&mut pipes).expect("places");
        Self {
            pipes,
            server,
            now: Duration::from_secs(1),
            outcomes: Vec::new(),
        }
    }

    fn tick(&mut self) {
        self.now += Duration::from_micros(10);
        let outcome = self.server.work(self.now, &mut self.pipes);
        self.outcomes.extend(outcome.expect("places"));
    }

    /// As often as nothing more can happen in pieces this small.
    fn settle(&mut self) {
        for _ in 0..2000 {
            self.tick();
        }
    }
}

/// A test that is asked for.
#[derive(Debug, Clone, Copy)]
struct Plan {
    reverse: bool,
    parallel: usize,
    bytes: u64,
    block: u64,
}

impl Plan {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            reverse: rng.draw(2) == 0,
            parallel: 1 + rng.draw(16) as usize,
            bytes: 1 + rng.draw(60_000),
            block: 1 + rng.draw(5000),
        }
    }

    /// As 3.18's client writes it.
    fn parameters(self) -> String {
        let Self {
            parallel,
            bytes,
            block,
            ..
        } = self;
        let reverse = if self.reverse {
            "\"reverse\":true,"
        } else {
            ""
        };
        format!(
            r#"{{"tcp":true,"omit":0,"time":0,"num":{bytes},"blockcount":0,"parallel":{parallel},{reverse}"len":{block},
            "pacing_timer":1000,"client_version":"3.18"}}"#
        )
    }
}

/// `send_results`.
fn client_results(counts: &[u64]) -> String {
    let mut streams = Vec::new();
    for (place, bytes) in counts.iter().enumerate() {
        let id = [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17][place];
        streams.push(format!(
            r#"{{"id":{id},"bytes":{bytes},"retransmits":0,"jitter":0,"errors":0,"omitted_errors":0,"packets":0,
            "omitted_packets":0,"start_time":0,"end_time":0.25}}"#
        ));
    }
    let streams = streams.join(",");
    format!(
        r#"{{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,"sender_has_retransmits":1,"streams":[{streams}]}}"#
    )
}

/// The client of one test (`iperf_run_client`).
struct Client {
    plan: Plan,
    control: usize,
    streams: Vec<usize>,
    /// Bytes of each stream, and those of blocks that are not whole yet.
    counts: Vec<u64>,
    parts: Vec<u64>,
    running: bool,
    /// The bytes of the server that were not understood yet.
    heard: Vec<u8>,
    /// All states.
    states: Vec<u8>,
    results: Option<Value>,
}

impl Client {
    fn new(pipes: &mut Pipes, plan: Plan) -> Self {
        Self {
            plan,
            control: pipes.connect(COOKIE),
            streams: Vec::new(),
            counts: vec![0; plan.parallel],
            parts: vec![0; plan.parallel],
            running: false,
            heard: Vec::new(),
            states: Vec::new(),
            results: None,
        }
    }

    fn work(&mut self, pipes: &mut Pipes) {
        self.heard.extend(pipes.hear(self.control));
        while let Some(&state) = self.heard.first() {
            if self.states.last() == Some(&13) && self.results.is_none() {
                let Some((length, text)) = self.heard.split_first_chunk() else {
                    break;
                };
                let length = u32::from_be_bytes(*length) as usize;
                let Some(text) = text.get(..length) else {
                    break;
                };
                self.results = Some(serde_json::from_slice(text).expect("JSON"));
                self.heard.drain(..4 + length);
                continue;
            }
            self.heard.remove(0);
            self.states.push(state);
            self.obey(state, pipes);
        }
        if self.running {
            self.transfer(pipes);
        }
    }

    fn obey(&mut self, state: u8, pipes: &mut Pipes) {
        match state {
            9 => pipes.say_json(self.control, &self.plan.parameters()),
            10 => {
                self.streams = (0..self.plan.parallel)
                    .map(|_| pipes.connect(COOKIE))
                    .collect();
            }
            1 => {}
            2 => self.running = true,
            13 => pipes.say_json(self.control, &client_results(&self.counts)),
            14 => {
                for &at in &self.streams {
                    pipes.end(at);
                }
                pipes.say(self.control, &[16]);
                pipes.end(self.control);
            }
            state => panic!("state {state}"),
        }
    }

    fn transfer(&mut self, pipes: &mut Pipes) {
        let block = self.plan.block;
        let counts = self.counts.iter_mut().zip(&mut self.parts);
        for ((count, part), &at) in counts.zip(&self.streams) {
            if self.plan.reverse {
                // Nrecv_no_select in net.c returns with a whole block.
                *part += pipes.hear(at).len() as u64;
                *count += *part / block * block;
                *part %= block;
            } else {
                let length = pipes.rng.draw(5000);
                pipes.say(at, &vec![1; length as usize]);
                *count += length;
            }
        }
        if self.counts.iter().sum::<u64>() >= self.plan.bytes {
            pipes.say(self.control, &[4]);
            self.running = false;
        }
    }
}

/// Runs an honest client's test to its end.
fn run(scene: &mut Scene, plan: Plan) -> Client {
    let mut client = Client::new(&mut scene.pipes, plan);
    let before = scene.outcomes.len();
    for _ in 0..200_000 {
        client.work(&mut scene.pipes);
        scene.tick();
        if scene.outcomes.len() > before && scene.server.is_idle() {
            return client;
        }
    }
    panic!("no end of {plan:?}: states {:?}", client.states);
}

fn check_honest(scene: &mut Scene, plan: Plan, seed: u64) {
    let client = run(scene, plan);
    assert_eq!(client.states, [9, 10, 1, 2, 13, 14], "seed {seed}");
    let report = scene.outcomes.last().expect("an outcome");
    let report = report.as_ref().expect("a report");
    assert_eq!(report.reverse, plan.reverse, "seed {seed}");
    let same: Vec<_> = client.counts.iter().map(|count| [*count; 2]).collect();
    assert_eq!(report.streams, same, "seed {seed}, {plan:?}");
    assert!(report.bytes() >= plan.bytes, "seed {seed}");
    let results = client.results.expect("results");
    let streams = results["streams"].as_array().expect("streams");
    let theirs: Vec<_> = streams
        .iter()
        .map(|stream| [&stream["id"], &stream["bytes"]].map(|it| it.as_u64().expect("a number")))
        .collect();
    let ids = [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
    let expected: Vec<_> = ids
        .into_iter()
        .zip(client.counts)
        .map(|(id, bytes)| [id, bytes])
        .collect();
    assert_eq!(theirs, expected, "seed {seed}");
    for name in [
        "cpu_util_total",
        "cpu_util_user",
        "cpu_util_system",
        "sender_has_retransmits",
    ] {
        assert!(results[name].is_number(), "{name}");
    }
}

#[test]
fn both_ends_count_the_same_in_pieces_of_any_length() {
    for seed in 1..=100 {
        let mut rng = Rng::new(seed);
        let mut scene = Scene::new(seed);
        for _ in 0..2 {
            let plan = Plan::draw(&mut rng);
            check_honest(&mut scene, plan, seed);
        }
    }
}

/// A client that breaks off, changes bytes, or says something else, at a drawn time; with strangers meanwhile. Whatever it is
/// has an end, and the next client is served.
#[test]
fn hostile_clients_end_and_the_next_is_served() {
    let mut errors = 0;
    for seed in 1..=150 {
        let mut rng = Rng::new(seed);
        let mut scene = Scene::new(seed);
        let mut plan = Plan::draw(&mut rng);
        plan.parallel = plan.parallel.min(4);
        let mut client = Client::new(&mut scene.pipes, plan);
        let (when, what) = (rng.draw(30), rng.draw(6));
        for tick in 0..400 {
            // After it was unfaithful, the honest part may not understand what comes.
            if tick < when {
                client.work(&mut scene.pipes);
            }
            if tick == when {
                let control = client.control;
                match what {
                    0 => scene.pipes.pipes[control].aborted = true,
                    1 => scene.pipes.end(control),
                    2 => scene.pipes.say(control, &[rng.draw(256) as u8]),
                    3 => {
                        let noise: Vec<u8> = (0..40).map(|_| rng.draw(256) as u8).collect();
                        scene.pipes.say(control, &noise);
                    }
                    4 => {
                        for byte in &mut scene.pipes.pipes[control].to_server {
                            *byte ^= (rng.draw(8) == 0) as u8;
                        }
                    }
                    // It is silent from now on.
                    _ => {}
                }
            }
            if tick % 50 == 7 && tick < 200 {
                scene.pipes.connect(&COOKIE[..rng.draw(38) as usize]);
            }
            scene.tick();
        }
        for _ in 0..4 {
            scene.now += SILENCE;
            scene.settle();
        }
        assert!(scene.server.is_idle(), "seed {seed}: {what} at {when}");
        errors += usize::from(scene.outcomes.iter().any(std::result::Result::is_err));
        let plan = Plan::draw(&mut rng);
        check_honest(&mut scene, plan, seed);
    }
    assert!(errors > 50, "{errors} only");
}

/// The server's message to a client with these parameters, and the outcome here.
fn refused(parameters: &[u8]) -> (Vec<u8>, Outcome) {
    let mut scene = Scene::new(1);
    let control = scene.pipes.connect(COOKIE);
    scene.pipes.say(control, parameters);
    let mut said = Vec::new();
    while scene.outcomes.is_empty() {
        scene.tick();
        said.extend(scene.pipes.hear(control));
    }
    (said, scene.outcomes.remove(0))
}

fn framed(json: &str) -> Vec<u8> {
    [&(json.len() as u32).to_be_bytes(), json.as_bytes()].concat()
}

#[test]
fn parameters_that_cannot_be_are_refused() {
    let deep = "[".repeat(8000);
    for (parameters, error) in [
        (vec![0; 4], Error::Length(0)),
        (vec![0xff; 4], Error::Length(u32::MAX)),
        (vec![0, 0, 0x20, 1], Error::Length(8193)),
        (framed("{"), Error::Json),
        (framed("[]"), Error::Json),
        (framed(&deep), Error::Json),
        (framed("{}"), Error::Field("tcp")),
        (framed(r#"{"tcp":1}"#), Error::Field("tcp")),
        (
            framed(r#"{"tcp":true,"udp":true}"#),
            Error::Unsupported("udp"),
        ),
        (
            framed(r#"{"tcp":true,"bidirectional":true}"#),
            Error::Unsupported("bidirectional"),
        ),
        (
            framed(r#"{"tcp":true,"omit":1}"#),
            Error::Unsupported("omit"),
        ),
        (framed(r#"{"tcp":true,"time":1e300}"#), Error::Duration),
        (framed(r#"{"tcp":true,"time":86401}"#), Error::Duration),
        (framed(r#"{"tcp":true,"time":-1}"#), Error::Duration),
        (framed(r#"{"tcp":true,"parallel":0}"#), Error::Parallel(0)),
        (framed(r#"{"tcp":true,"parallel":17}"#), Error::Parallel(17)),
        (
            framed(r#"{"tcp":true,"parallel":-1}"#),
            Error::Field("parallel"),
        ),
        (framed(r#"{"tcp":true,"num":1e300}"#), Error::Field("num")),
        (framed(r#"{"tcp":true,"num":"1"}"#), Error::Field("num")),
        (framed(r#"{"tcp":true,"len":0}"#), Error::Field("len")),
        (framed(r#"{"tcp":true,"len":1048577}"#), Error::Field("len")),
    ] {
        let (said, outcome) = refused(&parameters);
        assert_eq!(outcome, Err(error));
        let number = match error {
            Error::Unsupported(_) => 13,
            Error::Duration => 5,
            Error::Parallel(_) => 6,
            _ => 114,
        };
        assert_eq!(said, [9, 254, 0, 0, 0, number, 0, 0, 0, 0], "{error}");
    }
    let mut frame = Frame::parameters();
    frame.extend(&framed(r#"{"tcp":true,"num":1.5e6,"parallel":2}"#));
    let parameters = Parameters::parse(&frame).expect("parameters");
    assert_eq!(parameters.bytes, Some(1_500_000));
    assert_eq!((parameters.parallel, parameters.reverse), (2, false));
}

#[test]
fn results_that_cannot_be_are_refused() {
    let parse = |json: &str| {
        let mut frame = Frame::results();
        frame.extend(&framed(json));
        parse_results(&frame, 2)
    };
    assert_eq!(parse(&client_results(&[5, 7])), Ok(vec![5, 7]));
    for (json, error) in [
        (client_results(&[5]), Error::Field("streams")),
        (client_results(&[5, 7, 9]), Error::Stream(4)),
        (r#"{"streams":{}}"#.into(), Error::Field("streams")),
        (r#"{"streams":[1]}"#.into(), Error::Field("id")),
        (r#"{"streams":[{"id":1}]}"#.into(), Error::Field("bytes")),
        (
            r#"{"streams":[{"id":1,"bytes":1},{"id":1,"bytes":1}]}"#.into(),
            Error::Stream(1),
        ),
        (
            r#"{"streams":[{"id":2,"bytes":1}]}"#.into(),
            Error::Stream(2),
        ),
    ] {
        assert_eq!(parse(&json), Err(error), "{json}");
    }
}

#[test]
fn strangers_are_turned_away_during_a_test() {
    let mut scene = Scene::new(3);
    let control = scene.pipes.connect(COOKIE);
    scene.settle();
    assert_eq!(scene.pipes.hear(control), [9]);
    let other = scene.pipes.connect(&[b'x'; 37]);
    scene.settle();
    assert_eq!(scene.pipes.hear(other), [255]);
    assert!(scene.pipes.pipes[other].server_ended);
}

#[test]
fn a_client_that_ends_its_test_or_is_silent_is_reported() {
    let mut scene = Scene::new(4);
    let control = scene.pipes.connect(COOKIE);
    scene.settle();
    scene.pipes.say_json(control, r#"{"tcp":true}"#);
    scene.settle();
    scene.pipes.say(control, &[12]);
    scene.settle();
    assert_eq!(scene.outcomes, [Err(Error::Terminated)]);
    let mut scene = Scene::new(5);
    scene.pipes.connect(COOKIE);
    scene.settle();
    scene.now += SILENCE - Duration::from_secs(1);
    scene.settle();
    assert_eq!(scene.outcomes, []);
    scene.now += Duration::from_secs(1);
    scene.settle();
    assert_eq!(scene.outcomes, [Err(Error::Silent)]);
}

/// As many as there are places, and more; the next client need not wait until they are given up.
#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    for (count, said) in [(CONNECTIONS, 0), (3 * CONNECTIONS, 36)] {
        let mut scene = Scene::new(6);
        for _ in 0..count {
            scene.pipes.connect(&COOKIE[..said]);
            scene.settle();
        }
        let before = scene.now;
        let plan = Plan {
            reverse: false,
            parallel: 16,
            bytes: 50_000,
            block: 1000,
        };
        let mut client = Client::new(&mut scene.pipes, plan);
        while scene.outcomes.is_empty() {
            assert!(
                scene.now < before + SILENCE / 2,
                "states {:?}",
                client.states
            );
            client.work(&mut scene.pipes);
            scene.tick();
        }
        assert!(scene.outcomes[0].is_ok(), "{:?}", scene.outcomes);
    }
}

/// Nor do they during a test: it has all of its streams, and a stranger is told that there is a test.
#[test]
fn a_test_among_silent_connections_goes_on() {
    let mut scene = Scene::new(7);
    let control = scene.pipes.connect(COOKIE);
    scene.settle();
    scene
        .pipes
        .say_json(control, r#"{"tcp":true,"parallel":16}"#);
    for _ in 0..CONNECTIONS {
        scene.pipes.connect(&[]);
        scene.settle();
    }
    for _ in 0..16 {
        scene.pipes.connect(COOKIE);
        scene.settle();
        scene.pipes.connect(&[]);
        scene.settle();
    }
    assert_eq!(scene.pipes.hear(control), [9, 10, 1, 2]);
    let other = scene.pipes.connect(&[b'x'; 37]);
    scene.settle();
    assert_eq!(scene.pipes.hear(other), [255]);
}
