//! iperf3's server, of one test at a time (`iperf_server_api.c`), over TCP connections that another stack has. Nothing in
//! here blocks, and nothing reads a clock.
//!
//! iperf3's own server counts what has come when the client says that the test is over. This one waits for as many bytes as
//! the client says it has sent, so that the two counts are the same unless bytes are lost.

mod protocol;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bareverbs_examples::Result;
use protocol::{COOKIE, Error, Frame, Parameters, state};

/// A test's streams, its control connection, and strangers, who are turned away. Those that say nothing make room for others.
pub(crate) const CONNECTIONS: usize = protocol::STREAMS + 4;
/// The longest time that a connection, or a test, is without a byte.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);
/// The bytes that are read or written at once.
const CHUNK: usize = 4096;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// There is none yet.
    Listening,
    Open,
    /// The peer says no more, and all that it said was read.
    Ended,
    /// It is no more, and may listen again.
    Over,
}

/// Places for connections to one port.
pub(crate) trait Connections {
    fn life(&self, at: usize) -> Life;
    /// Takes bytes that have come, as far as there are some and they fit. How many.
    fn read(&mut self, at: usize, space: &mut [u8]) -> usize;
    /// Sends bytes, as far as there is space. How many.
    fn write(&mut self, at: usize, bytes: &[u8]) -> usize;
    /// Says no more.
    fn close(&mut self, at: usize);
    fn abort(&mut self, at: usize);
    fn listen(&mut self, at: usize) -> Result<()>;
}

/// The use of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Free,
    /// So many bytes of the cookie have come.
    Cookie([u8; COOKIE], usize),
    Control,
    Stream,
    /// Its end is waited for.
    Leaving,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    role: Role,
    /// The number of the connection among all.
    number: u64,
    /// When a byte came or went.
    moved: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    /// Where its connection is, if it is still there.
    slot: Option<usize>,
    /// The number of that connection among all. By it the client numbers streams.
    number: u64,
    /// Bytes that were received or sent.
    bytes: u64,
    /// Bytes of the block that is being sent.
    block: u64,
    /// It is with the peer as well.
    ended: bool,
}

#[derive(Debug)]
enum Step {
    Parameters(Frame),
    /// The client is to be told of this, and no more.
    Refused(Error),
    /// The streams are awaited.
    Create,
    Running,
    /// The client's results are.
    Results(Frame),
    /// These are the client's counts; the rest of its bytes is awaited.
    Draining(Vec<u64>),
    /// The client is told everything.
    Done(Vec<u64>),
    /// And has said so.
    Over(Vec<u64>),
}

#[derive(Debug)]
struct Test {
    cookie: [u8; COOKIE],
    /// None once it is gone.
    control: Option<usize>,
    parameters: Parameters,
    streams: Vec<Stream>,
    step: Step,
    /// The bytes to write to the control connection.
    out: Vec<u8>,
    begin: Duration,
    took: Duration,
    moved: Duration,
}

/// A finished test.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Report {
    pub(crate) reverse: bool,
    /// Bytes of each stream, as counted here and by the client.
    pub(crate) streams: Vec<[u64; 2]>,
    took: Duration,
}

impl Report {
    /// Bytes of all streams, here.
    pub(crate) fn bytes(&self) -> u64 {
        self.streams.iter().map(|[here, _]| here).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [here, there] = if self.reverse {
            ["sent", "received"]
        } else {
            ["received", "sent"]
        };
        let theirs: u64 = self.streams.iter().map(|[_, theirs]| theirs).sum();
        let (streams, bytes, took) = (self.streams.len(), self.bytes(), self.took);
        write!(
            f,
            "iperf3: {streams} streams, {bytes} bytes {here} in {took:?}, {theirs} {there} by the client"
        )
    }
}

/// The end of a test.
pub(crate) type Outcome = std::result::Result<Report, Error>;

#[derive(Debug)]
pub(crate) struct Server {
    slots: [Slot; CONNECTIONS],
    /// Connections so far.
    connected: u64,
    test: Option<Test>,
}

