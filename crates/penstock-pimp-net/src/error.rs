use penstock_wire::ErrorKind;

use crate::misuse::Misuse;

/// Errors of this driver.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A failure at this end: a file, a socket, TLS, a timeout, or an option of one of these.
    #[error(transparent)]
    Local(#[from] penstock_io::Error),
    /// A rule of the protocol was broken, or the peer refused the request.
    #[error(transparent)]
    Protocol(#[from] penstock_pimp::Error),
    /// The caller broke a rule; nothing was sent.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// The result type of this driver.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Return whose fault the error is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Local(error) => error.kind(),
            Self::Protocol(error) => error.kind(),
            Self::Misuse(_) => ErrorKind::Misuse,
        }
    }

    /// Return the name of the error's code, or of its kind if the failure is at this end.
    pub fn code_name(&self) -> String {
        match self {
            Self::Protocol(error) => error.code().name().to_owned(),
            Self::Local(_) | Self::Misuse(_) => self.kind().name().to_uppercase(),
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_io::DriverError as _;

    use super::*;

    #[test]
    fn an_error_has_the_name_of_its_code_or_of_its_kind() {
        assert_eq!(Error::Protocol(penstock_pimp::Misuse::BatchLength.into()).code_name(), "MISUSE");
        assert_eq!(Error::deadline("late".into()).code_name(), "DEADLINE");
        assert_eq!(Error::io("x", "y").code_name(), "IO");
    }
}
