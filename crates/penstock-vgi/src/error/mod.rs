mod malformed;
mod misuse;
#[cfg(test)]
mod tests;
mod violation;

use penstock_wire::{ErrorKind, LimitExceeded, Truncated};

pub use malformed::{Malformed, SegmentHeader};
pub use misuse::Misuse;
pub use violation::Violation;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of this crate, by who is at fault. After an error of a kind other than
/// [`ErrorKind::Misuse`], the connection must be closed.
///
/// Failures of a method or a request are answered with a [`Failure`](crate::Failure) instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer's bytes do not parse.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The bytes parse, but the peer broke a rule.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A limit was exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// A compressed body is larger than allowed.
    #[error("a zstd body inflates to more than {limit} bytes")]
    Inflated {
        /// The most bytes allowed.
        limit: u64,
    },
    /// An external batch is larger than allowed.
    #[error("an external batch has more than {limit} bytes")]
    External {
        /// The most bytes allowed.
        limit: u64,
    },
    /// A column of a batch cannot be read.
    #[error("column {name:?}: {source}")]
    Column {
        /// The column.
        name: String,
        /// The reason.
        source: Box<Error>,
    },
    /// The compressor failed, through no fault of the input.
    #[error("a body cannot be compressed: {reason}")]
    Compression {
        /// The message of the compressor.
        reason: String,
    },
    /// The caller broke a rule.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

impl Error {
    /// Return the kind of the error, which says who is at fault.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed(_) => ErrorKind::Malformed,
            Self::Violation(_) => ErrorKind::Violation,
            Self::Limit(_) | Self::Inflated { .. } | Self::External { .. } => ErrorKind::Limit,
            Self::Column { source, .. } => source.kind(),
            Self::Compression { .. } => ErrorKind::Io,
            Self::Misuse(_) => ErrorKind::Misuse,
        }
    }
}

impl From<Truncated> for Error {
    fn from(truncated: Truncated) -> Self {
        Malformed::Truncated(truncated).into()
    }
}
