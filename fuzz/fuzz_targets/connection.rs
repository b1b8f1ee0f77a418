//! See `taut_fuzz_targets::connection`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| taut_fuzz_targets::connection::run(data));
