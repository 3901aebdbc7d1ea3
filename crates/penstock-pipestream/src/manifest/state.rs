use crate::status::Status;

/// The ResolutionState of section 9.2, with its codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ResolutionState {
    /// Children may still be added or completed.
    Active = 1,
    /// The parent is complete.
    Resolved = 2,
    /// The parent is complete although some children failed or were skipped; never under STRICT.
    Partial = 3,
    /// The parent has failed.
    Failed = 4,
}

impl ResolutionState {
    /// Return the number in the protobuf message.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Return the status of the parent: COMPLETE, or FAILED if it has failed or is still active.
    pub const fn status(self) -> Status {
        match self {
            Self::Resolved | Self::Partial => Status::Complete,
            Self::Active | Self::Failed => Status::Failed,
        }
    }
}
