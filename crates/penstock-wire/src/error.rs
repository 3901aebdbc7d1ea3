use std::fmt;

/// The kind of an error: whose fault it is. Every error of every protocol has one, so that a caller decides by kind
/// and never by the text of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The peer's bytes do not parse.
    Malformed,
    /// The bytes parse, but the peer broke a rule of the protocol.
    Violation,
    /// A limit was exceeded: the protocol's, the negotiated one or the operator's.
    Limit,
    /// The caller used the API wrongly; the peer did nothing wrong.
    Misuse,
    /// A socket, a file or a disk failed.
    Io,
    /// An operation took longer than it was allowed to.
    Deadline,
}

impl ErrorKind {
    /// Return the kind's name in lower case, as logs and Python show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Violation => "violation",
            Self::Limit => "limit",
            Self::Misuse => "misuse",
            Self::Io => "io",
            Self::Deadline => "deadline",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
