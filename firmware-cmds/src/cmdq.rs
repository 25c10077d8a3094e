//! The command queue: its entries, and the chain of mailbox blocks behind each.
//!
//! An entry holds the first 16 bytes of input and of output itself. What is longer continues in mailbox blocks of 512
//! bytes, chained by their `next` pointers, all with the entry's token and numbered from 0. The driver fills the entry,
//! gives it to the device with the ownership bit and rings the command doorbell; the device answers, then gives the
//! entry back.
//!
//! Signatures are XOR sums over bytes that make the sum of the whole 0xff. The device always checks the entry's; those
//! of the blocks are in use only with `cmdif_checksum` 3 (see [`crate::caps::HcaCap::cmdif_checksum`]).

use crate::layout::layout;
pub use crate::status::DeliveryStatus;

/// Revision of the command interface that this crate supports (upper half of the init segment's second dword).
pub const COMMAND_INTERFACE_REVISION: u16 = 5;
/// The entry type for commands over PCI.
pub const TYPE_PCI: u8 = 7;
/// Bytes of input, and of output, in the entry itself.
pub const INLINE_SIZE: usize = 16;
/// Payload of one mailbox block in bytes.
pub const BLOCK_DATA_SIZE: usize = 512;
/// Alignment of a mailbox block: its `next` pointer has no lower bits.
pub const BLOCK_ALIGN: usize = 1024;
/// The most entries that a queue may have: one bit each in the doorbell register.
pub const MAX_ENTRIES: usize = 32;
/// The queue's address has no lower bits: it is a 4 KiB page.
pub const QUEUE_ALIGN: usize = 4096;
/// Byte of an entry that holds the delivery status (7:1) and the ownership (0).
pub const STATUS_OWNERSHIP_OFFSET: usize = 0x3f;
/// Ownership bit: the device has the entry.
pub const OWNED_BY_DEVICE: u8 = 1;

layout! {
    /// An entry of the command queue.
    pub struct CommandQueueEntry: "cmd_queue_entry", 0x40 {
        bits r#type, set_type: u8 @ 0x00 [31:24];
        bits input_length, set_input_length: u32 @ 0x04 [31:0];
        bits input_mailbox_pointer_63_32, set_input_mailbox_pointer_63_32: u32 @ 0x08 [31:0];
        bits input_mailbox_pointer_31_9, set_input_mailbox_pointer_31_9: u32 @ 0x0c [31:9];
        bytes command_input_inline_data, command_input_inline_data_mut: 16 @ 0x10;
        bytes command_output_inline_data, command_output_inline_data_mut: 16 @ 0x20;
        bits output_mailbox_pointer_63_32, set_output_mailbox_pointer_63_32: u32 @ 0x30 [31:0];
        bits output_mailbox_pointer_31_9, set_output_mailbox_pointer_31_9: u32 @ 0x34 [31:9];
        bits output_length, set_output_length: u32 @ 0x38 [31:0];
        bits token, set_token: u8 @ 0x3c [31:24];
        bits signature, set_signature: u8 @ 0x3c [23:16];
        bits status, set_status: u8 @ 0x3c [7:1];
        flag ownership, set_ownership @ 0x3c [0];
    }
}

impl CommandQueueEntry {
    /// Address of the first input mailbox block; 0 when the input fits into the entry.
    #[must_use]
    pub const fn input_mailbox(&self) -> u64 {
        (self.input_mailbox_pointer_63_32() as u64) << 32
            | (self.input_mailbox_pointer_31_9() as u64) << 9
    }

    /// Sets [`input_mailbox`](Self::input_mailbox); the lower 9 bits have no place in the entry.
    pub const fn set_input_mailbox(&mut self, iova: u64) -> &mut Self {
        self.set_input_mailbox_pointer_63_32((iova >> 32) as u32)
            .set_input_mailbox_pointer_31_9(iova as u32 >> 9)
    }

    /// Address of the first output mailbox block; 0 when the output fits into the entry.
    #[must_use]
    pub const fn output_mailbox(&self) -> u64 {
        (self.output_mailbox_pointer_63_32() as u64) << 32
            | (self.output_mailbox_pointer_31_9() as u64) << 9
    }

    /// Sets [`output_mailbox`](Self::output_mailbox); the lower 9 bits have no place in the entry.
    pub const fn set_output_mailbox(&mut self, iova: u64) -> &mut Self {
        self.set_output_mailbox_pointer_63_32((iova >> 32) as u32)
            .set_output_mailbox_pointer_31_9(iova as u32 >> 9)
    }

    /// The delivery status that the device wrote when it gave the entry back.
    #[must_use]
    pub const fn delivery_status(&self) -> DeliveryStatus {
        DeliveryStatus::from_number(self.status())
    }

