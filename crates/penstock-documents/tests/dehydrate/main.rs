//! Documents made in code, and what the dehydrator says of them. Each test's name is the rule.

// Helpers stand outside of test functions, where the exemption of clippy.toml does not reach.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod archives;
mod damage;
mod documents;
#[allow(unreachable_pub)]
mod fuzzing;
mod limits;
mod mails;
mod properties;
mod support;
