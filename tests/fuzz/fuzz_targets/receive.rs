//! See `bareverbs_fuzz::receive`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::receive::run(data));
