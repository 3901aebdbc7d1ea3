use penstock_wire::ErrorKind;

/// What can go wrong in this driver.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// At this end: a file, a socket, TLS, a time-out, or the caller.
    #[error(transparent)]
    Local(#[from] penstock_io::Error),
    /// A rule of the protocol was broken.
    #[error(transparent)]
    Protocol(#[from] penstock_lumberjack::Error),
    /// A receiver broke a rule of the protocol.
    #[error("{name}: {source}")]
    Peer {
        /// The receiver's address.
        name: String,
        /// What it did.
        source: penstock_lumberjack::Error,
    },
}

/// What this driver returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Local(error) => error.kind(),
            Self::Protocol(error) | Self::Peer { source: error, .. } => error.kind(),
        }
    }
}
