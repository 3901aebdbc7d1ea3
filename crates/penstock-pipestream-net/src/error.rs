use penstock_pipestream::{ErrorCode, Reason};
use penstock_wire::ErrorKind;

/// Errors of this driver.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// At this end: a file, a socket, TLS, a timeout, or the caller.
    #[error(transparent)]
    Local(#[from] penstock_io::Error),
    /// The protocol core refused it.
    #[error(transparent)]
    Protocol(#[from] penstock_pipestream::Error),
    /// The peer has refused a request, with its reason.
    #[error("{}: {}", .0.code, .0.message)]
    Refused(Reason),
    /// The peer has not said yet what it is capable of.
    #[error("the capabilities are not agreed yet")]
    Negotiating,
    /// The entity ended before the request was carried out.
    #[error("{0}")]
    Ended(&'static str),
    /// The session is over.
    #[error("the session is closed: {}: {}", .0.code, .0.message)]
    Closed(Reason),
}

/// Result of this driver.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return the category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Local(error) => error.kind(),
            Self::Protocol(error) => error.kind(),
            Self::Refused(_) => ErrorKind::Violation,
            Self::Negotiating | Self::Ended(_) | Self::Closed(_) => ErrorKind::Io,
        }
    }

    /// Return the registry's code, where the protocol has one for it.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Protocol(error) => Some(error.code()),
            Self::Refused(reason) | Self::Closed(reason) => Some(reason.code),
            Self::Local(_) | Self::Negotiating | Self::Ended(_) => None,
        }
    }
}
