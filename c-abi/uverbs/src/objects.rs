//! The objects of a context, by handle.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::os::fd::IntoRawFd;
use std::rc::Rc;

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::{Mr, Mw, Pd};
use libc::c_int;
use zerocopy::IntoBytes;

use crate::abi::{AsyncEventOut, Mlx5GetContextOut, RegMrIn};
use crate::attrs::{Result, refused};
use crate::dct::Dct;
use crate::devx::{Devx, Umem};
use crate::devx_events::{Packets, Subscription};
use crate::dm::{Dm, Region};
use crate::doorbells;
use crate::events::Channel;
use crate::flow::Flow;
use crate::matcher::Matcher;
use crate::queues::{Cq, Qp, Uar};
use crate::raw::{Made, Queue, RawQp, Table};
use crate::srq::{Opened, Srq};

/// Puts an asynchronous event into a channel.
fn send(channel: &Channel, element: u64, event_type: u32) {
    let event = AsyncEventOut {
        element,
        event_type,
        reserved: 0,
    };
    if !channel.send(event.as_bytes()) {
        log::warn!("no room for an asynchronous event: it is lost");
    }
}

/// An object behind a handle.
pub(crate) enum Object<'d> {
    Pd(Pd<'d, P>),
    /// A region, and the request that registered it.
    Mr(Mr<'d, P>, RegMrIn),
    Mw(Mw<'d, P>),
    Dm(Box<Dm<'d>>),
    /// A region of memory on the device.
    Region(Box<Region<'d>>),
    Cq(Box<Cq<'d>>),
    Qp(Box<Qp<'d>>),
    Dct(Box<Dct<'d>>),
    Srq(Box<Srq<'d>>),
    Xrcd(Rc<Opened<'d>>),
    Raw(Box<RawQp<'d>>),
    /// A receive queue of frames.
    Wq(Box<Queue<'d>>),
    Table(Box<Table<'d>>),
    Flow(Box<Flow<'d>>),
    Matcher(Matcher),
    Devx(Box<Devx<'d>>),
    Umem(Box<Umem<'d>>),
    /// A doorbell page is the context's.
    Page,
    /// An address handle is the program's own memory; the handle of its PD.
    Ah(u32),
    /// The remains of one that was destroyed.
    Gone,
}

/// The objects of one open descriptor.
pub(crate) struct Context<'d> {
    pub(crate) uar: Uar<'d>,
    /// The number of the user whose commands it may send; 0 without.
    pub(crate) uid: u16,
    /// Asynchronous events: its end is the program's `async_fd`.
    pub(crate) async_events: Channel,
    /// Further ones, for events of the port alone.
    pub(crate) more_events: Vec<Channel>,
    /// The provider's part of what the program was answered.
    pub(crate) answer: Mlx5GetContextOut,
    pub(crate) channels: HashMap<c_int, Rc<Channel>>,
    pub(crate) objects: HashMap<u32, Object<'d>>,
    /// The transport domain of its raw packet QPs, from the first one on.
    pub(crate) domain: Option<Made<'d>>,
    /// Channels of DevX, and what goes there.
    pub(crate) packets: Vec<Rc<Packets>>,
    pub(crate) subscriptions: Vec<Subscription>,
    next: u32,
}

/// Functions that return the object behind a handle if it is of a kind.
macro_rules! of_kind {
    ($($name:ident $Kind:ident $Type:ty;)*) => { $(
        pub(crate) fn $name(&mut self, handle: u32) -> Result<&mut $Type> {
            match self.objects.get_mut(&handle) {
                Some(Object::$Kind(object)) => Ok(object),
                _ => Err(libc::EINVAL),
            }
        }
    )* };
}

impl<'d> Context<'d> {
    pub(crate) fn new(
        uar: Uar<'d>,
        uid: u16,
        async_events: Channel,
        answer: Mlx5GetContextOut,
    ) -> Self {
        Self {
            uar,
            uid,
            async_events,
            more_events: Vec::new(),
            answer,
            channels: HashMap::new(),
            objects: HashMap::new(),
            domain: None,
            packets: Vec::new(),
            subscriptions: Vec::new(),
            next: 0,
        }
    }

    pub(crate) fn add(&mut self, object: Object<'d>) -> u32 {
        self.next += 1;
        self.objects.insert(self.next, object);
        self.next
    }

    of_kind! {
        pd Pd Pd<'d, P>;
        cq Cq Box<Cq<'d>>;
        qp Qp Box<Qp<'d>>;
        srq Srq Box<Srq<'d>>;
        xrcd Xrcd Rc<Opened<'d>>;
        raw Raw Box<RawQp<'d>>;
        wq Wq Box<Queue<'d>>;
        table Table Box<Table<'d>>;
    }

    /// Refuses a handle that no object has, as methods do: `rdma_lookup_get_uobject`.
    pub(crate) fn is_there(&self, handle: u32) -> Result<()> {
        match self.objects.contains_key(&handle) {
            true => Ok(()),
            false => Err(libc::ENOENT),
        }
    }

    pub(crate) fn cqn(&mut self, handle: u32) -> Result<u32> {
        Ok(self.cq(handle)?.cqn.number())
    }

    pub(crate) fn add_channel(&mut self) -> Result<u32> {
        let (channel, end) = Channel::new()?;
        let handle = end.into_raw_fd();
        self.channels.insert(handle, Rc::new(channel));
        Ok(handle as u32)
    }

    /// Destroys an object of the kind that `is` accepts. One that the firmware refuses to destroy stays.
    pub(crate) fn remove(
        &mut self,
        handle: u32,
        is: fn(&Object<'_>) -> bool,
    ) -> Result<Object<'d>> {
        if !self.objects.get(&handle).is_some_and(is) {
            return Err(libc::EINVAL);
        }
        let object = self.objects.remove(&handle).ok_or(libc::EINVAL)?;
        let gone = object.destroy().map_err(|(object, errno)| {
            self.objects.insert(handle, object);
            errno
        })?;
        self.subscriptions.retain(|it| it.handle != Some(handle));
        Ok(gone)
    }

    /// Puts an asynchronous event of the port into all channels.
    pub(crate) fn send_port_event(&self, port: u64, event_type: u32) {
        self.send_event(port, event_type);
        for channel in &self.more_events {
            send(channel, port, event_type);
        }
    }

    /// Puts an asynchronous event into the channel.
    pub(crate) fn send_event(&self, element: u64, event_type: u32) {
        send(&self.async_events, element, event_type);
    }

    /// Drops the asynchronous events of an object that the program has not read, and returns how many it has.
    pub(crate) fn read_events(&self, user_handle: u64, sent: u32) -> u32 {
        let unread = self.async_events.remove::<16>(user_handle);
        sent.saturating_sub(unread)
    }

    /// Destroys everything: users before what they use. Returns `true` if something stays with the device.
    pub(crate) fn clear(&mut self) -> bool {
        let mut objects: Vec<_> = self.objects.drain().collect();
        objects.sort_by_key(|(handle, object)| (object.rank(), Reverse(*handle)));
        // Those of DevX use each other in an order that only their commands tell: rounds, until one destroys nothing.
        loop {
            let before = objects.len();
            objects = objects
                .into_iter()
                .filter_map(|(handle, object)| {
                    let (object, _) = object.destroy().err()?;
                    Some((handle, object))
                })
                .collect();
            if objects.is_empty() || objects.len() == before {
                break;
            }
        }
        // The domain goes behind its users.
        let mut domain = self.domain.take();
        let domain_stays = domain.as_mut().map_or(Ok(()), Made::destroy).is_err();
        let stays = !objects.is_empty() || domain_stays;
        for (_, object) in objects {
            // The device may use its memory for ever.
            log::error!("an object of a closed context stays");
            // The program may give its records back, whatever the firmware answers.
            match &object {
                Object::Qp(qp) => doorbells::remove(doorbells::Queue::Send(qp.qp.qpn())),
                Object::Cq(cq) => doorbells::remove(doorbells::Queue::Arm(cq.cqn)),
                Object::Raw(raw) => raw.silence(),
                Object::Devx(devx) => devx.silence(),
                _ => {}
            }
            std::mem::forget(object);
        }
        stays
    }
}

impl Object<'_> {
    /// The order in which a context that is closed loses its objects.
    fn rank(&self) -> u8 {
        match self {
            Self::Qp(_) | Self::Dct(_) | Self::Devx(_) => 0,
            Self::Raw(_) | Self::Wq(_) | Self::Table(_) | Self::Flow(_) => 0,
            Self::Srq(_) => 1,
            Self::Cq(_) => 2,
            Self::Mr(..)
            | Self::Mw(_)
            | Self::Dm(_)
            | Self::Region(_)
            | Self::Umem(_)
            | Self::Matcher(_)
            | Self::Ah(_)
            | Self::Page
            | Self::Gone => 3,
            Self::Pd(_) | Self::Xrcd(_) => 4,
        }
    }

    /// Destroys it in the device, and gives back what is left of it: its counts. An error leaves it as it was, but
    /// for a raw packet QP, which may have lost parts.
    fn destroy(self) -> Result<Self, (Self, c_int)> {
        // What the firmware refused to take is there again.
        let again = |(object, error)| Err((object, refused(error)));
        let mut this = match self {
            Self::Pd(pd) => {
                return match pd.dealloc() {
                    Ok(()) => Ok(Self::Gone),
                    Err((pd, error)) => again((Self::Pd(pd), error)),
                };
            }
            Self::Mr(mr, asked) => {
                return match mr.dereg() {
                    Ok(()) => Ok(Self::Gone),
                    Err((mr, error)) => again((Self::Mr(mr, asked), error)),
                };
            }
            Self::Mw(mw) => {
                return match mw.dealloc() {
                    Ok(()) => Ok(Self::Gone),
                    Err((mw, error)) => again((Self::Mw(mw), error)),
                };
            }
            Self::Dm(dm) => {
                return match dm.free() {
                    Ok(()) => Ok(Self::Gone),
                    Err((dm, error)) => again((Self::Dm(Box::new(dm)), error)),
                };
            }
            this => this,
        };
        let done = match &mut this {
            Self::Cq(cq) => cq.destroy(),
            Self::Qp(qp) => qp.destroy(),
            Self::Dct(dct) => dct.destroy(),
            Self::Srq(srq) => srq.destroy(),
            Self::Raw(raw) => raw.destroy(),
            Self::Wq(queue) => queue.destroy(),
            Self::Table(table) => table.made.destroy(),
            Self::Region(region) => region.key.destroy(),
            Self::Flow(flow) => flow.destroy(),
            Self::Devx(devx) => devx.destroy(),
            Self::Umem(umem) => umem.destroy(),
            // The domain goes with its last handle.
            Self::Xrcd(opened) if Rc::strong_count(opened) > 1 => Err(libc::EBUSY),
            _ => Ok(()),
        };
        match done {
            Ok(()) => Ok(this),
            Err(errno) => Err((this, errno)),
        }
    }
}