impl Server {
    /// On as many places as [`CONNECTIONS`], which listen from now on.
    pub(crate) fn new(connections: &mut impl Connections) -> Result<Self> {
        for at in 0..CONNECTIONS {
            connections.listen(at)?;
        }
        let free = Slot {
            role: Role::Free,
            number: 0,
            moved: Duration::ZERO,
        };
        Ok(Self {
            slots: [free; CONNECTIONS],
            connected: 0,
            test: None,
        })
    }

    /// `true` if there is no connection.
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.iter().all(|slot| slot.role == Role::Free)
    }

    /// Goes on with what has come. What has become of the test, if it is over.
    pub(crate) fn work(
        &mut self,
        now: Duration,
        connections: &mut impl Connections,
    ) -> Result<Option<Outcome>> {
        for at in 0..CONNECTIONS {
            self.attend(now, at, connections)?;
        }
        self.make_room(connections);
        let Some(mut test) = self.test.take() else {
            return Ok(None);
        };
        let outcome = match test.work(now, connections) {
            Ok(false) if now.saturating_sub(test.moved) < SILENCE => {
                self.test = Some(test);
                return Ok(None);
            }
            Ok(false) => Err(Error::Silent),
            Ok(true) => Ok(test.report()),
            Err(error) => Err(error),
        };
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if let Role::Control | Role::Stream = slot.role {
                slot.role = Role::Leaving;
                slot.moved = now;
                connections.close(at);
            }
        }
        Ok(Some(outcome))
    }

    fn attend(
        &mut self,
        now: Duration,
        at: usize,
        connections: &mut impl Connections,
    ) -> Result<()> {
        let slot = &mut self.slots[at];
        let life = connections.life(at);
        match life {
            Life::Listening => {
                slot.role = Role::Free;
                return Ok(());
            }
            Life::Over => {
                if let Some(test) = &mut self.test {
                    test.lose(at);
                }
                slot.role = Role::Free;
                return connections.listen(at);
            }
            Life::Open | Life::Ended => {}
        }
        if slot.role == Role::Free {
            slot.role = Role::Cookie([0; COOKIE], 0);
            slot.number = self.connected;
            self.connected += 1;
            slot.moved = now;
        }
        let moved = match slot.role {
            Role::Free | Role::Control => return Ok(()),
            Role::Cookie(mut cookie, filled) => {
                let length = connections.read(at, &mut cookie[filled..]);
                slot.role = Role::Cookie(cookie, filled + length);
                if filled + length == COOKIE {
                    self.place(now, at, cookie, connections);
                } else if life == Life::Ended {
                    slot.role = Role::Leaving;
                    connections.close(at);
                }
                length > 0
            }
            Role::Stream => match &mut self.test {
                Some(test) => test.transfer(at, life, now, connections),
                None => false,
            },
            Role::Leaving => {
                if life == Life::Ended {
                    connections.close(at);
                }
                discard(at, connections) > 0
            }
        };
        let slot = &mut self.slots[at];
        if moved && slot.role != Role::Leaving {
            slot.moved = now;
        } else if now.saturating_sub(slot.moved) >= SILENCE
            && let Role::Cookie(..) | Role::Leaving = slot.role
        {
            connections.abort(at);
        }
        Ok(())
    }

    /// Keeps a place free, and while the client of a test says what it wants one for each of its streams: those that have not
    /// said who they are end, the oldest first, and then those that leave. So connections that say nothing do not keep others
    /// out.
    fn make_room(&self, connections: &mut impl Connections) {
        let begins = |test: &Test| matches!(test.step, Step::Parameters(_));
        let streams = match self.test.as_ref().is_some_and(begins) {
            true => protocol::STREAMS,
            false => 0,
        };
        let (mut free, mut idle) = (0, Vec::new());
        for (at, slot) in self.slots.iter().enumerate() {
            match (connections.life(at), slot.role) {
                (Life::Listening | Life::Over, _) => free += 1,
                (_, Role::Cookie(..)) => idle.push((false, slot.number, at)),
                (_, Role::Leaving) => idle.push((true, slot.number, at)),
                _ => {}
            }
        }
        idle.sort_unstable();
        let ending = (streams + 1).saturating_sub(free);
        for (_, _, at) in idle.into_iter().take(ending) {
            connections.abort(at);
        }
    }

    /// Gives a connection its role, by its cookie.
    fn place(
        &mut self,
        now: Duration,
        at: usize,
        cookie: [u8; COOKIE],
        connections: &mut impl Connections,
    ) {
        let slot = &mut self.slots[at];
        match &mut self.test {
            None => {
                slot.role = Role::Control;
                self.test = Some(Test::new(now, at, cookie));
            }
            Some(test) if test.expects(&cookie) => {
                slot.role = Role::Stream;
                test.add_stream(at, slot.number, now);
            }
            Some(_) => {
                slot.role = Role::Leaving;
                connections.write(at, &[state::ACCESS_DENIED]);
                connections.close(at);
            }
        }
    }
}

