//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn alloc_uar_in() {
    emits::<AllocUarIn>(
        |s| {
            s.set_opcode(0x802).set_uid(0xac91).set_op_mod(0x922);
        },
        &[(0x000, "0802ac91 a5a50922")],
    );
    fresh(&AllocUarIn::new().0, 0x802);
}

#[test]
fn alloc_uar_out_parsed() {
    parses::<AllocUarOut>(&[(0x000, "08a5a5a5 05831cc9 a5ff31a4")], |s| {
        assert_eq!(s.status(), 8);
        assert_eq!(s.syndrome(), 0x5831cc9);
        assert_eq!(s.uar(), 0xff31a4);
    });
}

#[test]
fn dealloc_uar_in() {
    emits::<DeallocUarIn>(
        |s| {
            s.set_opcode(0x803)
                .set_uid(0x7fec)
                .set_op_mod(0xa314)
                .set_uar(0x166845);
        },
        &[(0x000, "08037fec a5a5a314 a5166845")],
    );
    fresh(&DeallocUarIn::new().0, 0x803);
}
