//! See `taut_fuzz_targets::console`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::console::TARGET.execute(input));
