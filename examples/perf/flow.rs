//! Messages as fast as they go, with so many in flight.
//!
//! SENDs need receives. Each end has as many posted as [`Limits::receives`](super::session::Limits::receives) says, posts
//! a new one for each that is used, and for every quarter of them sends an empty message: the permission for a quarter
//! more. So a sender that is faster than the receiver waits for permission, and no message ever finds no receive.

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use bareverbs::cm::rdma::Resolver;
use bareverbs::verbs::{Buffer, Completion, Cq, Platform, Remote, SendFlags, Sge, WcStatus};

use bareverbs_examples::times::Times;

use super::protocol::Tally;
use super::session::{Data, Session};
use super::test::{Kind, Test, Verb};
use bareverbs_examples::Result;

/// Work requests by what they do.
const DATA: u64 = 0;
const GRANT: u64 = 1;

/// The end of a test: after a number of messages or a time, or at the other end's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Budget {
    Messages(u64),
    Time(Duration),
    /// Until the other end has had enough.
    Asked,
}

impl Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Messages(count) => write!(f, "{count} messages"),
            Self::Time(time) => write!(f, "{} s", time.as_secs_f64()),
            Self::Asked => f.write_str("as long as the other end asks"),
        }
    }
}

impl Budget {
    /// The number of messages that may still be posted.
    pub(crate) fn left(self, started: Instant, posted: u64) -> u64 {
        match self {
            Self::Messages(all) => all.saturating_sub(posted),
            Self::Time(time) if started.elapsed() >= time => 0,
            Self::Time(_) | Self::Asked => u64::MAX,
        }
    }
}

/// One end's part of a test.
pub(crate) struct Flow {
    test: Test,
    sge: Sge,
    remote: Remote,
    whole_inbox: Sge,
    quarter: u64,
    /// Messages that may be posted; all of them, where no receive is needed.
    allowed: u64,
    posted: u64,
    sent: u64,
    received: u64,
    given: u64,
    given_sent: u64,
    got: u64,
    /// The other end needs no more permissions.
    ending: bool,
}

/// The completions that the queues had.
#[derive(Default)]
struct Reaped {
    sent: u64,
    given: u64,
    received: u64,
    got: u64,
}

impl Flow {
    pub(crate) fn new<P: Platform, R: Resolver>(
        session: &Session<'_, '_, '_, P, R>,
        test: Test,
    ) -> Result<Self> {
        let receives = session.limits.receives();
        let inbox = &session.inbox;
        Ok(Self {
            test,
            sge: session.outgoing(test.size)?,
            remote: session.remote,
            whole_inbox: inbox.sge(0, inbox.len()).ok_or("too large")?,
            quarter: u64::from(receives / 4),
            allowed: match test.verb {
                Verb::Send => receives.into(),
                _ => u64::MAX,
            },
            posted: 0,
            sent: 0,
            received: 0,
            given: 0,
            given_sent: 0,
            got: 0,
            ending: false,
        })
    }

    /// Works off a budget; an end that sends nothing works until its peer is done.
    pub(crate) fn run<P: Platform, R: Resolver>(
        &mut self,
        session: &mut Session<'_, '_, '_, P, R>,
        sends: bool,
        meter: &mut Meter,
    ) -> Result<()> {
        loop {
            if sends {
                let left = meter.budget.left(meter.started, self.posted);
                let at = meter.stamp();
                let posted = self.post(session, left)?;
                meter.posted(at, posted);
                if left == 0 && self.is_settled() {
                    return Ok(());
                }
            }
            match self.reap(session, meter.budget == Budget::Asked)? {
                Some(0) => {}
                Some(sent) => meter.sent(sent),
                None => return Ok(()),
            }
        }
    }

