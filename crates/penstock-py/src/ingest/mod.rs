//! Sending documents into a session for Python. `penstock_ingest` does the work, and no part of a
//! document passes through Python.

mod fields;
mod outcome;
mod partition;
mod sender;

pub(crate) use outcome::{DocumentOutcome, part_schema};
pub(crate) use partition::divide;
pub(crate) use sender::{DocumentSender, SentDocument};
