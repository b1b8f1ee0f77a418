//! See `taut_fuzz_targets::vmdk`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::vmdk::TARGET.execute(input));
