//! What a service over HTTP is made with, and what it is where nobody says otherwise.

use std::sync::Arc;

use crate::describe::Description;
use crate::limits::Limits;
use crate::protocol::Dialect;

/// What a service over HTTP is made with.
#[derive(Debug, Clone)]
pub struct Config {
    /// What names this server in answers: 12 hex digits.
    pub server_id: String,
    /// Whose rules it follows.
    pub dialect: Dialect,
    /// What `__describe__` answers, if it does.
    pub description: Option<Arc<Description>>,
    /// What a batch may have.
    pub limits: Limits,
    /// Where the IDs of requests that have none begin; random.
    pub seed: u64,
    /// What stands before the methods' names: `/vgi`, or nothing.
    pub prefix: String,
    /// The key of tokens; a fleet shares one.
    pub signing_key: Vec<u8>,
    /// How many seconds a token is good for; 0 is for ever.
    pub token_ttl: u64,
    /// How many bytes a body may have, compressed or not; clients are told if it is there.
    pub max_request_bytes: Option<u64>,
    /// How many bytes an answer of a producer has before it is cut.
    pub max_stream_response_bytes: Option<u64>,
    /// A producer fills its answers, also in dialect 0.10, because something limits them.
    pub fills: bool,
    /// The level of zstd for clients that take it; `None` is never.
    pub compression_level: Option<i32>,
    /// Pages of which origins may call; `*` is all of them.
    pub cors_origins: Vec<String>,
    /// How many seconds a browser may keep that.
    pub cors_max_age: Option<u64>,
    /// `GET PREFIX/health`.
    pub health: bool,
    /// `GET PREFIX`.
    pub landing_page: bool,
    /// `GET PREFIX/describe`, where the service is described.
    pub describe_page: bool,
    /// A page says that there is nothing, instead of a line.
    pub not_found_page: bool,
    /// Where the service's source is, for its pages.
    pub repo_url: Option<String>,
    /// Pages are for callers who were let in.
    pub guarded_pages: bool,
    /// Paths, without the prefix, whose GET who serves answers.
    pub own_pages: Vec<String>,
    /// `POST PREFIX/__upload_url__/init`: clients may ask where to put what is too large for a request.
    pub upload_urls: bool,
    /// How large what is put there may be; clients are told.
    pub max_upload_bytes: Option<u64>,
}

impl Config {
    /// A body without a limit of its own has this many bytes at most: 256 MiB.
    pub const BODY: u64 = 256 << 20;
    /// An answer of a producer without a limit of its own is cut here: 64 MiB.
    pub const ANSWER: u64 = 64 << 20;

    /// Make a service of the specification's dialect at the root, with its pages for everybody, without CORS,
    /// compression, uploads and limits of its own. A token is good for an hour, and the IDs of requests begin with the
    /// seed 1.
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
