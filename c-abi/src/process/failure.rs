//! The failures of calls in C: an errno for each error of the driver and the connection manager, and no panic that leaves Rust.

// UNSAFETY: writes the C library's errno.
#![expect(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bareverbs_node::cm::rdma::RdmaError;
use bareverbs_node::verbs::{
    AhError, BadWr, CommandError, CqError, CreateQpError, DestroyQpError, DeviceError, GidError,
    ModifyError, MrError, PostError, SrqError,
};

use crate::process::{cancel, memory};

/// An errno, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const EINVAL: Self = Self(libc::EINVAL);
    pub(crate) const ENOMEM: Self = Self(libc::ENOMEM);
    pub(crate) const EIO: Self = Self(libc::EIO);
    pub(crate) const ENODEV: Self = Self(libc::ENODEV);
    pub(crate) const EBUSY: Self = Self(libc::EBUSY);
    pub(crate) const ENOSYS: Self = Self(libc::ENOSYS);
    pub(crate) const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const ETIMEDOUT: Self = Self(libc::ETIMEDOUT);
    pub(crate) const EHOSTUNREACH: Self = Self(libc::EHOSTUNREACH);
    pub(crate) const ENETUNREACH: Self = Self(libc::ENETUNREACH);

    /// The calling thread's.
    pub(crate) fn last() -> Self {
        io::Error::last_os_error().into()
    }

    /// Makes it the calling thread's.
    pub(crate) fn set(self) {
        // SAFETY: the C library gives each thread an errno of its own.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

pub(crate) type Result<T> = std::result::Result<T, Errno>;

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<RdmaError> for Errno {
    fn from(error: RdmaError) -> Self {
        log::debug!("{error}");
        Self(match error.errno() {
            0 => libc::EIO,
            errno => errno.saturating_abs(),
        })
    }
}

/// The errors that the connection manager passes on as they are have its errno.
macro_rules! as_the_connection_manager {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Errno {
            fn from(error: $error) -> Self {
                RdmaError::from(error).into()
            }
        }
    )*};
}

as_the_connection_manager!(
    BadWr,
    CommandError,
    CqError,
    CreateQpError,
    DeviceError,
    GidError,
    ModifyError,
    MrError,
    PostError,
    SrqError,
);

impl From<AhError> for Errno {
    fn from(error: AhError) -> Self {
        log::debug!("{error}");
        Self::EINVAL
    }
}

impl From<DestroyQpError> for Errno {
    fn from(error: DestroyQpError) -> Self {
        match error {
            DestroyQpError::Attached { .. } => Self::EBUSY,
            DestroyQpError::Command(error) => error.into(),
            _ => Self::EIO,
        }
    }
}

/// Runs the body of a call that C makes. A panic is an error of this library, which the caller sees as EIO.
#[inline]
pub(crate) fn guarded<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // Threads that are cancelled end where nothing is to be dropped.
    let _off = cancel::Off::new();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(_) => Err(Errno::EIO),
    }
}

/// The result of a call of libibverbs that returns 0 or an errno.
#[inline]
pub(crate) fn as_errno(body: impl FnOnce() -> Result<()>) -> c_int {
    match guarded(body) {
        Ok(()) => 0,
        Err(errno) => errno.0,
    }
}

/// The result of a call that returns 0, or -1 with an errno.
pub(crate) fn as_status(body: impl FnOnce() -> Result<()>) -> c_int {
    as_number(|| body().map(|()| 0))
}

/// The result of a call that returns a number, or -1 with an errno.
pub(crate) fn as_number(body: impl FnOnce() -> Result<c_int>) -> c_int {
    status(guarded(body))
}

