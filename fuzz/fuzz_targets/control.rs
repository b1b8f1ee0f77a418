//! See `taut_fuzz_targets::control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::control::TARGET.execute(input));
