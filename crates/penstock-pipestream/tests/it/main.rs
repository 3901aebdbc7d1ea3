//! The tests of the public interface, in one binary, because linking each further binary takes half a minute.

mod binding;
mod exhaustive;
mod frames;
mod fuzzing;
mod link;
mod sessions;
mod vectors;
mod vectors_layer2;
