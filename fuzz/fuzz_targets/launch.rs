//! See `taut_fuzz_targets::launch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| taut_fuzz_targets::launch::run(data));
