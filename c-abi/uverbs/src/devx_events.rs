//! Events of DevX: channels for these and for commands that are answered later, and subscriptions.
//!
//! A channel is a pair of sockets, of which a read takes one event, as one of `mlx5_ib`'s descriptors
//! (drivers/infiniband/hw/mlx5/devx.c).

// UNSAFETY: descriptors of the program's.
#![expect(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;

use bareverbs_node::verbs::firmware_cmds::opcode::Opcode;
use libc::c_int;

use crate::abi::devx as id;
use crate::attrs::{Args, Result};
use crate::objects::{Context, Object};

/// `MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA`: an event is its cookie alone.
const OMIT_DATA: u64 = 1 << 0;
/// The most types in one call, `MAX_NUM_EVENTS`.
const MOST: usize = 16;
/// The type of completions, and that of a port's changes, `enum mlx5_event`.
pub(crate) const COMPLETION: u16 = 0x00;
const PORT_CHANGE: u16 = 0x09;
/// The types that the driver hands on of objects.
const OF_OBJECTS: &[u16] = &[
    COMPLETION, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x10, 0x11, 0x12, 0x13, 0x14,
];

/// The object that an event is about: the commands that create ones of its kind, and its number.
pub(crate) type About = (&'static [Opcode], u32);

/// The most bytes of answers that wait in a channel, `MAX_ASYNC_BYTES_IN_USE`.
const MOST_WAITING: usize = 1024 * 1024;

/// `true` while an event of a subscription is in its channel and was not read: until then there is no other.
type Queued = Rc<Cell<bool>>;

/// A queue of packets whose other end is a descriptor of the program's.
pub(crate) struct Packets {
    /// The object that it is: a channel for events, or for the answers of commands.
    kind: u16,
    to: UnixDatagram,
    /// The program's descriptor, and the file behind it.
    fd: c_int,
    file: u64,
    /// The room of the socket that an event takes.
    size: c_int,
    /// Packets that have no room yet.
    waiting: RefCell<VecDeque<(Vec<u8>, Option<Queued>)>>,
    /// The subscriptions of the events in the socket, the oldest first.
    sent: RefCell<VecDeque<Queued>>,
}

/// The room of a socket that is taken by what the other end has not read.
fn unread(socket: &UnixDatagram) -> c_int {
    let mut len = 0;
    // SAFETY: the number can be written.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut len) };
    if done == 0 { len } else { 0 }
}

impl Packets {
    fn new(kind: u16) -> Result<(Self, OwnedFd)> {
        let mut ends = [0; 2];
        let socket = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: it has room for both.
        if unsafe { libc::socketpair(libc::AF_UNIX, socket, 0, ends.as_mut_ptr()) } != 0 {
            return Err(libc::EMFILE);
        }
        // SAFETY: they were made for this.
        let ends = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        let [from, to] = ends.map(UnixDatagram::from);
        let measure = |from: &UnixDatagram, to: &UnixDatagram| {
            to.set_nonblocking(true)?;
            to.send(&[0; 8])?;
            let size = unread(to);
            from.recv(&mut [0; 8]).map(|_| size)
        };
        let size = measure(&from, &to).map_err(|_| libc::EMFILE)?;
        let from = OwnedFd::from(from);
        let fd = from.as_raw_fd();
        let file = inode(fd).ok_or(libc::EMFILE)?;
        let channel = Self {
            kind,
            to,
            fd,
            file,
            size,
            waiting: RefCell::default(),
            sent: RefCell::default(),
        };
        Ok((channel, from))
    }

    /// Refuses an answer if too much waits already.
    pub(crate) fn check_room(&self, len: usize) -> Result<()> {
        let waiting = self.waiting.borrow();
        let bytes: usize = waiting.iter().map(|(packet, _)| packet.len()).sum();
        match bytes + len > MOST_WAITING {
            true => Err(libc::EAGAIN),
            false => Ok(()),
        }
    }

    /// Puts an answer in.
    pub(crate) fn send(&self, packet: Vec<u8>) {
        self.waiting.borrow_mut().push_back((packet, None));
        self.flush();
    }

    /// Puts the event of a subscription in, unless there is one that was not read.
    fn send_event(&self, cookie: u64, of: &Queued) {
        let left = unread(&self.to).checked_div(self.size).unwrap_or(0);
        let mut sent = self.sent.borrow_mut();
        while sent.len() > left as usize {
            if let Some(read) = sent.pop_front() {
                read.set(false);
            }
        }
        drop(sent);
        if !of.replace(true) {
            let event = (cookie.to_ne_bytes().to_vec(), Some(of.clone()));
            self.waiting.borrow_mut().push_back(event);
            self.flush();
        }
    }

    /// Hands on what there is room for; `true` if something waits.
    pub(crate) fn flush(&self) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        while let Some((packet, of)) = waiting.pop_front() {
            match self.to.send(&packet).map_err(|error| error.kind()) {
                Ok(_) => self.sent.borrow_mut().extend(of),
                // The program's end is closed.
                Err(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => waiting.clear(),
                Err(_) => {
                    waiting.push_front((packet, of));
                    break;
                }
            }
        }
        !waiting.is_empty()
    }

    fn is_open(&self) -> bool {
        inode(self.fd) == Some(self.file)
    }
}

/// The number of a file without a name.
fn inode(fd: c_int) -> Option<u64> {
    // SAFETY: numbers alone, all of which may be zero.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: it has room; a descriptor that is not open is an error.
    let done = unsafe { libc::fstat(fd, &raw mut found) };
    (done == 0).then_some(found.st_ino)
}

/// The reader of a subscription's events.
enum To {
    /// The channel gets the cookie.
    Channel(u64, Queued),
    /// A counter of the program's is counted up.
    Counter(File),
}

/// A type of events of an object, or of none.
pub(crate) struct Subscription {
    /// The handle of the object, with which it ends.
    pub(crate) handle: Option<u32>,
    /// The command that has created the object, and its number.
    object: Option<(Opcode, u32)>,
    event: u16,
    /// The channel with which it ends.
    channel: Rc<Packets>,
    to: To,
}

impl Subscription {
    fn is(&self, event: u16, about: Option<About>) -> bool {
        let of_object = match (self.object, about) {
            (Some((create, own)), Some((kinds, number))) => {
                kinds.contains(&create) && own == number
            }
            (object, about) => object.is_none() && about.is_none(),
        };
        of_object && self.event == event
    }

    /// Hands an event out.
    fn send(&self) {
        match &self.to {
            To::Channel(cookie, queued) => self.channel.send_event(*cookie, queued),
            To::Counter(counter) => {
                let mut room = libc::pollfd {
                    fd: counter.as_raw_fd(),
                    events: libc::POLLOUT,
                    revents: 0,
                };
                // A write to one that is full would wait. The program has been told by it before.
                // SAFETY: the structure can be written.
                if unsafe { libc::poll(&raw mut room, 1, 0) } == 1 {
                    let _ = (&*counter).write(&1_u64.to_ne_bytes());
                }
            }
        }
    }
}

/// The program's descriptor of an event counter (`eventfd`) once more.
fn counter(fd: c_int) -> Result<File> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| libc::EBADF)?;
    if !link.to_string_lossy().contains("[eventfd]") {
        return Err(libc::EINVAL);
    }
    // SAFETY: a descriptor that is not open is refused.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    match own {
        // SAFETY: it was made for this.
        0.. => Ok(unsafe { File::from_raw_fd(own) }),
        _ => Err(libc::EBADF),
    }
}