    /// Waits until everything has arrived, here and there. What this end did.
    pub(crate) fn finish<P: Platform, R: Resolver>(
        &mut self,
        session: &mut Session<'_, '_, '_, P, R>,
        theirs: Option<Tally>,
    ) -> Result<()> {
        self.ending = true;
        let all_there = |flow: &Self| match theirs {
            Some(theirs) if flow.test.verb == Verb::Send => {
                flow.received >= theirs.sent && flow.got >= theirs.grants
            }
            _ => true,
        };
        while !(self.is_settled() && all_there(self)) {
            self.reap(session, false)?;
        }
        match theirs {
            Some(theirs) if self.test.verb == Verb::Send && self.received != theirs.sent => {
                let Self { received, .. } = self;
                Err(format!("{received} messages came, {} were sent", theirs.sent).into())
            }
            _ => Ok(()),
        }
    }

    fn is_settled(&self) -> bool {
        self.sent == self.posted && self.given == self.given_sent
    }

    /// For the peer.
    pub(crate) fn tally(&self, meter: &Meter) -> Tally {
        Tally {
            sent: self.sent,
            grants: self.given,
            nanos: u64::try_from(meter.elapsed().as_nanos()).unwrap_or(u64::MAX),
            peak: meter.peak as u64,
        }
    }

    /// Posts as many messages as may be in flight, with one doorbell. How many.
    fn post<P: Platform, R: Resolver>(
        &mut self,
        session: &mut Session<'_, '_, '_, P, R>,
        left: u64,
    ) -> Result<u64> {
        let in_flight = self.posted - self.sent;
        let free = u64::from(self.test.depth) - in_flight;
        let count = free.min(left).min(self.allowed - self.posted);
        if count > 0 {
            post(
                &mut session.data()?,
                self.test.verb,
                self.sge,
                self.remote,
                count,
            )?;
            self.posted += count;
        }
        Ok(count)
    }

    /// Waits for completions, and replaces receives. How many messages were completed; `None` if a message of the peer
    /// has arrived.
    fn reap<P: Platform, R: Resolver>(
        &mut self,
        session: &mut Session<'_, '_, '_, P, R>,
        heed: bool,
    ) -> Result<Option<u64>> {
        let receives = self.test.verb == Verb::Send;
        let reaped = session.watch(heed, |data, _| {
            let mut reaped = Reaped::default();
            each(&mut data.send_cq, |completion| {
                match completion.wr_id() {
                    GRANT => reaped.given += 1,
                    _ => reaped.sent += 1,
                };
            })?;
            if receives {
                each(&mut data.recv_cq, |completion| {
                    match completion.byte_len() {
                        0 => reaped.got += 1,
                        _ => reaped.received += 1,
                    };
                })?;
            }
            let some = reaped.sent + reaped.given + reaped.received + reaped.got > 0;
            Ok(some.then_some(reaped))
        })?;
        let Some(reaped) = reaped else {
            return Ok(None);
        };
        self.sent += reaped.sent;
        self.given_sent += reaped.given;
        self.received += reaped.received;
        self.got += reaped.got;
        self.allowed = self.allowed.saturating_add(reaped.got * self.quarter);
        let used = reaped.received + reaped.got;
        if used > 0 {
            self.replace(session, used)?;
        }
        Ok(Some(reaped.sent))
    }

    /// Posts receives for those that were used, and gives permission for them.
    fn replace<P: Platform, R: Resolver>(
        &mut self,
        session: &mut Session<'_, '_, '_, P, R>,
        used: u64,
    ) -> Result<()> {
        let data = session.data()?;
        let mut receives = data.qp.recv_queue().batch();
        for _ in 0..used {
            receives.post(0, &[self.whole_inbox])?;
        }
        drop(receives);
        while !self.ending && self.received / self.quarter > self.given {
            let nothing: &[Sge] = &[];
            let mut sends = data.qp.send_queue().batch();
            sends.send(GRANT, SendFlags::SIGNALED, nothing)?;
            self.given += 1;
        }
        Ok(())
    }
}