/// A result as C has it: the number, or -1 with an errno.
pub(crate) fn status(result: Result<c_int>) -> c_int {
    match result {
        Ok(number) => number,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// The result of a call that waits and returns 0, or -1 with an errno: `wait` waits, and the thread may be cancelled there, so
/// that nothing is to be dropped in either function; `look` does the work, unless there is nothing after all.
pub(crate) fn as_status_after(
    wait: impl Fn() -> Result<()>,
    mut look: impl FnMut() -> Result<Option<()>>,
) -> c_int {
    loop {
        let found = match wait() {
            Ok(()) => guarded(&mut look),
            Err(errno) => Err(errno),
        };
        match found {
            Ok(Some(())) => return 0,
            Ok(None) => {}
            Err(errno) => return status(Err(errno)),
        }
    }
}

/// The result of a call that makes something and returns a pointer to it, or NULL with an errno.
pub(crate) fn as_pointer<T>(body: impl FnOnce() -> Result<*mut T>) -> *mut T {
    match guarded(|| memory::check().and_then(|()| body())) {
        Ok(pointer) => pointer,
        Err(errno) => {
            errno.set();
            std::ptr::null_mut()
        }
    }
}

/// A call that returns nothing: what fails goes to the log.
pub(crate) fn as_nothing(body: impl FnOnce() -> Result<()>) {
    if let Err(errno) = guarded(body) {
        log::error!("a call that cannot say so failed: errno {}", errno.0);
    }
}

/// Locks, also what a thread has held that panicked: each holder leaves what it guards in order.
#[inline]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_node::verbs::CommandFailure;
    use bareverbs_node::verbs::firmware_cmds::opcode::Opcode;
    use bareverbs_node::verbs::firmware_cmds::status::Status;

    #[test]
    fn a_panic_is_an_error_of_the_call() {
        assert_eq!(as_errno(|| panic!("expected by this test")), libc::EIO);
        assert_eq!(as_status(|| panic!("expected by this test")), -1);
        assert_eq!(Errno::last(), Errno::EIO);
        let pointer: *mut u8 = as_pointer(|| panic!("expected by this test"));
        assert!(pointer.is_null());
    }

    #[test]
    fn a_lock_survives_a_panic() {
        let mutex = Mutex::new(1);
        let result = guarded(|| {
            let mut held = lock(&mutex);
            *held = 2;
            panic!("expected by this test")
        });
        assert_eq!(result, Err::<(), _>(Errno::EIO));
        assert_eq!(*lock(&mutex), 2);
    }

    /// `cmd_status_to_err` of Linux's `mlx5/core/cmd.c`, whose errno the kernel's call ends with.
    #[test]
    fn what_the_firmware_refuses_has_the_errno_of_linux() {
        let table = [
            (0x01, Errno::EIO),
            (0x02, Errno::EINVAL),
            (0x03, Errno::EINVAL),
            (0x04, Errno::EIO),
            (0x05, Errno::EINVAL),
            (0x06, Errno::EBUSY),
            (0x07, Errno(libc::EAGAIN)),
            (0x08, Errno::ENOMEM),
            (0x09, Errno::EINVAL),
            (0x0a, Errno::EINVAL),
            (0x0f, Errno(libc::EAGAIN)),
            (0x10, Errno::EINVAL),
            (0x30, Errno::EINVAL),
            (0x40, Errno::EINVAL),
            (0x50, Errno::EIO),
            (0x51, Errno::EIO),
            (0x77, Errno::EIO),
        ];
        for (number, errno) in table {
            let refused = CommandError {
                opcode: Opcode::AllocPd,
                op_mod: 0,
                failure: CommandFailure::Status {
                    status: Status::from_number(number),
                    syndrome: 0,
                },
            };
            let found: [Errno; 7] = [
                refused.into(),
                CqError::Command(refused).into(),
                CreateQpError::Command(refused).into(),
                DestroyQpError::Command(refused).into(),
                ModifyError::Command(refused).into(),
                MrError::Command(refused).into(),
                SrqError::Command(refused).into(),
            ];
            assert_eq!(found, [errno; 7], "status {number:#x}");
        }
    }

    #[test]
    fn errors_have_the_errno_of_libibverbs() {
        let cases: [(Errno, Errno); 4] = [
            (PostError::QueueFull { limit: 1 }.into(), Errno::ENOMEM),
            (PostError::WrongState.into(), Errno::EINVAL),
            (CqError::Busy { users: 1 }.into(), Errno::EBUSY),
            (AhError::NoSuchSgid { index: 9 }.into(), Errno::EINVAL),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }
}
