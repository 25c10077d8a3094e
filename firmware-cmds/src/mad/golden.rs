//! Golden bytes: emitted into, and parsed from, buffers full of 0xa5, so that a write beside its field shows. The
//! expected bytes are computed from the header's own offsets, not from this crate's.

use super::*;
use crate::golden::{emits, fresh, parses};

#[test]
fn mad_ifc_in() {
    emits::<MadIfcIn>(
        |s| {
            s.set_opcode(0x50d)
                .set_op_mod(0x6be8)
                .set_remote_lid(0xc86a)
                .set_port(0x4e);
            s.mad_mut().fill(0xcb);
        },
        &[
            (0x000, "050da5a5 a5a56be8 c86aa54e"),
            (0x010, "cbcbcbcb*64"),
        ],
    );
    fresh(&MadIfcIn::new().0, 0x50d);
}

#[test]
fn mad_ifc_out_parsed() {
    parses::<MadIfcOut>(
        &[(0x000, "08a5a5a5 5b039e76"), (0x010, "1f1f1f1f*64")],
        |s| {
            assert_eq!(s.status(), 8);
            assert_eq!(s.syndrome(), 0x5b039e76);
            assert_eq!(*s.response_mad_packet(), [0x1f; 256]);
        },
    );
}

#[test]
fn attach_to_mcg_in() {
    emits::<AttachToMcgIn>(
        |s| {
            s.set_opcode(0x806)
                .set_uid(0x8ebf)
                .set_op_mod(0xbc2b)
                .set_qpn(0x184793);
            s.multicast_gid_mut().fill(0x7);
        },
        &[
            (0x000, "08068ebf a5a5bc2b a5184793"),
            (0x010, "07070707 07070707 07070707 07070707"),
        ],
    );
    fresh(&AttachToMcgIn::new().0, 0x806);
}

#[test]
fn detach_from_mcg_in() {
    emits::<DetachFromMcgIn>(
        |s| {
            s.set_opcode(0x807)
                .set_uid(0xea3)
                .set_op_mod(0x2c6a)
                .set_qpn(0xab2211);
            s.multicast_gid_mut().fill(0x8a);
        },
        &[
            (0x000, "08070ea3 a5a52c6a a5ab2211"),
            (0x010, "8a8a8a8a 8a8a8a8a 8a8a8a8a 8a8a8a8a"),
        ],
    );
    fresh(&DetachFromMcgIn::new().0, 0x807);
}
