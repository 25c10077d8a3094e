//! `rsetsockopt` and `rgetsockopt`.

// UNSAFETY: raw pointers of C.
#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::time::Duration;

use libc::socklen_t;

use crate::process::failure::{Errno, Result, as_status, lock};
use crate::rdmacm::id::path_of;
use crate::rdmacm::path::{self, MOST_PATHS};
use crate::rsocket::connection::End;
use crate::rsocket::options::MOST_INLINE;
use crate::rsocket::socket::{Phase, Socket, State};
use crate::rsocket::table::socket;
use crate::rsocket::wire;

/// Option level and options of `rdma/rsocket.h`.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

/// Level and option by which the library of `bareverbs-run --sockets` says that an rsocket stands for an ordinary socket.
const SOL_ORDINARY: c_int = 0x10001;
const ORDINARY: c_int = 0;

/// Limits of queues and rings.
const QUEUE: std::ops::RangeInclusive<u16> = 16..=4096;
const RING: std::ops::RangeInclusive<u32> = (4 << 10)..=(64 << 20);
const MOST_MAPPINGS: u16 = 1024;

/// An option's value.
///
/// # Safety
/// `length` bytes at `value` can be read.
unsafe fn read<T: Copy>(value: *const c_void, length: socklen_t) -> Result<T> {
    if value.is_null() || (length as usize) < size_of::<T>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise; the callers' types are numbers and structures of numbers.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// A time of a `struct timeval`, as Linux reads it: none is for ever, and one that is over is at once.
///
/// # Errors
/// EDOM if the microseconds are a second or more, or negative.
fn timeout(time: libc::timeval) -> Result<Option<Duration>> {
    let micros = u32::try_from(time.tv_usec).ok();
    let micros = micros
        .filter(|&micros| micros < 1_000_000)
        .ok_or(Errno(libc::EDOM))?;
    Ok(match (time.tv_sec, micros) {
        (0, 0) => None,
        (..=-1, _) => Some(Duration::ZERO),
        (seconds, micros) => Some(Duration::new(seconds.unsigned_abs(), micros * 1000)),
    })
}

/// The `struct timeval` of a time.
fn time(timeout: Option<Duration>) -> Vec<u8> {
    let timeout = timeout.unwrap_or(Duration::ZERO);
    let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
    let micros = i64::from(timeout.subsec_micros());
    [seconds.to_ne_bytes(), micros.to_ne_bytes()].concat()
}

/// A size within limits.
fn within(asked: c_int, limits: std::ops::RangeInclusive<u16>) -> u16 {
    let asked = u16::try_from(asked.max(0)).unwrap_or(u16::MAX);
    asked.clamp(*limits.start(), *limits.end())
}

/// The ring for a size that was asked for: twice that, as sockets have it, and even halves.
fn ring(asked: c_int) -> u32 {
    let asked = u32::try_from(asked).unwrap_or(0).saturating_mul(2);
    asked
        .clamp(*RING.start(), *RING.end())
        .next_multiple_of(128)
}

/// Sets an option of an rsocket: `rsetsockopt`.
///
/// # Safety
/// `optlen` bytes at `optval` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: socklen_t,
) -> c_int {
    as_status(|| {
        let socket = self::socket(socket)?;
        // SAFETY: the caller promises that `optlen` bytes at `optval` can be read.
        unsafe { set(&socket, (level, optname), optval, optlen) }
    })
}

