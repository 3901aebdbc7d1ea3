use serde::{Deserialize, Serialize};

/// The state of a job (section 10).
///
/// ```text
///  CREATED ─ chunk 0 ─▶ ACTIVE ─┬─ done, no error ─▶ COMPLETED
///     │                   │     └─ done, error ────▶ FAILED
///     └───────────────────┴─ ttlMs passes, from all of them ─▶ EXPIRED ─ ttlMs passes again ─▶ forgotten
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// No metadata yet.
    Created,
    /// Chunks arrive.
    Active,
    /// The final chunk has arrived, without an error.
    Completed,
    /// The final chunk has arrived with an error, or the buffer has lost a part of the job.
    Failed,
    /// The lifetime is over, and the chunks are deleted.
    Expired,
}

impl State {
    /// Return its name in the specification.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Active => "ACTIVE",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Expired => "EXPIRED",
        }
    }
}
