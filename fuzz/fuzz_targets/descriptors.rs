//! See `taut_fuzz_targets::descriptors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::descriptors::TARGET.execute(input));
