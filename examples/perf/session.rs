//! Two ends with two connections: one for control messages, one for what is measured.

use std::time::{Duration, Instant};

use bareverbs::cm::rdma::{
    AddrInfo, CmId, ConnParam, Endpoint, IdOption, IdState, QpInit, RdmaCm, RdmaError, Resolver,
};
use bareverbs::verbs::qp::QpCap;
use bareverbs::verbs::{Access, Buffer, Platform, Remote, Sge};

use super::protocol::{Answer, Ask, Hello, MESSAGE, Welcome};
use super::test::Test;
use bareverbs_examples::channel::{self, ChannelError, Received, SILENCE};
use bareverbs_examples::program::seed;
use bareverbs_examples::{Error, Result};
use bareverbs_node::Unreached;

/// After how long without a message an end checks that its peer is still there.
const QUIET: Duration = Duration::from_secs(1);
/// 268 ms, and eight of them until an end counts as gone.
const ACK_TIMEOUT: u8 = 16;
/// Polls of the completion queues before one for the device's events.
const ROUND: u32 = 64;
/// The same before one for the other end's messages.
const LISTEN: u32 = 16 * ROUND;
/// Work requests for permissions to send, beside those for data.
pub(crate) const SPARE: u32 = 8;

/// The access rights of the other end, beside atomics where the device has them.
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ);

/// Why atomics are not measured.
const NO_ATOMICS: &str = "no 8-byte atomics in the host's byte order";

type Channel<'d, P> = channel::Channel<'d, P, MESSAGE>;

/// The end of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// The purpose of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of the largest message.
    pub(crate) largest: u32,
    /// The most messages in flight.
    pub(crate) deepest: u32,
}

impl Limits {
    /// Receives for data: as many messages may be under way that were not granted again.
    pub(crate) fn receives(self) -> u32 {
        (2 * self.deepest).max(64)
    }

    fn queues<'a, 'd, P: Platform>(self) -> QpInit<'a, 'd, P> {
        QpInit {
            cap: QpCap {
                max_send_wr: self.deepest + SPARE,
                max_recv_wr: self.receives() + SPARE,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..QpInit::default()
        }
    }
}

/// The queues and memory of an end, when nothing is in the way.
pub(crate) type Data<'a, 'd, P> = Endpoint<'a, 'd, P>;

/// One end.
pub(crate) struct Session<'c, 's, 'd, P: Platform, R> {
    pub(crate) cm: &'c mut RdmaCm<'s, 'd, P, R>,
    pub(crate) limits: Limits,
    /// Where messages come.
    pub(crate) inbox: Buffer<'d, P>,
    /// The bytes to send; READs and atomics leave their results here as well.
    pub(crate) outbox: Buffer<'d, P>,
    /// The other end's inbox.
    pub(crate) remote: Remote,
    /// `true` if the server's device has atomics; this end's may have none all the same.
    server_atomics: bool,
    control: Channel<'d, P>,
    data: CmId,
    role: Role,
    /// A message that came while something else was waited for.
    pending_message: Option<[u8; MESSAGE]>,
    /// The other end has failed, or disconnected.
    over: bool,
    /// Polls for what was waited for; those that found something at once count for one.
    turns: u32,
    /// When the other end was known to be there.
    probed: Instant,
}

/// With what both ends connect. A SEND that finds no receive is an error: there has to be one.
fn conn_param(private_data: &[u8]) -> ConnParam<'_> {
    ConnParam {
        private_data,
        rnr_retry_count: 0,
        ..ConnParam::default()
    }
}

impl<'c, 's, 'd, P: Platform, R: Resolver> Session<'c, 's, 'd, P, R> {
    /// A client's end.
    pub(crate) fn connect(
        cm: &'c mut RdmaCm<'s, 'd, P, R>,
        address: &AddrInfo,
        limits: Limits,
    ) -> Result<Self> {
        let id = cm
            .create_ep(address, None, Some(&mut Channel::queues()))
            .map_err(Unreached::resolving(address))?;
        let control = Channel::new(cm, id, SILENCE)?;
        let (inbox, outbox) = boxes(cm, id, limits)?;
        let hello = Hello::Session {
            largest: limits.largest,
            deepest: limits.deepest,
            memory: remote(&inbox),
        };
        open(cm, id, address, hello)?;
        let event = cm.event(id)?.ok_or("no answer from the server")?;
        let welcome = Welcome::from_bytes(event.private_data())
            .map_err(|why| format!("the server is {why}"))?;

        let data = cm
            .create_ep(address, None, Some(&mut limits.queues()))
            .map_err(Unreached::resolving(address))?;
        fill_receive_queue(cm, data, &inbox)?;
        let session = welcome.session;
        open(cm, data, address, Hello::Data { session })?;
        Ok(Self {
            cm,
            limits,
            inbox,
            outbox,
            remote: welcome.memory,
            server_atomics: welcome.atomics,
            control,
            data,
            role: Role::Client,
            pending_message: None,
            over: false,
            turns: 0,
            probed: Instant::now(),
        })
    }

