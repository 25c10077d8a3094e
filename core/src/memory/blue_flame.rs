//! BlueFlame: a WQE that is written into the doorbell register itself, so that the device need not fetch it.
//!
//! It saves the device one read of host memory before a send, which is what a short message mostly waits for. The WQE goes
//! to its ring all the same, and the doorbell record is written: the device fetches what it missed, and sends again from
//! there.
//!
//! **Only in whole bursts.** The device takes a WQE from the register if it comes as 64 bytes at a time, and that is what
//! a processor makes of eight stores in a page that is mapped write-combining. From an uncached page eight small writes
//! arrive, of which the device takes the first for a doorbell: more traffic, and the WQE is fetched after all. Hence
//! [`Platform::WRITE_COMBINING`].
//!
//! **A page of its own.** A page has one kind of mapping, and doorbells of CQs and EQs belong on an uncached page: only
//! there does a processor send a store at once, and two stores in a row must not be merged into one. So there are two
//! doorbell pages: the device's first, uncached, for CQs, EQs and Ethernet queues, and this one, for QPs. A second
//! mapping of the same page with another kind would need no second page, but processors do not define what happens then
//! (Intel's manual, volume 3, "Programming the PAT"; Arm's, "Mismatched memory attributes").
//!
//! A QP has one doorbell page, so that its 8-byte doorbells go to this one, too, as they do in the vendor's library. That
//! is right, since an aligned 8-byte store to write-combining memory is never split (x86 evicts in chunks of 8 bytes, and
//! on aarch64 it is single-copy atomic), and since each one is pushed out before the next
//! ([`Platform::write_combining`]).
//!
//! **One writer at a time.** What two processors write into one register at the same time could come in pieces, mixed.
//! So register 1 is for BlueFlame, and a thread that finds it in use rings the 8-byte doorbell of register 0 instead,
//! which needs no owner; no thread waits. The register's two buffers alternate, so that the device may still be reading
//! the other one.

use core::array;
use core::sync::atomic::Ordering::{Acquire, Release};

use bareverbs_firmware_cmds::doorbell::{self, UAR_SIZE};
use bareverbs_firmware_cmds::numbers::UarIndex;

use crate::memory::cold_path;
use crate::memory::send_ring::{BLOCK_WORDS, Cursor, SendRing};
use crate::memory::sync::{AtomicU32, constant};
use crate::platform::Platform;
use bareverbs_firmware_cmds::wqe::BASIC_BLOCK as BLOCK;

/// Blocks that are written at most: a buffer of the usual register.
const MOST_BLOCKS: usize = 4;
/// The register whose two buffers take WQEs. The first is for doorbells of 8 bytes.
const REGISTER: usize = 1;
/// In [`BlueFlame::next`]: a thread writes.
const TAKEN: u32 = u32::MAX;

/// The doorbell page for WQEs, if there is one.
#[derive(Debug)]
pub(crate) struct BlueFlame {
    /// The page; 0 if there is none.
    uar: UarIndex,
    /// Bytes of one of the register's two buffers.
    buffer: u32,
    /// The buffer that is next, as an offset in the BAR.
    next: AtomicU32,
}

impl BlueFlame {
    constant! {
    /// None.
    pub(crate) const fn none() -> Self {
        Self {
            uar: UarIndex::from_low_bits(0),
            buffer: 0,
            next: AtomicU32::new(TAKEN),
        }
    }
    }

    /// Returns `true` if registers of this size can be used: both buffers of both registers lie in the page, and the 8-byte
    /// doorbell ([`doorbell::SEND_TOGGLE`]) stays in its own.
    pub(crate) const fn fits(log_bf_reg_size: u8) -> bool {
        // Checked first, as what is longer than a page would be shifted out.
        log_bf_reg_size < 12
            && 1 << log_bf_reg_size >= 2 * doorbell::SEND_TOGGLE
            && doorbell::send_register(REGISTER + 1, log_bf_reg_size) <= UAR_SIZE
    }

    constant! {
    /// The registers of a page, whose size [fits](Self::fits).
    pub(crate) const fn new(uar: UarIndex, log_bf_reg_size: u8) -> Self {
        let at = uar.bar_offset() + doorbell::send_register(REGISTER, log_bf_reg_size);
        Self {
            uar,
            buffer: 1 << log_bf_reg_size >> 1,
            next: AtomicU32::new(at as u32),
        }
    }
    }

    /// The page, if there is one.
    pub(crate) fn uar(&self) -> Option<UarIndex> {
        (self.buffer != 0).then_some(self.uar)
    }

    /// Bytes of the longest WQE that goes into a buffer; 0 if there is none.
    pub(crate) fn bytes(&self) -> u32 {
        self.buffer.min((MOST_BLOCKS * BLOCK) as u32)
    }

    /// Writes the WQE of so many bytes (whole blocks, at most [`bytes`](Self::bytes)) that starts at `first` in a ring. False
    /// if another thread is writing: nothing was written then.
    ///
    /// The WQE is read back from the ring, where it was written a moment ago and where coherent memory has it in the
    /// processor's nearest cache. A copy beside the ring would be paid for by every post, also by those that turn out too
    /// long or to be one of a list.
    #[inline(always)]
    pub(crate) fn write<P: Platform>(
        &self,
        platform: &P,
        ring: &SendRing,
        first: Cursor,
        bytes: u32,
    ) -> bool {
        let at = self.next.swap(TAKEN, Acquire);
        if at == TAKEN {
            cold_path();
            return false;
        }
        if bytes == BLOCK as u32
            && let Some(words) = ring.words::<BLOCK_WORDS>(first)
        {
            platform.write_combining(at as usize, words);
        } else if bytes == 2 * BLOCK as u32
            && let Some(words) = ring.words::<{ 2 * BLOCK_WORDS }>(first)
        {
            platform.write_combining(at as usize, words);
        } else {
            self.write_long(platform, at, ring, first, bytes);
            return true;
        }
        self.release(at);
        true
    }

