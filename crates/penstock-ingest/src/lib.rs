//! Senders of documents and Arrow rows into a PipeStream session, which record what was sent and
//! how it ended. This crate does not depend on Python.
//!
//! ```text
//!  document ─ Dehydrator ─► Transfer ─► Ledger ─► Settlement ─► DocumentOutcome: receipt, rows
//!                           announces parts,       takes their outcomes
//!                           as Privacy, DocumentPolicy and PreviousReceipt say
//!
//!  batch of Arrow ─► RowSender ─► Account ─► RowTotals
//!                    announces    takes outcomes
//!                    chunks of rows
//! ```
//!
//! The caller supplies the [`Workspace`](penstock_documents::Workspace) of the dehydrator, and
//! [`Interrupts`], which end long runs.

mod blocks;
mod digests;
mod error;
mod identity;
mod interrupts;
mod labels;
mod ledger;
mod limits;
mod outcome;
mod part_rows;
mod partition;
mod payload;
mod policy;
mod previous;
mod privacy;
mod record;
mod rows;
mod scope_note;
mod sender;
mod settlement;
#[cfg(test)]
mod testing;
mod transfer;

pub use blocks::{BlockReader, BlockSource};
pub use error::{Error, Result, Value};
pub use identity::Identity;
pub use interrupts::Interrupts;
pub use ledger::RowContent;
pub use outcome::DocumentOutcome;
pub use part_rows::PartColumns;
pub use partition::{ChildGroup, ChildSelection, ContainerPart, Division, ElsewhereChildren, divide};
pub use policy::DocumentPolicy;
pub use previous::PreviousReceipt;
pub use privacy::{Privacy, PrivacyOptions};
pub use rows::{RowFailure, RowOptions, RowSender, RowTotals};
pub use sender::{Document, DocumentOptions, DocumentSender};
pub use settlement::SentDocument;