    /// A server's end. Requests that are not from this program are rejected.
    pub(crate) fn accept(cm: &'c mut RdmaCm<'s, 'd, P, R>, listener: CmId) -> Result<Self> {
        let (id, limits, remote_memory) = loop {
            let (id, hello) = request(cm, listener, None)?;
            match hello {
                Ok(Hello::Session {
                    largest,
                    deepest,
                    memory,
                }) => break (id, Limits { largest, deepest }, memory),
                Ok(Hello::Data { .. }) => refuse(cm, id, "no such session")?,
                Err(why) => refuse(cm, id, why)?,
            }
        };
        cm.create_qp(id, None, &mut Channel::queues())?;
        let control = Channel::new(cm, id, SILENCE)?;
        let (inbox, outbox) = boxes(cm, id, limits)?;
        let session = seed();
        let welcome = Welcome {
            session,
            memory: remote(&inbox),
            atomics: cm.device().capabilities().has_atomics(),
        };
        cm.accept(id, Some(&conn_param(&welcome.to_bytes())))?;

        let deadline = cm.now() + SILENCE;
        let data = loop {
            let (id, hello) = request(cm, listener, Some(deadline))?;
            match hello {
                Ok(Hello::Data { session: given }) if given == session => break id,
                Ok(_) => refuse(cm, id, "busy with another client")?,
                Err(why) => refuse(cm, id, why)?,
            }
        };
        cm.create_qp(data, None, &mut limits.queues())?;
        fill_receive_queue(cm, data, &inbox)?;
        cm.accept(data, Some(&conn_param(&[])))?;
        Ok(Self {
            cm,
            limits,
            inbox,
            outbox,
            remote: remote_memory,
            server_atomics: welcome.atomics,
            control,
            data,
            role: Role::Server,
            pending_message: None,
            over: false,
            turns: 0,
            probed: Instant::now(),
        })
    }

