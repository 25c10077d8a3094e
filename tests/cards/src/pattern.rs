//! Bytes to send.

use connectx_model::link::rng::Rng;

/// So many bytes that differ by `salt`.
pub(super) fn pattern(len: usize, salt: u64) -> Vec<u8> {
    let mut rng = Rng::new(salt);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
