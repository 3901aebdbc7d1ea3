//! Completion policies (section 8.3, decision 19): what happens to a part that fails, and to its
//! parent.
//!
//! A parent's policy applies to its children: `on_failure` and `on_timeout` decide about a child, the mode decides
//! about the parent. Both ends compute with the same numbers, because the owner checks what the receiver reports.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorCode, Result, Violation};
use crate::manifest::ResolutionState;
use crate::messages::{CompletionMode, CompletionPolicy, FailureAction};
use crate::status::Status;

const DEFAULT_RETRIES: u32 = 3;
const DEFAULT_RETRY_DELAY: u32 = 1_000;
const DEFAULT_TIMEOUT: u32 = 300_000;

/// A policy with its defaults filled in.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Which children must be COMPLETE for the parent to be complete.
    pub mode: CompletionMode,
    /// How often a child may be retried.
    pub max_retries: u32,
    /// How long the owner waits before it retries a child.
    #[serde(with = "crate::stored::nanos")]
    pub retry_delay: Duration,
    /// How long a child may take from its announcement, or from its RETRYING.
    #[serde(with = "crate::stored::optional_nanos")]
    pub timeout: Option<Duration>,
    /// The share of the children that must be COMPLETE under QUORUM, 0 to 1.
    #[serde(with = "crate::stored::bits")]
    pub min_success_ratio: f32,
    /// What happens to a child that takes too long.
    pub on_timeout: FailureAction,
    /// What happens to a child that fails.
    pub on_failure: FailureAction,
}

/// The consequence for a child that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The owner may retry the child: FAILED is not terminal.
    Retry,
    /// The child ends with this terminal status.
    Ends(Status),
    /// The child is DEFERRED under a claim check.
    Defer,
}

impl Policy {
    /// The default of a parent without a policy, and the rule below layer 2: STRICT, without retries and timeouts.
    pub const STRICT: Self = Self {
        mode: CompletionMode::Strict,
        max_retries: 0,
        retry_delay: Duration::ZERO,
        timeout: None,
        min_success_ratio: 0.0,
        on_timeout: FailureAction::Fail,
        on_failure: FailureAction::Fail,
    };

    /// Read a header's policy: fields that are not set have their defaults, and a timeout of 0 means none.
    ///
    /// # Errors
    ///
    /// ENTITY_INVALID for QUORUM without a ratio from 0 to 1.
    pub fn of(message: &CompletionPolicy) -> Result<Self> {
        let action = |action: Option<FailureAction>| match action {
            None | Some(FailureAction::Unspecified) => FailureAction::Fail,
            Some(action) => action,
        };
        let millis = |value: Option<u32>, default: u32| Duration::from_millis(value.unwrap_or(default).into());
        let mode = match message.mode.and_then(|mode| CompletionMode::try_from(mode).ok()) {
            None | Some(CompletionMode::Unspecified) => CompletionMode::Strict,
            Some(mode) => mode,
        };
        let ratio = message.min_success_ratio;
        if mode == CompletionMode::Quorum && !ratio.is_some_and(|ratio| (0.0..=1.0).contains(&ratio)) {
            return Err(Violation::Quorum { ratio: format!("{ratio:?}") }.into());
        }
        Ok(Self {
            mode,
            max_retries: message.max_retries.unwrap_or(DEFAULT_RETRIES),
            retry_delay: millis(message.retry_delay_ms, DEFAULT_RETRY_DELAY),
            timeout: Some(millis(message.timeout_ms, DEFAULT_TIMEOUT)).filter(|timeout| !timeout.is_zero()),
            min_success_ratio: ratio.unwrap_or_default(),
            on_timeout: action(message.on_timeout.and_then(|action| FailureAction::try_from(action).ok())),
            on_failure: action(message.on_failure.and_then(|action| FailureAction::try_from(action).ok())),
        })
    }

    /// Return the state of a parent with this many children, of which `succeeded` are COMPLETE: RESOLVED if all are,
    /// PARTIAL if the mode accepts fewer, otherwise FAILED.
    pub fn outcome(&self, children: u64, succeeded: u64) -> ResolutionState {
        if children == succeeded {
            return ResolutionState::Resolved;
        }
        let content = match self.mode {
            CompletionMode::Unspecified | CompletionMode::Strict => false,
            CompletionMode::Lenient => succeeded > 0,
            CompletionMode::BestEffort => true,
            // Rounded to the precision in which the ratio was sent, so that 6 of 10 reach 0.6.
            CompletionMode::Quorum => (succeeded as f64 / children as f64) as f32 >= self.min_success_ratio,
        };
        if content { ResolutionState::Partial } else { ResolutionState::Failed }
    }

