//! See `bareverbs_fuzz::switch`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::switch::run(data));
