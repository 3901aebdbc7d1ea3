//! Readers' work on the process's IO thread and its pool.

use penstock_io::{DriverError as _, runtime};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{Error, Result};

/// Return the result of a task; an error if the task panicked.
pub(super) async fn joined<T>(task: JoinHandle<Result<T>>) -> Result<T> {
    task.await.unwrap_or_else(|died| Err(Error::task(died)))
}

/// Run a future on the IO thread, so that it finishes there even if the caller stops waiting.
pub(super) async fn background<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    joined(runtime::spawn(work)?).await
}

/// Run blocking work on the pool of the current runtime.
pub(super) async fn blocking<T, E>(
    work: impl FnOnce() -> std::result::Result<T, E> + Send + 'static,
) -> std::result::Result<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    spawn_blocking(work).await.unwrap_or_else(|died| Err(Error::task(died).into()))
}
