//! Events of DevX: channels for these and for commands that are answered later, and subscriptions.
//!
//! A channel is a pair of sockets, of which a read takes one event, as one of `mlx5_ib`'s descriptors
//! (drivers/infiniband/hw/mlx5/devx.c).

// UNSAFETY: descriptors of the program's.
#![expect(unsafe_code)]

use std::fs::File;
use std::io::{self, ErrorKind, Write};
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

/// A queue of packets whose other end is a descriptor of the program's.
pub(crate) struct Packets {
    to: UnixDatagram,
    /// The program's descriptor, and the file behind it.
    fd: c_int,
    file: u64,
}

impl Packets {
    fn new() -> Result<(Self, OwnedFd)> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: it has room for both.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
            return Err(libc::EMFILE);
        }
        // SAFETY: they were made for this.
        let [from, to] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        let to = UnixDatagram::from(to);
        to.set_nonblocking(true).map_err(|_| libc::EMFILE)?;
        let fd = from.as_raw_fd();
        let file = inode(fd).ok_or(libc::EMFILE)?;
        Ok((Self { to, fd, file }, from))
    }

    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.to.send(packet).map(drop)
    }

    fn is(&self, fd: c_int) -> bool {
        self.fd == fd && inode(fd) == Some(self.file)
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

/// Where events go.
enum To {
    /// A channel gets the cookie.
    Channel(Rc<Packets>, u64),
    /// A counter of the program's is counted up.
    Counter(File, Rc<Packets>),
}

/// A type of events of an object, or of none.
pub(crate) struct Subscription {
    /// The handle of the object, with which it ends.
    pub(crate) handle: Option<u32>,
    /// The command that has created the object, and its number.
    object: Option<(Opcode, u32)>,
    event: u16,
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

    /// Hands an event out; `false` if nobody is there any more.
    fn send(&self) -> bool {
        match &self.to {
            To::Channel(channel, cookie) => match channel.send(&cookie.to_ne_bytes()) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => false,
                Err(error) => {
                    log::warn!("an event is lost: {error}");
                    true
                }
                Ok(()) => true,
            },
            To::Counter(counter, channel) => {
                // One that is full says so as well.
                let _ = (&*counter).write(&1_u64.to_ne_bytes());
                channel.is(channel.fd)
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
    fn add_packets(&mut self, args: &mut Args) -> Result<()> {
        args.number(id::FIRST)?;
        self.packets.retain(|channel| channel.is(channel.fd));
        let (channel, end) = Packets::new()?;
        args.set_number(id::FIRST, channel.fd as u64)?;
        self.packets.push(Rc::new(channel));
        let _ = end.into_raw_fd();
        Ok(())
    }

    /// The channel that has this descriptor.
    pub(crate) fn packets(&self, fd: u64) -> Result<Rc<Packets>> {
        let found = self.packets.iter().find(|channel| channel.is(fd as c_int));
        found.cloned().ok_or(libc::EBADF)
    }

    /// Makes a channel for events: `MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC`.
    pub(crate) fn add_event_channel(&mut self, args: &mut Args) -> Result<()> {
        if args.flags(id::SECOND, OMIT_DATA)? & OMIT_DATA == 0 {
            // The driver does not keep events as the device wrote them.
            return Err(libc::EOPNOTSUPP);
        }
        self.add_packets(args)
    }

    /// Makes a channel for the answers of commands: `MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC`.
    pub(crate) fn add_command_channel(&mut self, args: &mut Args) -> Result<()> {
        self.add_packets(args)
    }

    /// Subscribes to events of an object, or of none: `MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT`.
    pub(crate) fn subscribe(&mut self, args: &mut Args) -> Result<()> {
        if self.uid == 0 {
            return Err(libc::EINVAL);
        }
        let channel = self.packets(args.number(id::FIRST)?)?;
        let handle = args.number(id::SECOND).ok().map(|handle| handle as u32);
        let object = match handle.map(|handle| self.objects.get(&handle)) {
            None => None,
            Some(Some(Object::Devx(devx))) => Some((devx.create, devx.number)),
            Some(_) => return Err(libc::EINVAL),
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
                Some(fd) => To::Counter(counter(fd as c_int)?, channel.clone()),
                None => To::Channel(channel.clone(), cookie.unwrap_or(0)),
            };
            found.push(Subscription {
                handle,
                object,
                event,
                to,
            });
        }
        self.subscriptions.append(&mut found);
        Ok(())
    }

    /// Hands an event out to who has subscribed to it.
    pub(crate) fn notify(&mut self, event: u16, about: Option<About>) {
        self.subscriptions
            .retain(|subscription| !subscription.is(event, about) || subscription.send());
    }
}
