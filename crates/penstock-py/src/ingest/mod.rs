//! Documents on their way into a session, for Python: `penstock_ingest` sends them, and no part of them crosses into
//! Python.

mod fields;
mod outcome;
mod partition;
mod sender;

pub(crate) use outcome::{DocumentOutcome, part_schema};
pub(crate) use partition::divide;
pub(crate) use sender::{DocumentSender, SentDocument};
