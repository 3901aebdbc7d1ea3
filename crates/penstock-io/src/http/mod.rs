//! HTTP/1.1 for every protocol that is served over it: connections, TLS, and shutdown. The protocols supply the
//! handlers.

mod body;
mod incoming;
mod listen;
mod pace;
#[cfg(test)]
mod tests;

pub use body::RequestBody;
pub use incoming::{BodyBudget, BodyError};
pub use listen::{HTTPS, Handler, HttpServer, Serving, ShutdownSignal};
