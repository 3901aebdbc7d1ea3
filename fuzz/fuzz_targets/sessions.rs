#![no_main]
//! Two honest sessions, and one against anything, under the input's choices.

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    penstock_pipestream::fuzzing::session::dialogue(input);
    penstock_pipestream::fuzzing::session::hostile(input);
});
