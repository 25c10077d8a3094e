//! See `bareverbs_fuzz::mailbox`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bareverbs_fuzz::mailbox::run(data));
