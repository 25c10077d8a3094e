//! See `bareverbs_fuzz::words`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::words::run(data));
