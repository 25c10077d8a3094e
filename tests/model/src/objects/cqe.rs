//! Completion queue entries: what all kinds of queues put into them.

use crate::roce::env::Syndrome;
use bareverbs_firmware_cmds::cqe::{
    ErrorWord, IndexWord, OpOwn, Opcode, SIZE, TailWord, TimestampWord,
};
use bareverbs_firmware_cmds::word::Word;

/// User index of queues with entries of version 0.
pub(crate) const NO_USER_INDEX: u32 = 0xff_ffff;

/// An entry with what all have: which queue and which of its WQEs completed.
pub(crate) fn entry(
    opcode: Opcode,
    index: u32,
    wqe_opcode: u8,
    qpn: u32,
    wqe_counter: u16,
) -> [u8; SIZE] {
    let mut entry = [0; SIZE];
    let mut queue = IndexWord(0);
    queue.set_srqn_uidx(index);
    queue.write(&mut entry);
    let mut tail = TailWord(0);
    tail.set_wqe_opcode(wqe_opcode);
    tail.set_qpn(qpn);
    tail.set_wqe_counter(wqe_counter);
    tail.set_op_own(OpOwn::new(opcode).0);
    tail.write(&mut entry);
    entry
}

/// Says in an entry in error why.
pub(crate) fn put_error(entry: &mut [u8; SIZE], syndrome: Syndrome) {
    // The syndromes lie where others have the time.
    TimestampWord(0).write(entry);
    let mut error = ErrorWord(0);
    error.set_vendor_err_synd(vendor(syndrome));
    error.set_syndrome(syndrome as u8);
    error.write(entry);
}

/// The vendor's syndrome beside the standard one: any number will do that differs by cause.
fn vendor(syndrome: Syndrome) -> u8 {
    0x50 | syndrome as u8 & 0x0f
}
