//! Messages of the connection manager, and calls between them: see `bareverbs_fuzz::mad`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::mad::run(data));
