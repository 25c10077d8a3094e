//! The device and what programs have of it, and the work between calls: events, deadlines and doorbell records.

use std::collections::HashMap;
use std::time::Duration;

use bareverbs_node::cm::rdma::{Resolution, Resolver};
use bareverbs_node::verbs::firmware_cmds::event::Event;
use bareverbs_node::verbs::firmware_cmds::opcode::Opcode;
use bareverbs_node::verbs::{AsyncEvent, Device, Gid, VectorSet};
use bareverbs_node::{Cm, DevicePlatform as P};
use libc::c_int;

use crate::abi::Destination;
use crate::attrs::Result;
use crate::clock::ClockPage;
use crate::cm::Manager;
use crate::devx_events::COMPLETION;
use crate::events::EventQueue;
use crate::flow::Rules;
use crate::objects::{Context, Object};
use crate::srq::Domains;
use crate::umr::Umr;
use crate::{doorbells, trap};

/// The time that a neighbour may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest sleep while records are polled, and the longest without that.
const POLLING: Duration = Duration::from_micros(200);
const LONGEST: Duration = Duration::from_millis(100);

/// The object of an asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Qp,
    Cq,
    Srq,
    Port,
}

impl Of {
    /// The commands by which programs create objects of the kind themselves.
    fn creates(self) -> &'static [Opcode] {
        match self {
            Self::Qp => &[Opcode::CreateQp, Opcode::CreateSq, Opcode::CreateRq],
            Self::Cq => &[Opcode::CreateCq],
            Self::Srq => &[Opcode::CreateRmp, Opcode::CreateSrq, Opcode::CreateXrcSrq],
            Self::Port => &[],
        }
    }
}

/// The device and what programs have of it.
pub(crate) struct Server<'c, 's, 'd> {
    pub(crate) cm: &'c mut Cm<'s, 'd>,
    pub(crate) device: &'d Device<'d, P>,
    /// By descriptor.
    pub(crate) contexts: HashMap<c_int, Context<'d>>,
    /// Further descriptors of contexts, with those by which they are known.
    pub(crate) copies: HashMap<c_int, c_int>,
    pub(crate) manager: Manager,
    /// As the program finds it in the device's file.
    pub(crate) node_guid: [u8; 8],
    pub(crate) events: EventQueue<'d>,
    /// The device finds a program's memory by its addresses, page by page, when work uses it.
    pub(crate) on_demand: bool,
    /// The page by which programs convert time stamps, unless the device does not say how fast its clock is.
    pub(crate) clock: Option<ClockPage>,
    pub(crate) domains: Domains<'d>,
    /// Changes regions that keep their keys, from the first one on.
    pub(crate) umr: Option<Umr<'d>>,
    /// Rules for frames, from the first one on, or why there are none.
    pub(crate) rules: Option<Result<Rules<'d>>>,
}

