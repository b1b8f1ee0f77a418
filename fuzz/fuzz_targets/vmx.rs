//! See `taut_fuzz_targets::vmx`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| taut_fuzz_targets::vmx::TARGET.execute(input));
