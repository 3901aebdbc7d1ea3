//! The queue, as dialogues under a clock that moves only when a test says so.
// What is not as a test says fails it, however that shows.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod durable;
mod hostile;
mod support;
mod tasks;
mod workers;
