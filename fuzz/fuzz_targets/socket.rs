//! See `taut_fuzz_targets::socket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::socket::TARGET.execute(input));
