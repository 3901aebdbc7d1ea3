//! The tests of the public interface, in one binary: each binary more is linked for half a minute.

mod binding;
mod exhaustive;
mod frames;
mod fuzzing;
mod link;
mod sessions;
mod vectors;
mod vectors_layer2;