/// # Safety
/// So many bytes can be read.
unsafe fn set(
    socket: &Socket,
    option: (c_int, c_int),
    value: *const c_void,
    length: socklen_t,
) -> Result<()> {
    // SAFETY: the caller promises that so many bytes can be read.
    let number = || unsafe { read::<c_int>(value, length) };
    // SAFETY: the same.
    let time = || unsafe { read::<libc::timeval>(value, length) };
    let mut state = lock(&socket.state);
    let begun = !matches!(state.phase, Phase::New | Phase::Bound | Phase::Listening(_));
    let options = &mut state.options;
    match option {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => options.reuse_addr = number()? != 0,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => options.sizes.receive_ring = ring(number()?),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => options.sizes.staging = ring(number()?),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => options.keep_alive = number()? != 0,
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => options.oob_inline = number()? != 0,
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            // SAFETY: the caller promises that so many bytes can be read.
            let linger: libc::linger = unsafe { read(value, length) }?;
            let seconds = u64::try_from(linger.l_linger).unwrap_or(0);
            options.linger = (linger.l_onoff != 0).then_some(Duration::from_secs(seconds));
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => options.receive_timeout = timeout(time()?)?,
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => options.send_timeout = timeout(time()?)?,
        (libc::IPPROTO_IP, libc::IP_TOS) => options.tos = Some(number()? as u8),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.v6_only = number()? != 0,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay = number()? != 0,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
            let seconds = number()?;
            if seconds <= 0 {
                return Err(Errno::EINVAL);
            }
            options.keep_idle = seconds;
        }
        // The transport repeats and divides on its own.
        (
            libc::IPPROTO_TCP,
            libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_MAXSEG | libc::TCP_CONGESTION,
        ) => {}
        (SOL_ORDINARY, ORDINARY) => options.is_ordinary = number()? != 0,
        (SOL_RDMA, _) if begun => return Err(Errno::EINVAL),
        (SOL_RDMA, RDMA_SQSIZE) => options.sizes.sends = within(number()?, QUEUE),
        (SOL_RDMA, RDMA_RQSIZE) => options.sizes.receives = within(number()?, QUEUE),
        (SOL_RDMA, RDMA_INLINE) => options.sizes.inline = within(number()?, 0..=MOST_INLINE),
        (SOL_RDMA, RDMA_IOMAPSIZE) => {
            options.sizes.mappings = wire::rounded(within(number()?, 0..=MOST_MAPPINGS));
        }
        // Paths of InfiniBand: the connection manager finds those of Ethernet itself.
        (SOL_RDMA, RDMA_ROUTE) if socket.domain != libc::AF_IB => return Err(Errno::EOPNOTSUPP),
        (SOL_RDMA, RDMA_ROUTE) => {
            if value.is_null() || length as usize > MOST_PATHS {
                return Err(Errno::EINVAL);
            }
            // SAFETY: the caller promises that so many bytes can be read.
            let paths = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length as usize) };
            options.path = Some(path::usable(paths)?);
        }
        _ => return Err(Errno::EOPNOTSUPP),
    }
    Ok(())
}

/// Says how an option of an rsocket is set: `rgetsockopt`.
///
/// # Safety
/// `optlen` says how many bytes can be written at `optval`, and can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> c_int {
    as_status(|| {
        let socket = self::socket(socket)?;
        // SAFETY: the caller promises that `optlen` says how many bytes can be written at `optval`, and can be written.
        let room = unsafe { optlen.as_mut() }.ok_or(Errno(libc::EFAULT))?;
        if optval.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        let bytes = {
            let mut state = lock(&socket.state);
            match (level, optname) {
                (SOL_RDMA, RDMA_ROUTE) if (*room as usize) < path::DATA => {
                    return Err(Errno::EINVAL);
                }
                option => get(&socket, &mut state, option)?,
            }
        };
        let length = bytes.len().min(*room as usize);
        // SAFETY: the caller promises that `optlen` says how many bytes can be written at `optval`, and can be written.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), optval.cast::<u8>(), length) };
        *room = length as socklen_t;
        Ok(())
    })
}

