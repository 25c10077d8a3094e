//! The calls that a program makes, and its rings.

use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_void};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::abi::*;
use crate::thread;

/// A call with its attributes.
#[repr(C)]
pub(super) struct Call<const N: usize> {
    pub(super) header: Header,
    pub(super) attrs: [Attr; N],
}

pub(super) fn attr(id: u16, len: usize, data: u64) -> Attr {
    Attr {
        id,
        len: len as u16,
        flags: 0,
        element: 0,
        data,
    }
}

/// Calls a method. An error number, or the attributes after it.
pub(super) fn method<const N: usize>(
    fd: c_int,
    (object, method): (u16, u16),
    attrs: [Attr; N],
) -> Result<[Attr; N], c_int> {
    let mut call = Call {
        header: Header {
            length: size_of::<Call<N>>() as u16,
            object,
            method,
            num_attrs: N as u16,
            ..FromZeros::new_zeroed()
        },
        attrs,
    };
    match thread::call(fd, (&raw mut call).cast::<c_void>()) {
        0 => Ok(call.attrs),
        errno => Err(errno),
    }
}

/// Sends a command, with what goes in and the rooms for the answers of the core and of the provider.
pub(super) fn command(
    fd: c_int,
    number: u32,
    inputs: [&[u8]; 2],
    outputs: [&mut [u8]; 2],
) -> Result<(), c_int> {
    // What fits stands in the attribute itself.
    let input = |id, bytes: &[u8]| {
        let mut data = [0; 8];
        match data.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                attr(id, bytes.len(), u64::from_ne_bytes(data))
            }
            None => attr(id, bytes.len(), bytes.as_ptr() as u64),
        }
    };
    let [core, provider] = outputs;
    let attrs = [
        attr(WRITE_CMD, 0, number.into()),
        input(CORE_IN, inputs[0]),
        input(UHW_IN, inputs[1]),
        attr(CORE_OUT, core.len(), core.as_mut_ptr() as u64),
        attr(UHW_OUT, provider.len(), provider.as_mut_ptr() as u64),
    ];
    method(fd, (OBJECT_DEVICE, INVOKE_WRITE), attrs).map(drop)
}

/// Sends a command that has no part of a provider.
pub(super) fn plain<T: FromBytes + IntoBytes>(
    fd: c_int,
    number: u32,
    input: &(impl IntoBytes + zerocopy::Immutable),
) -> Result<T, c_int> {
    let mut out = T::new_zeroed();
    command(
        fd,
        number,
        [input.as_bytes(), &[]],
        [out.as_mut_bytes(), &mut []],
    )?;
    Ok(out)
}

pub(super) fn alloc_pd(fd: c_int) -> (u32, u32) {
    let (mut out, mut provider) = (HandleOnly::new_zeroed(), Mlx5AllocPdOut::new_zeroed());
    let rooms = [out.as_mut_bytes(), provider.as_mut_bytes()];
    command(fd, command::ALLOC_PD, [&[0; 8], &[]], rooms).unwrap();
    (out.handle, provider.pdn)
}

/// A ring and a doorbell record, which the device uses as well.
#[repr(C, align(4096))]
pub(super) struct Ring([AtomicU32; 1024], [AtomicU32; 2]);

impl Ring {
    pub(super) fn new() -> Box<Self> {
        let zero = || AtomicU32::new(0);
        let words = std::array::from_fn(|_| zero());
        Box::new(Self(words, [zero(), zero()]))
    }

    pub(super) fn addresses(&self) -> (u64, u64) {
        (self.0.as_ptr() as u64, self.1.as_ptr() as u64)
    }

    /// Writes a word of the ring.
    pub(super) fn put(&self, at: usize, value: u32) {
        self.0[at].store(value.to_be(), Ordering::Release);
    }

    /// Writes the word of the record that counts, and rings.
    pub(super) fn post(&self, value: u32) {
        self.1[1].store(value.to_be(), Ordering::Release);
        thread::ring();
    }

    pub(super) fn posted(&self) -> u32 {
        u32::from_be(self.1[1].load(Ordering::Acquire))
    }
}

/// Opens a descriptor with a context.
pub(super) fn open_context(flags: u32) -> c_int {
    // SAFETY: text of C's.
    let fd = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    let mut asked = Mlx5GetContextIn::new_zeroed();
    (asked.total_num_bfregs, asked.max_cqe_version, asked.flags) = (16, 1, flags);
    let (mut out, mut provider) = (GetContextOut::new_zeroed(), Mlx5GetContextOut::new_zeroed());
    let rooms = [out.as_mut_bytes(), provider.as_mut_bytes()];
    let inputs: [&[u8]; 2] = [&[0; 8], asked.as_bytes()];
    command(fd, command::GET_CONTEXT, inputs, rooms).unwrap();
    assert_eq!((provider.tot_bfregs, provider.cqe_version), (16, 1));
    assert_eq!((provider.num_uars_per_page, provider.num_ports), (1, 1));
    fd
}
