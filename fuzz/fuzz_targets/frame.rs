//! See `taut_fuzz_targets::frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::frame::TARGET.execute(input));