    /// Writes the signature that makes the XOR of all 64 bytes 0xff. The ownership bit must be in place already.
    pub fn sign(&mut self) -> &mut Self {
        self.set_signature(0);
        let signature = !xor(&self.0);
        self.set_signature(signature)
    }

    /// `true` if the signature of an entry that was submitted is right.
    #[must_use]
    pub fn signature_is_valid(&self) -> bool {
        xor(&self.0) == 0xff
    }

    /// `true` if the signature of an entry that came back is right: the device computes it with the ownership bit still
    /// set, and clears that last.
    #[must_use]
    pub fn answer_signature_is_valid(&self) -> bool {
        xor(&self.0) ^ !self.0[STATUS_OWNERSHIP_OFFSET] & OWNED_BY_DEVICE == 0xff
    }
}

layout! {
    /// A block of an input or output mailbox chain.
    pub struct MailboxBlock: "cmd_if_box", 0x240 {
        bytes mailbox_data, mailbox_data_mut: 512 @ 0x000;
        bits next_pointer_63_32, set_next_pointer_63_32: u32 @ 0x230 [31:0];
        bits next_pointer_31_10, set_next_pointer_31_10: u32 @ 0x234 [31:10];
        bits block_number, set_block_number: u32 @ 0x238 [31:0];
        bits token, set_token: u8 @ 0x23c [23:16];
        bits ctrl_signature, set_ctrl_signature: u8 @ 0x23c [15:8];
        bits signature, set_signature: u8 @ 0x23c [7:0];
    }
}

/// Where a block's control part begins.
const CONTROL: usize = 0x200;
/// Where its two signatures lie.
const CONTROL_SIGNATURE: usize = 0x23e;

impl MailboxBlock {
    /// Address of the next block; 0 at the end of the chain.
    #[must_use]
    pub const fn next_block(&self) -> u64 {
        (self.next_pointer_63_32() as u64) << 32 | (self.next_pointer_31_10() as u64) << 10
    }

    /// Sets [`next_block`](Self::next_block); the lower 10 bits have no place in the block.
    pub const fn set_next_block(&mut self, iova: u64) -> &mut Self {
        self.set_next_pointer_63_32((iova >> 32) as u32)
            .set_next_pointer_31_10(iova as u32 >> 10)
    }

    /// Where [`link`](Self::link) belongs.
    pub const LINK: usize = 0x230;

    /// The end of a block that is not signed: the next block's address, its own number, and the token.
    #[must_use]
    pub fn link(next: u64, number: u32, token: u8) -> [u8; Self::SIZE - Self::LINK] {
        let mut block = Self::ZERO;
        block
            .set_next_block(next)
            .set_block_number(number)
            .set_token(token);
        let mut link = [0; Self::SIZE - Self::LINK];
        link.copy_from_slice(&block.0[Self::LINK..]);
        link
    }

    /// Writes both signatures: first that of the control part, then that of the whole block.
    pub fn sign(&mut self) -> &mut Self {
        let control = !xor(&self.0[CONTROL..CONTROL_SIGNATURE]);
        self.set_ctrl_signature(control);
        let whole = !xor(&self.0[..=CONTROL_SIGNATURE]);
        self.set_signature(whole)
    }

    /// `true` if the signature over the control part is right.
    #[must_use]
    pub fn control_signature_is_valid(&self) -> bool {
        xor(&self.0[CONTROL..=CONTROL_SIGNATURE]) == 0xff
    }

    /// `true` if both signatures are right.
    #[must_use]
    pub fn signatures_are_valid(&self) -> bool {
        self.control_signature_is_valid() && xor(&self.0) == 0xff
    }
}

/// The number of mailbox blocks that a message of this many bytes needs behind the entry.
#[must_use]
pub const fn blocks_needed(message_len: usize) -> usize {
    message_len
        .saturating_sub(INLINE_SIZE)
        .div_ceil(BLOCK_DATA_SIZE)
}

/// Where byte `offset` of a message lies: `None` in the entry, otherwise the block's number and the byte in it.
#[must_use]
pub const fn locate(offset: usize) -> Option<(usize, usize)> {
    match offset.checked_sub(INLINE_SIZE) {
        None => None,
        Some(behind) => Some((behind / BLOCK_DATA_SIZE, behind % BLOCK_DATA_SIZE)),
    }
}

/// XOR of all bytes.
#[must_use]
pub fn xor(bytes: &[u8]) -> u8 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words
        .iter()
        .fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word));
    let bytes = words.to_ne_bytes();
    bytes.iter().chain(rest).fold(0, |sum, byte| sum ^ byte)
}

