//! Status codes (sections 6.2.2 and 11.3) and an entity's life.
//!
//! ```text
//!              owner                              receiver
//!  (assigned) ──PENDING──► announced ──stream──► receiving ──COMPLETE──► resolved
//!                 │            │                     │
//!                 │       owner's FAILED             └──────FAILED─────► resolved
//!                 │            └──────(echoed by the receiver)─────────► resolved
//!                 └─DEHYDRATING─► gathering ──BARRIER S=1──► COMPLETE or FAILED
//! ```
//!
//! The receiver's first terminal status is kept (decision 8). PROCESSING and REHYDRATING change nothing.

use std::fmt;

/// A 4-bit status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Status {
    /// 0x0: the protobuf default; in a STATUS frame the heartbeat.
    Unspecified = 0x0,
    /// 0x1: announced, not yet transmitted.
    Pending = 0x1,
    /// 0x2: in progress.
    Processing = 0x2,
    /// 0x3: success. Terminal.
    Complete = 0x3,
    /// 0x4: failure. Terminal.
    Failed = 0x4,
    /// 0x5: a synchronization barrier; ignored in a STATUS frame (decision 3).
    Checkpoint = 0x5,
    /// 0x6: being taken apart into children.
    Dehydrating = 0x6,
    /// 0x7: being put together from its children.
    Rehydrating = 0x7,
    /// 0x8: paused with a continuation token. Layer 2.
    Yielded = 0x8,
    /// 0x9: deferred under a claim check. Layer 2, terminal.
    Deferred = 0x9,
    /// 0xA: about to be retried. Layer 2.
    Retrying = 0xA,
    /// 0xB: skipped intentionally. Layer 2, terminal.
    Skipped = 0xB,
    /// 0xC: timed out. Layer 2, terminal.
    Abandoned = 0xC,
}

impl Status {
    /// Every status, in the order of the registry.
    pub const ALL: [Self; 13] = [
        Self::Unspecified,
        Self::Pending,
        Self::Processing,
        Self::Complete,
        Self::Failed,
        Self::Checkpoint,
        Self::Dehydrating,
        Self::Rehydrating,
        Self::Yielded,
        Self::Deferred,
        Self::Retrying,
        Self::Skipped,
        Self::Abandoned,
    ];

    /// Return the 4-bit code.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Return the registry's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "UNSPECIFIED",
            Self::Pending => "PENDING",
            Self::Processing => "PROCESSING",
            Self::Complete => "COMPLETE",
            Self::Failed => "FAILED",
            Self::Checkpoint => "CHECKPOINT",
            Self::Dehydrating => "DEHYDRATING",
            Self::Rehydrating => "REHYDRATING",
            Self::Yielded => "YIELDED",
            Self::Deferred => "DEFERRED",
            Self::Retrying => "RETRYING",
            Self::Skipped => "SKIPPED",
            Self::Abandoned => "ABANDONED",
        }
    }

    /// Return whether the status resolves its entity (decision 8).
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::Failed | Self::Deferred | Self::Skipped | Self::Abandoned)
    }

    /// Return whether the status belongs to layer 2 (section 11.3).
    pub const fn is_layer2(self) -> bool {
        self.code() >= 0x8
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_statuses_are_terminal() {
        let terminal: Vec<_> =
            Status::ALL.into_iter().filter(|status| status.is_terminal()).map(Status::name).collect();
        assert_eq!(terminal, ["COMPLETE", "FAILED", "DEFERRED", "SKIPPED", "ABANDONED"]);
    }
}
