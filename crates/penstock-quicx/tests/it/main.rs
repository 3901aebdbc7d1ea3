//! The tests of the public interface, in one binary: each binary more is linked for half a minute.

mod clients;
mod fuzzing;
mod journal;
mod log;
mod queue;
mod vectors;
