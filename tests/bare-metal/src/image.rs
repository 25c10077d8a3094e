//! Where the parts of this image are, as the linker laid them out, and how much of the stack was ever used.

// UNSAFETY: takes addresses of the linker's symbols, and reads the unused part of the stack.
#![expect(unsafe_code)]

use core::ops::Range;

/// The value that the boot code fills the stack with.
const UNUSED: u64 = 0x5a5a_5a5a_5a5a_5a5a;

macro_rules! part {
    ($(#[$about:meta])* $name:ident, $start:ident, $end:ident) => {
        $(#[$about])*
        pub(crate) fn $name() -> Range<u64> {
            unsafe extern "C" {
                static $start: u8;
                static $end: u8;
            }
            // Only the addresses mean something.
            (&raw const $start) as u64..(&raw const $end) as u64
        }
    };
}

part!(/** Code. */ text, text_start, text_end);
part!(/** Constants. */ rodata, rodata_start, rodata_end);
part!(/** Data, that which starts as zeros included. */ data, data_start, data_end);
part!(/** The stack. */ stack, stack_end, stack_start);
part!(/** All of it. */ whole, image_start, image_end);

/// Bytes of the stack that were used at some time.
pub(crate) fn stack_used() -> u64 {
    let Range { start, end } = stack();
    let mut at = start;
    // SAFETY: within the stack; frames in use have overwritten the pattern.
    while at < end && unsafe { (at as *const u64).read_volatile() } == UNUSED {
        at += 8;
    }
    end - at
}
