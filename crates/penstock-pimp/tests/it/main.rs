//! The tests of the public interface, in one binary: each further binary would take half a minute to link.

mod consumer;
mod fuzzing;
mod job;
mod sender;
mod transfer;
mod vectors;
