//! The configuration of a service over HTTP, and its defaults.

use std::sync::Arc;

use crate::describe::Description;
use crate::limits::Limits;
use crate::protocol::Dialect;

/// The configuration of a service over HTTP.
#[derive(Debug, Clone)]
pub struct Config {
    /// The ID of this server in answers: 12 hex digits.
    pub server_id: String,
    /// The dialect of the protocol.
    pub dialect: Dialect,
    /// The answer to `__describe__`, if the service has one.
    pub description: Option<Arc<Description>>,
    /// The limits of batches.
    pub limits: Limits,
    /// The random seed for the IDs of requests without one.
    pub seed: u64,
    /// The prefix of the paths: `/vgi`, or empty.
    pub prefix: String,
    /// The key of tokens, shared by all servers of a fleet.
    pub signing_key: Vec<u8>,
    /// The number of seconds for which a token is valid; 0 means no expiry.
    pub token_ttl: u64,
    /// The most bytes of a body, compressed or not. If set, it is announced to clients.
    pub max_request_bytes: Option<u64>,
    /// The size after which the answer of a producer is cut off.
    pub max_stream_response_bytes: Option<u64>,
    /// Whether a producer fills its answers in dialect 0.10 too, because another limit ends them.
    pub fills: bool,
    /// The zstd level for clients that accept it; `None` disables compression.
    pub compression_level: Option<i32>,
    /// The origins whose pages may make calls; `*` allows all.
    pub cors_origins: Vec<String>,
    /// The number of seconds for which a browser may cache the permission.
    pub cors_max_age: Option<u64>,
    /// Whether to serve `GET PREFIX/health`.
    pub health: bool,
    /// Whether to serve `GET PREFIX`.
    pub landing_page: bool,
    /// Whether to serve `GET PREFIX/describe`, the description of the service.
    pub describe_page: bool,
    /// Whether a missing path is answered with a page instead of a line of text.
    pub not_found_page: bool,
    /// The URL of the service's source code, for its pages.
    pub repo_url: Option<String>,
    /// Whether pages require authentication.
    pub guarded_pages: bool,
    /// The paths, without the prefix, whose GET requests the application answers.
    pub own_pages: Vec<String>,
    /// Whether to serve `POST PREFIX/__upload_url__/init`, which issues URLs for requests that are
    /// too large.
    pub upload_urls: bool,
    /// The most bytes of an upload. If set, it is announced to clients.
    pub max_upload_bytes: Option<u64>,
}

impl Config {
    /// The default limit of a body: 256 MiB.
    pub const BODY: u64 = 256 << 20;
    /// The default size after which the answer of a producer is cut off: 64 MiB.
    pub const ANSWER: u64 = 64 << 20;

    /// Make the configuration of a service in the specification's dialect at the root, with public
    /// pages and without CORS, compression, uploads or additional limits. A token is valid for an
    /// hour, and the IDs of requests use seed 1.
    pub fn new(server_id: impl Into<String>, signing_key: impl Into<Vec<u8>>) -> Self {
        Self {
            server_id: server_id.into(),
            dialect: Dialect::Spec,
            description: None,
            limits: Limits::default(),
            seed: 1,
            prefix: String::new(),
            signing_key: signing_key.into(),
            token_ttl: 3_600,
            max_request_bytes: None,
            max_stream_response_bytes: None,
            fills: false,
            compression_level: None,
            cors_origins: Vec::new(),
            cors_max_age: None,
            health: true,
            landing_page: true,
            describe_page: true,
            not_found_page: true,
            repo_url: None,
            guarded_pages: false,
            own_pages: Vec::new(),
            upload_urls: false,
            max_upload_bytes: None,
        }
    }
}
