//! Small messages in the entries of their completions.

/// Up to how many bytes of a message go into the entry of its completion instead of memory: 0, 32 or 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CqeScatter {
    /// Messages received (`cs_res` of the QPC).
    pub receives: u8,
    /// The largest response that goes into the CQE (`cs_req` of the QPC).
    pub responses: u8,
}
