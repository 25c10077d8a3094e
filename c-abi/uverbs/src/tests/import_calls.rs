//! A context by two descriptors.

// UNSAFETY: descriptors are copied and closed.
#![expect(unsafe_code)]

use libc::c_int;
use zerocopy::{FromZeros, IntoBytes};

use crate::abi::*;
use crate::interposed;

use super::program::{alloc_pd, attr, method, open_context, plain};

/// Asks for the answer of `GET_CONTEXT` once more.
fn query(fd: c_int) -> Result<(u32, Vec<u8>), c_int> {
    let (mut vectors, mut answer) = (0_u32, Mlx5GetContextOut::new_zeroed());
    let attrs = [
        attr(NUM_COMP_VECTORS, 4, &raw mut vectors as u64),
        attr(
            CONTEXT_OUT,
            size_of::<Mlx5GetContextOut>(),
            &raw mut answer as u64,
        ),
    ];
    method(fd, (OBJECT_DEVICE, QUERY_CONTEXT), attrs)?;
    Ok((vectors, answer.as_bytes().to_vec()))
}

#[test]
fn a_context_ends_with_its_last_descriptor() {
    let fd = open_context(0);
    let (pd, _) = alloc_pd(fd);
    // SAFETY: descriptors of this test's.
    let [copy, more] = unsafe { [interposed::dup(fd), interposed::dup(fd)] };
    let (vectors, answer) = query(fd).unwrap();
    let known = Mlx5GetContextOut::new_zeroed().as_bytes().len();
    assert_eq!((vectors, answer.len(), query(copy)), (1, known, query(fd)));
    assert_ne!(answer, vec![0; known]);
    // Its objects are there as long as one is open.
    for closed in [fd, more] {
        // SAFETY: a descriptor of this test's.
        unsafe { interposed::close(closed) };
    }
    let handle = pd;
    let removed = |handle| plain::<u32>(copy, command::DEALLOC_PD, &HandleOnly { handle });
    assert_eq!(removed(handle), Ok(0));
    let events = [attr(ASYNC_EVENT_FD, 0, 0)];
    let events = method(copy, (OBJECT_ASYNC_EVENT, ASYNC_EVENT_ALLOC), events).unwrap();
    // SAFETY: the descriptor is the new channel's, and the number of the last one stays taken.
    unsafe {
        assert_eq!(libc::close(events[0].data as c_int), 0);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        interposed::dup2(null, copy);
    }
    assert_eq!(query(copy).err(), Some(libc::EINVAL));
}
