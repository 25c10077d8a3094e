//! Helpers of the tests: a file in place of the device's, and the generator's seed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::test_runner::{Config, RngSeed};

/// The same cases in every run; a failure prints its input.
pub(crate) fn seeded() -> Config {
    Config {
        rng_seed: RngSeed::Fixed(0x15b3_1017),
        failure_persistence: None,
        ..Config::default()
    }
}

/// The file's name; removes it at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A new file with this content, open for reading and writing.
pub(crate) fn scratch_file(content: &[u8]) -> (File, Scratch) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("bareverbs-file-{}-{count}", std::process::id()));
    fs::write(&path, content).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    (file, Scratch(path))
}
