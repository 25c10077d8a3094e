//! The times of every step, and the table of them.

use std::fmt;
use std::time::Duration;

use bareverbs_examples::times;

/// The steps of a connection, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    CreateId,
    Bind,
    ResolveAddr,
    ResolveRoute,
    CreateQp,
    Connect,
    Disconnect,
    Destroy,
}

impl Step {
    pub(crate) const ALL: [Self; 8] = [
        Self::CreateId,
        Self::Bind,
        Self::ResolveAddr,
        Self::ResolveRoute,
        Self::CreateQp,
        Self::Connect,
        Self::Disconnect,
        Self::Destroy,
    ];

    /// The steps that establish a connection: rdma-core's "full connect".
    const UNTIL_ESTABLISHED: [Self; 6] = [
        Self::CreateId,
        Self::Bind,
        Self::ResolveAddr,
        Self::ResolveRoute,
        Self::CreateQp,
        Self::Connect,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::CreateId => "create id",
            Self::Bind => "bind addr",
            Self::ResolveAddr => "resolve addr",
            Self::ResolveRoute => "resolve route",
            Self::CreateQp => "create qp",
            Self::Connect => "connect",
            Self::Disconnect => "disconnect",
            Self::Destroy => "destroy",
        }
    }
}

/// From when to when.
#[derive(Debug, Default, Clone, Copy)]
struct Span {
    began: Duration,
    ended: Duration,
}

impl Span {
    fn length(self) -> Duration {
        self.ended.saturating_sub(self.began)
    }
}

/// When each step was begun and done for all connections, and how long it took for each: as large for ten thousand
/// connections as for one.
#[derive(Debug)]
pub(crate) struct Times {
    connections: usize,
    all: [Span; Step::ALL.len()],
    each: [times::Times; Step::ALL.len()],
}

impl Times {
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            connections,
            all: Default::default(),
            each: Default::default(),
        }
    }

    pub(crate) fn begin(&mut self, step: Step, now: Duration) {
        self.all[step as usize].began = now;
    }

    pub(crate) fn end(&mut self, step: Step, now: Duration) {
        self.all[step as usize].ended = now;
    }

    /// Records the time of a step for one connection.
    pub(crate) fn record(&mut self, step: Step, took: Duration) {
        self.each[step as usize].record(took, 1);
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections
    }

    /// For how many connections the step was recorded.
    #[cfg(test)]
    pub(crate) fn count(&self, step: Step) -> u64 {
        self.each[step as usize].count()
    }

    /// Half of the connections, and 99 of 100, took no longer than this for the step, to three digits.
    pub(crate) fn percentiles(&self, step: Step) -> [Duration; 2] {
        [0.5, 0.99].map(|share| self.each[step as usize].at(share))
    }

    /// Logs the times that the table does not have.
    pub(crate) fn log(&self) {
        for step in Step::ALL {
            let [p50, p99] = self.percentiles(step);
            log::info!("{}: p50 {p50:?}, p99 {p99:?}", step.name());
        }
    }

    /// The time of a step for all connections, and for the slowest and the fastest of them.
    pub(crate) fn step(&self, step: Step) -> [Duration; 3] {
        let each = &self.each[step as usize];
        [self.all[step as usize].length(), each.at(1.0), each.at(0.0)]
    }

    /// Connections per second in these steps.
    fn rate(&self, steps: &[Step]) -> f64 {
        let time: Duration = steps.iter().map(|&step| self.step(step)[0]).sum();
        self.connections() as f64 / time.as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for Times {
    /// rdma-core's table, and what it comes to.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "step              total ms     max ms     min us  us / conn"
        )?;
        for step in Step::ALL {
            let [total, max, min] = self.step(step).map(|time| time.as_secs_f64());
            writeln!(
                f,
                "{:13}: {:11.2}{:11.2}{:11.2}{:11.2}",
                step.name(),
                total * 1e3,
                max * 1e3,
                min * 1e6,
                total * 1e6 / self.connections() as f64
            )?;
        }
        writeln!(
            f,
            "{} connections: {:.0}/s from connect to established, {:.0}/s from create id on, {:.0}/s in all steps",
            self.connections(),
            self.rate(&[Step::Connect]),
            self.rate(&Step::UNTIL_ESTABLISHED),
            self.rate(&Step::ALL)
        )
    }
}
