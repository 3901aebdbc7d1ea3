use penstock_wire::ErrorKind;

use crate::misuse::Misuse;

/// Errors of this driver.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A failure at this end: a file, a socket, TLS, a timeout, or an option of one of these.
    #[error(transparent)]
    Local(#[from] penstock_io::Error),
    /// A rule of the protocol was broken.
    #[error(transparent)]
    Protocol(#[from] penstock_lumberjack::Error),
    /// The caller broke a rule; nothing was sent or stored.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// A receiver broke a rule of the protocol.
    #[error("{name}: {source}")]
    Peer {
        /// The receiver's address.
        name: String,
        /// The rule that it broke.
        source: penstock_lumberjack::Error,
    },
}

/// The result type of this driver.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return the kind of the error, which says which side caused it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Local(error) => error.kind(),
            Self::Misuse(_) => ErrorKind::Misuse,
            Self::Protocol(error) | Self::Peer { source: error, .. } => error.kind(),
        }
    }
}
