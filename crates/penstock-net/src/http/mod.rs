//! HTTP/1.1 for every protocol that is served over it: connections, TLS, and how a server ends. What is answered is theirs.

mod body;
mod budget;
mod incoming;
mod listen;
mod pace;
#[cfg(test)]
mod tests;

pub(crate) use body::RequestBody;
pub(crate) use budget::{Budget, Busy, Room};
pub(crate) use incoming::{BodyError, read_body, read_body_within};
pub(crate) use listen::{Answers, HttpServer, Secured, Serving, Stopping};
