//! See `bareverbs_fuzz::ipoib`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::ipoib::run(data));
