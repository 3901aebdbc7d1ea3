use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_wire::ErrorKind;
use tokio::task::JoinError;

use crate::misuse::Misuse;

/// The error of a library or the system, which all copies of an error share.
type Cause = Arc<dyn StdError + Send + Sync>;

/// The errors of this end, for every protocol. They are cheap to clone, because one lost connection
/// fails many waiting callers.
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
        /// The error of the TLS library, the QUIC library or the system, if one of them caused this
        /// error.
        source: Option<Cause>,
    },
    /// The caller broke a rule; nothing was sent.
    Misuse(Misuse),
    /// Another process or writer holds a resource, or changes it at the same time.
    Busy(Busy),
    /// A file or an object of this end does not have the expected content.
    Content {
        /// The file or the object.
        place: String,
        /// What is wrong with it.
        problem: Problem,
    },
    /// There are more bytes than a limit allows.
    Limit {
        /// The data that is too long, such as "a batch".
        what: &'static str,
        /// The number of bytes.
        bytes: u64,
        /// The maximum number of bytes.
        limit: u64,
    },
    /// A task of this process ended without a result: it panicked, or the process is exiting.
    Task(Arc<JoinError>),
    /// The named part of this process has stopped, and serves its callers no more.
    Stopped(&'static str),
    /// This program has a bug.
    Internal {
        /// What was tried.
        context: String,
        /// Why it failed, which should be impossible.
        source: Cause,
    },
    /// An operation took too long.
    Deadline(String),
    /// An object was made before a fork and cannot be used in the child.
    Forked,
}

/// The other process or writer that holds or changes a resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// Another process writes a folder.
    #[error("{}: {holder}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The description of the other process, such as "another daemon has this journal".
        holder: &'static str,
    },
    /// Another server listens on a Unix socket.
    #[error("{}: another server listens there", path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
    },
    /// Other writers change a resource so often that each try failed.
    #[error("gave up after {tries} conflicts: other writers keep changing {what}")]
    Conflict {
        /// The resource.
        what: String,
        /// The number of tries.
        tries: usize,
    },
    /// A later writer has taken over a place.
    #[error("{place}: {successor} since, and this one writes nothing more")]
    TakenOver {
        /// The place.
        place: String,
        /// The description of the later writer, such as "another receiver has opened this spool".
        successor: &'static str,
    },
}

/// What is wrong with a file or an object.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Problem {
    /// The file is not a segment of the log in its folder.
    #[error("{0}")]
    Log(penstock_log::Mismatch),
    /// The content is not what its place needs, such as "the ID of a spool".
    #[error("is not {0}")]
    Not(&'static str),
    /// The file belongs to another object of this kind than its folder does, such as "spool".
    #[error("belongs to another {0}")]
    Foreign(&'static str),
    /// A library cannot decode the content.
    #[error("is damaged: {0}")]
    Damaged(Cause),
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { context, source } | Self::Internal { context, source } => write!(f, "{context}: {source}"),
            Self::Tls { message, .. } | Self::Deadline(message) => f.write_str(message),
            Self::Misuse(misuse) => misuse.fmt(f),
            Self::Busy(busy) => busy.fmt(f),
            Self::Content { place, problem } => write!(f, "{place} {problem}"),
            Self::Limit { what, bytes, limit } => write!(f, "{what} has {bytes} bytes, and the limit is {limit}"),
            Self::Task(source) => source.fmt(f),
            Self::Stopped(part) => write!(f, "{part} has stopped"),
            Self::Forked => f.write_str("made before a fork; make a new one in the child process"),
        }
    }
}

