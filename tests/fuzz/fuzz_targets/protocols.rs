//! See `bareverbs_fuzz::protocols`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::protocols::run(data));
