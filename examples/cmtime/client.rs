//! The client takes all connections through each step together.

use std::time::Duration;

use bareverbs::cm::rdma::{
    ChannelId, CmEvent, CmId, ConnParam, EventType, PortSpace, RdmaError, SockAddr,
};
use bareverbs::verbs::Platform;

use crate::in_step::{InStep, Stage};
use crate::queues::{completions, queues};
use crate::report::{Step, Times};
use bareverbs_examples::Result;
use bareverbs_node::Cm;
use bareverbs_node::Unreached;

/// The longest time in which nothing at all happens.
const SILENCE: Duration = Duration::from_secs(60);
/// Calls between two looks at what came of them: every look costs a little, and being late costs the other end.
const LOOK: usize = 8;

/// The work of a client.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) connections: usize,
    pub(crate) here: SockAddr,
    pub(crate) server: SockAddr,
    pub(crate) retries: u8,
    pub(crate) timeout: Duration,
}

struct Connection {
    id: CmId,
    retries: u8,
    /// When the step that it is waited for in was begun for it.
    began: Option<Duration>,
    /// Nothing more is done with it.
    failed: bool,
}

pub(crate) struct Client<'c, 's, 'd, P: Platform> {
    cm: &'c mut Cm<'s, 'd, P>,
    plan: &'c Plan,
    channel: ChannelId,
    /// The context of an id is its place here.
    connections: Vec<Connection>,
    in_step: Option<&'c mut InStep>,
    /// The step that is waited for, and the number of connections that wait.
    step: Step,
    waiting: usize,
    times: Times,
    /// Why the first connection failed that did.
    failure: Option<String>,
}

impl<'c, 's, 'd, P: Platform> Client<'c, 's, 'd, P> {
    pub(crate) fn new(
        cm: &'c mut Cm<'s, 'd, P>,
        plan: &'c Plan,
        in_step: Option<&'c mut InStep>,
    ) -> Result<Self> {
        let channel = cm.create_event_channel()?;
        Ok(Self {
            cm,
            plan,
            channel,
            connections: Vec::with_capacity(plan.connections),
            in_step,
            step: Step::CreateId,
            waiting: 0,
            failure: None,
            times: Times::new(plan.connections),
        })
    }

    pub(crate) fn run(mut self) -> Result<Times> {
        let &Plan {
            here,
            server,
            retries,
            timeout,
            ..
        } = self.plan;
        let channel = self.channel;
        self.reached(Stage::Begin)?;
        let cq = completions(self.cm)?;
        // The server's address is to be asked for, which is a part of what is measured: where a server is that has
        // announced itself is known. The server then has the client's address, too. An announcement that is still on
        // its way undoes this.
        self.cm.poll(self.cm.now())?;
        if let (SockAddr::Ip(server), Some(host)) = (server, self.cm.resolver_mut().host()) {
            host.forget(server.ip(), None);
        }
        self.times.begin(Step::CreateId, self.cm.now());
        for number in 0..self.plan.connections {
            let began = self.cm.now();
            let id = self
                .cm
                .create_id(Some(channel), number as u64, PortSpace::Tcp)?;
            self.connections.push(Connection {
                id,
                retries,
                began: None,
                failed: false,
            });
            self.times.record(Step::CreateId, self.cm.now() - began);
        }
        self.times.end(Step::CreateId, self.cm.now());

        self.calls(Step::Bind, |cm, id| cm.bind_addr(id, here))?;
        self.steps(Step::ResolveAddr, |cm, id| {
            cm.resolve_addr(id, Some(here), server, timeout)
        })?;
        self.steps(Step::ResolveRoute, |cm, id| cm.resolve_route(id, timeout))?;
        self.calls(Step::CreateQp, |cm, id| {
            cm.create_qp(id, None, &mut queues(&cq))
        })?;
        let param = ConnParam {
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: retries,
            ..ConnParam::default()
        };
        self.steps(Step::Connect, |cm, id| cm.connect(id, Some(&param)))?;
        self.reached(Stage::Connected)?;
        self.steps(Step::Disconnect, |cm, id| {
            cm.disconnect(id)?;
            cm.destroy_qp(id)
        })?;
        self.reached(Stage::Disconnected)?;
        let failed = self.connections.iter().filter(|one| one.failed).count();
        self.connections
            .iter_mut()
            .for_each(|one| one.failed = false);
        self.calls(Step::Destroy, |cm, id| cm.destroy_id(id))?;
        self.cm.destroy_event_channel(channel)?;
        if failed > 0 {
            let all = self.plan.connections;
            let first = self.failure.unwrap_or_default();
            return Err(format!("{failed} of {all} connections failed; {first}").into());
        }
        Ok(self.times)
    }