impl Server<'_, '_, '_> {
    /// Looks at everything; sleeps before, if it is to, until there may be something to do.
    pub(crate) fn turn(&mut self, wait: bool) {
        let mut has_packets = false;
        for channel in self.contexts.values().flat_map(|it| &it.packets) {
            has_packets |= channel.flush();
        }
        if wait {
            // Commands have seen the interrupts of what is there already.
            self.deliver_events();
            let now = self.cm.now();
            let longest = match trap::is_open() || has_packets {
                true => POLLING,
                false => LONGEST,
            };
            let due = self.cm.next_deadline(now).unwrap_or(Duration::MAX);
            let deadline = due.min(now + longest);
            if let Err(error) = self.device.wait_for(VectorSet::ALL, deadline) {
                log::error!("{error}");
            }
        }
        if trap::is_open() {
            doorbells::ring(self.device.platform());
        }
        if let Some(clock) = &mut self.clock {
            clock.turn(self.device);
        }
        self.deliver_events();
        let now = self.cm.now();
        if let Err(error) = self.cm.poll(now) {
            log::error!("{error}");
        }
        while let Some(event) = self.device.next_async_event() {
            self.cm.handle_async_event(&event);
            log::debug!("{event:?}");
            self.deliver_async(&event);
        }
        self.deliver_cm_events();
    }

    /// Puts CQs with an event into their channels.
    pub(crate) fn deliver_events(&mut self) {
        let mut any = false;
        while let Some(event) = self.events.next() {
            any = true;
            let Event::Completion(cqn) = event else {
                continue;
            };
            for context in self.contexts.values_mut() {
                context.notify(COMPLETION, Some((&[Opcode::CreateCq], cqn.number())));
            }
            let objects = self.contexts.values_mut();
            for object in objects.flat_map(|context| context.objects.values_mut()) {
                if let Object::Cq(cq) = object
                    && cq.cqn == cqn
                    && let Some(channel) = &cq.channel
                    && channel.send(&cq.user_handle.to_ne_bytes())
                {
                    cq.events += 1;
                }
            }
        }
        if any {
            self.events.arm();
        }
    }

    /// Puts an asynchronous event into the channel of the context that has its object, or into all.
    fn deliver_async(&mut self, event: &AsyncEvent) {
        use AsyncEvent as Event;
        // Numbers of `enum ib_event_type` and of `enum mlx5_event`.
        let (of, number, kind, event) = match *event {
            Event::CqError { cqn, .. } => (Of::Cq, cqn.number(), 0, 0x04),
            Event::QpFatal { qpn } => (Of::Qp, qpn.number(), 1, 0x05),
            Event::QpRequestError { qpn } => (Of::Qp, qpn.number(), 2, 0x10),
            Event::QpAccessError { qpn } => (Of::Qp, qpn.number(), 3, 0x11),
            Event::CommunicationEstablished { qpn } => (Of::Qp, qpn.number(), 4, 0x02),
            Event::SqDrained { qpn } => (Of::Qp, qpn.number(), 5, 0x03),
            Event::PathMigrated { qpn } => (Of::Qp, qpn.number(), 6, 0x01),
            Event::PathMigrationError { qpn } => (Of::Qp, qpn.number(), 7, 0x07),
            Event::QpLastWqeReached { qpn } => (Of::Qp, qpn.number(), 16, 0x13),
            Event::SrqError { srqn } => (Of::Srq, srqn.number(), 14, 0x12),
            Event::SrqLimitReached { srqn } => (Of::Srq, srqn.number(), 15, 0x14),
            Event::PortActive { port } => (Of::Port, port.into(), 9, 0x09),
            Event::PortError { port } => (Of::Port, port.into(), 10, 0x09),
            Event::LidChange { port } => (Of::Port, port.into(), 11, 0x09),
            Event::PkeyChange { port } => (Of::Port, port.into(), 12, 0x09),
            Event::ClientReregister { port } => (Of::Port, port.into(), 17, 0x09),
            Event::GidChange { port } => (Of::Port, port.into(), 18, 0x09),
            Event::DeviceFatal { .. } => (Of::Port, 0, 8, 0x08),
            _ => return,
        };
        let about = (of != Of::Port).then_some((of.creates(), number));
        for context in self.contexts.values_mut() {
            context.notify(event, about);
            let found = match of {
                Of::Port => {
                    context.send_port_event(number.into(), kind);
                    continue;
                }
                _ => context
                    .objects
                    .values_mut()
                    .find_map(|object| match object {
                        Object::Cq(cq) if of == Of::Cq && cq.cqn.number() == number => {
                            Some((cq.user_handle, &mut cq.async_events))
                        }
                        Object::Qp(qp) if of == Of::Qp && qp.qp.qpn().number() == number => {
                            Some((qp.wanted.user_handle, &mut qp.events))
                        }
                        Object::Srq(srq) if of == Of::Srq && srq.srqn == number => {
                            Some((srq.user_handle, &mut srq.events))
                        }
                        _ => None,
                    }),
            };
            if let Some((element, events)) = found {
                *events += 1;
                context.send_event(element, kind);
            }
        }
    }

    /// The MAC address that a transition needs.
    pub(crate) fn destination_mac(&mut self, dest: &Destination) -> Result<[u8; 6]> {
        if dest.is_global == 0 {
            return Err(libc::EINVAL);
        }
        let source = self.device.port_gid(dest.sgid_index.into());
        let source = source.ok_or(libc::EINVAL)?;
        self.resolve(source.gid, Gid(dest.dgid))
    }

    /// The MAC address of the next hop from an address of this port.
    fn resolve(&mut self, from: Gid, to: Gid) -> Result<[u8; 6]> {
        let ip = |gid: Gid| std::net::Ipv6Addr::from(gid.0).to_canonical();
        let (from, to) = (ip(from), ip(to));
        let own = |(_, entry): (u16, bareverbs_node::verbs::GidEntry)| {
            (ip(entry.gid) == to).then_some(entry.mac)
        };
        if let Some(mac) = self.device.gid_table().find_map(own) {
            return Ok(mac);
        }
        if from.is_ipv4() != to.is_ipv4() {
            return Err(libc::EINVAL);
        }
        let end = self.cm.now() + PATIENCE;
        loop {
            let now = self.cm.now();
            let resolver = self.cm.resolver_mut().neighbours_mut();
            match resolver.resolve(now, from, to) {
                Resolution::Found(neighbour) => return Ok(neighbour.mac),
                Resolution::Pending if now < end => {}
                Resolution::Pending => return Err(libc::ETIMEDOUT),
                Resolution::NoAnswer => return Err(libc::EHOSTUNREACH),
                Resolution::NoRoute => return Err(libc::ENETUNREACH),
            }
            self.turn(true);
        }
    }
}