impl Context<'_> {
    /// Forgets channels that the program has closed, and who was told there.
    fn forget_closed(&mut self) {
        self.packets.retain(|channel| channel.is_open());
        self.subscriptions.retain(|it| it.channel.is_open());
    }

    fn add_packets(&mut self, args: &mut Args, kind: u16) -> Result<()> {
        args.number(id::FIRST)?;
        self.forget_closed();
        let (channel, end) = Packets::new(kind)?;
        args.set_number(id::FIRST, channel.fd as u64)?;
        self.packets.push(Rc::new(channel));
        let _ = end.into_raw_fd();
        Ok(())
    }

    /// The channel of a kind that has this descriptor.
    pub(crate) fn packets(&self, fd: u64, kind: u16) -> Result<Rc<Packets>> {
        let is = |it: &&Rc<Packets>| it.fd == fd as c_int && it.kind == kind && it.is_open();
        let found = self.packets.iter().find(is);
        found.cloned().ok_or(libc::EBADF)
    }

    /// Makes a channel for events: `MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC`.
    pub(crate) fn add_event_channel(&mut self, args: &mut Args) -> Result<()> {
        if args.flags(id::SECOND, OMIT_DATA)? & OMIT_DATA == 0 {
            // The driver does not keep events as the device wrote them.
            return Err(libc::EOPNOTSUPP);
        }
        self.add_packets(args, id::EVENT_CHANNEL)
    }

    /// Makes a channel for the answers of commands: `MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC`.
    pub(crate) fn add_command_channel(&mut self, args: &mut Args) -> Result<()> {
        self.add_packets(args, id::COMMAND_CHANNEL)
    }

    /// Subscribes to events of an object, or of none: `MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT`.
    pub(crate) fn subscribe(&mut self, args: &mut Args) -> Result<()> {
        if self.uid == 0 {
            return Err(libc::EINVAL);
        }
        self.forget_closed();
        let channel = self.packets(args.number(id::FIRST)?, id::EVENT_CHANNEL)?;
        let handle = args.number(id::SECOND).ok().map(|handle| handle as u32);
        let object = match handle.map(|handle| self.objects.get(&handle)) {
            None => None,
            Some(Some(Object::Devx(devx))) => Some((devx.create, devx.number)),
            Some(Some(_)) => return Err(libc::EINVAL),
            Some(None) => return Err(libc::ENOENT),
        };
        let (fd, cookie) = (
            args.number(id::EVENT_COUNTER).ok(),
            args.number(id::EVENT_COOKIE).ok(),
        );
        let list = args.bytes(id::EVENT_TYPES)?;
        let types = list
            .chunks_exact(2)
            .map(|of| u16::from_ne_bytes([of[0], of[1]]));
        let types: Vec<u16> = types.collect();
        let fits = |event: &u16| match object {
            Some(_) => OF_OBJECTS.contains(event),
            None => *event == PORT_CHANGE,
        };
        let is_whole = list.len() % 2 == 0 && (1..=MOST).contains(&types.len());
        if !is_whole || !types.iter().all(fits) || fd.is_some() && cookie.is_some() {
            return Err(libc::EINVAL);
        }
        let mut found = Vec::new();
        for event in types {
            let to = match fd {
                Some(fd) => To::Counter(counter(fd as c_int)?),
                None => To::Channel(cookie.unwrap_or(0), Queued::default()),
            };
            found.push(Subscription {
                handle,
                object,
                event,
                channel: channel.clone(),
                to,
            });
        }
        self.subscriptions.append(&mut found);
        Ok(())
    }

    /// Hands an event out to who has subscribed to it.
    pub(crate) fn notify(&self, event: u16, about: Option<About>) {
        let wanted = self.subscriptions.iter().filter(|it| it.is(event, about));
        wanted.for_each(Subscription::send);
    }
}
