use std::fmt;
use std::io;
use std::path::Path;

use penstock_pipestream::{self as core, ErrorCode, Reason};
use penstock_wire::ErrorKind;

/// What can go wrong in a driver. Cheap to clone, because one lost connection fails many waiting callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A file, a socket or a thread.
    Io {
        /// What was tried, with the name of the file or the address.
        context: String,
        /// What the system said.
        message: String,
    },
    /// A certificate, a key or the handshake.
    Tls(String),
    /// The protocol core refused it.
    Protocol(core::Error),
    /// A Lumberjack peer broke a rule, or took too long.
    Lumberjack(penstock_lumberjack::Error),
    /// A Quicx peer broke a rule, or a configuration makes no sense.
    Quicx(penstock_quicx::Error),
    /// A Quicx daemon has refused something.
    Refused(penstock_quicx::Refused),
    /// What of PIMP was refused, or went wrong.
    Pimp(penstock_pimp::Error),
    /// The session is over; why.
    Closed(Reason),
    /// The caller broke a rule; nothing was sent.
    Misuse(String),
    /// A task of this process ended without an answer: it panicked, or the process ends.
    Task(String),
    /// It took too long.
    Deadline(String),
    /// The object was made before a fork and cannot be used in the child.
    Forked,
}

/// What drivers return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An IO error with what was tried.
    pub fn io(context: impl Into<String>, error: &io::Error) -> Self {
        Self::Io { context: context.into(), message: error.to_string() }
    }

    /// An IO error about a file.
    pub fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        Self::io(format!("{doing} {}", path.display()), error)
    }

    /// A task ended without an answer.
    pub fn task(why: &impl fmt::Display) -> Self {
        Self::Task(why.to_string())
    }

    /// There is no memory for so many bytes of payloads.
    pub(crate) fn memory(bytes: impl fmt::Display) -> Self {
        Self::Io { context: format!("cannot hold {bytes} bytes"), message: "there is no memory".to_owned() }
    }

    /// Whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } | Self::Tls(_) | Self::Closed(_) | Self::Task(_) => ErrorKind::Io,
            Self::Protocol(error) => error.kind(),
            Self::Lumberjack(error) => error.kind(),
            Self::Quicx(error) => error.kind(),
            Self::Refused(refused) => refused.kind(),
            Self::Pimp(error) => error.kind(),
            Self::Misuse(_) | Self::Forked => ErrorKind::Misuse,
            Self::Deadline(_) => ErrorKind::Deadline,
        }
    }

    /// The registry's code, where the protocol has one for it.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Protocol(error) => Some(error.code()),
            Self::Closed(reason) => Some(reason.code),
            Self::Io { .. }
            | Self::Tls(_)
            | Self::Lumberjack(_)
            | Self::Quicx(_)
            | Self::Refused(_)
            | Self::Pimp(_)
            | Self::Misuse(_)
            | Self::Task(_)
            | Self::Deadline(_)
            | Self::Forked => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { context, message } => write!(f, "{context}: {message}"),
            Self::Tls(message) | Self::Misuse(message) | Self::Task(message) | Self::Deadline(message) => {
                f.write_str(message)
            }
            Self::Protocol(error) => error.fmt(f),
            Self::Lumberjack(error) => error.fmt(f),
            Self::Quicx(error) => error.fmt(f),
            Self::Refused(refused) => refused.fmt(f),
            Self::Pimp(error) => error.fmt(f),
            Self::Closed(reason) => write!(f, "the session is closed: {}: {}", reason.code, reason.message),
            Self::Forked => f.write_str("made before a fork; make a new one in the child process"),
        }
    }
}

impl std::error::Error for Error {}

impl From<core::Error> for Error {
    fn from(error: core::Error) -> Self {
        Self::Protocol(error)
    }
}

impl From<penstock_lumberjack::Error> for Error {
    fn from(error: penstock_lumberjack::Error) -> Self {
        Self::Lumberjack(error)
    }
}

impl From<penstock_quicx::Error> for Error {
    fn from(error: penstock_quicx::Error) -> Self {
        Self::Quicx(error)
    }
}

impl From<penstock_pimp::Error> for Error {
    fn from(error: penstock_pimp::Error) -> Self {
        Self::Pimp(error)
    }
}
