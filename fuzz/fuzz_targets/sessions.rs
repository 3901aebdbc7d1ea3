#![no_main]

use std::time::Instant;

use penstock_pipestream::Now;
use penstock_pipestream::fuzzing::session;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let start = Now { instant: Instant::now(), unix_micros: 0 };
    session::dialogue(input, start);
    session::hostile(input, start);
});
