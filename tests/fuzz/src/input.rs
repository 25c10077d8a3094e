//! The bytes of an input.

use libfuzzer_sys::arbitrary::Unstructured;

/// Steps of a run at most. Longer ones find nothing that shorter ones do not, and take their time.
pub const STEPS: usize = 256;

/// Bytes to be used up, from the first on.
#[derive(Debug)]
pub struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    /// All of it.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// Returns `true` if there is nothing left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// The next two bytes, the lower one first.
    pub fn word(&mut self) -> u16 {
        u16::from(self.byte()) | u16::from(self.byte()) << 8
    }

    /// The next bytes, as many as are left of these.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let len = len.min(self.0.len());
        self.0.bytes(len).unwrap_or(&[])
    }

    /// One of a list, or none: also if the list is empty.
    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> Option<T> {
        let at = usize::from(self.byte()) % (list.len() + 1);
        list.get(at).copied()
    }
}
