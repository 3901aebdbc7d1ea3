use std::fmt;

use penstock_wire::ErrorKind;

/// The kind of an error, by which callers tell errors apart. The codes with a status are a buffer's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// 400: a request, an envelope or metadata is not well formed.
    Malformed,
    /// 401: no key, or the key of another job.
    Unauthorized,
    /// 404: the buffer does not know the job.
    NotFound,
    /// 409: a chunk after the final one, a final chunk before a stored one, or a job that exists with another key.
    Conflict,
    /// 410: the job has expired.
    Expired,
    /// 410 too: the buffer has lost a part of the job.
    Lost,
    /// 412: the generation is not the one in `If-Match`.
    PreconditionFailed,
    /// 413: a limit was exceeded.
    TooLarge,
    /// 415: the body is not JSON.
    UnsupportedMediaType,
    /// The buffer answered with a status that the protocol does not know.
    UnexpectedStatus,
    /// The job failed: its sender reported it.
    Failed,
    /// The consumer has cancelled the job.
    Cancelled,
    /// No progress for `stallTimeoutMs`.
    Stalled,
    /// The payload does not match its metadata or its checksum.
    Corrupt,
    /// The caller broke a rule.
    Misuse,
}

impl Code {
    /// Return the HTTP status, if it is a buffer's answer.
    pub const fn status(self) -> Option<u16> {
        match self {
            Self::Malformed => Some(400),
            Self::Unauthorized => Some(401),
            Self::NotFound => Some(404),
            Self::Conflict => Some(409),
            Self::Expired | Self::Lost => Some(410),
            Self::PreconditionFailed => Some(412),
            Self::TooLarge => Some(413),
            Self::UnsupportedMediaType => Some(415),
            Self::UnexpectedStatus | Self::Failed | Self::Cancelled | Self::Stalled | Self::Corrupt | Self::Misuse => {
                None
            }
        }
    }

    /// Return the code that a status other than success means to a client.
    pub(crate) const fn of_status(status: u16) -> Self {
        match status {
            400 => Self::Malformed,
            401 => Self::Unauthorized,
            404 => Self::NotFound,
            409 => Self::Conflict,
            410 => Self::Expired,
            412 => Self::PreconditionFailed,
            413 => Self::TooLarge,
            415 => Self::UnsupportedMediaType,
            _ => Self::UnexpectedStatus,
        }
    }

    /// Return its name, which error responses and Python show.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "MALFORMED",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::NotFound => "NOT_FOUND",
            Self::Conflict => "CONFLICT",
            Self::Expired => "EXPIRED",
            Self::Lost => "LOST",
            Self::PreconditionFailed => "PRECONDITION_FAILED",
            Self::TooLarge => "TOO_LARGE",
            Self::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
            Self::UnexpectedStatus => "UNEXPECTED_STATUS",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Stalled => "STALLED",
            Self::Corrupt => "CORRUPT",
            Self::Misuse => "MISUSE",
        }
    }

    /// Return whose fault it is.
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::Malformed => ErrorKind::Malformed,
            Self::TooLarge => ErrorKind::Limit,
            Self::Misuse => ErrorKind::Misuse,
            Self::Stalled | Self::Expired => ErrorKind::Deadline,
            // No rule was broken: the other end gave up.
            Self::Failed | Self::Cancelled | Self::Lost => ErrorKind::Io,
            Self::Unauthorized
            | Self::NotFound
            | Self::Conflict
            | Self::PreconditionFailed
            | Self::UnsupportedMediaType
            | Self::UnexpectedStatus
            | Self::Corrupt => ErrorKind::Violation,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_a_buffer_is_what_its_status_means_to_a_client() {
        let statuses = [400, 401, 404, 409, 410, 412, 413, 415];
        for status in statuses {
            assert_eq!(Code::of_status(status).status(), Some(status));
        }
        for status in [0, 201, 302, 418] {
            assert_eq!(Code::of_status(status), Code::UnexpectedStatus);
        }
    }
}
