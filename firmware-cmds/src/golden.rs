//! Helpers of the tests with known bytes, which stand beside some groups of commands.

extern crate std;

use crate::layout::Layout;
use std::string::String;
use std::vec;
use std::vec::Vec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The byte that fills a buffer before anything is written to it.
const PREFILL: u8 = 0xa5;

/// A buffer full of 0xa5 with bytes at some offsets: `"01040000 00000001"`, or `"3c3c3c3c*52"` for so many of one dword.
fn image(size: usize, patches: &[(usize, &str)]) -> Vec<u8> {
    let mut image = vec![PREFILL; size];
    for &(offset, text) in patches {
        let mut at = offset;
        for word in text.split(' ') {
            let (word, count) = word.split_once('*').unwrap_or((word, "1"));
            let dword = u32::from_str_radix(word, 16).unwrap().to_be_bytes();
            for _ in 0..count.parse().unwrap() {
                image[at..at + 4].copy_from_slice(&dword);
                at += 4;
            }
        }
    }
    image
}

/// Dwords with their offsets, for a failure that can be read.
fn rows(bytes: &[u8]) -> Vec<String> {
    let dword = |(i, d): (usize, &[u8])| std::format!("{:03x}: {d:02x?}", i * 4);
    bytes.chunks(4).enumerate().map(dword).collect()
}

/// Bytes of which each is so much more than the one before.
pub(crate) const fn counting<const N: usize>(first: u8, step: u8) -> [u8; N] {
    let mut bytes = [first; N];
    let mut at = 1;
    while at < N {
        bytes[at] = bytes[at - 1].wrapping_add(step);
        at += 1;
    }
    bytes
}

/// `emit` must change a buffer full of 0xa5 to the expected bytes and touch nothing else.
pub(crate) fn emits<T: Layout + FromBytes + IntoBytes + KnownLayout + Immutable>(
    emit: impl FnOnce(&mut T),
    expected: &[(usize, &str)],
) {
    let mut buffer = vec![PREFILL; size_of::<T>()];
    emit(T::mut_from_bytes(&mut buffer).unwrap());
    let expected = image(size_of::<T>(), expected);
    assert_eq!(rows(&buffer), rows(&expected), "{}", T::DESCRIPTOR.name);
}
