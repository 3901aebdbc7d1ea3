use penstock_quicx::ErrorCode;
use penstock_wire::ErrorKind;

use crate::misuse::Misuse;

/// Errors of this driver.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A failure at this end: a file, a socket, TLS, a timeout, or an option of one of these.
    #[error(transparent)]
    Local(#[from] penstock_io::Error),
    /// An invalid configuration, or an exceeded limit.
    #[error(transparent)]
    Protocol(#[from] penstock_quicx::Error),
    /// The caller broke a rule; nothing was sent.
    #[error(transparent)]
    Misuse(#[from] Misuse),
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
    /// Return whose fault the error is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Local(error) => error.kind(),
            Self::Protocol(error) | Self::Peer { source: error, .. } => error.kind(),
            Self::Misuse(_) => ErrorKind::Misuse,
            Self::Refused(refused) => refused.kind(),
        }
    }

    /// Return the code of the daemon's refusal.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(refused) => Some(refused.code),
            Self::Local(_) | Self::Protocol(_) | Self::Misuse(_) | Self::Peer { .. } => None,
        }
    }

    /// Return what happened, without the code.
    pub fn message(&self) -> String {
        match self {
            Self::Refused(refused) => refused.message.clone(),
            Self::Local(_) | Self::Protocol(_) | Self::Misuse(_) | Self::Peer { .. } => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_io::DriverError as _;
    use penstock_quicx::Refused;

    use super::*;

    #[test]
    fn only_a_refusal_has_a_code_and_its_message_is_without_it() {
        let refused = Error::Refused(Refused { code: ErrorCode::Invalid, message: "unknown".to_owned() });
        assert_eq!((refused.code(), refused.message().as_str()), (Some(ErrorCode::Invalid), "unknown"));
        let late = Error::deadline("late".into());
        assert_eq!((late.code(), late.message().as_str()), (None, "late"));
    }
}
