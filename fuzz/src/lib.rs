//! The bodies of the targets. They stand in the tests of their crates, which run them on stable.

#[path = "../../crates/penstock-documents/tests/dehydrate/fuzzing.rs"]
pub mod documents;
#[path = "../../crates/penstock-lumberjack/tests/it/fuzzing/bodies.rs"]
pub mod lumberjack;
#[path = "../../crates/penstock-pimp/tests/it/fuzzing/bodies.rs"]
pub mod pimp;
#[path = "../../crates/penstock-pipestream/tests/it/fuzzing/bytes.rs"]
pub mod pipestream;
#[path = "../../crates/penstock-pipestream/tests/it/fuzzing/session/mod.rs"]
pub mod pipestream_session;
#[path = "../../crates/penstock-quicx/tests/it/fuzzing/bytes.rs"]
pub mod quicx;
#[path = "../../crates/penstock-quicx/tests/it/fuzzing/queue.rs"]
pub mod quicx_queue;
#[path = "../../crates/penstock-vgi/tests/it/fuzzing/bodies.rs"]
pub mod vgi;
