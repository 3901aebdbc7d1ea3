//! The refusals of requests.

use penstock_io::DriverError as _;
use penstock_io::http::BodyError;
use penstock_io::memory::Busy;
use penstock_pimp::{Code, Error, Malformed};
use tokio::task::JoinError;

/// Why a request was refused.
#[derive(Debug)]
pub(super) enum Refused {
    /// `penstock-pimp` has refused the request.
    Pimp(Error),
    /// `penstock-pimp` has refused the request because the key is wrong. It counts as a guess,
    /// whatever the status.
    Guess(Error),
    /// The store failed; the request may be retried.
    Store(crate::Error),
    /// There is no memory or no turn for the request now, or its chunks have just gone; it may be retried.
    Busy,
    /// The body did not arrive in time; the request may be retried.
    Late(String),
    /// Too many requests: retry after this many seconds.
    TooOften(u64),
    /// There is nothing at the path.
    NoPath,
    /// The method is not allowed; the allowed methods are these.
    Method(&'static str),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Pimp(error)
    }
}

impl From<crate::Error> for Refused {
    fn from(error: crate::Error) -> Self {
        Self::Store(error)
    }
}

impl From<penstock_io::Error> for Refused {
    fn from(error: penstock_io::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Refused {
    /// Return whether the refusal reveals that a key is wrong: then it counts against the address.
    pub(super) fn is_guess(&self) -> bool {
        match self {
            Self::Guess(_) => true,
            Self::Pimp(error) => error.code() == Code::Unauthorized,
            Self::Store(_) | Self::Busy | Self::Late(_) | Self::TooOften(_) | Self::NoPath | Self::Method(_) => false,
        }
    }
}

impl From<BodyError> for Refused {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(limit) => Self::Pimp(limit.into()),
            BodyError::Broken => Self::Pimp(Malformed::BodyEnd.into()),
            BodyError::Late(message) => Self::Late(message),
            BodyError::Busy => Self::Busy,
        }
    }
}

impl From<Busy> for Refused {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

/// Return the error of a task that panicked or was cancelled.
pub(super) fn ended(error: JoinError) -> crate::Error {
    crate::Error::task(error)
}
