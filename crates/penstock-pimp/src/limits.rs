use penstock_wire::Limit;

/// The longest key in bytes.
pub(crate) const LONGEST_KEY: usize = 4_096;

/// The limits of a job, with their defaults (section 13, decision 3). Each is checked before memory is allocated for
/// the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all values of a job: 50 MiB, the last 64 KiB of it for the final chunk only.
    pub job: u64,
    /// Chunks of a job, chunk 0 included: 4,096; the last index is for a final chunk only.
    pub chunks: u32,
    /// Bytes of a value: 256 KiB.
    pub value: u64,
    /// Bytes of the text of an error: 64 KiB.
    pub error: u64,
    /// Bytes of the body of a write: 64 MiB.
    pub body: u64,
    /// The default and longest lifetime of a job, in milliseconds: 300,000.
    pub ttl: u64,
}

/// The part of a job's bytes that only a final chunk may use, so that a sender at the limit can still report it.
const RESERVED: u64 = 64 << 10;

impl Default for Limits {
    fn default() -> Self {
        Self { job: 50 << 20, chunks: 4_096, value: 256 << 10, error: 64 << 10, body: 64 << 20, ttl: 300_000 }
    }
}

impl Limits {
    pub(crate) const fn job(&self) -> Limit {
        Limit::new("the job's bytes", self.job)
    }

    pub(crate) const fn job_before_end(&self) -> Limit {
        Limit::new("the job's bytes before its final chunk", self.job.saturating_sub(RESERVED))
    }

    pub(crate) const fn index(&self) -> Limit {
        Limit::new("index", (self.chunks as u64).saturating_sub(1))
    }

    pub(crate) const fn index_before_end(&self) -> Limit {
        Limit::new("the index of a chunk that is not final", (self.chunks as u64).saturating_sub(2))
    }

    pub(crate) const fn envelopes(&self) -> Limit {
        Limit::new("the number of envelopes of a request", self.chunks as u64)
    }

    pub(crate) const fn value(&self) -> Limit {
        Limit::new("the length of value", self.value)
    }

    pub(crate) const fn error(&self) -> Limit {
        Limit::new("the length of error", self.error)
    }

    /// Return the limit of a write's body, which is checked before the body is read.
    pub const fn body(&self) -> Limit {
        Limit::new("the length of the body", self.body)
    }
}
