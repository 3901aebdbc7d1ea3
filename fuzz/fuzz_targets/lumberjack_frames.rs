#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| penstock_lumberjack::fuzzing::lumberjack_frames(input));
