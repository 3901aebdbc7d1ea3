use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::path::Path;
use std::sync::Arc;

use penstock_wire::ErrorKind;

/// What can go wrong at this end, whatever the protocol. Cheap to clone, because one lost connection fails many waiting
/// callers.
#[derive(Debug, Clone)]
pub enum Error {
    /// A file, a socket or a thread.
    Io {
        /// What was tried, with the name of the file or the address.
        context: String,
        /// Message of the system or a library.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// A certificate, a key or the handshake.
    Tls(String),
    /// The caller broke a rule; nothing was sent.
    Misuse(String),
    /// Another process or another writer holds it, or changes it at the same time.
    Busy(String),
    /// A file or an object of this end does not have the expected content.
    Content(String),
    /// A task of this process ended without a result: it panicked, or the process is exiting.
    Task(String),
    /// It took too long.
    Deadline(String),
    /// The object was made before a fork and cannot be used in the child.
    Forked,
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { context, source } => write!(f, "{context}: {source}"),
            Self::Tls(message)
            | Self::Misuse(message)
            | Self::Busy(message)
            | Self::Content(message)
            | Self::Task(message)
            | Self::Deadline(message) => f.write_str(message),
            Self::Forked => f.write_str("made before a fork; make a new one in the child process"),
        }
    }
}

// Written by hand: a derived `source` would be the `Arc`, in which callers do not find the `io::Error`.
impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Io { source, .. } => Some(&**source),
            Self::Tls(_)
            | Self::Misuse(_)
            | Self::Busy(_)
            | Self::Content(_)
            | Self::Task(_)
            | Self::Deadline(_)
            | Self::Forked => None,
        }
    }
}

/// The result type of what the drivers share.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::Tls(_) | Self::Busy(_) | Self::Task(_) => ErrorKind::Io,
            Self::Content(_) => ErrorKind::Malformed,
            Self::Misuse(_) | Self::Forked => ErrorKind::Misuse,
            Self::Deadline(_) => ErrorKind::Deadline,
        }
    }
}

impl From<penstock_log::Error> for Error {
    fn from(error: penstock_log::Error) -> Self {
        match error {
            penstock_log::Error::Io { context, source } => Self::Io { context, source: Arc::new(source) },
            penstock_log::Error::Busy(message) => Self::Busy(message),
            penstock_log::Error::Content(message) => Self::Content(message),
        }
    }
}

/// Constructors that every driver's error has, for failures at this end.
pub trait DriverError: From<Error> {
    /// Make an IO error with what was tried.
    fn io(context: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::Io { context: context.into(), source: Arc::from(source.into()) }.into()
    }

    /// Make an IO error about a file.
    fn file(doing: &str, path: &Path, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::io(format!("{doing} {}", path.display()), source)
    }

    /// Make the error of a certificate, a key or a handshake.
    fn tls(message: String) -> Self {
        Error::Tls(message).into()
    }

    /// Make the error of a caller that broke a rule.
    fn misuse(message: String) -> Self {
        Error::Misuse(message).into()
    }

    /// Make the error of something that another process or writer holds or changes.
    fn busy(message: String) -> Self {
        Error::Busy(message).into()
    }

    /// Make the error of a file or an object with unexpected content.
    fn content(message: String) -> Self {
        Error::Content(message).into()
    }

    /// Make the error of a task that ended without a result.
    fn task(cause: &impl Display) -> Self {
        Error::Task(cause.to_string()).into()
    }

    /// Make the error of an operation that took too long.
    fn deadline(message: String) -> Self {
        Error::Deadline(message).into()
    }

    /// Make the error of a payload that does not fit into memory, with its number of bytes.
    fn memory(bytes: impl Display) -> Self {
        Self::io(format!("cannot hold {bytes} bytes"), "there is no memory")
    }
}

impl<E: From<Error>> DriverError for E {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_io_error_leads_to_what_the_system_said_with_its_kind() {
        let error = Error::file("cannot open", Path::new("/x"), io::Error::from(io::ErrorKind::StorageFull));
        let copy = error.clone();
        let source = copy.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::StorageFull));
        assert!(error.to_string().starts_with("cannot open /x: "), "{error}");
    }

    #[test]
    fn only_a_callers_mistake_is_misuse() {
        let text = String::new;
        let (io, misuse) = (ErrorKind::Io, ErrorKind::Misuse);
        for (error, kind) in [
            (Error::Misuse(text()), misuse),
            (Error::Forked, misuse),
            (Error::Busy(text()), io),
            (Error::Task(text()), io),
            (Error::Tls(text()), io),
            (Error::memory(7), io),
            (Error::Content(text()), ErrorKind::Malformed),
            (Error::Deadline(text()), ErrorKind::Deadline),
        ] {
            assert_eq!(error.kind(), kind, "{error:?}");
        }
    }
}