    /// Return what happens to a child that fails with a code: IDLE_TIMEOUT is a timeout, every other code a failure.
    /// `failures` is how often it has failed before; `again` is whether it can be retried at all.
    pub fn fate(&self, code: ErrorCode, failures: u32, again: bool) -> Fate {
        let timed_out = code == ErrorCode::IdleTimeout;
        match if timed_out { self.on_timeout } else { self.on_failure } {
            FailureAction::Retry if again && failures < self.max_retries => Fate::Retry,
            FailureAction::Unspecified | FailureAction::Fail | FailureAction::Retry => {
                Fate::Ends(if timed_out { Status::Abandoned } else { Status::Failed })
            }
            FailureAction::Skip => Fate::Ends(Status::Skipped),
            FailureAction::Defer => Fate::Defer,
        }
    }

    /// Return whether a child that has failed this often may be retried for any reason.
    pub fn retries(&self, failures: u32) -> bool {
        (self.on_failure == FailureAction::Retry || self.on_timeout == FailureAction::Retry)
            && failures < self.max_retries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(mode: CompletionMode, ratio: Option<f32>) -> CompletionPolicy {
        CompletionPolicy { mode: Some(mode.into()), min_success_ratio: ratio, ..CompletionPolicy::default() }
    }

    #[test]
    fn what_is_not_set_has_the_specifications_default_and_0_is_no_time_out() {
        let policy = Policy::of(&CompletionPolicy::default()).expect("valid");
        assert_eq!((policy.mode, policy.max_retries), (CompletionMode::Strict, 3));
        assert_eq!((policy.retry_delay.as_secs(), policy.timeout.map(|timeout| timeout.as_secs())), (1, Some(300)));
        assert_eq!((policy.on_failure, policy.on_timeout), (FailureAction::Fail, FailureAction::Fail));
        let explicit = CompletionPolicy { timeout_ms: Some(0), max_retries: Some(0), ..CompletionPolicy::default() };
        let policy = Policy::of(&explicit).expect("valid");
        assert_eq!((policy.timeout, policy.max_retries), (None, 0));
    }

    #[test]
    fn modes_say_what_so_many_complete_children_are_worth() {
        use ResolutionState::{Failed, Partial, Resolved};
        let of = |mode, ratio| Policy::of(&message(mode, ratio)).expect("valid");
        let table = [
            (of(CompletionMode::Strict, None), [Resolved, Failed, Failed, Resolved]),
            (of(CompletionMode::Lenient, None), [Resolved, Failed, Partial, Resolved]),
            (of(CompletionMode::BestEffort, None), [Resolved, Partial, Partial, Resolved]),
            (of(CompletionMode::Quorum, Some(0.6)), [Resolved, Failed, Partial, Resolved]),
            (of(CompletionMode::Quorum, Some(0.7)), [Resolved, Failed, Failed, Resolved]),
        ];
        for (policy, expected) in table {
            let outcomes = [(0, 0), (10, 0), (10, 6), (10, 10)].map(|(all, good)| policy.outcome(all, good));
            assert_eq!(outcomes, expected, "{policy:?}");
        }
    }

    #[test]
    fn every_tenth_is_reached_by_as_many_of_ten() {
        for tenth in 0..=10_u64 {
            let ratio = tenth as f32 / 10.0;
            let policy = Policy::of(&message(CompletionMode::Quorum, Some(ratio))).expect("valid");
            for good in 0..=10 {
                let enough = policy.outcome(10, good) != ResolutionState::Failed;
                assert_eq!(enough, good >= tenth, "{good} of 10 for {ratio}");
            }
        }
    }

    #[test]
    fn a_quorum_without_a_ratio_that_can_be_is_refused() {
        for ratio in [None, Some(-0.1), Some(1.1), Some(f32::NAN), Some(f32::INFINITY)] {
            let error = Policy::of(&message(CompletionMode::Quorum, ratio)).expect_err("refused");
            assert_eq!(error.code(), ErrorCode::EntityInvalid, "{ratio:?}");
        }
        assert!(Policy::of(&message(CompletionMode::Lenient, Some(7.0))).is_ok(), "it is QUORUM's alone");
    }

    #[test]
    fn a_failure_and_a_time_out_have_each_their_own_action() {
        let policy = Policy {
            max_retries: 1,
            on_failure: FailureAction::Retry,
            on_timeout: FailureAction::Skip,
            ..Policy::STRICT
        };
        let failed = ErrorCode::IntegrityError;
        assert_eq!(policy.fate(failed, 0, true), Fate::Retry);
        assert_eq!(policy.fate(failed, 0, false), Fate::Ends(Status::Failed));
        assert_eq!(policy.fate(failed, 1, true), Fate::Ends(Status::Failed));
        assert_eq!(policy.fate(ErrorCode::IdleTimeout, 0, true), Fate::Ends(Status::Skipped));
        assert_eq!(Policy::STRICT.fate(ErrorCode::IdleTimeout, 0, true), Fate::Ends(Status::Abandoned));
        let policy = Policy { on_failure: FailureAction::Defer, ..Policy::STRICT };
        assert_eq!(policy.fate(failed, 0, true), Fate::Defer);
    }
}
