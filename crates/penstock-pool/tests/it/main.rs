//! The tests of the public interface, in one binary: each further binary would take half a minute to link.

mod pool;
mod shared;
