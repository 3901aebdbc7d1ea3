//! Takes documents apart, with one source file per format. There is no protocol here, and no IO except through the
//! caller's [`Source`] and [`Workspace`].
//!
//! A [`Dehydrator`] reads a document and returns its parts one after the other. The type of a part is determined from
//! its bytes:
//!
//! | containers | documents with parts | leaves with text | other leaves |
//! |---|---|---|---|
//! | zip (docx, xlsx, pptx, OpenDocument, EPUB, jar), tar, gzip, bzip2, xz, zstd, mbox, mail | PDF (pages), HTML (embedded data) | plain text, Markdown, CSV, JSON, XML, HTML | anything |
//!
//! Member names are only labels: `..`, absolute names, duplicates and links are preserved, but never followed.
//!
//! This crate does not reassemble documents, and does not know entities, scopes or sinks.

mod bytes;
mod charset;
mod child;
mod codec;
mod context;
mod data_uri;
mod dehydrator;
mod failure;
mod gzip;
mod html;
mod limits;
mod lines;
mod mail;
mod mbox;
mod name;
mod open;
mod part;
mod pdf;
mod prose;
mod selection;
mod sniff;
mod stream;
mod tar;
mod text;
mod workspace;
mod xml;
mod zip;

pub use dehydrator::Dehydrator;
pub use failure::{Failure, FailureKind};
pub use limits::{Limits, PdfLimits};
pub use part::{Event, Part, Payload};
pub use selection::Selection;
pub use workspace::{PdfPages, Source, Spool, Workspace};
