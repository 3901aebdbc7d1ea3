use std::path::PathBuf;
use std::time::Duration;

/// The options of a fetcher.
#[derive(Debug, Clone)]
pub struct FetchOptions {
    /// The size from which an object is fetched in parallel parts.
    pub parallel_threshold: u64,
    /// The size of a part.
    pub chunk_size: u64,
    /// The most parts that are fetched in parallel.
    pub max_parallel: usize,
    /// The timeout of one attempt.
    pub timeout: Duration,
    /// The most bytes of an object, both before and after inflation.
    pub max_bytes: u64,
    /// The multiple of the median time after which a part is requested a second time; 0 means
    /// never.
    pub hedge_multiplier: f64,
    /// The most parts that are requested a second time; 0 means all late ones.
    pub max_hedges: usize,
    /// Whether URLs may lead to this machine or its network.
    pub allow_private: bool,
    /// The folder for `file://` URLs; without it they are refused.
    pub root: Option<PathBuf>,
}
