//! See `taut_fuzz_targets::handshake`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::handshake::TARGET.execute(input));
