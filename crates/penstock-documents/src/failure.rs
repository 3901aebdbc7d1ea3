use std::fmt;
use std::io;

/// The kind of damage or limit that made a part fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The part is encrypted; no key is available.
    Encrypted,
    /// The part's bytes, or those around it in its container, do not parse or do not match their checksum.
    Broken,
    /// A limit on bytes, ratio or number of children was exceeded.
    Limit,
    /// The part is a container whose children would be nested deeper than allowed.
    TooDeep,
    /// The part is byte for byte the same as a container that encloses it.
    Cycle,
    /// Reading the part out of its container, or reading its text, took longer than allowed.
    TimedOut,
    /// The container stores the part in a way that is not supported.
    Unsupported,
    /// The caller's source or spool failed.
    Io,
}

impl FailureKind {
    /// Return the kind's name in lower case, as logs and Python show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::Broken => "broken",
            Self::Limit => "limit",
            Self::TooDeep => "too deep",
            Self::Cycle => "cycle",
            Self::TimedOut => "timed out",
            Self::Unsupported => "unsupported",
            Self::Io => "io",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a part failed: the kind for programs, the reason for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// One sentence without a full stop, for receipts.
    pub reason: String,
}

impl Failure {
    /// Make a failure of `kind` with `reason`.
    pub fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    pub(crate) fn broken(reason: impl Into<String>) -> Self {
        Self::new(FailureKind::Broken, reason)
    }

    pub(crate) fn limit(reason: impl Into<String>) -> Self {
        Self::new(FailureKind::Limit, reason)
    }

    pub(crate) fn unsupported(reason: impl Into<String>) -> Self {
        Self::new(FailureKind::Unsupported, reason)
    }

    /// Make a failure for an error of the caller's source or spool, which does not mean that the part is damaged.
    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        Self::new(FailureKind::Io, format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.reason)
    }
}

impl std::error::Error for Failure {}
