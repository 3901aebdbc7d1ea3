//! Producers, monitors and workers: each a connection that a task on the IO thread owns, and a handle that sends it commands.

mod producer;
mod transport;
mod worker;

pub use self::producer::{Outcome, Producer, ProducerOptions, Submitted};
pub use self::transport::{ConnectOptions, Target};
pub use self::worker::{Task, Worker, WorkerOptions};
