use crate::sizes::{LONGEST_WRAPPED, MAX_OBJECT_KEY, SHORTEST_WRAPPED};

/// Errors in a reference to an external object (section 10.9).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// A reference without a required field.
    #[error("the reference has no {field}")]
    Missing {
        /// The field, as the message names it.
        field: &'static str,
    },
    /// A size that is not a number of bytes.
    #[error("the reference's attribute size is no number of bytes")]
    Size,
    /// A checksum that is not a SHA-256 in lower-case hex.
    #[error("the reference's attribute sha256 is not 64 digits of lower-case hex")]
    Digest,
    /// An unwrapped data encryption key (section 10.9).
    #[error("{place} {name:?} has a key that is not wrapped: wrap it by an approved provider")]
    DataKey {
        /// The kind of entry that contains the key.
        place: &'static str,
        /// The entry's name.
        name: String,
    },
    /// An unknown provider of objects.
    #[error("the reference's provider {0:?} is none of s3, gcs, azure and file")]
    Provider(String),
    /// A text that is not a URL.
    #[error("{0:?} is no URL")]
    Url(String),
    /// A URL with an unknown scheme.
    #[error("{0:?} is no URL of s3, gs, abfs, abfss, az or file")]
    Scheme(String),
    /// A bucket or a host in the location of a file.
    #[error("a file has no bucket, and no host: file:///PATH")]
    FileHost,
    /// An invalid bucket name.
    #[error("{0:?} is no name of a bucket")]
    Bucket(String),
    /// An object key that is too long.
    #[error("the key {key:?} is longer than {MAX_OBJECT_KEY} bytes")]
    KeyLength {
        /// The key.
        key: String,
    },
    /// An object key with control characters.
    #[error("the key {key:?} has control characters")]
    KeyControl {
        /// The key.
        key: String,
    },
    /// An object key with a segment that could lead elsewhere.
    #[error("the key {key:?} has an empty segment, \".\" or \"..\"")]
    KeySegment {
        /// The key.
        key: String,
    },
    /// An unknown encryption algorithm.
    #[error("the algorithm {0:?} is none of AES-256-GCM and AES-256-CBC")]
    Algorithm(String),
    /// An initialization vector whose length the algorithm does not allow.
    #[error("an initialization vector of {length} bytes is none of {algorithm}")]
    Vector {
        /// The vector's length in bytes.
        length: usize,
        /// The algorithm.
        algorithm: String,
    },
    /// A wrapped key that is too short to be wrapped.
    #[error(
        "a wrapped key of {length} bytes is not wrapped: with an approved envelope it has {SHORTEST_WRAPPED} or more"
    )]
    BareKey {
        /// The key's length in bytes.
        length: usize,
    },
    /// A wrapped key that is too long.
    #[error("a wrapped key of {length} bytes is above the limit of {LONGEST_WRAPPED}")]
    WrappedLength {
        /// The key's length in bytes.
        length: usize,
    },
    /// A key provider that is not approved.
    #[error("the key provider {name:?} is not approved ({approved})")]
    KeyProvider {
        /// The provider's name.
        name: String,
        /// The approved providers.
        approved: String,
    },
    /// A key ID that is empty, too long or has control characters.
    #[error("the key ID names no key of {provider}")]
    KeyId {
        /// The provider.
        provider: String,
    },
    /// A key ID that belongs to another provider.
    #[error("the key ID {key:?} is one of {other}, not of {provider}")]
    OtherProvider {
        /// The key ID.
        key: String,
        /// The provider to which the key belongs.
        other: &'static str,
        /// The stated provider.
        provider: String,
    },
    /// A key that is not approved.
    #[error("the key {key:?} is not approved of {provider}")]
    Key {
        /// The key ID.
        key: String,
        /// The provider.
        provider: String,
    },
}
