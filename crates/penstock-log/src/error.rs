use std::io;
use std::path::Path;

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk.
    #[error("{context}: {source}")]
    Io {
        /// What was tried, with the name of the file.
        context: String,
        /// What the system said.
        source: io::Error,
    },
    /// Another process writes the folder.
    #[error("{0}")]
    Busy(String),
    /// The folder holds something else than this log, or something of another version.
    #[error("{0}")]
    Content(String),
}

/// Return type of what opens a log.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return the error of a file.
    pub(crate) fn file(doing: &str, path: &Path, source: io::Error) -> Self {
        Self::Io { context: format!("{doing} {}", path.display()), source }
    }
}
