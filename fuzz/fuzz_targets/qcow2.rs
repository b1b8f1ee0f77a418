//! See `taut_fuzz_targets::qcow2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| taut_fuzz_targets::qcow2::run(data));
