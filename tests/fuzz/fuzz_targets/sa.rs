//! See `bareverbs_fuzz::sa`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::sa::run(data));