fn get(socket: &Socket, state: &mut State, option: (c_int, c_int)) -> Result<Vec<u8>> {
    let options = &state.options;
    let number = match option {
        (libc::SOL_SOCKET, libc::SO_ERROR) => state.take_error().map_or(0, |errno| errno.0),
        (libc::SOL_SOCKET, libc::SO_TYPE) => socket.kind,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => socket.domain,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => match socket.kind {
            libc::SOCK_STREAM => libc::IPPROTO_TCP,
            _ => libc::IPPROTO_UDP,
        },
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
            matches!(state.phase, Phase::Listening(_)).into()
        }
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => options.reuse_addr.into(),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => options.sizes.receive_ring as c_int,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => options.sizes.staging as c_int,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => options.keep_alive.into(),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => options.oob_inline.into(),
        (libc::SOL_SOCKET, libc::SO_BROADCAST) => 0,
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let seconds = options.linger.map_or(0, |linger| linger.as_secs());
            let on = c_int::from(options.linger.is_some());
            let seconds = c_int::try_from(seconds).unwrap_or(c_int::MAX);
            return Ok([on.to_ne_bytes(), seconds.to_ne_bytes()].concat());
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => return Ok(time(options.receive_timeout)),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => return Ok(time(options.send_timeout)),
        (libc::IPPROTO_IP, libc::IP_TOS) => options.tos.unwrap_or(0).into(),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.v6_only.into(),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay.into(),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => options.keep_idle,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => match &state.phase {
            Phase::Open(connection) => connection.path_mtu.bytes() as c_int,
            _ => 2048,
        },
        // They mean nothing here.
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_CONGESTION) => 1,
        (libc::IPPROTO_TCP, libc::TCP_INFO) => return Ok(tcp_info(state)),
        (SOL_RDMA, RDMA_SQSIZE) => options.sizes.sends.into(),
        (SOL_RDMA, RDMA_RQSIZE) => options.sizes.receives.into(),
        (SOL_RDMA, RDMA_INLINE) => options.sizes.inline.into(),
        (SOL_RDMA, RDMA_IOMAPSIZE) => options.sizes.mappings.into(),
        (SOL_RDMA, RDMA_ROUTE) => return route(state),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    Ok(number.to_ne_bytes().to_vec())
}

/// The path of a connection as `struct ibv_path_data`; nothing if there is none yet.
fn route(state: &State) -> Result<Vec<u8>> {
    let [(hca, cm)] = state.ids[..] else {
        return Ok(Vec::new());
    };
    let manager = hca.manager_quietly()?;
    if manager.route(cm)?.path_mtu == 0 {
        return Ok(Vec::new());
    }
    Ok(path::packed(&path_of(&manager, cm)?)?.to_vec())
}

/// A `struct tcp_info`, of which `tcpi_state` and `tcpi_snd_cwnd` say something: `TCP_ESTABLISHED` or `TCP_CLOSE`, and how many
/// messages can be under way.
fn tcp_info(state: &State) -> Vec<u8> {
    const LENGTH: usize = 104;
    const SND_CWND: usize = 80;
    const ESTABLISHED: u8 = 1;
    const CLOSE: u8 = 7;
    let is_open = matches!(&state.phase, Phase::Open(connection) if connection.end == End::Open);
    let mut info = vec![0; LENGTH];
    info[0] = if is_open { ESTABLISHED } else { CLOSE };
    let window = u32::from(state.options.sizes.sends);
    info[SND_CWND..SND_CWND + 4].copy_from_slice(&window.to_ne_bytes());
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_linux_reads_them() {
        let of = |tv_sec, tv_usec| timeout(libc::timeval { tv_sec, tv_usec });
        assert_eq!(of(0, 0), Ok(None));
        assert_eq!(of(2, 500_000), Ok(Some(Duration::from_millis(2500))));
        assert_eq!(of(-1, 0), Ok(Some(Duration::ZERO)));
        assert_eq!(of(i64::MIN, 5), Ok(Some(Duration::ZERO)));
        for micros in [-1, 1_000_000, i64::MAX, i64::MIN] {
            assert_eq!(of(1, micros), Err(Errno(libc::EDOM)));
        }
        let bytes = time(Some(Duration::from_millis(2500)));
        assert_eq!(bytes[..8], 2_i64.to_ne_bytes());
        assert_eq!(bytes[8..], 500_000_i64.to_ne_bytes());
        assert_eq!(time(None), [0; 16]);
    }
}
