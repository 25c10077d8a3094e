//! A call that sends has these bytes still to send: those of a list of pieces, as one stream.

/// The rest of a list of pieces.
#[derive(Debug, Clone)]
pub(super) struct Remaining<'a> {
    parts: &'a [&'a [u8]],
    /// This many bytes of the first piece are gone.
    at: usize,
    length: usize,
}

impl<'a> Remaining<'a> {
    /// All of it.
    pub(super) fn new(parts: &'a [&'a [u8]]) -> Self {
        Self {
            parts,
            at: 0,
            length: parts.iter().map(|part| part.len()).sum(),
        }
    }

    /// Returns the number of bytes that are left.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Takes bytes that lie together, `most` at most; none if there are none left.
    pub(super) fn next(&mut self, most: usize) -> &'a [u8] {
        while let [first, rest @ ..] = self.parts {
            let bytes = &first[self.at..];
            if bytes.is_empty() {
                (self.parts, self.at) = (rest, 0);
                continue;
            }
            let bytes = &bytes[..bytes.len().min(most)];
            self.at += bytes.len();
            self.length -= bytes.len();
            return bytes;
        }
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_stream() {
        let parts: [&[u8]; 5] = [b"ab", b"", b"cdefg", b"", b"h"];
        let mut rest = Remaining::new(&parts);
        let mut found = Vec::new();
        for left in (0..8).rev() {
            let bytes = rest.next(1);
            assert_eq!((bytes.len(), rest.length()), (1, left));
            found.extend_from_slice(bytes);
        }
        assert_eq!(found, b"abcdefgh");
        assert_eq!(rest.next(1), b"");
        let mut rest = Remaining::new(&parts);
        let lengths = [100, 3, 100, 100, 100].map(|most| rest.next(most).len());
        assert_eq!(lengths, [2, 3, 2, 1, 0]);
        assert_eq!(Remaining::new(&[]).length(), 0);
    }
}
