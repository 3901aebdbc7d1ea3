use penstock_wire::ErrorKind;

/// What can go wrong in this driver.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// At this end: a file, a socket, TLS, a time-out, or the caller.
    #[error(transparent)]
    Local(#[from] penstock_io::Error),
    /// A rule of the protocol was broken.
    #[error(transparent)]
    Protocol(#[from] penstock_vgi::Error),
    /// The peer has closed the connection.
    #[error("the server has closed the connection")]
    Closed,
    /// The connection broke before.
    #[error("the connection is over: {0}")]
    Over(#[source] Box<Error>),
    /// The caller wants to wait no longer.
    #[error("the wait was interrupted")]
    Interrupted,
    /// The server points into shared memory, which this connection does not have.
    #[error("the server has answered with a pointer into shared memory, and this connection has none")]
    Pointer,
    /// A peer's segment of shared memory is none that is safe to use.
    #[error("{0}")]
    Segment(String),
    /// A segment of shared memory does not hold what its header or its pointer says.
    #[error("{0}")]
    SegmentContent(String),
    /// A location leads where nothing is fetched or put, or what answers there breaks a rule.
    #[error("{0}")]
    Location(String),
    /// More bytes than a limit allows.
    #[error("{0}")]
    Size(String),
    /// A batch that lies elsewhere was not had.
    #[error("an external batch cannot be had (tries: {tries}): {source}")]
    External {
        /// How often it was tried.
        tries: u32,
        /// Why the last try failed.
        source: Box<Error>,
    },
}

/// What this driver returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Local(error) => error.kind(),
            Self::Protocol(error) => error.kind(),
            Self::Closed => ErrorKind::Io,
            Self::Interrupted => ErrorKind::Deadline,
            Self::Pointer | Self::Segment(_) | Self::Location(_) => ErrorKind::Violation,
            Self::SegmentContent(_) => ErrorKind::Malformed,
            Self::Size(_) => ErrorKind::Limit,
            Self::Over(source) | Self::External { source, .. } => source.kind(),
        }
    }
}
