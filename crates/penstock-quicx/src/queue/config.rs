use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use penstock_pool::PoolConfig;

use crate::error::{Misuse, Result};

/// The longest delay of a retry.
const LONGEST_DELAY: Duration = Duration::from_secs(3_600);

/// The policy for the tasks of a type (decisions 7, 8 and 15).
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// How long a worker may hold a task without a heartbeat; `None` for indefinitely.
    /// Default: 60 s.
    pub task_timeout: Option<Duration>,
    /// The deliveries after which a task is dead. Default: 5.
    pub attempts: u16,
    /// Whether a task is retried after FAILED. Default: no.
    pub retry_failed: bool,
    /// The delay before the first retry. Default: 1 s.
    pub delay: Duration,
    /// The factor of the delay for each further retry. Default: 2.
    pub back_off: f64,
    /// How long a task waits before its first delivery. Default: 0.
    pub start_delay: Duration,
    /// The priority; tasks of a higher priority go first. Default: 0.
    pub priority: i32,
    /// The most deliveries per second. Default: no limit.
    pub rate: Option<f64>,
    /// Whether a submit is merged into a waiting or running task with the same payload. Default: no.
    pub unique: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            task_timeout: Some(Duration::from_secs(60)),
            attempts: 5,
            retry_failed: false,
            delay: Duration::from_secs(1),
            back_off: 2.0,
            start_delay: Duration::ZERO,
            priority: 0,
            rate: None,
            unique: false,
        }
    }
}

impl Policy {
    fn check(&self, name: &str) -> Result<()> {
        let policy = name.to_owned();
        if self.attempts == 0 {
            return Err(Misuse::Attempts { policy }.into());
        }
        if !self.back_off.is_finite() || self.back_off < 1.0 {
            return Err(Misuse::BackOff { policy }.into());
        }
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err(Misuse::Rate { policy }.into());
        }
        Ok(())
    }

    /// Return the delay of a retry after this many attempts.
    pub(super) fn retry_after(&self, attempts: u16) -> Duration {
        let factor = self.back_off.powi(i32::from(attempts.saturating_sub(1)));
        Duration::try_from_secs_f64(self.delay.as_secs_f64() * factor).unwrap_or(LONGEST_DELAY).min(LONGEST_DELAY)
    }
}

/// The configuration and the limits of a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueConfig {
    /// The memory for the tasks.
    pub pool: PoolConfig,
    /// The policy of types that have none of their own.
    pub default: Policy,
    /// Policies by type.
    pub policies: BTreeMap<String, Policy>,
    /// The accepted types. Default: all.
    pub allow: Option<BTreeSet<String>>,
    /// The interval of heartbeats to workers without tasks and to silent producers (decision
    /// 10). Default: never.
    pub heartbeat_interval: Option<Duration>,
    /// The most types at once, of tasks and subscriptions. Default: 4,096.
    pub types: usize,
    /// The most outcomes that are remembered for late observers. Default: 65,536.
    pub outcomes: usize,
    /// How long outcomes are remembered. Default: 600 s.
    pub outcome_time: Duration,
    /// The most keys of ended tasks and merged submits that are remembered (SUBMIT_ONCE).
    /// Default: 262,144.
    pub keys: usize,
    /// The bytes of answers, waiting for the peer or for the disk, above which a connection is not
    /// read. Default: 64 KiB.
    pub output: usize,
    /// The waiting bytes above which a connection is cut off. Default: 1 MiB.
    pub output_limit: usize,
    /// The delay before a failed write of the journal is retried. Default: 1 s.
    pub journal_retry: Duration,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            pool: PoolConfig::default(),
            default: Policy::default(),
            policies: BTreeMap::new(),
            allow: None,
            heartbeat_interval: None,
            types: 4_096,
            outcomes: 65_536,
            outcome_time: Duration::from_secs(600),
            keys: 262_144,
            output: 64 << 10,
            output_limit: 1 << 20,
            journal_retry: Duration::from_secs(1),
        }
    }
}

impl QueueConfig {
    /// Check the values. Fails as a misuse if one is invalid.
    pub(super) fn check(&self) -> Result<()> {
        self.default.check("the default policy")?;
        for (name, policy) in &self.policies {
            if name.is_empty() || name.len() > 255 {
                return Err(Misuse::TypeLength(name.len()).into());
            }
            policy.check(name)?;
        }
        if self.types < self.policies.len() {
            return Err(Misuse::PolicyCount.into());
        }
        Ok(())
    }

    /// Return the policy of a type.
    pub(super) fn policy(&self, kind: &[u8]) -> &Policy {
        std::str::from_utf8(kind).ok().and_then(|kind| self.policies.get(kind)).unwrap_or(&self.default)
    }

    /// Return whether tasks of a type are accepted.
    pub(super) fn allows(&self, kind: &[u8]) -> bool {
        let Some(allow) = &self.allow else { return true };
        std::str::from_utf8(kind).is_ok_and(|kind| allow.contains(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_waits_longer_each_time_and_an_hour_at_the_most() {
        let policy = Policy { delay: Duration::from_secs(2), back_off: 3.0, ..Policy::default() };
        let waits = [1, 2, 3, 500].map(|attempts| policy.retry_after(attempts).as_secs());
        assert_eq!(waits, [2, 6, 18, 3_600]);
    }

    #[test]
    fn a_policy_that_makes_no_sense_is_refused_by_name() {
        let config = |policy| QueueConfig { policies: [("mail".to_owned(), policy)].into(), ..QueueConfig::default() };
        let name = || "mail".to_owned();
        for (policy, misuse) in [
            (Policy { attempts: 0, ..Policy::default() }, Misuse::Attempts { policy: name() }),
            (Policy { back_off: 0.5, ..Policy::default() }, Misuse::BackOff { policy: name() }),
            (Policy { rate: Some(0.0), ..Policy::default() }, Misuse::Rate { policy: name() }),
            (Policy { rate: Some(f64::NAN), ..Policy::default() }, Misuse::Rate { policy: name() }),
        ] {
            assert_eq!(config(policy).check(), Err(misuse.into()));
        }
        assert!(config(Policy::default()).check().is_ok());
    }
}
