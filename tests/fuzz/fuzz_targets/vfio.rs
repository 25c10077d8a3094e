//! See `bareverbs_fuzz::vfio`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::vfio::run(data));
