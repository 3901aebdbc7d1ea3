//! Documents taken apart, one file per format: no protocol, and no IO but through what the caller lends.
//!
//! A [`Dehydrator`] reads a document and gives its parts one after the other. What a part is, is told by its bytes:
//!
//! | containers | documents with parts | leaves with text | other leaves |
//! |---|---|---|---|
//! | zip (docx, xlsx, pptx, OpenDocument, EPUB, jar), tar, gzip, bzip2, xz, zstd, mbox, mail | PDF (pages), HTML (embedded data) | plain text, Markdown, CSV, JSON, XML, HTML | anything |
//!
//! Names of members are names and nothing else: `..`, absolute names, duplicates and links are kept, never used.
//!
//! What it is not: it does not put documents together again, and knows nothing of entities, scopes or sinks.

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
