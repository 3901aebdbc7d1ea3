//! The completion policy of a document (section 8.3): it holds for each container of the document.

use penstock_pipestream::messages::{CompletionMode, CompletionPolicy, FailureAction};
use penstock_pipestream::{Policy, ResolutionState};
use penstock_pipestream_net::Status;
use pyo3::prelude::*;

use crate::error::IntoPyErr;
use crate::pipestream::fields::PolicyFields;

/// A policy, as headers have it and as receipts do.
#[derive(Debug, Clone)]
pub(crate) struct DocumentPolicy {
    message: CompletionPolicy,
    policy: Policy,
    text: String,
}

impl DocumentPolicy {
    /// Takes a `penstock.pipestream.CompletionPolicy`, whose text is what receipts have.
    pub(super) fn new(policy: &Bound<'_, PyAny>) -> PyResult<Self> {
        let text = policy.str()?.extract()?;
        let message = CompletionPolicy::from(policy.extract::<PolicyFields>()?);
        let policy = Policy::of(&message).map_err(IntoPyErr::into_py_err)?;
        Ok(Self { message, policy, text })
    }

    /// What the header of a container carries.
    pub(super) fn message(&self) -> CompletionPolicy {
        self.message
    }

    /// What receipts say.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a part that cannot be sent is left out, instead of having failed. Nobody can set aside what has no octets,
    /// nor send it again.
    pub(super) fn skips(&self) -> bool {
        self.policy.on_failure == FailureAction::Skip
    }

    /// Whether every child must be COMPLETE.
    pub(super) fn is_strict(&self) -> bool {
        self.policy.mode == CompletionMode::Strict
    }

    /// Whether so many parts that are not COMPLETE fail their container.
    pub(super) fn fails(&self, children: u64, incomplete: u64) -> bool {
        self.policy.outcome(children, children.saturating_sub(incomplete)) == ResolutionState::Failed
    }
}

/// What a policy made of a document that has ended.
pub(super) fn outcome(status: Status, incomplete: u64) -> ResolutionState {
    if status != Status::Complete {
        ResolutionState::Failed
    } else if incomplete == 0 {
        ResolutionState::Resolved
    } else {
        ResolutionState::Partial
    }
}

/// Its name in receipts.
pub(super) const fn name(outcome: ResolutionState) -> &'static str {
    match outcome {
        ResolutionState::Active => "ACTIVE",
        ResolutionState::Resolved => "RESOLVED",
        ResolutionState::Partial => "PARTIAL",
        ResolutionState::Failed => "FAILED",
    }
}
