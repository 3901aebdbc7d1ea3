//! Producers, monitors and workers. For each, an async task on the IO thread owns the connection,
//! and a handle sends commands to it.

mod producer;
mod transport;
mod watch;
mod worker;

pub use self::producer::{Outcome, Producer, ProducerOptions, Submitted};
pub use self::transport::{ConnectOptions, Target};
pub use self::watch::{Watch, Watched};
pub use self::worker::{Task, Worker, WorkerOptions};
