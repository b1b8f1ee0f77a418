//! See `taut_fuzz_targets::document`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::document::TARGET.execute(input));