    /// Lets the next one write, to the other buffer.
    #[inline(always)]
    fn release(&self, at: u32) {
        self.next.store(at ^ self.buffer, Release);
    }

    /// Writes a WQE of more blocks, or one that goes on at the ring's start. Out of line, as such WQEs take their time anyway.
    /// Nothing comes behind the call, so that no caller saves registers for it.
    #[cold]
    #[inline(never)]
    fn write_long<P: Platform>(
        &self,
        platform: &P,
        at: u32,
        ring: &SendRing,
        first: Cursor,
        bytes: u32,
    ) {
        let blocks: [_; MOST_BLOCKS] =
            array::from_fn(|number| ring.block(first.behind(number as u32)));
        let words = blocks.as_flattened();
        platform.write_combining(
            at as usize,
            words.get(..bytes as usize / 8).unwrap_or(words),
        );
        self.release(at);
    }
}

#[cfg(all(test, not(loom)))]
// UNSAFETY: rings of the tests' own.
#[expect(unsafe_code)]
mod tests {
    use super::*;
    use crate::memory::send_ring::{BLOCK_WORDS as WORDS, SendRingParts};
    use crate::memory::test_platform::Bus;
    use bareverbs_firmware_cmds::numbers::Qpn;
    use core::cell::{Cell, RefCell};
    use core::ptr::NonNull;
    use core::sync::atomic::AtomicU64;
    use heapless::Vec;

    #[test]
    fn registers_that_fit() {
        // With 8, the doorbell's second place would be BlueFlame's first.
        let fitting = (0..32).filter(|&log| BlueFlame::fits(log));
        assert!(fitting.eq([9, 10]));
    }

    #[test]
    fn a_page_without_registers_takes_nothing() {
        const PAGE: UarIndex = UarIndex::from_low_bits(5);
        let none = BlueFlame::none();
        assert_eq!((none.uar(), none.bytes()), (None, 0));
        let some = BlueFlame::new(PAGE, 9);
        assert_eq!((some.uar(), some.bytes()), (Some(PAGE), 256));
        assert_eq!(some.next.into_inner(), 0x5a00);
        assert_eq!(BlueFlame::new(PAGE, 10).bytes(), 256);
    }

    const RING: usize = 4;

    #[repr(C, align(64))]
    struct Blocks<const N: usize>([[u64; WORDS]; N]);

    /// Calls with a ring of these blocks.
    fn with_ring<const N: usize, R>(mut blocks: Blocks<N>, then: impl FnOnce(&SendRing) -> R) -> R {
        let (wr_ids, heads) = ([AtomicU64::new(0)], [const { AtomicU32::new(0) }; N]);
        let parts = SendRingParts {
            base: NonNull::from(&mut blocks.0).cast(),
            wr_ids: NonNull::from(&wr_ids).cast(),
            heads: NonNull::from(&heads).cast(),
            blocks: N as u32,
            wrs: 1,
        };
        // SAFETY: all of it lives to the end of this function.
        then(&unsafe { SendRing::new(parts) })
    }

    /// Where this block of a queue is.
    fn at(block: u16) -> Cursor {
        Cursor::new(Qpn::from_low_bits(7)).behind(block.into())
    }

    /// The last write with its place.
    type Written = RefCell<Option<(usize, Vec<u64, 32>)>>;

    fn record(written: &Written, offset: usize, words: &[u64]) {
        let words = Vec::from_slice(words).expect("a buffer's");
        assert_eq!(written.replace(Some((offset, words))), None);
    }

    #[test]
    fn wqes_of_all_lengths_go_round_the_ring_into_alternating_buffers() {
        let register = BlueFlame::new(UarIndex::from_low_bits(5), 9);
        let words = RING * WORDS;
        let blocks = core::array::from_fn(|block| {
            core::array::from_fn(|word| (block * WORDS + word) as u64)
        });
        let written = Written::default();
        let bus = Bus(|offset, words: &[u64]| record(&written, offset, words));
        let mut buffer = 0x5a00;
        with_ring(Blocks::<RING>(blocks), |ring| {
            for blocks in 1..=4_usize {
                for first in [0, 3, 0xfffe_u16] {
                    assert!(register.write(&bus, ring, at(first), (blocks * BLOCK) as u32));
                    let start = first as usize % RING * WORDS;
                    let expected = (0..blocks * WORDS).map(|word| ((start + word) % words) as u64);
                    assert_eq!(written.take(), Some((buffer, expected.collect())));
                    buffer ^= 0x100;
                }
            }
        });
    }

    #[test]
    fn a_second_writer_is_refused_while_the_first_writes() {
        let register = BlueFlame::new(UarIndex::from_low_bits(5), 9);
        let (written, meanwhile) = (Written::default(), Cell::new(None));
        let bus = Bus(|offset, words: &[u64]| {
            record(&written, offset, words);
            let second = with_ring(Blocks([[0; WORDS]]), |other| {
                let bus = Bus(|_, _: &[u64]| panic!("written in between"));
                register.write(&bus, other, at(0), BLOCK as u32)
            });
            meanwhile.set(Some(second));
        });
        let words = [7_u64; WORDS];
        with_ring(Blocks([words]), |ring| {
            for buffer in [0x5a00, 0x5b00] {
                assert!(register.write(&bus, ring, at(0), BLOCK as u32));
                assert_eq!(meanwhile.take(), Some(false));
                assert_eq!(written.take(), Some((buffer, Vec::from(words))));
            }
        });
    }
}
