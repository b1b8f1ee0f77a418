//! See `taut_fuzz_targets::ring`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::ring::TARGET.execute(input));
