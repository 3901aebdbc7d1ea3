/// Mistakes of the caller of this driver; nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A daemon without an address or a socket to listen on.
    #[error("no address or socket to listen on was given")]
    NoListener,
    /// A call after a producer was closed.
    #[error("the producer is closed")]
    ProducerClosed,
    /// TLS options for a Unix socket.
    #[error("TLS options cannot be used with a Unix socket")]
    UnixTls,
}

#[cfg(test)]
mod tests {
    use penstock_wire::ErrorKind;

    use super::*;
    use crate::Error;

    #[test]
    fn every_misuse_has_its_message() {
        for (misuse, message) in [
            (Misuse::NoListener, "no address or socket to listen on was given"),
            (Misuse::ProducerClosed, "the producer is closed"),
            (Misuse::UnixTls, "TLS options cannot be used with a Unix socket"),
        ] {
            let error = Error::from(misuse);
            assert_eq!((error.kind(), error.code()), (ErrorKind::Misuse, None), "{error:?}");
            assert_eq!((error.message().as_str(), error.to_string().as_str()), (message, message));
        }
    }
}