    fn peer(&self) -> &'static str {
        match self.role {
            Role::Client => "server",
            Role::Server => "client",
        }
    }

    /// Why a test cannot be done on these devices, if it cannot.
    pub(crate) fn refusal(&self, test: &Test) -> Option<String> {
        if !test.verb.is_atomic() {
            return None;
        }
        let ours = self.cm.device().capabilities().has_atomics();
        let whose = match (ours, self.server_atomics) {
            (true, true) => return None,
            (false, _) => "this device has",
            (true, false) => "the server's device has",
        };
        Some(format!("{}: {whose} {NO_ATOMICS}", test.name()))
    }

    /// The bytes to send.
    pub(crate) fn outgoing(&self, size: u32) -> Result<Sge> {
        Ok(self.outbox.sge(0, size as usize).ok_or("too large")?)
    }

    /// The verbs objects of what is measured.
    pub(crate) fn data(&mut self) -> Result<Data<'_, 'd, P>> {
        Ok(self.cm.endpoint(self.data)?)
    }

    /// Spins until there is something, and keeps everything going meanwhile. A server that heeds the client ends, with
    /// `None`, when a message has arrived; in the middle of a test a client gets no message but a failure.
    pub(crate) fn watch<T>(
        &mut self,
        heed: bool,
        mut done: impl FnMut(&mut Data<'_, 'd, P>, &Buffer<'d, P>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let started = Instant::now();
        let device = self.cm.device();
        let mut step = 1;
        loop {
            // An end that finds something every time has to look after the rest as well, if less often.
            let turns = self.turns;
            self.turns = turns.wrapping_add(step);
            if turns / ROUND != self.turns / ROUND {
                device.poll()?;
            }
            if turns / LISTEN != self.turns / LISTEN {
                self.listen()?;
                if started.elapsed() > SILENCE {
                    return Err(format!("nothing happened for {SILENCE:?}").into());
                }
            }
            match (&self.pending_message, self.role) {
                (Some(_), Role::Client) => return Err(self.unexpected()),
                (Some(_), Role::Server) if heed => return Ok(None),
                _ => {}
            }
            let mut data = self.cm.endpoint(self.data)?;
            for _ in 0..ROUND {
                if let Some(found) = done(&mut data, &self.inbox)? {
                    return Ok(Some(found));
                }
                device.platform().relax();
            }
            step = ROUND;
        }
    }

    /// The same, without regard to messages of the client.
    pub(crate) fn spin<T>(
        &mut self,
        done: impl FnMut(&mut Data<'_, 'd, P>, &Buffer<'d, P>) -> Result<Option<T>>,
    ) -> Result<T> {
        Ok(self.watch(false, done)?.ok_or("nothing came of it")?)
    }

    /// Looks for a message, and now and then whether the other end is still there.
    fn listen(&mut self) -> Result<()> {
        if self.pending_message.is_none() {
            match self.control.message(self.cm, Duration::ZERO)? {
                Received::Message(bytes) => self.pending_message = Some(bytes),
                Received::Disconnected => return Err(self.gone()),
                Received::Nothing => {}
            }
        }
        // A peer that has said something may have left since.
        if self.pending_message.is_none() && self.probed.elapsed() > QUIET {
            self.probe()?;
        }
        Ok(())
    }

    /// Writes nothing into the other end's memory, which it has to acknowledge all the same.
    fn probe(&mut self) -> Result<()> {
        let flags = bareverbs::verbs::SendFlags::SIGNALED;
        let posted = self
            .cm
            .post_writev(self.control.id, 0, &[], flags, self.remote);
        let sent = posted
            .map_err(ChannelError::from)
            .and_then(|()| self.control.sent(self.cm, "RDMA WRITE of nothing"));
        self.probed = Instant::now();
        let Err(error) = sent else {
            return Ok(());
        };
        // A peer that has just left may have said why.
        if self.pending_message.is_none()
            && let Ok(Received::Message(bytes)) = self.control.message(self.cm, Duration::ZERO)
        {
            self.pending_message = Some(bytes);
            return Ok(());
        }
        Err(format!("the {} does not answer: {error}", self.peer()).into())
    }

    /// Waits for a message, at most so long.
    fn receive(&mut self, timeout: Duration) -> Result<[u8; MESSAGE]> {
        let started = Instant::now();
        loop {
            if let Some(bytes) = self.pending_message.take() {
                return Ok(bytes);
            }
            match self.control.message(self.cm, QUIET)? {
                Received::Message(bytes) => return Ok(bytes),
                Received::Disconnected => return Err(self.gone()),
                Received::Nothing => self.probe()?,
            }
            if started.elapsed() > timeout {
                let peer = self.peer();
                return Err(format!("the {peer} has said nothing for {timeout:?}").into());
            }
        }
    }

    fn gone(&mut self) -> Error {
        self.over = true;
        format!("the {} has disconnected before it was done", self.peer()).into()
    }

    /// The error for a message that the server should not have sent.
    fn unexpected(&mut self) -> Error {
        let answer = self.pending_message.take();
        match answer.as_ref().and_then(Answer::from_bytes) {
            Some(Answer::Failed(why)) => {
                self.over = true;
                format!("the server: {why}").into()
            }
            other => format!("the server says {other:?} where it has nothing to say").into(),
        }
    }

    /// As the client: asks the server for something. Its answer.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Result<Answer> {
        self.control.send(self.cm, &ask.to_bytes())?;
        let bytes = self.receive(SILENCE)?;
        match Answer::from_bytes(&bytes) {
            Some(Answer::Failed(_)) => {
                self.pending_message = Some(bytes);
                Err(self.unexpected())
            }
            Some(answer) => Ok(answer),
            None => Err("the server's answer is invalid".into()),
        }
    }

    /// As the server: what the client asks for next.
    pub(crate) fn asked(&mut self) -> Result<Ask> {
        let bytes = self.receive(Duration::MAX)?;
        match Ask::from_bytes(&bytes) {
            Some(Ask::Failed(why)) => {
                self.over = true;
                Err(format!("the client: {why}").into())
            }
            Some(ask) => Ok(ask),
            None => Err("the client's request is invalid".into()),
        }
    }

    /// As the server: answers.
    pub(crate) fn answer(&mut self, answer: &Answer) -> Result<()> {
        Ok(self.control.send(self.cm, &answer.to_bytes())?)
    }

    /// Takes the connections down, if the other end is there to take part. `result` is what the session came to.
    pub(crate) fn close<T>(mut self, result: Result<T>) -> Result<T> {
        let there = self.part(result.as_ref().err()).is_ok();
        let Self {
            cm, control, data, ..
        } = self;
        let ids = [control.id, data];
        drop((control, self.inbox, self.outbox));
        let mut down = || {
            // A peer that does not answer gets no DREQ: that would be repeated for a long time.
            for id in ids.into_iter().filter(|_| there) {
                cm.disconnect(id)?;
            }
            for id in ids {
                cm.destroy_ep(id)?;
            }
            Ok(())
        };
        let down = down();
        result.and_then(|result| down.map(|()| result))
    }

    /// Sends how it ended, unless the peer has that already. It is the client that disconnects first.
    fn part(&mut self, error: Option<&Error>) -> Result<()> {
        let last = match (self.role, error) {
            _ if self.over => None,
            (Role::Client, None) => Some(Ask::Bye.to_bytes()),
            (Role::Client, Some(why)) => Some(Ask::Failed(why.to_string()).to_bytes()),
            (Role::Server, None) => None,
            (Role::Server, Some(why)) => Some(Answer::Failed(why.to_string()).to_bytes()),
        };
        if let Some(last) = last {
            self.control.send(self.cm, &last)?;
        }
        while self.role == Role::Server && self.cm.state(self.control.id)? != IdState::Disconnect {
            // The remaining messages of the client.
            if let Received::Nothing = self.control.message(self.cm, QUIET)? {
                self.probe()?;
            }
        }
        Ok(())
    }
}

