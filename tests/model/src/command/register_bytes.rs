//! The bytes of a register in ACCESS_REG, and the number of the port in them.

use crate::syndrome::Syndrome;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(super) fn input<T: FromBytes + KnownLayout + Immutable + Copy>(
    tail: &[u8],
) -> core::result::Result<T, Syndrome> {
    T::read_from_prefix(tail)
        .map(|(register, _)| register)
        .map_err(|_| Syndrome::RegisterShort)
}

pub(super) fn output<T: IntoBytes + Immutable>(
    tail: &mut [u8],
    register: &T,
) -> core::result::Result<(), Syndrome> {
    let bytes = register.as_bytes();
    tail.get_mut(..bytes.len())
        .ok_or(Syndrome::RegisterOutputShort)?
        .copy_from_slice(bytes);
    Ok(())
}

pub(super) fn port(number: u8) -> core::result::Result<(), Syndrome> {
    if number == 1 {
        Ok(())
    } else {
        Err(Syndrome::RegisterPort)
    }
}
