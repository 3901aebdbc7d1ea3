//! The completion policy of a document (section 8.3): it holds for each container of the document.

use penstock_pipestream::messages::{CompletionMode, CompletionPolicy, FailureAction};
use penstock_pipestream::{Policy, ResolutionState};
use penstock_pipestream_net::Status;

use crate::Result;

/// A policy, as headers have it and as receipts do.
#[derive(Debug, Clone)]
pub struct DocumentPolicy {
    message: CompletionPolicy,
    policy: Policy,
    text: String,
}

impl DocumentPolicy {
    /// Make the policy of a document out of the message that headers carry and the text that receipts have.
    ///
    /// # Errors
    ///
    /// ENTITY_INVALID where the message breaks a rule, as QUORUM without a ratio does.
    pub fn new(message: CompletionPolicy, text: String) -> Result<Self> {
        let policy = Policy::of(&message)?;
        Ok(Self { message, policy, text })
    }

    /// Return what the header of a container carries.
    pub(crate) fn message(&self) -> CompletionPolicy {
        self.message
    }

    /// Return what receipts say.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Return whether a part that cannot be sent is left out, instead of having failed. Nobody can set aside what has no
    /// bytes, nor send it again.
    pub(crate) fn skips(&self) -> bool {
        self.policy.on_failure == FailureAction::Skip
    }

    /// Return whether every child must be COMPLETE.
    pub(crate) fn is_strict(&self) -> bool {
        self.policy.mode == CompletionMode::Strict
    }

    /// Return whether so many parts that are not COMPLETE fail their container.
    pub(crate) fn fails(&self, children: u64, incomplete: u64) -> bool {
        self.policy.outcome(children, children.saturating_sub(incomplete)) == ResolutionState::Failed
    }
}

/// Return what a policy made of a document that has ended.
pub(crate) fn outcome(status: Status, incomplete: u64) -> ResolutionState {
    if status != Status::Complete {
        ResolutionState::Failed
    } else if incomplete == 0 {
        ResolutionState::Resolved
    } else {
        ResolutionState::Partial
    }
}

/// Return the outcome's name in receipts.
pub(crate) const fn name(outcome: ResolutionState) -> &'static str {
    match outcome {
        ResolutionState::Active => "ACTIVE",
        ResolutionState::Resolved => "RESOLVED",
        ResolutionState::Partial => "PARTIAL",
        ResolutionState::Failed => "FAILED",
    }
}