/// Posts `count` operations with one doorbell.
pub(crate) fn post<P: Platform>(
    data: &mut Data<'_, '_, P>,
    verb: Verb,
    sge: Sge,
    remote: Remote,
    count: u64,
) -> Result<()> {
    let flags = SendFlags::SIGNALED;
    let mut batch = data.qp.send_queue().batch();
    for _ in 0..count {
        match verb {
            Verb::Write => batch.write(DATA, flags, remote, sge)?,
            Verb::Read => batch.read(DATA, flags, remote, &[sge])?,
            Verb::Send => batch.send(DATA, flags, sge)?,
            Verb::FetchAdd => batch.fetch_add(DATA, flags, remote, 1, sge)?,
            // Finds what it expects every time.
            Verb::CmpSwap => batch.compare_swap(DATA, flags, remote, 0, 0, sge)?,
        }
    }
    Ok(())
}

/// Takes completions, which have to be good ones. How many there were.
pub(crate) fn each<P: Platform>(
    cq: &mut Option<&mut Cq<'_, P>>,
    mut take: impl FnMut(&Completion<'_>),
) -> Result<u64> {
    let cq = cq.as_mut().ok_or("no completion queue")?;
    let mut batch = cq.batch()?;
    let mut count = 0;
    while let Some(completion) = batch.next() {
        if completion.status() != WcStatus::Success {
            let wc = completion.to_wc();
            return Err(format!("{} (vendor error {:#x})", wc.status, wc.vendor_err).into());
        }
        take(&completion);
        count += 1;
    }
    Ok(count)
}

/// Replaces one receive.
pub(crate) fn expect<P: Platform>(data: &mut Data<'_, '_, P>, inbox: &Buffer<'_, P>) -> Result<()> {
    let whole = inbox.sge(0, inbox.len()).ok_or("too large")?;
    Ok(data.qp.recv_queue().post(0, &[whole])?)
}

/// Takes the time.
pub(crate) struct Meter {
    pub(crate) budget: Budget,
    pub(crate) started: Instant,
    ended: Instant,
    count: u64,
    /// When the current tenth of the budget began, and with which message.
    window: (Instant, u64),
    /// Messages a second in the fastest tenth.
    peak: f64,
    /// When messages were posted whose completions are not here yet; only for latencies.
    posted: Option<VecDeque<(Instant, u64)>>,
    pub(crate) times: Times,
}

impl Meter {
    pub(crate) fn new(kind: Kind, budget: Budget) -> Self {
        let started = Instant::now();
        Self {
            budget,
            started,
            ended: started,
            count: 0,
            window: (started, 0),
            peak: 0.0,
            posted: (kind == Kind::Load).then(VecDeque::new),
            times: Times::default(),
        }
    }

    /// The time, if it is of interest when a message is posted.
    fn stamp(&self) -> Option<Instant> {
        self.posted.as_ref().map(|_| Instant::now())
    }

    fn posted(&mut self, at: Option<Instant>, count: u64) {
        if let (Some(posted), Some(at)) = (&mut self.posted, at)
            && count > 0
        {
            posted.push_back((at, count));
        }
    }

    fn sent(&mut self, count: u64) {
        self.ended = Instant::now();
        self.count += count;
        if let Some(posted) = &mut self.posted {
            let mut left = count;
            while let Some((at, of)) = posted.front_mut()
                && left > 0
            {
                let now = left.min(*of);
                self.times.record(self.ended - *at, now);
                left -= now;
                *of -= now;
                if *of == 0 {
                    posted.pop_front();
                }
            }
        }
        let (since, from) = self.window;
        let (passed, time) = (self.count - from, self.ended - since);
        let over = match self.budget {
            Budget::Messages(all) => passed >= (all / 10).max(1),
            Budget::Time(all) => time >= all / 10,
            Budget::Asked => time >= Duration::from_millis(100),
        };
        if over {
            self.peak = self.peak.max(rate(passed, time));
            self.window = (self.ended, self.count);
        }
    }

    fn elapsed(&self) -> Duration {
        self.ended - self.started
    }

    /// Messages a second: in the fastest tenth of the time, and all in all.
    pub(crate) fn rates(&self) -> [f64; 2] {
        let average = rate(self.count, self.elapsed());
        [self.peak.max(average), average]
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}
