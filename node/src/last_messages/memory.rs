//! Memory that outlives the process, and the lock by which another process learns of its end.

// UNSAFETY: memory that is shared with another process, the lock of a file, and a function that children call.
#![expect(unsafe_code)]

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bareverbs_cm::engine::LastMessage;

/// The last messages of connections, in a file that has no name, under a lock of this process: it is gone when the process ends,
/// runs another program, closes a descriptor of the file, or drops this.
///
/// Children do not have the lock, and what they write stays in the memory that they have in place of this.
pub struct Messages {
    memory: NonNull<LastMessage>,
    count: usize,
    mapped: &'static Mapped,
    file: File,
}

// SAFETY: the memory is this value's alone, and messages are numbers.
unsafe impl Send for Messages {}
// SAFETY: the same; a reference to this only lends the file.
unsafe impl Sync for Messages {}

impl Messages {
    /// So many, all of them [`LastMessage::NONE`].
    ///
    /// # Errors
    ///
    /// The operating system's error. [`QuotaExceeded`](io::ErrorKind::QuotaExceeded) if the process has 16 of these,
    /// [`OutOfMemory`](io::ErrorKind::OutOfMemory) if no slice has so many.
    pub fn new(count: usize) -> io::Result<Self> {
        let layout = Layout::array::<LastMessage>(count.max(1));
        let size = layout.map_err(|_| io::ErrorKind::OutOfMemory)?.size();
        let file = file()?;
        file.set_len(size as u64)?;
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let mapped = Mapped::claim()?;
        // SAFETY: a new mapping, anywhere.
        let memory = unsafe { libc::mmap(null_mut(), size, access, shared, file.as_raw_fd(), 0) };
        if memory == libc::MAP_FAILED {
            mapped.release();
            return Err(io::Error::last_os_error());
        }
        mapped.is_at(memory, size);
        let messages = Self {
            memory: NonNull::new(memory.cast()).unwrap_or(NonNull::dangling()),
            count,
            mapped,
            file,
        };
        lock(&messages.file, libc::F_SETLK, libc::F_WRLCK)?;
        Ok(messages)
    }

    /// Returns the file, for the process that waits. The lock ends when any descriptor of it is closed in this process.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The messages, to be written to.
    pub fn as_mut_slice(&mut self) -> &mut [LastMessage] {
        // SAFETY: the mapping has this size, and is there as long as this is; zeros, and all else that may be there, are values of
        // it. The other process reads them when the lock is gone.
        unsafe { slice::from_raw_parts_mut(self.memory.as_ptr(), self.count) }
    }

    /// The messages for ever, with the lock.
    pub fn leak(self) -> &'static mut [LastMessage] {
        let messages = ManuallyDrop::new(self);
        // SAFETY: as above; the mapping is never undone.
        unsafe { slice::from_raw_parts_mut(messages.memory.as_ptr(), messages.count) }
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        let size = self.mapped.release();
        // SAFETY: the mapping is this value's, and nothing borrows from it. An error could only leave it there.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), size) };
    }
}

