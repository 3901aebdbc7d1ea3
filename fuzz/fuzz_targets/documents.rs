#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| penstock_documents::fuzzing::fuzz_dehydrate(input));
