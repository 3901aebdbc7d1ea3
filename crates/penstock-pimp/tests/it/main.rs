//! The tests of the public interface, in one binary: each binary more is linked for half a minute.

mod consumer;
mod fuzzing;
mod job;
mod sender;
mod transfer;
mod vectors;
