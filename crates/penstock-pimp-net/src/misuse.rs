use hyper::header::HeaderValue;

/// Mistakes of the caller of this driver; nothing was sent.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A server without TLS that other machines could reach.
    #[error("{listen} is not loopback: {server} needs TLS there")]
    PlainListener {
        /// The addresses.
        listen: String,
        /// The server: "a buffer" or "a trigger".
        server: &'static str,
    },
    /// A limit of 0, with which no write could succeed.
    #[error("limits: {name} is 0, so no write could succeed")]
    NoLimit {
        /// The name of the limit.
        name: &'static str,
    },
    /// An empty secret of tokens, with which any client could sign them.
    #[error("jwt_secret is empty: any client could sign tokens")]
    EmptySecret,
    /// An origin that no browser sends.
    #[error(
        "allow_origin={origin:?} is not an origin: browsers send scheme://host in lower case, with a port if it is \
         not the default, and without a path"
    )]
    Origin {
        /// The origin.
        origin: HeaderValue,
    },
    /// A URL that must not be requested (decision 7, section 13).
    #[error("{url} {fault}")]
    Url {
        /// The URL, without user name and password.
        url: String,
        /// Why it must not be requested.
        fault: UrlFault,
    },
    /// An entry of `allowed_hosts` that is not a host.
    #[error("allowed_hosts: {entry:?} is no HOST or HOST:PORT")]
    AllowedHost {
        /// The entry.
        entry: String,
    },
    /// The URL of something other than a job.
    #[error("{url} is no URL of a job: it ends with its jobId, or with jobId/chunks")]
    JobUrl {
        /// The URL.
        url: String,
    },
    /// A key that no header can carry.
    #[error("a key is visible ASCII")]
    Key,
    /// An ETag that no header can carry.
    #[error("an ETag is visible ASCII")]
    Etag,
    /// TLS options for a URL without TLS.
    #[error("TLS options (trust, certificate) are for https:// only")]
    PlainUrl,
    /// A URL with TLS, and no trust.
    #[error("{url}: say whom to trust")]
    NoTrust {
        /// The URL.
        url: String,
    },
    /// A number of seconds beyond the lifetime of any job.
    #[error("{option}={seconds}: longer than the lifetime of any job")]
    Lifetime {
        /// The name of the option.
        option: String,
        /// The value.
        seconds: f64,
    },
    /// A place that is not a store.
    #[error("{place} is not a store; valid are a folder, memory: and redis://")]
    Store {
        /// The place.
        place: String,
    },
    /// A URL that is not one of a Redis. It may contain a password, so it is not shown.
    #[error("no URL of a Redis: {reason}")]
    RedisUrl {
        /// What the library said.
        reason: String,
    },
}

/// Why a URL must not be requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    /// It cannot be parsed.
    #[error("is no URL: {reason}")]
    Syntax {
        /// What the library said.
        reason: String,
    },
    /// It has no host.
    #[error("names no host")]
    NoHost,
    /// It would send keys without TLS to another machine.
    #[error("is plain HTTP: keys are sent over it only on loopback")]
    Plain,
    /// It has another scheme than HTTP.
    #[error("is neither https:// nor http://")]
    Scheme,
    /// It has a part that no request carries.
    #[error("has a user, a password or a fragment")]
    Parts,
    /// It has a host that the caller does not allow.
    #[error("has a host that is not in allowed_hosts")]
    Host,
}

#[cfg(test)]
mod tests {
    use penstock_wire::ErrorKind;

    use super::*;
    use crate::Error;

    #[test]
    fn every_misuse_has_its_message() {
        let url = || "http://host/".to_owned();
        let origin = "allow_origin=\"host\" is not an origin: browsers send scheme://host in lower case, with a port if it is not \
             the default, and without a path";
        for (misuse, message) in [
            (
                Misuse::PlainListener { listen: "0.0.0.0:80".to_owned(), server: "a buffer" },
                "0.0.0.0:80 is not loopback: a buffer needs TLS there",
            ),
            (Misuse::NoLimit { name: "job" }, "limits: job is 0, so no write could succeed"),
            (Misuse::EmptySecret, "jwt_secret is empty: any client could sign tokens"),
            (Misuse::Origin { origin: HeaderValue::from_static("host") }, origin),
            (Misuse::AllowedHost { entry: "a/b".to_owned() }, "allowed_hosts: \"a/b\" is no HOST or HOST:PORT"),
            (
                Misuse::JobUrl { url: url() },
                "http://host/ is no URL of a job: it ends with its jobId, or with jobId/chunks",
            ),
            (Misuse::Key, "a key is visible ASCII"),
            (Misuse::Etag, "an ETag is visible ASCII"),
            (Misuse::PlainUrl, "TLS options (trust, certificate) are for https:// only"),
            (Misuse::NoTrust { url: url() }, "http://host/: say whom to trust"),
            (
                Misuse::Lifetime { option: "wait".to_owned(), seconds: 1e9 },
                "wait=1000000000: longer than the lifetime of any job",
            ),
            (
                Misuse::Store { place: "s3://x".to_owned() },
                "s3://x is not a store; valid are a folder, memory: and redis://",
            ),
            (Misuse::RedisUrl { reason: "why".to_owned() }, "no URL of a Redis: why"),
        ] {
            let error = Error::from(misuse);
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Misuse, message));
            assert_eq!(error.code_name(), "MISUSE");
        }
    }

    #[test]
    fn every_fault_of_a_url_has_its_message() {
        for (fault, message) in [
            (UrlFault::Syntax { reason: "why".to_owned() }, "is no URL: why"),
            (UrlFault::NoHost, "names no host"),
            (UrlFault::Plain, "is plain HTTP: keys are sent over it only on loopback"),
            (UrlFault::Scheme, "is neither https:// nor http://"),
            (UrlFault::Parts, "has a user, a password or a fragment"),
            (UrlFault::Host, "has a host that is not in allowed_hosts"),
        ] {
            assert_eq!(Misuse::Url { url: "x".to_owned(), fault }.to_string(), format!("x {message}"));
        }
    }
}