/// An end's memory: for what comes, and for what goes. Atomics require 8 bytes at a multiple of 8.
fn boxes<'d, P: Platform, R: Resolver>(
    cm: &RdmaCm<'_, 'd, P, R>,
    id: CmId,
    limits: Limits,
) -> Result<(Buffer<'d, P>, Buffer<'d, P>)> {
    let size = (limits.largest as usize).next_multiple_of(64);
    let pd = cm.pd(id)?;
    let mut access = ALL;
    let atomics = cm.device().capabilities().has_atomics();
    access.set(Access::REMOTE_ATOMIC, atomics);
    Ok((
        pd.alloc_buffer(size, access)?,
        pd.alloc_buffer(size, Access::LOCAL_WRITE)?,
    ))
}

fn remote<P: Platform>(inbox: &Buffer<'_, P>) -> Remote {
    Remote {
        addr: inbox.addr(),
        rkey: inbox.rkey(),
    }
}

/// Posts all the receives that there can be; each that is used is replaced.
fn fill_receive_queue<'d, P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, 'd, P, R>,
    id: CmId,
    inbox: &Buffer<'d, P>,
) -> Result<()> {
    let whole = inbox.sge(0, inbox.len()).ok_or("too large")?;
    let endpoint = cm.endpoint(id)?;
    let queue = endpoint.qp.recv_queue();
    while queue.free() > 0 {
        queue.post(0, &[whole])?;
    }
    Ok(())
}

/// Connects as a client.
fn open<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    id: CmId,
    address: &AddrInfo,
    hello: Hello,
) -> Result<()> {
    cm.set_option(id, IdOption::AckTimeout(ACK_TIMEOUT))?;
    match cm.connect(id, Some(&conn_param(&hello.to_bytes()))) {
        Err(error @ RdmaError::Rejected(_)) => {
            let event = cm.event(id)?;
            let why = event.as_ref().map_or(&[][..], |event| event.private_data());
            let why = String::from_utf8_lossy(why);
            let why = why.trim_end_matches('\0').replace(char::is_control, "?");
            if why.is_empty() {
                return Err(Unreached::connecting(address)(error).into());
            }
            Err(format!("the server refused: {why}").into())
        }
        other => Ok(other.map_err(Unreached::connecting(address))?),
    }
}

/// The next connection request, and its private data.
fn request<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    listener: CmId,
    deadline: Option<Duration>,
) -> Result<(CmId, std::result::Result<Hello, &'static str>)> {
    let id = loop {
        match cm.get_request_until(listener, deadline.unwrap_or(Duration::MAX)) {
            Ok(id) => break id,
            // One that was withdrawn.
            Err(RdmaError::Event { .. }) => {}
            Err(RdmaError::TimedOut) => {
                return Err("the client has not connected a second time, for data".into());
            }
            Err(error) => return Err(error.into()),
        }
    };
    let event = cm.event(id)?;
    let hello = event.as_ref().map_or(&[][..], |event| event.private_data());
    Ok((id, Hello::from_bytes(hello)))
}

fn refuse<P: Platform, R: Resolver>(
    cm: &mut RdmaCm<'_, '_, P, R>,
    id: CmId,
    why: &str,
) -> Result<()> {
    log::warn!("a client was refused: {why}");
    cm.reject(id, why.as_bytes())?;
    Ok(cm.destroy_ep(id)?)
}
