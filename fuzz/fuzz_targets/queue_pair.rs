//! See `taut_fuzz_targets::queue_pair`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::queue_pair::TARGET.execute(input));
