//! See `taut_fuzz_targets::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| taut_fuzz_targets::message::run(data));
