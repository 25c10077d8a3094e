//! Memory that two processes share: a file without a name, which one makes and passes to the other through a socket.

// UNSAFETY: maps files, and calls functions of the C library that the standard library does not have: memfd_create, SCM_RIGHTS,
// SO_PEERCRED, pthread_atfork and poll.
#![expect(unsafe_code)]

use connectx_model::link::neighbours::Sharing;
use connectx_model::link::ring::{RING_WORDS, Words};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const BYTES: usize = RING_WORDS * size_of::<u64>();
/// Neither end can make the file shorter under the other, which would end it by a signal.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Memory for the wires of a world.
pub(crate) struct SharedMemory;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// The number of forks between the program's first process and this one, of those that could have had memory.
static FORKS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Counts forks from now on.
fn count_forks() -> io::Result<()> {
    static REGISTERED: OnceLock<libc::c_int> = OnceLock::new();
    // SAFETY: the function may be called in a child at any time.
    let register = || unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    match REGISTERED.get_or_init(register) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(*error)),
    }
}

/// A mapped file. A child process has the mapping, but not its words: a ring has one writer and one reader.
#[derive(Debug)]
struct Mapped {
    start: NonNull<AtomicU64>,
    forks: usize,
}

// SAFETY: the words are atomic, and the mapping belongs to no thread.
unsafe impl Send for Mapped {}
// SAFETY: the same.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a file that has the size and cannot lose it.
    fn new(file: &File) -> io::Result<Self> {
        count_forks()?;
        // SAFETY: reads what the file is sealed against.
        let seals = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & SEALS != SEALS || file.metadata()?.len() != BYTES as u64 {
            return Err(refused("the memory can shrink, or has another size"));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that nothing else has.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast());
        Ok(Self {
            start: start.ok_or_else(|| refused("the memory is at address 0"))?,
            forks: FORKS.load(Ordering::Relaxed),
        })
    }
}

impl Words for Mapped {
    fn words(&self) -> &[AtomicU64] {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            return &[];
        }
        // SAFETY: so many words are mapped, for reading and writing, aligned to a page, as long as this is there. The file is
        // sealed, so that all of them stay. Whatever another process writes there, it writes into atomic words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), RING_WORDS) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and references to it do not outlive it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), BYTES) };
    }
}

/// Refuses a connection to a process of another user.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    let mut about = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option is such a structure, and the length is its size.
    checked(unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut about).cast(),
            &raw mut len,
        )
    })?;
    // SAFETY: it has no conditions.
    if about.uid != unsafe { libc::geteuid() } {
        return Err(refused("it is another user's process"));
    }
    Ok(())
}

/// Room for a control message with one descriptor.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [u8; 64],
}

/// A message header for this data and this control buffer.
fn message(data: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zeros are a message header without anything.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = data;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut *control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    message
}

fn send_file(to: &UnixStream, file: &File, number: u64) -> io::Result<()> {
    let mut bytes = number.to_be_bytes();
    let mut data = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control { bytes: [0; 64] };
    let mut message = message(&mut data, &mut control);
    let len = size_of::<libc::c_int>() as u32;
    // SAFETY: the control buffer has room for a header and a descriptor, and is aligned for the header. The message refers
    // to memory that is there during the call.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(len) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(len) as _;
        libc::CMSG_DATA(header)
            .cast::<libc::c_int>()
            .write_unaligned(file.as_raw_fd());
        libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    match usize::try_from(sent) {
        Ok(len) if len == bytes.len() => Ok(()),
        Ok(_) => Err(refused("the message was cut")),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn receive_file(from: &UnixStream) -> io::Result<(File, u64)> {
    let mut bytes = [0; 8];
    let mut data = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control { bytes: [0; 64] };
    let mut message = message(&mut data, &mut control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message refers to memory that is there during the call, with its sizes.
    let received = unsafe { libc::recvmsg(from.as_raw_fd(), &raw mut message, flags) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let mut files = Vec::new();
    // SAFETY: the kernel has written the control messages, and says where they end. Each descriptor in one is this
    // process's from now on, and nothing else has it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let len = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let descriptors = libc::CMSG_DATA(header).cast::<libc::c_int>();
                for index in 0..len / size_of::<libc::c_int>() {
                    let descriptor = descriptors.add(index).read_unaligned();
                    files.push(OwnedFd::from_raw_fd(descriptor));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    match (received, files.pop(), files.is_empty()) {
        (8, Some(file), true) => Ok((file.into(), u64::from_be_bytes(bytes))),
        _ => Err(refused("it is not a number and a file")),
    }
}

impl Sharing for SharedMemory {
    fn give(&self, to: &UnixStream, number: u64) -> io::Result<Box<dyn Words>> {
        check_user(to)?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a string of C. The descriptor is new, and nothing else has it.
        let file: File = unsafe {
            let descriptor = checked(libc::memfd_create(c"bareverbs".as_ptr(), flags))?;
            OwnedFd::from_raw_fd(descriptor)
        }
        .into();
        file.set_len(BYTES as u64)?;
        // SAFETY: changes the file only.
        checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        let memory = Mapped::new(&file)?;
        send_file(to, &file, number)?;
        Ok(Box::new(memory))
    }

    fn take(&self, from: &UnixStream) -> io::Result<(Box<dyn Words>, u64)> {
        let (file, number) = receive_file(from)?;
        check_user(from)?;
        Ok((Box::new(Mapped::new(&file)?), number))
    }

    fn wait(&self, ends: &[BorrowedFd<'_>], time: Option<Duration>) -> io::Result<Vec<bool>> {
        let mut polled: Vec<libc::pollfd> = ends
            .iter()
            .map(|end| libc::pollfd {
                fd: end.as_fd().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        // Rounded up, so that the time is over afterwards.
        let time = time.map_or(-1, |time| {
            i32::try_from(time.as_millis()).map_or(i32::MAX, |time| time.saturating_add(1))
        });
        // SAFETY: an array of so many structures.
        let result = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as _, time) };
        match checked(result) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
            Err(_) => Ok(vec![false; ends.len()]),
            Ok(_) => Ok(polled.iter().map(|end| end.revents != 0).collect()),
        }
    }
}

#[cfg(test)]
#[path = "shared_memory_tests.rs"]
mod tests;
