#![no_main]

use std::time::Instant;

use penstock_fuzz::pipestream_session as session;
use penstock_pipestream::Now;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let start = Now { instant: Instant::now(), unix_micros: 0 };
    session::dialogue(input, start);
    session::hostile(input, start);
});
