use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::segment::DAMAGED;

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the operating system failed.
    #[error("{context}: {source}")]
    Io {
        /// The call that failed, with the name of the file.
        context: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process writes the folder.
    #[error("{}: {holder}", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
        /// The engine's message about the other process, such as "another daemon has this journal".
        holder: &'static str,
    },
    /// The folder holds files of something other than this log, or of another version.
    #[error("{} {mismatch}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// How it differs from a segment of this log.
        mismatch: Mismatch,
    },
}

/// How a file differs from a segment of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// The number in its header is not the number in its name.
    Number {
        /// The number in the header.
        found: u64,
    },
    /// Its header names another engine, or another version of this one's records.
    Kind {
        /// The log's name in messages.
        what: &'static str,
        /// The kind in the header.
        found: [u8; 8],
    },
    /// It belongs to another log of this engine.
    Log,
    /// Its content does not show that it is a segment.
    Unknown {
        /// The log's name in messages.
        what: &'static str,
        /// The number in its name.
        number: u64,
    },
    /// The engine does not know one of its records.
    Record {
        /// The byte at which the record begins.
        offset: u64,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { found } => write!(f, "is segment {found} by its content"),
            Self::Kind { what, found } => {
                let found = found.escape_ascii();
                write!(f, "is no segment of {what} of this version: it says that it is one of \"{found}\"")
            }
            Self::Log => f.write_str("is a segment of another log"),
            Self::Unknown { what, number } => write!(
                f,
                "is no segment of {what} of this version, or it is damaged: name it {number:020}{DAMAGED} to go on without \
                 what is in it"
            ),
            Self::Record { offset } => write!(f, "has a record of another version at byte {offset}"),
        }
    }
}

/// The result of opening a log.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return the error for a file that is no segment of this log.
    pub(crate) fn content(path: &Path, mismatch: Mismatch) -> Self {
        Self::Content { path: path.to_owned(), mismatch }
    }

    /// Return the error for a failed call on a file.
    pub(crate) fn file(doing: &str, path: &Path, source: io::Error) -> Self {
        Self::Io { context: format!("{doing} {}", path.display()), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mismatch_says_what_the_file_is_or_what_to_do_with_it() {
        let what = "a test";
        for (mismatch, message) in [
            (Mismatch::Number { found: 3 }, "1.log is segment 3 by its content"),
            (
                Mismatch::Kind { what, found: *b"other  1" },
                "1.log is no segment of a test of this version: it says that it is one of \"other  1\"",
            ),
            (Mismatch::Log, "1.log is a segment of another log"),
            (
                Mismatch::Unknown { what, number: 1 },
                "1.log is no segment of a test of this version, or it is damaged: name it 00000000000000000001.damaged to go \
                 on without what is in it",
            ),
            (Mismatch::Record { offset: 48 }, "1.log has a record of another version at byte 48"),
        ] {
            assert_eq!(Error::content(Path::new("1.log"), mismatch).to_string(), message);
        }
    }
}
