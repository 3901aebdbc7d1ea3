//! Documents taken apart, one file per format: no protocol, and no IO but through what the caller lends.

mod dehydrator;
mod failure;
mod limits;
mod part;
mod workspace;

pub use dehydrator::Dehydrator;
pub use failure::{Failure, FailureKind};
pub use limits::{Limits, PdfLimits};
pub use part::{Event, Part, Payload};
pub use workspace::{PdfPages, Source, Spool, Workspace};
