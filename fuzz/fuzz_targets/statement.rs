//! See `taut_fuzz_targets::statement`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::statement::TARGET.execute(input));
