//! See `taut_fuzz_targets::qmp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::qmp::TARGET.execute(input));
