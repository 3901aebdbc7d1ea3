use std::io;

/// What can go wrong while documents or rows are sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller gave something that cannot be sent; nothing was.
    #[error("{0}")]
    Value(String),
    /// The caller gave an earlier receipt that cannot be read.
    #[error("the previous receipt: {0}")]
    PreviousReceipt(#[source] serde_json::Error),
    /// A receipt cannot be written as JSON.
    #[error("{0}")]
    Receipt(#[source] serde_json::Error),
    /// What rows are made of cannot be read back, or is no column.
    #[error("{0}")]
    Rows(#[source] io::Error),
    /// The session, the protocol, or the machine at this end.
    #[error(transparent)]
    Session(#[from] penstock_pipestream_net::Error),
    /// The caller's [`Interrupts`](crate::Interrupts) ended the run, and know why.
    #[error("{0}")]
    Interrupted(&'static str),
}

/// Return type of this crate.
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
