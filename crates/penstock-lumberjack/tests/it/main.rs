//! The tests of the public interface, in one binary: each binary more is linked for half a minute.

mod client;
mod fuzzing;
mod server;
mod vectors;
