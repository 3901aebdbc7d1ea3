#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| penstock_vgi::fuzzing::vgi_token(input));
