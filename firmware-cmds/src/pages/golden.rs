//! Bytes computed from the offsets in the vendor's header, for some of the structures.

use super::*;
use crate::golden::emits;

#[test]
fn manage_pages_in() {
    emits::<ManagePagesIn>(
        |s| {
            s.set_opcode(0x108)
                .set_op_mod(0xfe38)
                .set_embedded_cpu_function(false)
                .set_function_id(0xac81)
                .set_input_num_entries(0x74090564);
        },
        &[(0x000, "0108a5a5 a5a5fe38 25a5ac81 74090564")],
    );
}
