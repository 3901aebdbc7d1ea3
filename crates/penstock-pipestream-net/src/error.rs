use penstock_pipestream::{ErrorCode, Reason};
use penstock_wire::ErrorKind;

use crate::misuse::Misuse;

/// Errors of this driver.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An error at this end: a file, a socket, TLS, a timeout, or an option of one of these.
    #[error(transparent)]
    Local(#[from] penstock_io::Error),
    /// An error of the protocol core.
    #[error(transparent)]
    Protocol(#[from] penstock_pipestream::Error),
    /// The caller broke a rule; nothing was sent.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The peer has refused a request, with its reason.
    #[error("{}: {}", .0.code, .0.message)]
    Refused(Reason),
    /// The peer's capabilities have not arrived yet.
    #[error("the capabilities are not agreed yet")]
    Negotiating,
    /// The entity ended before the request was carried out.
    #[error("{0}")]
    Ended(&'static str),
    /// The session is over.
    #[error("the session is closed: {}: {}", .0.code, .0.message)]
    Closed(Reason),
}

/// Result of this driver.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return the category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Local(error) => error.kind(),
            Self::Protocol(error) => error.kind(),
            Self::Misuse(_) => ErrorKind::Misuse,
            Self::Refused(_) => ErrorKind::Violation,
            Self::Negotiating | Self::Ended(_) | Self::Closed(_) => ErrorKind::Io,
        }
    }

    /// Return the registry's code, if the protocol has one for this error.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Protocol(error) => Some(error.code()),
            Self::Refused(reason) | Self::Closed(reason) => Some(reason.code),
            Self::Local(_) | Self::Misuse(_) | Self::Negotiating | Self::Ended(_) => None,
        }
    }

    /// Return the registry's code, or else the nearest one, so that every error has a code for
    /// users.
    pub fn nearest_code(&self) -> ErrorCode {
        match self {
            Self::Protocol(error) => error.code(),
            Self::Refused(reason) | Self::Closed(reason) => reason.code,
            Self::Local(penstock_io::Error::Deadline(_)) => ErrorCode::IdleTimeout,
            Self::Local(_) | Self::Misuse(_) | Self::Negotiating | Self::Ended(_) => ErrorCode::InternalError,
        }
    }

    /// Return what happened, without the code.
    pub fn message(&self) -> String {
        match self {
            Self::Protocol(error) => error.message(),
            Self::Refused(reason) => reason.message.clone(),
            Self::Closed(reason) => format!("the session is closed: {}", reason.message),
            Self::Local(_) | Self::Misuse(_) | Self::Negotiating | Self::Ended(_) => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_io::DriverError as _;
    use penstock_pipestream::header_key::HeaderKeys;

    use super::*;

    #[test]
    fn every_error_has_a_code_and_a_message_without_it() {
        let reason = Reason { code: ErrorCode::EntityInvalid, message: "no".to_owned() };
        let Err(core) = HeaderKeys::parse("x") else { panic!("it is no key") };
        let (said, code) = (core.message(), core.code());
        for (error, code, known, message) in [
            (Error::deadline("late".into()), ErrorCode::IdleTimeout, false, "late"),
            (Error::misuse("no".into()), ErrorCode::InternalError, false, "no"),
            (Misuse::NotWaiting.into(), ErrorCode::InternalError, false, "the entity does not wait"),
            (Error::Ended("over"), ErrorCode::InternalError, false, "over"),
            (Error::Refused(reason.clone()), reason.code, true, "no"),
            (Error::Closed(reason.clone()), reason.code, true, "the session is closed: no"),
            (Error::Protocol(core), code, true, said.as_str()),
        ] {
            assert_eq!((error.nearest_code(), error.message().as_str()), (code, message), "{error:?}");
            assert_eq!(error.code(), known.then_some(code), "{error:?}");
        }
    }
}
