//! RDMA's family of netlink, by which libibverbs, librdmacm, DPDK and iproute2's `rdma` look for devices. Messages, attributes and
//! errors are those of Linux 6.12 (`netlink.c` and `nldev.c` in `drivers/infiniband/core`); what they say of the device is in its
//! folder, as in `/sys`.
//!
//! The program's socket is one of the family for messages between programs (`NETLINK_USERSOCK`), so that addresses, options,
//! waiting and receiving are the kernel's. What goes to the kernel on it comes to a socket of this library's instead, which answers.

// UNSAFETY: sockets.
#![expect(unsafe_code)]

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{
    AF_NETLINK, MSG_DONTWAIT, NETLINK_USERSOCK, SOL_SOCKET, c_int, c_void, msghdr, sockaddr_nl,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::attrs::Result;
use crate::cancel::Off;
use crate::doorbell_pages::MOST;
use crate::interposed::{FULL, NULL};
use crate::{netdev, thread};

/// `RDMA_NL_NLDEV`, and the commands of it that are served (`enum rdma_nldev_command`).
const NLDEV: u16 = 5;
const GET: u16 = 1;
const PORT_GET: u16 = 5;
const SYS_GET: u16 = 6;
const GET_CHARDEV: u16 = 15;
/// The number of commands, of which the others are EOPNOTSUPP, and those numbers that are none.
const COMMANDS: u16 = 28;
const NO_COMMAND: [u16; 2] = [0, 8];
/// Types of messages that can ask for all devices or ports.
const CAN_DUMP: [u16; 2] = [NLDEV << 10 | GET, NLDEV << 10 | PORT_GET];

/// `enum rdma_nldev_attr`.
mod attr {
    pub(super) const DEV_INDEX: u16 = 1;
    pub(super) const DEV_NAME: u16 = 2;
    pub(super) const PORT_INDEX: u16 = 3;
    pub(super) const FW_VERSION: u16 = 5;
    pub(super) const NODE_GUID: u16 = 6;
    pub(super) const PORT_STATE: u16 = 12;
    pub(super) const PORT_PHYS_STATE: u16 = 13;
    pub(super) const DEV_NODE_TYPE: u16 = 14;
    pub(super) const NDEV_INDEX: u16 = 50;
    pub(super) const NDEV_NAME: u16 = 51;
    pub(super) const NETNS_MODE: u16 = 66;
    pub(super) const DEV_PROTOCOL: u16 = 67;
    pub(super) const CHARDEV_TYPE: u16 = 69;
    pub(super) const CHARDEV_NAME: u16 = 70;
    pub(super) const CHARDEV_ABI: u16 = 71;
    pub(super) const CHARDEV: u16 = 72;
    pub(super) const UVERBS_DRIVER_ID: u16 = 73;
    pub(super) const DEV_DIM: u16 = 84;
    pub(super) const PRIVILEGED_QKEY_MODE: u16 = 96;
    pub(super) const NAME_ASSIGN_TYPE: u16 = 101;
}

/// Flags of messages: a request, one that wants to be acknowledged, either bit of those for a dump; an answer in parts, and an
/// acknowledgement without all of the request.
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
const MULTI: u16 = 2;
const CAPPED: u16 = 0x100;
/// Types of messages: an error or an acknowledgement, the end of a dump, and the first one that is no control message.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const FIRST: u16 = 0x10;

/// `struct nlmsghdr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    len: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}

const HEADER: usize = size_of::<Header>();

/// A message that is written: its header, attributes behind it.
struct Message(Vec<u8>);

impl Message {
    /// The answer to a request, of this type and with these flags.
    fn new(request: &Header, kind: u16, flags: u16) -> Self {
        let header = Header {
            len: HEADER as u32,
            kind,
            flags,
            ..*request
        };
        Self(header.as_bytes().to_vec())
    }

    /// Writes bytes at the end.
    fn append(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let len = self.0.len() as u32;
        if let Some(place) = self.0.first_chunk_mut() {
            *place = len.to_ne_bytes();
        }
    }

    /// Writes an attribute.
    fn put(&mut self, kind: u16, value: &[u8]) {
        let len = value.len() as u16 + 4;
        self.append(&[len.to_ne_bytes(), kind.to_ne_bytes()].concat());
        self.append(value);
        self.append(&[0; 3][..value.len().next_multiple_of(4) - value.len()]);
    }

    fn put_text(&mut self, kind: u16, text: &str) {
        self.put(kind, &[text.as_bytes(), &[0]].concat());
    }
}

/// The value of an attribute; of several, that of the last one.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut found = None;
    while let Some(&[low, high, kind, flags]) = rest.first_chunk() {
        let len = usize::from(u16::from_ne_bytes([low, high]));
        let Some(value) = rest.get(4..len) else {
            break;
        };
        // Two bits of the type are flags.
        if u16::from_ne_bytes([kind, flags]) & 0x3fff == wanted {
            found = Some(value);
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// Returns `true` if an attribute names the only device or port, and `false` if it is not there; EINVAL if it names another.
fn names(attributes: &[u8], kind: u16, only: u32) -> Result<bool> {
    let Some(value) = attribute(attributes, kind) else {
        return Ok(false);
    };
    match u32::read_from_prefix(value) {
        Ok((number, _)) if number == only => Ok(true),
        _ => Err(libc::EINVAL),
    }
}

fn must_name(attributes: &[u8], kind: u16, only: u32) -> Result<()> {
    match names(attributes, kind, only)? {
        true => Ok(()),
        false => Err(libc::EINVAL),
    }
}

/// Numbers of the only device and of its port.
const DEVICE: u32 = 0;
const PORT: u32 = 1;

fn put_handle(to: &mut Message) {
    to.put(attr::DEV_INDEX, &DEVICE.to_ne_bytes());
    to.put_text(attr::DEV_NAME, "mlx5_0");
    // Of a device, this is the number of its ports.
    to.put(attr::PORT_INDEX, &PORT.to_ne_bytes());
}

/// The text of a file of the device's folder; empty if it is not there.
fn text(folder: &Path, name: &str) -> String {
    let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
    text.trim().to_owned()
}

/// `fill_dev_info`, without capabilities and the system's GUID, which are not known before the device is up.
fn put_device(to: &mut Message, folder: &Path) {
    put_handle(to);
    let firmware = text(folder, "fw_ver");
    if !firmware.is_empty() {
        to.put_text(attr::FW_VERSION, &firmware);
    }
    let guid = u64::from_be_bytes(thread::node_guid(folder));
    to.put(attr::NODE_GUID, &guid.to_ne_bytes());
    to.put(attr::DEV_NODE_TYPE, &[1]);
    to.put(attr::DEV_DIM, &[1]);
    to.put(attr::NAME_ASSIGN_TYPE, &[0]);
    to.put_text(attr::DEV_PROTOCOL, "roce");
}

/// `fill_port_info`.
fn put_port(to: &mut Message, folder: &Path) {
    put_handle(to);
    for (kind, name) in [
        (attr::PORT_STATE, "ports/1/state"),
        (attr::PORT_PHYS_STATE, "ports/1/phys_state"),
    ] {
        // A number and a name.
        let text = text(folder, name);
        let number = text.split(':').next().and_then(|text| text.parse().ok());
        to.put(kind, &[number.unwrap_or(0)]);
    }
    if let (Some(index), Ok(name)) = (netdev::index(netdev::NAME), netdev::NAME.to_str()) {
        to.put(attr::NDEV_INDEX, &index.to_ne_bytes());
        to.put_text(attr::NDEV_NAME, name);
    }
}

/// `nldev_get_chardev`: the files are [others](crate::interposed) by the names of these.
fn put_chardev(to: &mut Message, attributes: &[u8]) -> Result<()> {
    let kind = attribute(attributes, attr::CHARDEV_TYPE).ok_or(libc::EINVAL)?;
    let kind = CStr::from_bytes_until_nul(kind).map_err(|_| libc::EINVAL)?;
    let of_device = names(attributes, attr::DEV_INDEX, DEVICE)?;
    if names(attributes, attr::PORT_INDEX, PORT)? && !of_device {
        return Err(libc::EINVAL);
    }
    let (minor, abi, name) = match (of_device, kind.to_bytes()) {
        (true, b"uverbs") => {
            // `RDMA_DRIVER_MLX5`.
            to.put(attr::UVERBS_DRIVER_ID, &1_u32.to_ne_bytes());
            (NULL, 1_u64, "uverbs0")
        }
        (false, b"rdma_cm") => (FULL, 4, "rdma_cm"),
        _ => return Err(libc::EOPNOTSUPP),
    };
    to.put(attr::CHARDEV, &u64::from(1 << 8 | minor).to_ne_bytes());
    to.put(attr::CHARDEV_ABI, &abi.to_ne_bytes());
    to.put_text(attr::CHARDEV_NAME, name);
    Ok(())
}

/// Answers a command with a message (`doit`), or with one for each device or port (`dumpit`).
fn answer(request: &Header, attributes: &[u8], folder: &Path, dumps: bool) -> Result<Message> {
    let command = request.kind & 0x3ff;
    if request.kind >> 10 != NLDEV || command >= COMMANDS || NO_COMMAND.contains(&command) {
        return Err(libc::EINVAL);
    }
    let (kind, flags) = match (command, dumps) {
        (_, true) => (command, MULTI),
        // The kernel answers about a port as if it were about the device.
        (PORT_GET, false) => (GET, 0),
        (_, false) => (command, 0),
    };
    let mut to = Message::new(request, NLDEV << 10 | kind, flags);
    match command {
        GET => {
            if !dumps {
                must_name(attributes, attr::DEV_INDEX, DEVICE)?;
            }
            put_device(&mut to, folder);
        }
        PORT_GET => {
            must_name(attributes, attr::DEV_INDEX, DEVICE)?;
            if !dumps {
                must_name(attributes, attr::PORT_INDEX, PORT)?;
            }
            put_port(&mut to, folder);
        }
        // Copies at `fork` are a matter of the system's kernel, of which nothing is said.
        SYS_GET => {
            to.put(attr::NETNS_MODE, &[1]);
            to.put(attr::PRIVILEGED_QKEY_MODE, &[0]);
        }
        GET_CHARDEV => put_chardev(&mut to, attributes)?,
        _ => return Err(libc::EOPNOTSUPP),
    }
    Ok(to)
}

/// The answers to what a program sends from a socket with this port, each a datagram. `capped` says that acknowledgements of errors
/// have only the header of the request (`NETLINK_CAP_ACK`).
fn answers(mut rest: &[u8], port: u32, capped: bool, folder: &Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Ok((header, _)) = Header::read_from_prefix(rest) {
        let len = header.len as usize;
        let Some(attributes) = rest.get(HEADER..len) else {
            break;
        };
        let request = Header { port, ..header };
        let mut errno = 0;
        let dumps = header.flags & DUMP != 0 && CAN_DUMP.contains(&header.kind);
        if header.flags & REQUEST != 0 && header.kind >= FIRST {
            match answer(&request, attributes, folder, dumps) {
                Ok(message) => all.push(message.0),
                Err(error) => errno = error,
            }
        }
        let number = (-errno).to_ne_bytes();
        if dumps && header.flags & REQUEST != 0 {
            let mut done = Message::new(&request, DONE, MULTI);
            done.append(&number);
            all.push(done.0);
        } else if header.flags & ACK != 0 || errno != 0 {
            let whole = errno != 0 && !capped;
            let mut error = Message::new(&request, ERROR, if whole { 0 } else { CAPPED });
            error.append(&number);
            error.append(header.as_bytes());
            error.append(if whole { attributes } else { &[] });
            all.push(error.0);
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

/// Descriptors that were opened as sockets of this family. They may be others since.
static OPENED: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];

/// Opens a socket of this family.
pub(crate) fn open(kind: c_int) -> c_int {
    // SAFETY: numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_socket, AF_NETLINK, kind, NETLINK_USERSOCK) };
    if let Some(opened) = usize::try_from(fd).ok().and_then(|fd| OPENED.get(fd)) {
        opened.store(true, Ordering::Release);
    }
    fd as c_int
}

/// Returns `true` if a descriptor is a socket of this family.
pub(crate) fn is_socket(fd: c_int) -> bool {
    let opened = usize::try_from(fd).ok().and_then(|fd| OPENED.get(fd));
    opened.is_some_and(|opened| opened.load(Ordering::Acquire))
        && option(fd, SOL_SOCKET, libc::SO_DOMAIN) == AF_NETLINK
        && option(fd, SOL_SOCKET, libc::SO_PROTOCOL) == NETLINK_USERSOCK
}

/// An option of a socket; 0 if it has none.
fn option(fd: c_int, level: c_int, name: c_int) -> c_int {
    let (mut value, mut len) = (0, size_of::<c_int>() as libc::socklen_t);
    let at = (&raw mut value).cast::<c_void>();
    // SAFETY: the number can be written.
    unsafe { libc::getsockopt(fd, level, name, at, &mut len) };
    value
}

/// The address of the kernel, or of a socket by its port.
fn address(port: u32) -> sockaddr_nl {
    // SAFETY: numbers may be zero.
    let mut address: sockaddr_nl = unsafe { std::mem::zeroed() };
    (address.nl_family, address.nl_pid) = (AF_NETLINK as u16, port);
    address
}

const ADDRESS: libc::socklen_t = size_of::<sockaddr_nl>() as libc::socklen_t;

/// The port of a socket; `None` for one that has none.
fn port(fd: c_int) -> Option<u32> {
    let (mut found, mut len) = (address(0), ADDRESS);
    // SAFETY: the address can be written.
    let done = unsafe { libc::getsockname(fd, (&raw mut found).cast(), &mut len) };
    (done == 0 && found.nl_pid != 0).then_some(found.nl_pid)
}

/// Sends a message that is for the kernel, and answers it. What `sendmsg` returns; `None` if it is not for the kernel.
///
/// # Safety
/// As that of the C library's `sendmsg`.
pub(crate) unsafe fn send(fd: c_int, message: *const msghdr, flags: c_int) -> Option<isize> {
    let _off = Off::new();
    // SAFETY: the caller's promise.
    let mut message = unsafe { message.read() };
    if !message.msg_name.is_null() {
        if message.msg_namelen < ADDRESS {
            return None;
        }
        // SAFETY: the caller's promise.
        let to = unsafe { message.msg_name.cast::<sockaddr_nl>().read_unaligned() };
        if (c_int::from(to.nl_family), to.nl_pid, to.nl_groups) != (AF_NETLINK, 0, 0) {
            return None;
        }
    }
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: numbers only.
    let own = unsafe { libc::syscall(libc::SYS_socket, AF_NETLINK, kind, NETLINK_USERSOCK) };
    if own < 0 {
        return Some(-1);
    }
    // SAFETY: the descriptor is the one that was made.
    let own = unsafe { OwnedFd::from_raw_fd(own as c_int) };
    let any = address(0);
    // SAFETY: the address can be read.
    if unsafe { libc::bind(own.as_raw_fd(), (&raw const any).cast(), ADDRESS) } != 0 {
        return Some(-1);
    }
    let mut to = address(port(own.as_raw_fd())?);
    (message.msg_name, message.msg_namelen) = ((&raw mut to).cast(), ADDRESS);
    // SAFETY: the caller's promise, with the address of the library's own socket.
    let sent = unsafe { libc::syscall(libc::SYS_sendmsg, fd, &raw const message, flags) };
    if let (Ok(len), Some(port)) = (usize::try_from(sent), port(fd)) {
        let capped = option(fd, libc::SOL_NETLINK, libc::NETLINK_CAP_ACK) != 0;
        let folder = thread::device_folder();
        for datagram in answers(&received(&own, len, port), port, capped, &folder) {
            let (to, at) = (address(port), datagram.as_ptr().cast::<c_void>());
            let (len, fd) = (datagram.len(), own.as_raw_fd());
            // SAFETY: the datagram and the address can be read. A program that does not receive loses answers, as on Linux.
            unsafe {
                libc::syscall(
                    libc::SYS_sendto,
                    fd,
                    at,
                    len,
                    MSG_DONTWAIT,
                    &raw const to,
                    ADDRESS,
                );
            }
        }
    }
    Some(sent as isize)
}

/// The message of so many bytes that the socket with this port has sent; what others send is dropped.
fn received(own: &OwnedFd, len: usize, port: u32) -> Vec<u8> {
    let mut bytes = vec![0; len];
    loop {
        let (mut from, mut from_len) = (address(0), ADDRESS);
        let at = bytes.as_mut_ptr().cast::<c_void>();
        let name = (&raw mut from).cast();
        // SAFETY: the bytes and the address can be written.
        let got =
            unsafe { libc::recvfrom(own.as_raw_fd(), at, len, MSG_DONTWAIT, name, &mut from_len) };
        if got < 0 || from.nl_pid == port {
            bytes.truncate(usize::try_from(got).unwrap_or(0));
            return bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interposed;

    /// A folder with the files of a device.
    fn folder(name: &str) -> std::path::PathBuf {
        let folder = format!("bareverbs-netlink-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        for (name, text) in [
            ("node_guid", "0200:0000:0000:0001"),
            ("fw_ver", "16.28.2006"),
            ("ports/1/state", "4: ACTIVE"),
            ("ports/1/phys_state", "5: LinkUp"),
        ] {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{text}\n")).unwrap();
        }
        folder
    }

    fn request(command: u16, flags: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let header = Header {
            len: 0,
            kind: 0,
            flags: 0,
            sequence: 77,
            port: 0,
        };
        let mut message = Message::new(&header, NLDEV << 10 | command, REQUEST | flags);
        for (kind, value) in attributes {
            message.put(*kind, value);
        }
        message.0
    }

    /// Type, flags and what is behind the header of a message that is alone in its datagram.
    fn parts(datagram: &[u8]) -> (u16, u16, &[u8]) {
        let (header, rest) = Header::read_from_prefix(datagram).unwrap();
        assert_eq!(
            (header.len as usize, header.sequence, header.port),
            (datagram.len(), 77, 9)
        );
        (header.kind, header.flags, rest)
    }

    const ZERO: (u16, &[u8]) = (attr::DEV_INDEX, &[0; 4]);
    const ONE: (u16, &[u8]) = (attr::PORT_INDEX, &1_u32.to_ne_bytes());

    #[test]
    fn the_device_and_its_port_are_as_in_their_files() {
        let folder = folder("files");
        let ask = |message: Vec<u8>| answers(&message, 9, false, &folder);
        // A dump is not acknowledged: it has an end.
        let all = ask(request(GET, DUMP | ACK, &[]));
        let [device, done] = [&all[0], &all[1]].map(|datagram| parts(datagram));
        assert_eq!((all.len(), done), (2, (DONE, MULTI, [0; 4].as_slice())));
        assert_eq!((device.0, device.1), (NLDEV << 10 | GET, MULTI));
        for (kind, value) in [
            (attr::DEV_INDEX, [0; 4].as_slice()),
            (attr::DEV_NAME, b"mlx5_0\0"),
            (attr::PORT_INDEX, &1_u32.to_ne_bytes()),
            (attr::FW_VERSION, b"16.28.2006\0"),
            (attr::NODE_GUID, &0x0200_0000_0000_0001_u64.to_ne_bytes()),
            (attr::DEV_NODE_TYPE, &[1]),
            (attr::DEV_PROTOCOL, b"roce\0"),
        ] {
            assert_eq!(attribute(device.2, kind), Some(value), "{kind}");
        }
        // Another command may follow in the same datagram.
        let both = [
            request(PORT_GET, ACK, &[ZERO, ONE]),
            request(GET, 0, &[ZERO]),
        ];
        let all = ask(both.concat());
        let [port, ack, device] = [&all[0], &all[1], &all[2]].map(|datagram| parts(datagram));
        assert_eq!((all.len(), port.0, port.1), (3, NLDEV << 10 | GET, 0));
        assert_eq!(attribute(port.2, attr::PORT_STATE), Some(&[4][..]));
        assert_eq!(attribute(port.2, attr::PORT_PHYS_STATE), Some(&[5][..]));
        assert_eq!((ack.0, ack.1), (ERROR, CAPPED));
        assert_eq!((ack.2.len(), &ack.2[..4]), (4 + HEADER, &[0; 4][..]));
        assert_eq!(attribute(device.2, attr::DEV_NAME), Some(&b"mlx5_0\0"[..]));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_not_there_has_the_kernels_errors() {
        let folder = folder("errors");
        let ask = |message: &[u8], capped| answers(message, 9, capped, &folder);
        let uverbs = (attr::CHARDEV_TYPE, &b"uverbs\0"[..]);
        let other = (attr::DEV_INDEX, &[1, 0, 0, 0][..]);
        let cases = [
            (request(GET, 0, &[]), libc::EINVAL),
            (request(GET, 0, &[other]), libc::EINVAL),
            (request(GET, 0, &[(attr::DEV_INDEX, &[0; 3])]), libc::EINVAL),
            (request(PORT_GET, 0, &[ZERO]), libc::EINVAL),
            (
                request(PORT_GET, 0, &[ZERO, (attr::PORT_INDEX, &[2, 0, 0, 0])]),
                libc::EINVAL,
            ),
            (request(GET_CHARDEV, 0, &[ZERO]), libc::EINVAL),
            (request(GET_CHARDEV, 0, &[ONE, uverbs]), libc::EINVAL),
            (
                request(GET_CHARDEV, 0, &[ZERO, (attr::CHARDEV_TYPE, b"uverbs")]),
                libc::EINVAL,
            ),
            (request(GET_CHARDEV, 0, &[uverbs]), libc::EOPNOTSUPP),
            // RES_GET, no command, the one behind the last, and one of another client.
            (request(9, 0, &[]), libc::EOPNOTSUPP),
            (request(8, 0, &[]), libc::EINVAL),
            (request(COMMANDS, 0, &[]), libc::EINVAL),
            (request(4 << 10 ^ NLDEV << 10 | 1, 0, &[]), libc::EINVAL),
        ];
        for (message, errno) in &cases {
            for capped in [false, true] {
                let all = ask(message, capped);
                let (kind, flags, rest) = parts(&all[0]);
                assert_eq!((all.len(), kind), (1, ERROR));
                assert_eq!(rest[..4], (-errno).to_ne_bytes(), "{message:?}");
                let repeated = if capped { HEADER } else { message.len() };
                assert_eq!(
                    (flags == CAPPED, &rest[4..]),
                    (capped, &message[..repeated])
                );
            }
        }
        // A dump says it at its end.
        let all = ask(&request(PORT_GET, DUMP, &[other]), false);
        let end = (-libc::EINVAL).to_ne_bytes();
        assert_eq!((all.len(), parts(&all[0])), (1, (DONE, MULTI, &end[..])));
        // The files by which programs reach the device and the connection manager.
        for (wanted, name) in [
            (vec![ZERO, uverbs], &b"uverbs0\0"[..]),
            (vec![(attr::CHARDEV_TYPE, &b"rdma_cm\0"[..])], b"rdma_cm\0"),
        ] {
            let all = ask(&request(GET_CHARDEV, 0, &wanted), false);
            assert_eq!(attribute(parts(&all[0]).2, attr::CHARDEV_NAME), Some(name));
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn lengths_are_the_programs_and_are_not_believed() {
        let whole = request(GET, ACK, &[ZERO, ONE]);
        for at in 0..whole.len() {
            for value in [0, 1, 3, 4, 15, 16, 17, 0x7f, 0xff] {
                let mut message = whole.clone();
                message[at] = value;
                for end in 0..=message.len() {
                    let all = answers(&message[..end], 9, false, Path::new("/nowhere"));
                    assert!(all.len() <= 2 * message.len() / HEADER, "{message:?}");
                }
            }
        }
    }

    #[test]
    fn a_socket_of_the_family_is_answered() {
        // SAFETY: numbers only.
        let fd = unsafe { interposed::socket(AF_NETLINK, libc::SOCK_RAW, 20) };
        assert!(is_socket(fd));
        let message = request(GET, DUMP, &[]);
        let send = |to: &sockaddr_nl| {
            let (at, len) = (message.as_ptr().cast::<c_void>(), message.len());
            // SAFETY: the message and the address can be read.
            unsafe { interposed::sendto(fd, at, len, 0, (&raw const *to).cast(), ADDRESS) }
        };
        let receive = || {
            let mut bytes = [0; 512];
            let at = bytes.as_mut_ptr().cast::<c_void>();
            // SAFETY: so many bytes can be written.
            let got = unsafe { libc::recv(fd, at, bytes.len(), MSG_DONTWAIT) };
            usize::try_from(got).ok().map(|len| bytes[..len].to_vec())
        };
        assert_eq!(send(&address(0)), message.len() as isize);
        let own = port(fd).unwrap();
        let [device, done, nothing] = [receive(), receive(), receive()];
        let (header, attributes) = Header::read_from_prefix(device.as_deref().unwrap()).unwrap();
        assert_eq!((header.sequence, header.port), (77, own));
        assert_eq!(
            attribute(attributes, attr::DEV_NAME),
            Some(&b"mlx5_0\0"[..])
        );
        assert_eq!(
            (done.map(|done| done.len()), nothing),
            (Some(HEADER + 4), None)
        );
        // What is for another socket is not for the kernel.
        assert_eq!(send(&address(own)), message.len() as isize);
        assert_eq!((receive().as_ref(), receive()), (Some(&message), None));
        // SAFETY: the descriptor is this test's.
        unsafe { libc::close(fd) };
        assert!(!is_socket(fd));
    }
}
