//! Durations that users give as numbers of seconds.

use std::time::Duration;

use crate::{Misuse, Result};

/// Return the duration of an option in seconds. A number below 0 or beyond the clock's range is a
/// misuse that names the option.
pub fn seconds(option: &str, value: f64) -> Result<Duration> {
    let wrong = |reason| Misuse::Duration { option: option.to_owned(), seconds: value, reason };
    Ok(Duration::try_from_secs_f64(value).map_err(wrong)?)
}

/// Return the interval of an option in seconds; `None` for 0, which means never.
pub fn interval(option: &str, value: f64) -> Result<Option<Duration>> {
    seconds(option, value).map(|duration| Some(duration).filter(|duration| !duration.is_zero()))
}

/// Return how long running work may still take at the end: no time for a number below 0, and
/// unlimited time for one beyond the clock's range.
pub fn grace(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn an_option_that_is_no_duration_is_named() {
        assert_eq!(seconds("wait", 0.25).unwrap(), Duration::from_millis(250));
        assert_eq!(seconds("wait", 0.0).unwrap(), Duration::ZERO);
        for value in [-1.0, f64::NAN, f64::INFINITY, 1e30] {
            let Err(Error::Misuse(misuse)) = seconds("wait", value) else { panic!("{value}") };
            assert!(matches!(&misuse, Misuse::Duration { option, .. } if option == "wait"), "{misuse:?}");
            assert!(misuse.to_string().starts_with(&format!("wait={value}: ")), "{misuse}");
        }
    }

    #[test]
    fn an_interval_of_zero_is_never() {
        assert_eq!(interval("pause", 0.0).unwrap(), None);
        assert_eq!(interval("pause", 2.0).unwrap(), Some(Duration::from_secs(2)));
        assert!(interval("pause", -2.0).is_err());
    }

    #[test]
    fn every_number_is_a_grace() {
        assert_eq!(grace(1.5), Duration::from_millis(1_500));
        assert_eq!([grace(-1.0), grace(f64::NAN)], [Duration::ZERO; 2]);
        assert_eq!(grace(f64::INFINITY), Duration::MAX);
    }
}
