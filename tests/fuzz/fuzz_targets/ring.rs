//! See `bareverbs_fuzz::ring`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::ring::run(data));
