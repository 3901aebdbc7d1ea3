use crate::sizes::{LONGEST_WRAPPED, MAX_OBJECT_KEY, SHORTEST_WRAPPED};

/// Errors in a reference to an external object (section 10.9).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// A field that every reference has.
    #[error("the reference has no {field}")]
    Missing {
        /// The field, as the message names it.
        field: &'static str,
    },
    /// The size of the object.
    #[error("the reference's attribute size is no number of bytes")]
    Size,
    /// The checksum of the object.
    #[error("the reference's attribute sha256 is not 64 digits of lower-case hex")]
    Digest,
    /// A key for data in the clear (section 10.9).
    #[error("{place} {name:?} has a key that is not wrapped: wrap it by an approved provider")]
    DataKey {
        /// The field.
        place: &'static str,
        /// Its name.
        name: String,
    },
    /// The provider of the object.
    #[error("the reference's provider {0:?} is none of s3, gcs, azure and file")]
    Provider(String),
    /// A text that is not a URL.
    #[error("{0:?} is no URL")]
    Url(String),
    /// The scheme of a URL.
    #[error("{0:?} is no URL of s3, gs, abfs, abfss, az or file")]
    Scheme(String),
    /// The host of a file.
    #[error("a file has no bucket, and no host: file:///PATH")]
    FileHost,
    /// The name of a bucket.
    #[error("{0:?} is no name of a bucket")]
    Bucket(String),
    /// A key that is too long.
    #[error("the key {key:?} is longer than {MAX_OBJECT_KEY} bytes")]
    KeyLength {
        /// The key.
        key: String,
    },
    /// A key with control characters.
    #[error("the key {key:?} has control characters")]
    KeyControl {
        /// The key.
        key: String,
    },
    /// A key that would lead elsewhere.
    #[error("the key {key:?} has an empty segment, \".\" or \"..\"")]
    KeySegment {
        /// The key.
        key: String,
    },
    /// The algorithm of an encryption.
    #[error("the algorithm {0:?} is none of AES-256-GCM and AES-256-CBC")]
    Algorithm(String),
    /// The initialization vector of an encryption.
    #[error("an initialization vector of {length} bytes is none of {algorithm}")]
    Vector {
        /// Bytes that it has.
        length: usize,
        /// The algorithm.
        algorithm: String,
    },
    /// A wrapped key that is too short for one.
    #[error(
        "a wrapped key of {length} bytes is not wrapped: with an approved envelope it has {SHORTEST_WRAPPED} or more"
    )]
    BareKey {
        /// Bytes that it has.
        length: usize,
    },
    /// A wrapped key that is too long.
    #[error("a wrapped key of {length} bytes is above the limit of {LONGEST_WRAPPED}")]
    WrappedLength {
        /// Bytes that it has.
        length: usize,
    },
    /// The provider of the key.
    #[error("the key provider {name:?} is not approved ({approved})")]
    KeyProvider {
        /// Its name.
        name: String,
        /// The approved providers.
        approved: String,
    },
    /// The ID of the key.
    #[error("the key ID names no key of {provider}")]
    KeyId {
        /// The provider.
        provider: String,
    },
    /// A key of another provider.
    #[error("the key ID {key:?} is one of {other}, not of {provider}")]
    OtherProvider {
        /// The key.
        key: String,
        /// The provider to which it belongs.
        other: &'static str,
        /// The provider.
        provider: String,
    },
    /// A key that is not approved.
    #[error("the key {key:?} is not approved of {provider}")]
    Key {
        /// The key.
        key: String,
        /// The provider.
        provider: String,
    },
}
