use penstock_io::DriverError as _;
use penstock_vgi::Failure;
use penstock_wire::ErrorKind;

use crate::faults::{LocationFault, SegmentDamage, SegmentViolation, SizeLimit};
use crate::misuse::Misuse;
use crate::port::ApplicationError;

/// Errors of this driver.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A failure at this end: a file, a socket, TLS, a timeout, or an option of one of these.
    #[error(transparent)]
    Local(#[from] penstock_io::Error),
    /// A rule of the protocol was broken.
    #[error(transparent)]
    Protocol(#[from] penstock_vgi::Error),
    /// The caller broke a rule; nothing was sent.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The peer has closed the connection.
    #[error("the server has closed the connection")]
    Closed,
    /// An earlier failure has ended the connection.
    #[error("the connection is over: {0}")]
    Over(#[source] Box<Error>),
    /// The caller stopped waiting.
    #[error("the wait was interrupted")]
    Interrupted,
    /// The application has ended the wait with its own error.
    #[error(transparent)]
    Raised(ApplicationError),
    /// The application's validator has refused a location.
    #[error(transparent)]
    Refused(ApplicationError),
    /// The application's storage has failed to store a batch.
    #[error("a batch could not be stored: {0}")]
    Storage(#[source] ApplicationError),
    /// A peer's pointer does not lead to a batch.
    #[error(transparent)]
    Unfetched(Box<Error>),
    /// The server has answered with an error.
    #[error("{}: {}", .0.error_type, .0.message)]
    Failed(Box<Failure>),
    /// The server has ended its answer without a result.
    #[error("the server has not answered the call")]
    Unanswered,
    /// The server sent a pointer into shared memory, but this connection has none.
    #[error("the server has answered with a pointer into shared memory, and this connection has none")]
    Pointer,
    /// A peer's segment of shared memory is not safe to use.
    #[error(transparent)]
    Segment(SegmentViolation),
    /// The content of a segment contradicts its header or a pointer.
    #[error(transparent)]
    SegmentContent(SegmentDamage),
    /// A location may not be fetched from or uploaded to, or its server breaks a rule.
    #[error(transparent)]
    Location(LocationFault),
    /// A size is above its limit.
    #[error(transparent)]
    Size(SizeLimit),
    /// An external batch could not be fetched.
    #[error("an external batch could not be fetched (attempts: {tries}): {source}")]
    External {
        /// The number of attempts.
        tries: u32,
        /// Why the last attempt failed.
        source: Box<Error>,
    },
}

/// The result type of this driver.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Return the error for a method that the protocol lacks; the core never passes on such a call.
pub(crate) fn unknown_method() -> Error {
    Error::internal("the method of the call", "the protocol has none")
}

impl Error {
    /// Return the kind of the error, which says whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Local(error) => error.kind(),
            Self::Protocol(error) => error.kind(),
            Self::Misuse(_) => ErrorKind::Misuse,
            Self::Closed => ErrorKind::Io,
            Self::Interrupted => ErrorKind::Deadline,
            Self::Raised(_) => ErrorKind::Deadline,
            Self::Storage(_) | Self::Failed(_) => ErrorKind::Io,
            Self::Refused(_) | Self::Unanswered => ErrorKind::Violation,
            Self::Unfetched(source) => source.kind(),
            Self::Pointer | Self::Segment(_) | Self::Location(_) => ErrorKind::Violation,
            Self::SegmentContent(_) => ErrorKind::Malformed,
            Self::Size(_) => ErrorKind::Limit,
            Self::Over(source) | Self::External { source, .. } => source.kind(),
        }
    }
    /// Return whether this end stops waiting; the peer is not at fault, and is told nothing.
    pub(crate) const fn ends_wait(&self) -> bool {
        matches!(self, Self::Interrupted | Self::Raised(_))
    }
}