// Written by hand, because a derived `source` would return the `Arc`, in which callers do not find
// the `io::Error`.
impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Internal { source, .. } => Some(&**source),
            Self::Tls { source, .. } => source.as_ref().map(|source| &**source as _),
            Self::Task(source) => Some(&**source),
            Self::Content { problem: Problem::Damaged(source), .. } => Some(&**source),
            Self::Content { problem: Problem::Log(_) | Problem::Foreign(_) | Problem::Not(_), .. }
            | Self::Misuse(_)
            | Self::Busy(_)
            | Self::Limit { .. }
            | Self::Stopped(_)
            | Self::Deadline(_)
            | Self::Forked => None,
        }
    }
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return the category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. }
            | Self::Tls { .. }
            | Self::Busy(_)
            | Self::Task(_)
            | Self::Stopped(_)
            | Self::Internal { .. } => ErrorKind::Io,
            Self::Content { .. } => ErrorKind::Malformed,
            Self::Limit { .. } => ErrorKind::Limit,
            Self::Misuse(_) | Self::Forked => ErrorKind::Misuse,
            Self::Deadline(_) => ErrorKind::Deadline,
        }
    }
}

impl From<Misuse> for Error {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}

impl From<penstock_log::Error> for Error {
    fn from(error: penstock_log::Error) -> Self {
        match error {
            penstock_log::Error::Io { context, source } => Self::Io { context, source: Arc::new(source) },
            penstock_log::Error::Busy { folder, holder } => Self::Busy(Busy::Folder { folder, holder }),
            penstock_log::Error::Content { path, mismatch } => Self::content(path.display(), Problem::Log(mismatch)),
        }
    }
}

/// Constructors that every driver's error has, for failures at this end.
pub trait DriverError: From<Error> {
    /// Make an IO error with a description of what was tried.
    fn io(context: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::Io { context: context.into(), source: Arc::from(source.into()) }.into()
    }

    /// Make an IO error about a file.
    fn file(doing: &str, path: &Path, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::io(format!("{doing} {}", path.display()), source)
    }

    /// Make the error of a certificate, a key or a handshake that this crate has found itself.
    fn tls(message: String) -> Self {
        Error::Tls { message, source: None }.into()
    }

    /// Make the error of a certificate, a key or a handshake that a library has found; the message
    /// repeats the library's.
    fn tls_from(message: String, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Error::Tls { message, source: Some(Arc::from(source.into())) }.into()
    }

    /// Make the error of a caller that broke a rule of a binding to another language, in its words.
    fn misuse(message: String) -> Self {
        Error::Misuse(Misuse::Rule(message)).into()
    }

    /// Make the error of a resource that another process or writer holds or changes.
    fn busy(busy: Busy) -> Self {
        Error::Busy(busy).into()
    }

    /// Make the error of a file or an object with unexpected content.
    fn content(place: impl Display, problem: Problem) -> Self {
        Error::Content { place: place.to_string(), problem }.into()
    }

    /// Make the error of a file or an object whose content a library cannot decode.
    fn damaged(place: impl Display, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::content(place, Problem::Damaged(Arc::from(source.into())))
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
    fn an_error_of_content_leads_to_what_the_library_said_where_the_bytes_do_not_decode() {
        let error = Error::damaged("7.segment", io::Error::from(io::ErrorKind::InvalidData));
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::InvalidData));
        assert!(error.to_string().starts_with("7.segment is damaged: "), "{error}");
        assert!(Error::content("7.segment", Problem::Not("a segment")).source().is_none());
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
            (Error::misuse(text()), misuse),
            (Misuse::Trust.into(), misuse),
            (Error::Forked, misuse),
            (Error::busy(Busy::Conflict { what: text(), tries: 3 }), io),
            (Error::Stopped("the spool"), io),
            (Error::internal("encoding", "it is too long"), io),
            (Error::tls(text()), io),
            (Error::memory(7), io),
            (Error::content("f", Problem::Foreign("spool")), ErrorKind::Malformed),
            (Error::Limit { what: "a batch", bytes: 8, limit: 7 }, ErrorKind::Limit),
            (Error::Deadline(text()), ErrorKind::Deadline),
        ] {
            assert_eq!(error.kind(), kind, "{error:?}");
        }
    }
}
