use penstock_wire::ErrorKind;

/// Errors of this driver.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A failure at this end: a file, a socket, TLS, a timeout, or the caller.
    #[error(transparent)]
    Local(#[from] penstock_io::Error),
    /// An invalid configuration, or an exceeded limit.
    #[error(transparent)]
    Protocol(#[from] penstock_quicx::Error),
    /// A peer broke a rule of the protocol.
    #[error("{name}: {source}")]
    Peer {
        /// The peer's address.
        name: String,
        /// The rule that it broke.
        source: penstock_quicx::Error,
    },
    /// The daemon has refused a request.
    #[error(transparent)]
    Refused(#[from] penstock_quicx::Refused),
}

/// The result type of this driver.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Local(error) => error.kind(),
            Self::Protocol(error) | Self::Peer { source: error, .. } => error.kind(),
            Self::Refused(refused) => refused.kind(),
        }
    }
}
