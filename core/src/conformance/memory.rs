//! Memory from the platform, as the host can judge it.

// UNSAFETY: reads, writes and frees raw DMA memory.
#![expect(unsafe_code)]

use core::alloc::Layout;

use super::pattern::{self, Bytes};
use super::violation::{ConformanceError, Violation};
use crate::platform::{Dma, DmaError, Platform};

/// Sizes and alignments. The driver asks for nothing that is more, but for page chunks and buffers of more bytes, in
/// whole pages.
const LAYOUTS: [(usize, usize); 16] = [
    (8, 8),
    (64, 64),
    (192, 64),
    (1000, 64),
    (4032, 64),
    (4096, 4096),
    (4097, 64),
    (8192, 4096),
    (12_288, 4096),
    (20_480, 4096),
    (8192, 8192),
    (16_384, 16_384),
    (65_536, 4096),
    (65_536, 65_536),
    (131_072, 65_536),
    (262_144, 4096),
];
/// The number of copies of each that are alive at the same time.
const COPIES: usize = 3;
const PIECES: usize = LAYOUTS.len() * COPIES;
/// No machine of 64 bits has such memory; the last is as much as a layout can ask for. One of 32 bits may have it, and is not
/// asked.
const ABSURD: [(usize, usize); 4] = [
    (isize::MAX as usize / 4, 64),
    (isize::MAX as usize / 2 + 1, 4096),
    (4096, isize::MAX as usize / 2 + 1),
    (isize::MAX as usize - 65_535, 65_536),
];

/// The number of pieces that were alive at the same time.
pub(super) fn check<P: Platform>(platform: &P, turnover: u64) -> Result<usize, ConformanceError> {
    let mut pieces = [const { None }; PIECES];
    let judged = twice(platform, &mut pieces);
    for piece in pieces.iter_mut() {
        free(platform, piece);
    }
    judged?;
    for (size, align) in ABSURD.into_iter().filter(|_| usize::BITS > 32) {
        if let Ok(mut piece) = alloc(platform, size, align).map(Some) {
            free(platform, &mut piece);
            return Err(Violation::AllocAbsurd { size, align }.into());
        }
    }
    let mut passed = 0;
    while passed < turnover {
        for (size, align) in LAYOUTS {
            let mut piece =
                Some(
                    alloc(platform, size, align).map_err(|error| Violation::FreeKeeps {
                        bytes: passed,
                        error,
                    })?,
                );
            free(platform, &mut piece);
            passed += size as u64;
        }
    }
    Ok(PIECES)
}

fn alloc<P: Platform>(platform: &P, size: usize, align: usize) -> Result<Dma, DmaError> {
    let layout = Layout::from_size_align(size, align).map_err(|_| DmaError::OutOfMemory)?;
    platform.dma_alloc(layout)
}

fn free<P: Platform>(platform: &P, piece: &mut Option<Dma>) {
    if let Some(dma) = piece.take() {
        // SAFETY: it is the platform's, taken once; the device never had its address.
        unsafe { platform.dma_free(dma) };
    }
}

/// Allocates everything, makes it dirty, frees it, and allocates it again.
fn twice<P: Platform>(platform: &P, pieces: &mut [Option<Dma>; PIECES]) -> Result<(), Violation> {
    for again in [false, true] {
        for index in 0..PIECES {
            let (size, align) = LAYOUTS[index % LAYOUTS.len()];
            let dma = alloc(platform, size, align).map_err(|error| Violation::AllocRefused {
                size,
                align,
                error,
            })?;
            let (live, rest) = pieces.split_at_mut(index);
            if let Some(piece) = rest.first_mut() {
                let dma = piece.insert(dma);
                judge(dma, size, align, again)?;
                for other in live.iter().flatten() {
                    apart(dma, other)?;
                }
            }
        }
        let all = || (0..).zip(pieces.iter().flatten());
        for (seed, dma) in all() {
            bytes(dma).fill(|at| pattern::byte(seed, at));
        }
        // Two pointers to the same memory would have come to light as overwritten bytes.
        for (seed, dma) in all() {
            if let Err(differs) = bytes(dma).find(|at| pattern::byte(seed, at)) {
                let address = dma.ptr.as_ptr().addr();
                let at = differs.at;
                return Err(Violation::MemoryShared { address, at });
            }
        }
        for odd in [1, 0] {
            for piece in pieces.iter_mut().skip(odd).step_by(2) {
                free(platform, piece);
            }
        }
    }
    Ok(())
}

fn bytes(dma: &Dma) -> Bytes {
    // SAFETY: the memory is the holder's of this value until it is freed, and no reference to it is ever made.
    unsafe { Bytes::new(dma.ptr, dma.layout.size()) }
}

/// Checks a piece alone.
fn judge(dma: &Dma, size: usize, align: usize, again: bool) -> Result<(), Violation> {
    if (dma.layout.size(), dma.layout.align()) != (size, align) {
        return Err(Violation::OtherLayout {
            size,
            align,
            found_size: dma.layout.size(),
            found_align: dma.layout.align(),
        });
    }
    let address = dma.ptr.as_ptr().addr();
    if !address.is_multiple_of(align) {
        return Err(Violation::PointerAlignment { address, align });
    }
    let iova = dma.iova;
    if !iova.is_multiple_of(align as u64) {
        return Err(Violation::IovaAlignment { iova, align });
    }
    if iova.checked_add(size as u64 - 1).is_none() {
        return Err(Violation::IovaWraps { iova, size });
    }
    bytes(dma)
        .find(|_| 0)
        .map_err(|differs| Violation::NotZeroed {
            size,
            align,
            at: differs.at,
            found: differs.found,
            again,
        })
}

/// That two pieces have nothing in common.
fn apart(one: &Dma, other: &Dma) -> Result<(), Violation> {
    let overlap = |one: u64, one_len: usize, other: u64, other_len: usize| {
        one.abs_diff(other) < if one < other { one_len } else { other_len } as u64
    };
    let (len, other_len) = (one.layout.size(), other.layout.size());
    let address = |dma: &Dma| dma.ptr.as_ptr().addr();
    if overlap(address(one) as u64, len, address(other) as u64, other_len) {
        return Err(Violation::PointersOverlap {
            address: address(one),
            len,
            other: address(other),
            other_len,
        });
    }
    if overlap(one.iova, len, other.iova, other_len) {
        return Err(Violation::IovasOverlap {
            iova: one.iova,
            len,
            other: other.iova,
            other_len,
        });
    }
    Ok(())
}
