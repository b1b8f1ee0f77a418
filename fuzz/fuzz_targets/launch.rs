//! See `taut_fuzz_targets::launch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::launch::TARGET.execute(input));
