//! See `taut_fuzz_targets::multicast`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::multicast::TARGET.execute(input));
