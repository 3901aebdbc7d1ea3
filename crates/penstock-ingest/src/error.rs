use std::io;

/// What can go wrong while documents or rows are sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller's input cannot be sent; nothing was sent.
    #[error("{0}")]
    Value(String),
    /// The earlier receipt from the caller cannot be read.
    #[error("the previous receipt: {0}")]
    PreviousReceipt(#[source] serde_json::Error),
    /// A receipt cannot be written as JSON.
    #[error("{0}")]
    Receipt(#[source] serde_json::Error),
    /// The texts or contents for rows cannot be read back, or do not form a column.
    #[error("{0}")]
    Rows(#[source] io::Error),
    /// A failure of the session, the protocol, or the machine at this end.
    #[error(transparent)]
    Session(#[from] penstock_pipestream_net::Error),
    /// The caller's [`Interrupts`](crate::Interrupts) ended the run; the caller knows why.
    #[error("{0}")]
    Interrupted(&'static str),
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl From<penstock_io::Error> for Error {
    fn from(error: penstock_io::Error) -> Self {
        Self::Session(error.into())
    }
}

impl From<penstock_pipestream::Error> for Error {
    fn from(error: penstock_pipestream::Error) -> Self {
        Self::Session(error.into())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn an_error_leads_to_what_the_library_said() {
        let broken = serde_json::from_str::<u8>("{").unwrap_err();
        let said = broken.to_string();
        let error = Error::PreviousReceipt(broken);
        assert_eq!(error.to_string(), format!("the previous receipt: {said}"));
        assert_eq!(error.source().map(ToString::to_string), Some(said));
        let error = Error::Rows(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(error.source().map(ToString::to_string), Some(error.to_string()));
        assert!(Error::Value("no".to_owned()).source().is_none());
    }
}