    /// Lets the server catch up.
    fn reached(&mut self, stage: Stage) -> Result<()> {
        match &mut self.in_step {
            Some(in_step) => in_step.ask(self.cm, stage),
            None => Ok(()),
        }
    }

    /// A step that is done when the call returns.
    fn calls(
        &mut self,
        step: Step,
        mut call: impl FnMut(&mut Cm<'s, 'd, P>, CmId) -> std::result::Result<(), RdmaError>,
    ) -> Result<()> {
        self.times.begin(step, self.cm.now());
        for number in 0..self.connections.len() {
            let connection = &self.connections[number];
            if !connection.failed {
                let began = self.cm.now();
                call(self.cm, connection.id)?;
                self.times.record(step, self.cm.now() - began);
            }
        }
        self.times.end(step, self.cm.now());
        Ok(())
    }

    /// A step that is done when there was an event.
    fn steps(
        &mut self,
        step: Step,
        mut call: impl FnMut(&mut Cm<'s, 'd, P>, CmId) -> std::result::Result<(), RdmaError>,
    ) -> Result<()> {
        self.step = step;
        self.times.begin(step, self.cm.now());
        for number in 0..self.connections.len() {
            let connection = &mut self.connections[number];
            if connection.failed {
                continue;
            }
            connection.retries = self.plan.retries;
            connection.began = Some(self.cm.now());
            call(self.cm, connection.id)?;
            self.waiting += 1;
            if number % LOOK == 0 {
                self.cm.poll(self.cm.now())?;
                while let Some(event) = self.cm.try_get_cm_event(self.channel)? {
                    self.handle(&event)?;
                }
            }
        }
        while self.waiting > 0 {
            let deadline = self.cm.now() + SILENCE;
            let event = self.cm.get_cm_event_until(self.channel, deadline)?;
            self.handle(&event)?;
        }
        self.times.end(step, self.cm.now());
        Ok(())
    }

    fn handle(&mut self, event: &CmEvent) -> Result<()> {
        let number = event.context as usize;
        let Plan {
            here,
            server,
            timeout,
            ..
        } = *self.plan;
        let awaited = match event.event {
            EventType::AddrResolved => Step::ResolveAddr,
            EventType::RouteResolved => Step::ResolveRoute,
            EventType::Established => Step::Connect,
            EventType::Disconnected => Step::Disconnect,
            EventType::TimewaitExit => return Ok(()),
            EventType::AddrError if self.connections[number].retries > 0 => {
                self.connections[number].retries -= 1;
                return Ok(self
                    .cm
                    .resolve_addr(event.id, Some(here), server, timeout)?);
            }
            _ => {
                let why = format!(
                    "connection {number}: {}",
                    Unreached::from_event(self.cm, event)
                );
                eprintln!("cmtime: {why}");
                self.failure.get_or_insert(why);
                self.connections[number].failed = true;
                self.step
            }
        };
        // The server may end a connection before it is asked to; that is no part of another step.
        if awaited == self.step {
            // No time, if it is done before it was begun.
            let now = self.cm.now();
            let began = self.connections[number].began.take().unwrap_or(now);
            self.times.record(awaited, now.saturating_sub(began));
            self.waiting = self.waiting.saturating_sub(1);
        }
        Ok(())
    }
}
