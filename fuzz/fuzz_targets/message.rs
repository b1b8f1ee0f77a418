//! See `taut_fuzz_targets::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::message::TARGET.execute(input));
