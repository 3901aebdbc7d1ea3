use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::path::Path;
use std::sync::Arc;

use penstock_wire::ErrorKind;
use tokio::task::JoinError;

/// The error of a library or the system, which all copies of an error share.
type Cause = Arc<dyn StdError + Send + Sync>;

/// What can go wrong at this end, whatever the protocol. Cheap to clone, because one lost connection fails many waiting
/// callers.
#[derive(Debug, Clone)]
pub enum Error {
    /// A file, a socket or a thread.
    Io {
        /// What was tried, with the name of the file or the address.
        context: String,
        /// The error of the system or a library.
        source: Cause,
    },
    /// A certificate, a key or the handshake.
    Tls {
        /// What failed, with the name of the file or the address, and why.
        message: String,
        /// The error of the TLS library, the QUIC library or the system, where one of them has found it.
        source: Option<Cause>,
    },
    /// The caller broke a rule; nothing was sent.
    Misuse(String),
    /// Another process or another writer holds it, or changes it at the same time.
    Busy(String),
    /// A file or an object of this end does not have the expected content.
    Content(String),
    /// A task of this process ended without a result: it panicked, or the process is exiting.
    Task(Arc<JoinError>),
    /// The named part of this process has stopped, and so does nothing more for its callers.
    Stopped(&'static str),
    /// This program has a bug.
    Internal {
        /// What was tried.
        context: String,
        /// Why it failed, though it cannot.
        source: Cause,
    },
    /// It took too long.
    Deadline(String),
    /// The object was made before a fork and cannot be used in the child.
    Forked,
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { context, source } | Self::Internal { context, source } => write!(f, "{context}: {source}"),
            Self::Tls { message, .. }
            | Self::Misuse(message)
            | Self::Busy(message)
            | Self::Content(message)
            | Self::Deadline(message) => f.write_str(message),
            Self::Task(source) => source.fmt(f),
            Self::Stopped(part) => write!(f, "{part} has stopped"),
            Self::Forked => f.write_str("made before a fork; make a new one in the child process"),
        }
    }
}

// Written by hand: a derived `source` would be the `Arc`, in which callers do not find the `io::Error`.
impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Internal { source, .. } => Some(&**source),
            Self::Tls { source, .. } => source.as_ref().map(|source| &**source as _),
            Self::Task(source) => Some(&**source),
            Self::Misuse(_)
            | Self::Busy(_)
            | Self::Content(_)
            | Self::Stopped(_)
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
            Self::Io { .. }
            | Self::Tls { .. }
            | Self::Busy(_)
            | Self::Task(_)
            | Self::Stopped(_)
            | Self::Internal { .. } => ErrorKind::Io,
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

    /// Make the error of a certificate, a key or a handshake that this end has found itself.
    fn tls(message: String) -> Self {
        Error::Tls { message, source: None }.into()
    }

    /// Make the error of a certificate, a key or a handshake that a library has found; the message says so too.
    fn tls_from(message: String, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::Tls { message, source: Some(Arc::from(source.into())) }.into()
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
    fn task(source: JoinError) -> Self {
        Error::Task(Arc::new(source)).into()
    }

    /// Make the error of a part of this process that has stopped, such as "the spool".
    fn stopped(part: &'static str) -> Self {
        Error::Stopped(part).into()
    }

    /// Make the error of a bug in this program.
    fn internal(context: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::Internal { context: context.into(), source: Arc::from(source.into()) }.into()
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
    fn a_tls_error_leads_to_what_the_library_said_where_it_found_the_error() {
        let found = rustls::Error::NoCertificatesPresented;
        let error = Error::tls_from(format!("handshake: {found}"), found.clone());
        let source = error.source().and_then(|source| source.downcast_ref::<rustls::Error>());
        assert_eq!((source, error.to_string()), (Some(&found), format!("handshake: {found}")));
        assert!(Error::tls("no certificate".to_owned()).source().is_none());
    }

    #[test]
    fn a_task_error_leads_to_the_reason_why_the_task_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let task = runtime.spawn(async { panic!("a bug") });
        let error = Error::task(runtime.block_on(task).unwrap_err());
        let source = error.source().and_then(|source| source.downcast_ref::<JoinError>());
        assert!(source.is_some_and(JoinError::is_panic), "{error:?}");
        assert!(error.to_string().contains("a bug"), "{error}");
    }

    #[test]
    fn only_a_callers_mistake_is_misuse() {
        let text = String::new;
        let (io, misuse) = (ErrorKind::Io, ErrorKind::Misuse);
        for (error, kind) in [
            (Error::Misuse(text()), misuse),
            (Error::Forked, misuse),
            (Error::Busy(text()), io),
            (Error::Stopped("the spool"), io),
            (Error::internal("encoding", "it is too long"), io),
            (Error::tls(text()), io),
            (Error::memory(7), io),
            (Error::Content(text()), ErrorKind::Malformed),
            (Error::Deadline(text()), ErrorKind::Deadline),
        ] {
            assert_eq!(error.kind(), kind, "{error:?}");
        }
    }
}
