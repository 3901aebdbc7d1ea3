//! The completion policy of a document (section 8.3), which applies to each of its containers.

use penstock_pipestream::messages::{CompletionMode, CompletionPolicy, FailureAction};
use penstock_pipestream::{Policy, ResolutionState};
use penstock_pipestream_net::Status;

use crate::Result;

/// A policy in the form of headers and of receipts.
#[derive(Debug, Clone)]
pub struct DocumentPolicy {
    message: CompletionPolicy,
    policy: Policy,
    text: String,
}

impl DocumentPolicy {
    /// Make the policy of a document from the message for headers and the text for receipts.
    ///
    /// # Errors
    ///
    /// ENTITY_INVALID if the message breaks a rule, for example QUORUM without a ratio.
    pub fn new(message: CompletionPolicy, text: String) -> Result<Self> {
        let policy = Policy::of(&message)?;
        Ok(Self { message, policy, text })
    }

    /// Return the message for the header of a container.
    pub(crate) fn message(&self) -> CompletionPolicy {
        self.message
    }

    /// Return the text for receipts.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Return whether a part that cannot be sent is skipped instead of failed. Without its bytes it could be neither
    /// deferred nor sent again.
    pub(crate) fn skips(&self) -> bool {
        self.policy.on_failure == FailureAction::Skip
    }

    /// Return whether every child must be COMPLETE.
    pub(crate) fn is_strict(&self) -> bool {
        self.policy.mode == CompletionMode::Strict
    }

    /// Return whether this many incomplete parts fail their container.
    pub(crate) fn fails(&self, children: u64, incomplete: u64) -> bool {
        self.policy.outcome(children, children.saturating_sub(incomplete)) == ResolutionState::Failed
    }
}

/// Return the outcome of a document that has ended, under a policy.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn policy(mode: CompletionMode, ratio: Option<f32>, on_failure: FailureAction) -> Result<DocumentPolicy> {
        let message = CompletionPolicy {
            mode: Some(mode.into()),
            min_success_ratio: ratio,
            on_failure: Some(on_failure.into()),
            ..CompletionPolicy::default()
        };
        DocumentPolicy::new(message, "text".to_owned())
    }

    #[test]
    fn a_policy_says_when_parts_elsewhere_fail_their_container() {
        let table = [
            (CompletionMode::Strict, None, [false, true, true]),
            (CompletionMode::Lenient, None, [false, false, true]),
            (CompletionMode::BestEffort, None, [false, false, false]),
            (CompletionMode::Quorum, Some(0.6), [false, true, true]),
            (CompletionMode::Quorum, Some(0.5), [false, false, true]),
        ];
        for (mode, ratio, expected) in table {
            let policy = policy(mode, ratio, FailureAction::Fail).unwrap();
            assert_eq!([0, 5, 10].map(|incomplete| policy.fails(10, incomplete)), expected, "{policy:?}");
            assert_eq!(policy.is_strict(), mode == CompletionMode::Strict);
        }
    }

    #[test]
    fn only_skip_leaves_out_what_cannot_be_sent() {
        for action in [FailureAction::Fail, FailureAction::Skip, FailureAction::Retry, FailureAction::Defer] {
            let policy = policy(CompletionMode::Lenient, None, action).unwrap();
            assert_eq!(policy.skips(), action == FailureAction::Skip, "{action:?}");
            assert_eq!((policy.text(), policy.message().on_failure), ("text", Some(action.into())));
        }
    }

    #[test]
    fn a_quorum_without_a_ratio_is_the_protocols_error() {
        let error = policy(CompletionMode::Quorum, None, FailureAction::Fail).unwrap_err();
        assert!(matches!(error, Error::Session(penstock_pipestream_net::Error::Protocol(_))), "{error}");
    }

    #[test]
    fn the_outcome_of_a_document_follows_from_its_status_and_its_parts() {
        let named = |status, incomplete| name(outcome(status, incomplete));
        assert_eq!(named(Status::Complete, 0), "RESOLVED");
        assert_eq!(named(Status::Complete, 1), "PARTIAL");
        assert_eq!((named(Status::Failed, 0), named(Status::Deferred, 1)), ("FAILED", "FAILED"));
    }
}
