//! HTTP/1.1 for every protocol that is served over it: connections, TLS, and how a server ends. What is answered is theirs.

mod listen;
mod pace;

pub(crate) use listen::{Answers, HttpServer, Serving, Stopping};
