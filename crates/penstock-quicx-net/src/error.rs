use penstock_wire::ErrorKind;

/// What can go wrong in this driver.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// At this end: a file, a socket, TLS, a time-out, or the caller.
    #[error(transparent)]
    Local(#[from] penstock_io::Error),
    /// A configuration makes no sense, or a limit is exceeded.
    #[error(transparent)]
    Protocol(#[from] penstock_quicx::Error),
    /// A peer broke a rule of the protocol.
    #[error("{name}: {source}")]
    Peer {
        /// The peer's address.
        name: String,
        /// What it did.
        source: penstock_quicx::Error,
    },
    /// The daemon has refused something.
    #[error(transparent)]
    Refused(#[from] penstock_quicx::Refused),
}

/// What this driver returns.
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
