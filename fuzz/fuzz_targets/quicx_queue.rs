#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| penstock_fuzz::quicx_queue::quicx_queue(std::time::Instant::now(), input));
