//! The bodies of the targets. They stand in the tests of their crates, which run them on stable.

#[path = "../../crates/penstock-documents/tests/dehydrate/fuzzing.rs"]
pub mod documents;
#[path = "../../crates/penstock-lumberjack/tests/fuzzing/bodies.rs"]
pub mod lumberjack;
#[path = "../../crates/penstock-pimp/tests/fuzzing/bodies.rs"]
pub mod pimp;
#[path = "../../crates/penstock-pipestream/tests/fuzzing/bytes.rs"]
pub mod pipestream;
#[path = "../../crates/penstock-pipestream/tests/fuzzing/session.rs"]
pub mod pipestream_session;
#[path = "../../crates/penstock-quicx/tests/fuzzing/bytes.rs"]
pub mod quicx;
#[path = "../../crates/penstock-quicx/tests/fuzzing/queue.rs"]
pub mod quicx_queue;
#[path = "../../crates/penstock-vgi/tests/fuzzing/bodies.rs"]
pub mod vgi;