/// A new file without a name, at none of the three descriptors that a program has for its input and output.
fn file() -> io::Result<File> {
    let checked = |descriptor: c_int| match descriptor {
        // SAFETY: the descriptor is new, and only this value's.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the name is text.
    let first = checked(unsafe { libc::memfd_create(c"bareverbs".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: it takes numbers.
    let other = unsafe { libc::fcntl(first.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    Ok(checked(other)?.into())
}

/// Locks the whole file for this process.
fn lock(file: &File, command: c_int, kind: c_int) -> io::Result<()> {
    // SAFETY: zeros are a value of it: the whole file.
    let mut whole: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    whole.l_type = kind as i16;
    loop {
        // SAFETY: the kernel reads the structure.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const whole) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Waits until the process is gone that has made this file ([`Messages::file`]), and returns what it has left.
///
/// # Errors
///
/// The operating system's error.
pub fn wait(file: &mut File) -> io::Result<Vec<LastMessage>> {
    lock(file, libc::F_SETLKW, libc::F_RDLCK)?;
    read(file)
}

/// Reads all messages of a file.
fn read(file: &mut impl Read) -> io::Result<Vec<LastMessage>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let entries = bytes.chunks_exact(size_of::<LastMessage>());
    // SAFETY: so many bytes, all values of which are messages.
    Ok(entries
        .map(|entry| unsafe { entry.as_ptr().cast::<LastMessage>().read_unaligned() })
        .collect())
}

/// The place of a mapping that children do not share: its first address, which is [`FREE`] or [`TAKEN`] if there is none, and its
/// length. There is no lock, which could be another thread's at the fork.
struct Mapped {
    start: AtomicUsize,
    len: AtomicUsize,
}

const FREE: usize = 0;
const TAKEN: usize = 1;

static MAPPED: [Mapped; 16] = [const {
    Mapped {
        start: AtomicUsize::new(FREE),
        len: AtomicUsize::new(0),
    }
}; 16];

impl Mapped {
    /// One that is free.
    fn claim() -> io::Result<&'static Self> {
        static REGISTERED: OnceLock<c_int> = OnceLock::new();
        // SAFETY: the function takes nothing, does not unwind, and calls the kernel and `abort` only.
        let register = || unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        match REGISTERED.get_or_init(register) {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(*errno)),
        }
        let order = Ordering::Relaxed;
        let take = |mapped: &&Self| {
            let taken = mapped.start.compare_exchange(FREE, TAKEN, order, order);
            taken.is_ok()
        };
        let taken = MAPPED.iter().find(take);
        taken.ok_or_else(|| io::ErrorKind::QuotaExceeded.into())
    }

    fn is_at(&self, memory: *mut c_void, len: usize) {
        self.len.store(len, Ordering::Relaxed);
        self.start.store(memory as usize, Ordering::Release);
    }

    /// Nothing is there from now on; the length of what was.
    fn release(&self) -> usize {
        let len = self.len.load(Ordering::Relaxed);
        self.start.store(FREE, Ordering::Release);
        len
    }
}

/// A new child writes into memory of its own: its parent's connections stay the parent's. A child that cannot have it ends.
extern "C" fn in_child() {
    let (access, own) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
    );
    for mapped in &MAPPED {
        let start = mapped.start.load(Ordering::Acquire);
        if start > TAKEN {
            let len = mapped.len.load(Ordering::Relaxed);
            // SAFETY: the parent's mapping, as its copy in this process has it, becomes one of zeros, which are messages.
            let memory = unsafe { libc::mmap(start as *mut c_void, len, access, own, -1, 0) };
            if memory == libc::MAP_FAILED {
                std::process::abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some message.
    fn some() -> LastMessage {
        let bytes = [0x5a; size_of::<LastMessage>()];
        read(&mut &bytes[..]).expect("bytes")[0]
    }

    #[test]
    fn messages_are_read_whole_from_any_bytes() {
        const LEN: usize = size_of::<LastMessage>();
        let zeros = [0; 2 * LEN];
        let messages = read(&mut &zeros[..]).expect("bytes");
        assert_eq!(messages.len(), 2);
        assert!(messages.iter().all(LastMessage::is_none));
        // Half a message is none.
        let ones = [0xff; 2 * LEN - 1];
        let messages = read(&mut &ones[..]).expect("bytes");
        assert_eq!(messages.len(), 1);
        assert_eq!(
            messages[0].write(&mut [0; bareverbs_cm::mad::MAD_LEN]),
            None
        );
    }

    #[test]
    fn a_child_writes_into_memory_of_its_own() {
        let mut messages = Messages::new(2).expect("memory");
        messages.as_mut_slice()[0] = some();
        let mut status = 0;
        // SAFETY: the child writes to memory and ends, without any lock.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let all = messages.as_mut_slice();
                let is_empty = all.iter().all(LastMessage::is_none);
                all[0] = LastMessage::NONE;
                all[1] = some();
                libc::_exit(if is_empty { 0 } else { 1 });
            }
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
        assert_eq!(status, 0);
        let mut file = messages.file();
        let left = read(&mut file).expect("a file");
        assert_eq!(left.len(), 2);
        assert!(!left[0].is_none() && left[1].is_none());
    }

    #[test]
    fn more_messages_than_a_slice_can_have_are_refused() {
        let most = usize::MAX / size_of::<LastMessage>();
        for count in [most, most + 1, usize::MAX] {
            let error = Messages::new(count).expect_err("too many");
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{count}");
        }
    }

    #[test]
    fn memory_can_be_had_again_and_again() {
        for _ in 0..2 {
            let all = [(); 8].map(|()| Messages::new(1).expect("memory"));
            drop(all);
        }
    }
}
