//! See `taut_fuzz_targets::qcow2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::qcow2::TARGET.execute(input));
