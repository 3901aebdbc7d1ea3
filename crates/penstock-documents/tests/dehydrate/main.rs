//! Documents made in code, and their parts. Each test's name states the rule that it checks.

// Helpers are outside of test functions, where the exemption in clippy.toml does not apply.
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
