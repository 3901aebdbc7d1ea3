//! The bounds of the options that users may set for a sender and a consumer.

use std::time::Duration;

use penstock_io::duration;
use penstock_pimp::{ConsumerConfig, Limits};

use crate::consumer::POLL_LIMIT;
use crate::{Misuse, Result};

/// Longer than any job lives: the flush interval of a sender that writes only whole chunks.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// The most bytes of a value that is read: as many as the response to a poll may contain.
const LARGEST_VALUE: u64 = 64 << 20;

/// Return an option's value in seconds as a duration. Fails as a misuse that names the option if
/// the value is invalid, or longer than the life of any job.
pub fn seconds(option: &str, value: f64) -> Result<Duration> {
    let made = duration::seconds(option, value)?;
    if made > NEVER {
        return Err(Misuse::Lifetime { option: option.to_owned(), seconds: value }.into());
    }
    Ok(made)
}

/// Return the flush interval of a sender, in seconds; with `None` it writes only whole chunks.
pub fn flush_interval(value: Option<f64>) -> Result<Duration> {
    value.map_or(Ok(NEVER), |value| seconds("flush_interval", value))
}

/// Return the configuration of a consumer of any buffer.
pub fn any_buffer() -> ConsumerConfig {
    ConsumerConfig {
        // Buffers that do not know the limit ignore it; it bounds the responses of others.
        limit: POLL_LIMIT,
        // The buffer has already limited the size of the job; what is held in memory here has separate limits.
        limits: Limits {
            job: u64::MAX,
            chunks: u32::MAX,
            value: LARGEST_VALUE,
            body: LARGEST_VALUE,
            ..Limits::default()
        },
        ..ConsumerConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn no_option_is_longer_than_a_job_lives() {
        let most = NEVER.as_secs_f64();
        assert_eq!(seconds("wait", most).unwrap(), NEVER);
        let error = seconds("wait", most + 1.0).unwrap_err();
        let Error::Misuse(misuse) = error else { panic!("{error:?}") };
        assert_eq!(misuse, Misuse::Lifetime { option: "wait".to_owned(), seconds: most + 1.0 });
        let error = seconds("wait", -1.0).unwrap_err();
        let Error::Local(penstock_io::Error::Misuse(misuse)) = &error else { panic!("{error:?}") };
        assert!(matches!(misuse, penstock_io::Misuse::Duration { option, .. } if option == "wait"), "{error:?}");
    }

    #[test]
    fn a_sender_without_a_flush_interval_never_flushes() {
        assert_eq!(flush_interval(None).unwrap(), NEVER);
        assert_eq!(flush_interval(Some(0.25)).unwrap(), Duration::from_millis(250));
        let error = flush_interval(Some(f64::NAN)).unwrap_err();
        let Error::Local(penstock_io::Error::Misuse(misuse)) = &error else { panic!("{error:?}") };
        assert!(
            matches!(misuse, penstock_io::Misuse::Duration { option, .. } if option == "flush_interval"),
            "{error:?}"
        );
    }

    #[test]
    fn a_consumer_bounds_its_memory_and_not_the_job() {
        let config = any_buffer();
        assert_eq!((config.limits.job, config.limits.chunks), (u64::MAX, u32::MAX));
        assert_eq!((config.limits.value, config.limits.body), (64 << 20, 64 << 20));
        assert_eq!(config.limit, 20);
    }
}
