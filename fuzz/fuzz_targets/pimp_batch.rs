#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| penstock_fuzz::pimp::pimp_batch(std::time::Instant::now(), input));
