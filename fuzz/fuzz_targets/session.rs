//! See `taut_fuzz_targets::session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::session::TARGET.execute(input));