/// The tokens of successive commands: 1 to 255 and round again, never 0.
///
/// A token that changes with every use of a slot is what lets the device notice a block left over from an older command.
#[must_use]
pub const fn next_token(token: u8) -> u8 {
    match token.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_lies_as_the_manual_says() {
        let mut entry = CommandQueueEntry([0xa5; 64]);
        entry
            .set_type(TYPE_PCI)
            .set_input_length(0x110)
            .set_input_mailbox(0x0000_0012_3456_7c00)
            .set_output_mailbox(0x0000_0098_7654_3800)
            .set_output_length(0x20)
            .set_token(0x33)
            .set_status(0)
            .set_ownership(true);
        entry.command_input_inline_data_mut().fill(0x11);
        entry.command_output_inline_data_mut().fill(0x22);
        let mut expected = [0xa5u8; 64];
        expected[0] = 7;
        expected[4..8].copy_from_slice(&[0, 0, 1, 0x10]);
        expected[8..16].copy_from_slice(&[0, 0, 0, 0x12, 0x34, 0x56, 0x7d, 0xa5]);
        expected[0x10..0x20].fill(0x11);
        expected[0x20..0x30].fill(0x22);
        expected[0x30..0x38].copy_from_slice(&[0, 0, 0, 0x98, 0x76, 0x54, 0x39, 0xa5]);
        expected[0x38..0x3c].copy_from_slice(&[0, 0, 0, 0x20]);
        expected[0x3c] = 0x33;
        expected[0x3f] = 0x01;
        assert_eq!(entry.0, expected);
        assert_eq!(entry.input_mailbox(), 0x12_3456_7c00);
        assert_eq!(entry.output_mailbox(), 0x98_7654_3800);
    }

    #[test]
    fn entry_signature_makes_the_sum_ff() {
        let mut entry = CommandQueueEntry::ZERO;
        entry
            .set_type(7)
            .set_input_length(16)
            .set_output_length(16)
            .set_token(1)
            .set_ownership(true);
        entry.command_input_inline_data_mut()[..4].copy_from_slice(&[0x01, 0x04, 0, 0]);
        entry.sign();
        // 07 ^ 10 ^ 10 ^ 01 ^ 04 ^ 01 (token) ^ 01 (ownership) = 02, and its complement is the signature.
        assert_eq!(entry.signature(), 0xfd);
        assert!(entry.signature_is_valid());
        for bit in 0..512 {
            let mut broken = entry;
            broken.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!broken.signature_is_valid(), "bit {bit} is not covered");
        }
        assert!(entry.answer_signature_is_valid());
        entry.set_ownership(false);
        assert!(entry.answer_signature_is_valid() && !entry.signature_is_valid());
        entry.set_status(1);
        assert!(!entry.answer_signature_is_valid());
    }

    #[test]
    fn block_lies_as_the_manual_says() {
        let mut block = MailboxBlock([0xa5; 0x240]);
        block
            .set_next_block(0x0000_00ab_cdef_0400)
            .set_block_number(3)
            .set_token(0x44);
        assert_eq!(
            block.0[0x230..0x238],
            [0, 0, 0, 0xab, 0xcd, 0xef, 0x05, 0xa5]
        );
        assert_eq!(block.0[0x238..0x23e], [0, 0, 0, 3, 0xa5, 0x44]);
        assert!(block.0[..0x230].iter().all(|&b| b == 0xa5));
        assert_eq!(block.next_block(), 0xab_cdef_0400);
    }

    #[test]
    fn block_signatures_cover_control_part_and_whole() {
        let mut block = MailboxBlock::ZERO;
        block.mailbox_data_mut()[5] = 0x0f;
        block
            .set_next_block(0x1000)
            .set_block_number(2)
            .set_token(0x81)
            .sign();
        // The control part is 10 ^ 02 ^ 81 = 93, so its signature is 6c and it sums to ff; with the data's 0f that is
        // f0, whose complement is 0f.
        assert_eq!(block.ctrl_signature(), 0x6c);
        assert_eq!(block.signature(), 0x0f);
        assert!(block.signatures_are_valid());
        block.mailbox_data_mut()[511] ^= 1;
        assert!(block.control_signature_is_valid() && !block.signatures_are_valid());
        block.mailbox_data_mut()[511] ^= 1;
        block.0[0x23c] ^= 0x80;
        assert!(!block.control_signature_is_valid());
    }

    #[test]
    fn block_arithmetic() {
        let cases = [
            (0, 0),
            (1, 0),
            (16, 0),
            (17, 1),
            (528, 1),
            (529, 2),
            (16 + 4096 * 512, 4096),
        ];
        for (len, blocks) in cases {
            assert_eq!(blocks_needed(len), blocks, "{len} bytes");
        }
        assert_eq!(locate(15), None);
        assert_eq!(locate(16), Some((0, 0)));
        assert_eq!(locate(16 + 511), Some((0, 511)));
        assert_eq!(locate(16 + 512), Some((1, 0)));
    }

    #[test]
    fn tokens_skip_zero() {
        assert_eq!(next_token(0), 1);
        assert_eq!(next_token(254), 255);
        assert_eq!(next_token(255), 1);
    }
}
