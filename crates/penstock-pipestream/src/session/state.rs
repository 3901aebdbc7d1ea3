use serde::{Deserialize, Serialize};

/// The state of a session; the diagram is in the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Negotiating,
    Open,
    /// `awaiting` is the sequence number of the CHECKPOINT before the close (decision 17).
    Draining {
        awaiting: Option<u64>,
    },
    Closed,
}
