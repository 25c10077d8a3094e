//! Several messages at a time.

// UNSAFETY: functions of C, in place of the C library's.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::slice;
use std::time::{Duration, Instant};

use libc::{MSG_DONTWAIT, MSG_WAITFORONE, mmsghdr, timespec};

use crate::data::{By, recvmsg, sender, sendmsg};
use crate::real::{self, set_errno};
use crate::table;
use crate::wait::duration;

/// The most messages of a call, as the kernel has it.
const MOST: usize = 1024;

/// The messages of a call, as many as it takes.
///
/// # Safety
/// So many, which can be written.
unsafe fn entries<'a>(messages: *mut mmsghdr, count: c_uint) -> Option<&'a mut [mmsghdr]> {
    if messages.is_null() {
        set_errno(libc::EFAULT);
        return None;
    }
    // SAFETY: the caller promises that so many, which can be written.
    Some(unsafe { slice::from_raw_parts_mut(messages, (count as usize).min(MOST)) })
}

/// Handles one message after the other until one fails or `is_over`: how many, or -1 if it was the first that failed.
fn each(
    messages: &mut [mmsghdr],
    mut handle: impl FnMut(&mut mmsghdr, usize) -> isize,
    is_over: impl Fn() -> bool,
) -> c_int {
    let mut done = 0;
    for message in messages {
        let Ok(length) = c_uint::try_from(handle(message, done)) else {
            return if done == 0 { -1 } else { done as c_int };
        };
        message.msg_len = length;
        done += 1;
        if is_over() {
            break;
        }
    }
    done as c_int
}

/// Receives several messages: `recvmmsg`. As Linux has it, the timeout is looked at after each message.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if !table::has(fd) {
        // SAFETY: the caller promises what the C library's `recvmmsg` asks of its arguments.
        return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    }
    // SAFETY: the caller promises what the C library's `recvmmsg` asks of its arguments.
    unsafe {
        let deadline = match timeout.as_ref() {
            None => None,
            Some(time) => match duration(time.tv_sec, time.tv_nsec) {
                Some(timeout) => Instant::now().checked_add(timeout),
                None => {
                    set_errno(libc::EINVAL);
                    return -1;
                }
            },
        };
        let Some(messages) = entries(messages, count) else {
            return -1;
        };
        let received = each(
            messages,
            |message, done| {
                let at_once = flags & MSG_WAITFORONE != 0 && done > 0;
                let flags = flags & !MSG_WAITFORONE | if at_once { MSG_DONTWAIT } else { 0 };
                recvmsg(fd, &raw mut message.msg_hdr, flags)
            },
            || deadline.is_some_and(|deadline| Instant::now() >= deadline),
        );
        if let (Some(deadline), Some(timeout)) = (deadline, timeout.as_mut()) {
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.unwrap_or(Duration::ZERO);
            timeout.tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            timeout.tv_nsec = left.subsec_nanos().into();
        }
        received
    }
}

/// Sends several messages: `sendmmsg`. If one of them is for our networks, they go one by one, each its own way.
///
/// # Safety
/// That of the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller promises what the C library's `sendmmsg` asks of its arguments.
    unsafe {
        let is_ours = |message: &mmsghdr| {
            let to = &message.msg_hdr;
            matches!(sender(fd, to.msg_name.cast(), to.msg_namelen), By::Rdma(_))
        };
        if messages.is_null() {
            return real::sendmmsg(fd, messages, count, flags);
        }
        let Some(all) = entries(messages, count) else {
            return -1;
        };
        if !all.iter().any(is_ours) {
            return real::sendmmsg(fd, messages, count, flags);
        }
        each(
            all,
            |message, _| sendmsg(fd, &raw const message.msg_hdr, flags),
            || false,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::zeroed;

    #[test]
    fn the_first_failure_ends_it() {
        // SAFETY: numbers and pointers may be zero.
        let mut messages: [mmsghdr; 4] = unsafe { zeroed() };
        let lengths = [7, 0, -1, 3];
        let of = |_: &mut mmsghdr, place: usize| lengths[place];
        assert_eq!(each(&mut messages, of, || false), 2);
        assert_eq!(messages.map(|message| message.msg_len), [7, 0, 0, 0]);
        assert_eq!(each(&mut messages, |_, _| -1, || false), -1);
        assert_eq!(each(&mut messages, |_, _| 1, || true), 1);
        assert_eq!(each(&mut [], |_, _| -1, || false), 0);
    }
}
