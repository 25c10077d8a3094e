//! Numbers for tests that draw what they do.

/// Numbers that depend on a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

/// The seeds of a test: the one of the environment, or these.
pub(crate) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("BAREVERBS_TEST_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=count)
            .map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect(),
    }
}
