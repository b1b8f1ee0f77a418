//! See `taut_fuzz_targets::agent`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::agent::TARGET.execute(input));
