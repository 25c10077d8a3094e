//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

#[test]
fn create_uctx_in() {
    emits::<CreateUctxIn>(
        |s| {
            s.set_opcode(0xa04).set_op_mod(0x8e11);
            s.uctx_mut().set_cap(0x9c04_7731);
        },
        &[(0x000, "0a04a5a5 a5a58e11"), (0x010, "9c047731")],
    );
}

#[test]
fn create_umem_in() {
    emits::<CreateUmemIn>(
        |s| {
            s.set_opcode(0xa08).set_uid(0x2ba2).set_op_mod(0x8e11);
            s.umem_mut()
                .set_ats(false)
                .set_log_page_size(0x1b)
                .set_page_offset(0x51b3_0d42)
                .set_num_of_mtt(0x0159_52b3_256f_ca69);
        },
        &[
            (0x000, "0a082ba2 a5a58e11"),
            (0x020, "25a5a5bb 51b30d42 015952b3 256fca69"),
        ],
    );
}
