//! The buffer's HTTP: requests in, answers out. What is taken and what is refused is the core's.

mod answer;
mod body;
mod events;
mod rates;
mod raw;
mod service;

pub use service::{Service, ServiceConfig};
