#![no_main]

use penstock_pipestream::fuzzing::session;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    session::dialogue(input);
    session::hostile(input);
});
