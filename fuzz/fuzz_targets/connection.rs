//! See `taut_fuzz_targets::connection`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::connection::TARGET.execute(input));
