//! See `taut_fuzz_targets::session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| taut_fuzz_targets::session::run(data));