/// Reads what is of no use. How much that was.
fn discard(at: usize, connections: &mut impl Connections) -> u64 {
    let mut bytes = [0; CHUNK];
    let mut all = 0;
    loop {
        match connections.read(at, &mut bytes) {
            0 => return all,
            length => all += length as u64,
        }
    }
}

impl Test {
    fn new(now: Duration, control: usize, cookie: [u8; COOKIE]) -> Self {
        Self {
            cookie,
            control: Some(control),
            parameters: Parameters {
                reverse: false,
                parallel: 0,
                bytes: None,
                block: 0,
            },
            streams: Vec::new(),
            step: Step::Parameters(Frame::parameters()),
            out: vec![state::PARAM_EXCHANGE],
            begin: now,
            took: Duration::ZERO,
            moved: now,
        }
    }

    fn expects(&self, cookie: &[u8; COOKIE]) -> bool {
        matches!(self.step, Step::Create) && self.cookie == *cookie
    }

    fn add_stream(&mut self, at: usize, number: u64, now: Duration) {
        self.streams.push(Stream {
            slot: Some(at),
            number,
            bytes: 0,
            block: 0,
            ended: false,
        });
        // Cookies may come in another order.
        self.streams.sort_by_key(|stream| stream.number);
        self.moved = now;
        if self.streams.len() == self.parameters.parallel {
            self.out.extend([state::TEST_START, state::TEST_RUNNING]);
            self.step = Step::Running;
            self.begin = now;
        }
    }

    /// A connection is over.
    fn lose(&mut self, at: usize) {
        self.control = self.control.filter(|control| *control != at);
        if let Some(stream) = self.stream(at) {
            stream.ended = true;
            stream.slot = None;
        }
    }

    fn stream(&mut self, at: usize) -> Option<&mut Stream> {
        self.streams
            .iter_mut()
            .find(|stream| stream.slot == Some(at))
    }

    /// Sends blocks, as many as there are to be of all streams, as far as there is space. How many bytes that were.
    fn send(&mut self, at: usize, connections: &mut impl Connections) -> u64 {
        let Parameters { bytes, block, .. } = self.parameters;
        let begun = self
            .streams
            .iter()
            .map(|stream| stream.bytes + stream.block);
        let mut left = bytes.map_or(u64::MAX, |all| all.saturating_sub(begun.sum()));
        let mut sent = 0;
        let Some(stream) = self.stream(at) else {
            return 0;
        };
        loop {
            if stream.block == 0 {
                if left == 0 {
                    return sent;
                }
                left = left.saturating_sub(block);
                stream.block = block;
            }
            let length = stream.block.min(CHUNK as u64) as usize;
            match connections.write(at, &[0xa5; CHUNK][..length]) as u64 {
                0 => return sent,
                length => {
                    stream.block -= length;
                    stream.bytes += length;
                    sent += length;
                }
            }
        }
    }

    /// Bytes of a stream. Whether some came or went.
    fn transfer(
        &mut self,
        at: usize,
        life: Life,
        now: Duration,
        connections: &mut impl Connections,
    ) -> bool {
        let received = discard(at, connections);
        let reverse = self.parameters.reverse;
        let sent = match &self.step {
            Step::Running if reverse => self.send(at, connections),
            _ => 0,
        };
        if let Some(stream) = self.stream(at) {
            stream.ended |= life == Life::Ended;
            if !reverse {
                stream.bytes += received;
            }
        }
        if life == Life::Ended {
            connections.close(at);
        }
        let moved = received + sent > 0;
        if moved {
            self.moved = now;
        }
        moved
    }

