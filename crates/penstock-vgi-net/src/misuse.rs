/// Mistakes of the caller of this driver; nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A segment with views, which another process could truncate.
    #[error("a segment that is viewed, or used by a parent or child, is for no other process")]
    SharedSegment,
    /// Shared memory on a connection to another machine.
    #[error("shared memory is for a process on this machine, over a pipe or a Unix socket")]
    RemoteSegment,
    /// A connection that another thread is using.
    #[error("another thread is using this connection; each thread needs its own")]
    InUse,
    /// An input for a stream that is over.
    #[error("the stream was closed, or has ended")]
    StreamOver,
    /// A stream's method where the answer is one batch.
    #[error("a stream is opened, not replied to")]
    NotUnary,
    /// A text that is no URL.
    #[error("{url}: {reason}")]
    Url {
        /// The text.
        url: String,
        /// What the library said.
        reason: String,
    },
    /// A URL of another scheme than HTTP.
    #[error("{url} is neither http:// nor https://")]
    Scheme {
        /// The URL.
        url: String,
    },
    /// TLS options for a URL without TLS.
    #[error("TLS options (trust, certificate) are for https:// only")]
    PlainUrl,
    /// A method that HTTP does not have.
    #[error("{method:?} is not an HTTP method")]
    HttpMethod {
        /// The method.
        method: String,
    },
    /// A second body of a call.
    #[error("the call has its body")]
    HasBody,
    /// A second caller of a call.
    #[error("the caller is already authenticated")]
    Authenticated,
    /// A step that an authenticated caller needs.
    #[error("the caller is not authenticated yet")]
    NotAuthenticated,
    /// A step of a call that has its answer.
    #[error("the call was answered")]
    Answered,
    /// An answer to a call that has one, or whose stream is over.
    #[error("the call was answered, or its stream has ended")]
    CallOver,
    /// A request for the answer before there is one.
    #[error("the call was not answered yet")]
    NotAnswered,
    /// A second request for the answer.
    #[error("the answer was sent")]
    Sent,
}

#[cfg(test)]
mod tests {
    use penstock_wire::ErrorKind;

    use super::*;
    use crate::Error;

    #[test]
    fn every_misuse_has_its_message() {
        let url = || "ftp://host/".to_owned();
        for (misuse, message) in [
            (Misuse::SharedSegment, "a segment that is viewed, or used by a parent or child, is for no other process"),
            (Misuse::RemoteSegment, "shared memory is for a process on this machine, over a pipe or a Unix socket"),
            (Misuse::InUse, "another thread is using this connection; each thread needs its own"),
            (Misuse::StreamOver, "the stream was closed, or has ended"),
            (Misuse::NotUnary, "a stream is opened, not replied to"),
            (Misuse::Url { url: url(), reason: "why".to_owned() }, "ftp://host/: why"),
            (Misuse::Scheme { url: url() }, "ftp://host/ is neither http:// nor https://"),
            (Misuse::PlainUrl, "TLS options (trust, certificate) are for https:// only"),
            (Misuse::HttpMethod { method: "A B".to_owned() }, "\"A B\" is not an HTTP method"),
            (Misuse::HasBody, "the call has its body"),
            (Misuse::Authenticated, "the caller is already authenticated"),
            (Misuse::NotAuthenticated, "the caller is not authenticated yet"),
            (Misuse::Answered, "the call was answered"),
            (Misuse::CallOver, "the call was answered, or its stream has ended"),
            (Misuse::NotAnswered, "the call was not answered yet"),
            (Misuse::Sent, "the answer was sent"),
        ] {
            let error = Error::from(misuse);
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Misuse, message));
        }
    }
}
