use std::path::PathBuf;
use std::time::TryFromFloatSecsError;

/// The mistakes of a caller; nothing was sent.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// An address without a port.
    #[error("{name:?} is no HOST:PORT: there is no colon")]
    NoPort {
        /// The address.
        name: String,
    },
    /// An address whose port is not a number from 0 to 65535.
    #[error("{name:?} is no HOST:PORT: the port must be a number from 0 to 65535")]
    Port {
        /// The address.
        name: String,
    },
    /// An address without a host.
    #[error("{name:?} is no HOST:PORT: the host is missing")]
    NoHost {
        /// The address.
        name: String,
    },
    /// A number of seconds that is not a duration.
    #[error("{option}={seconds}: {reason}")]
    Duration {
        /// The name of the option.
        option: String,
        /// The value.
        seconds: f64,
        /// Why the number is not a duration.
        reason: TryFromFloatSecsError,
    },
    /// A URI of an unknown scheme.
    #[error("{uri}: a sink is a folder or a URI of s3, gs, abfs, abfss or az")]
    Scheme {
        /// The URI.
        uri: String,
    },
    /// A URI without a bucket or container.
    #[error("{uri}: it names no bucket")]
    NoBucket {
        /// The URI.
        uri: String,
    },
    /// A URI with a prefix that no key may have.
    #[error("{uri}: {reason}")]
    Prefix {
        /// The URI.
        uri: String,
        /// The library's reason.
        reason: String,
    },
    /// An option that the store of a URI does not have.
    #[error("{uri}: there is no storage option {option} for it")]
    StorageOption {
        /// The URI.
        uri: String,
        /// The name of the option.
        option: String,
    },
    /// Options with which a store cannot be opened.
    #[error("{uri}: {reason}")]
    Storage {
        /// The URI.
        uri: String,
        /// The library's reason.
        reason: String,
    },
    /// Options of a store for a folder.
    #[error("storage has options of an object store, but the sink is a folder")]
    FolderOptions,
    /// A request for signed URLs to a store that signs none.
    #[error("{uri}: it signs no URLs")]
    NoSigner {
        /// The URI of the store.
        uri: String,
    },
    /// A path for a Unix socket at which another file exists.
    #[error("{} exists and is not a socket", .path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// TLS options of a server without TLS.
    #[error("cert and client_ca require TLS, {off}")]
    ServerTls {
        /// Why the server has no TLS.
        off: String,
    },
    /// A certificate for a client without TLS.
    #[error("cert requires TLS: give fingerprint, ca or system_ca")]
    ClientTls,
    /// A text that is not a fingerprint.
    #[error("{reason}")]
    Fingerprint {
        /// The text, and what is wrong with it.
        reason: String,
    },
    /// A client that trusts no server, or whose trust has more than one source.
    #[error("exactly one of fingerprint, ca and system_ca must be given")]
    Trust,
    /// A certificate without a key, or a key without a certificate.
    #[error("a certificate and its key go together: give both, cert and key, or neither")]
    CertificatePair,
    /// A wrong value of the option whether clients need a certificate.
    #[error("{option}={value:?}: \"required\" or \"optional\"")]
    ClientCertificates {
        /// The name of the option.
        option: String,
        /// The value.
        value: String,
    },
    /// A server name that no certificate could have.
    #[error("{name:?} is no name that a certificate could have")]
    ServerName {
        /// The name.
        name: String,
    },
    /// A read key that could be guessed.
    #[error("the read key has {length} bytes; it must have at least {minimum}")]
    ReadKeyLength {
        /// The number of bytes.
        length: usize,
        /// The minimum number of bytes.
        minimum: usize,
    },
    /// A connection limit of 0.
    #[error("the limit of {name} of {server} is 0: no client could connect")]
    ConnectionLimit {
        /// The name of the limit.
        name: &'static str,
        /// The server, such as "the receiver".
        server: &'static str,
    },
    /// A rule of a binding to another language, which has the words for it.
    #[error("{0}")]
    Rule(String),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Error;

    /// Check each mistake's message, which must also be that of the error.
    fn check<const N: usize>(table: [(Misuse, &str); N]) {
        for (misuse, message) in table {
            assert_eq!(Error::from(misuse).to_string(), message);
        }
    }

    #[test]
    fn a_wrong_address_or_duration_is_named() {
        let name = || "x".to_owned();
        let reason = Duration::try_from_secs_f64(-1.0).unwrap_err();
        check([
            (Misuse::NoPort { name: name() }, "\"x\" is no HOST:PORT: there is no colon"),
            (Misuse::Port { name: name() }, "\"x\" is no HOST:PORT: the port must be a number from 0 to 65535"),
            (Misuse::NoHost { name: name() }, "\"x\" is no HOST:PORT: the host is missing"),
            (Misuse::NoSocket { path: "/x".into() }, "/x exists and is not a socket"),
            (
                Misuse::Duration { option: "wait".to_owned(), seconds: -1.0, reason: reason.clone() },
                format!("wait=-1: {reason}").as_str(),
            ),
            (
                Misuse::ConnectionLimit { name: "connections", server: "a test" },
                "the limit of connections of a test is 0: no client could connect",
            ),
            (Misuse::Rule("why".to_owned()), "why"),
        ]);
    }

    #[test]
    fn a_wrong_store_is_named_with_the_reason() {
        let (uri, reason) = (|| "s3://x".to_owned(), || "why".to_owned());
        check([
            (Misuse::Scheme { uri: uri() }, "s3://x: a sink is a folder or a URI of s3, gs, abfs, abfss or az"),
            (Misuse::NoBucket { uri: uri() }, "s3://x: it names no bucket"),
            (Misuse::Prefix { uri: uri(), reason: reason() }, "s3://x: why"),
            (
                Misuse::StorageOption { uri: uri(), option: "region".to_owned() },
                "s3://x: there is no storage option region for it",
            ),
            (Misuse::Storage { uri: uri(), reason: reason() }, "s3://x: why"),
            (Misuse::FolderOptions, "storage has options of an object store, but the sink is a folder"),
            (Misuse::NoSigner { uri: uri() }, "s3://x: it signs no URLs"),
        ]);
    }

    #[test]
    fn options_of_tls_that_do_not_go_together_have_messages() {
        check([
            (Misuse::ServerTls { off: "which is off".to_owned() }, "cert and client_ca require TLS, which is off"),
            (Misuse::ClientTls, "cert requires TLS: give fingerprint, ca or system_ca"),
            (Misuse::Fingerprint { reason: "why".to_owned() }, "why"),
            (Misuse::Trust, "exactly one of fingerprint, ca and system_ca must be given"),
            (Misuse::CertificatePair, "a certificate and its key go together: give both, cert and key, or neither"),
            (
                Misuse::ClientCertificates { option: "o".to_owned(), value: "never".to_owned() },
                "o=\"never\": \"required\" or \"optional\"",
            ),
            (Misuse::ServerName { name: "a b".to_owned() }, "\"a b\" is no name that a certificate could have"),
            (Misuse::ReadKeyLength { length: 3, minimum: 16 }, "the read key has 3 bytes; it must have at least 16"),
        ]);
    }
}
