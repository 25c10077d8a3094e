//! Frames from a cable: see `bareverbs_fuzz::frame`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::frame::run(data));