    /// Goes on with the control connection. Whether the test is over.
    fn work(
        &mut self,
        now: Duration,
        connections: &mut impl Connections,
    ) -> std::result::Result<bool, Error> {
        let Some(control) = self.control else {
            return self.end();
        };
        loop {
            let written = connections.write(control, &self.out);
            self.out.drain(..written);
            let ended = connections.life(control) == Life::Ended;
            let moved = self.step(now, control, connections)?;
            if let Step::Over(_) = self.step {
                return Ok(true);
            }
            if moved || written > 0 {
                self.moved = now;
            } else if ended {
                return self.end();
            } else {
                return Ok(false);
            }
        }
    }

    /// The client is gone: after it was told everything, or too early.
    fn end(&self) -> std::result::Result<bool, Error> {
        match self.step {
            Step::Refused(error) => Err(error),
            Step::Done(_) if self.out.is_empty() => Ok(true),
            _ => Err(Error::Closed),
        }
    }

    /// Takes what has come on the control connection. Whether anything has changed.
    fn step(
        &mut self,
        now: Duration,
        control: usize,
        connections: &mut impl Connections,
    ) -> std::result::Result<bool, Error> {
        match &mut self.step {
            Step::Parameters(frame) => {
                let parameters = match fill(frame, control, connections) {
                    Ok(true) if frame.missing() == Ok(0) => Parameters::parse(frame),
                    Ok(moved) => return Ok(moved),
                    Err(error) => Err(error),
                };
                match parameters {
                    Ok(parameters) => {
                        self.parameters = parameters;
                        self.out.push(state::CREATE_STREAMS);
                        self.step = Step::Create;
                    }
                    Err(error) => {
                        self.out.extend(error.to_message());
                        self.step = Step::Refused(error);
                    }
                }
                Ok(true)
            }
            Step::Refused(error) if self.out.is_empty() => Err(*error),
            Step::Refused(_) => Ok(false),
            Step::Results(frame) => {
                let moved = fill(frame, control, connections)?;
                if frame.missing()? == 0 {
                    let counts = protocol::parse_results(frame, self.streams.len())?;
                    self.step = Step::Draining(counts);
                }
                Ok(moved)
            }
            Step::Draining(counts) => {
                let reverse = self.parameters.reverse;
                let mut pairs = self.streams.iter().zip(&*counts);
                if !pairs.all(|(stream, sent)| reverse || stream.ended || stream.bytes >= *sent) {
                    return Ok(false);
                }
                let bytes = self.streams.iter().map(|stream| stream.bytes);
                let results = protocol::results(bytes, reverse, self.took.as_secs_f64());
                self.out.extend(results);
                self.out.push(state::DISPLAY_RESULTS);
                self.step = Step::Done(std::mem::take(counts));
                Ok(true)
            }
            Step::Create | Step::Running | Step::Done(_) => {
                let mut said = [0];
                if connections.read(control, &mut said) == 0 {
                    return Ok(false);
                }
                match (&mut self.step, said[0]) {
                    (Step::Running, state::TEST_END) => {
                        self.took = now.saturating_sub(self.begin);
                        self.out.push(state::EXCHANGE_RESULTS);
                        self.step = Step::Results(Frame::results());
                    }
                    (Step::Done(counts), state::IPERF_DONE) => {
                        self.step = Step::Over(std::mem::take(counts));
                    }
                    (_, state::CLIENT_TERMINATE) => return Err(Error::Terminated),
                    (_, said) => return Err(Error::State(said)),
                }
                Ok(true)
            }
            Step::Over(_) => Ok(false),
        }
    }

    fn report(self) -> Report {
        let (Step::Done(counts) | Step::Over(counts)) = self.step else {
            return Report::default();
        };
        let streams = self.streams.iter().zip(counts);
        Report {
            reverse: self.parameters.reverse,
            streams: streams.map(|(here, there)| [here.bytes, there]).collect(),
            took: self.took,
        }
    }
}

/// Reads on. Whether something has come.
fn fill(
    frame: &mut Frame,
    at: usize,
    connections: &mut impl Connections,
) -> std::result::Result<bool, Error> {
    let mut bytes = [0; CHUNK];
    let mut moved = false;
    loop {
        let space = frame.missing()?.min(CHUNK);
        match connections.read(at, &mut bytes[..space]) {
            0 => return Ok(moved),
            length => frame.extend(&bytes[..length]),
        }
        moved = true;
    }
}
