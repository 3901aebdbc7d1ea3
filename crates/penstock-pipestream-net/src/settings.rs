//! The settings of a session as a user gives them, in layers and seconds. An error names the
//! setting and its limit.

use std::time::Duration;

use penstock_io::duration;

use crate::limits::{LONGEST_INTERVAL, LONGEST_WAIT, SHORTEST_INTERVAL};
use crate::options::SessionOptions;
use crate::transport::check_mtu;
use crate::{Misuse, Result};

/// A user's settings for a session; those that are `None` have the defaults of [`SessionOptions`].
#[derive(Debug, Clone, Default)]
pub struct SessionSettings {
    /// The highest layer that this end offers: 0, 1 or 2.
    pub layers: u8,
    /// The largest window of open entities that this end accepts; not 0.
    pub window: Option<u32>,
    /// The largest UDP payload that is tried, in bytes.
    pub mtu: Option<i64>,
    /// Seconds for which the session survives without a connection, up to a day; 0 if it does not.
    /// Needs layer 2.
    pub survive: Option<f64>,
    /// Seconds of silence after which a session without open entities ends. For 0, and for more
    /// than a day, it never does.
    pub idle_timeout: Option<f64>,
    /// Seconds between two blocks on stream 0, from 0.001 to 10.
    pub status_interval: Option<f64>,
}

impl SessionSettings {
    /// Check the settings, and return the options.
    ///
    /// # Errors
    ///
    /// Misuse, with the name of the setting and its permitted values.
    pub fn options(&self) -> Result<SessionOptions> {
        let mut options = SessionOptions {
            mtu: self.mtu.map(check_mtu).transpose()?,
            survives: self.survives()?,
            quiet_timeout: self.quiet_timeout()?,
            ..SessionOptions::default()
        };
        options.session.status_interval = self.status_interval()?;
        let capabilities = &mut options.session.capabilities;
        (capabilities.layer1, capabilities.layer2) = match self.layers {
            0 => (false, false),
            1 => (true, false),
            2 => (true, true),
            layers => return Err(Misuse::Layers { layers }.into()),
        };
        match self.window {
            Some(0) => return Err(Misuse::Window.into()),
            Some(_) => capabilities.max_window_size = self.window,
            None => {}
        }
        Ok(options)
    }

    fn survives(&self) -> Result<Option<Duration>> {
        let Some(seconds) = self.survive.filter(|seconds| *seconds != 0.0) else { return Ok(None) };
        if self.layers < 2 {
            return Err(Misuse::SurviveLayers { layers: self.layers }.into());
        }
        let survives = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= LONGEST_WAIT);
        survives.map(Some).ok_or(Misuse::Survive { seconds }.into())
    }

    fn quiet_timeout(&self) -> Result<Option<Duration>> {
        let Some(seconds) = self.idle_timeout else { return Ok(None) };
        let quiet = duration::seconds("idle_timeout", seconds)?;
        Ok(Some(quiet).filter(|quiet| !quiet.is_zero() && seconds <= LONGEST_WAIT))
    }

    fn status_interval(&self) -> Result<Option<Duration>> {
        let Some(seconds) = self.status_interval else { return Ok(None) };
        if (SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&seconds) {
            return Ok(Some(Duration::from_secs_f64(seconds)));
        }
        Err(Misuse::StatusInterval { seconds }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn layer_2() -> SessionSettings {
        SessionSettings { layers: 2, ..SessionSettings::default() }
    }

    #[test]
    fn a_setting_beyond_its_limit_is_refused_with_its_name_and_the_limit() {
        for (settings, expected) in [
            (SessionSettings { layers: 3, ..layer_2() }, Misuse::Layers { layers: 3 }),
            (SessionSettings { window: Some(0), ..layer_2() }, Misuse::Window),
            (SessionSettings { mtu: Some(1_199), ..layer_2() }, Misuse::Mtu { mtu: 1_199 }),
            (SessionSettings { mtu: Some(9_001), ..layer_2() }, Misuse::Mtu { mtu: 9_001 }),
            (SessionSettings { survive: Some(86_400.5), ..layer_2() }, Misuse::Survive { seconds: 86_400.5 }),
            (SessionSettings { survive: Some(-1.0), ..layer_2() }, Misuse::Survive { seconds: -1.0 }),
            (SessionSettings { layers: 1, survive: Some(5.0), ..layer_2() }, Misuse::SurviveLayers { layers: 1 }),
            (
                SessionSettings { status_interval: Some(0.0009), ..layer_2() },
                Misuse::StatusInterval { seconds: 0.0009 },
            ),
            (SessionSettings { status_interval: Some(10.1), ..layer_2() }, Misuse::StatusInterval { seconds: 10.1 }),
        ] {
            let error = settings.options().unwrap_err();
            assert!(matches!(&error, Error::Misuse(misuse) if *misuse == expected), "{error:?}");
        }
        let error = SessionSettings { idle_timeout: Some(-0.5), ..layer_2() }.options().unwrap_err();
        let reason = Duration::try_from_secs_f64(-0.5).unwrap_err();
        assert_eq!(error.to_string(), format!("idle_timeout=-0.5: {reason}"));
        let expected = penstock_io::Misuse::Duration { option: "idle_timeout".to_owned(), seconds: -0.5, reason };
        assert!(matches!(&error, Error::Local(penstock_io::Error::Misuse(misuse)) if *misuse == expected), "{error:?}");
    }

    #[test]
    fn a_setting_that_is_no_number_is_refused() {
        let error = SessionSettings { survive: Some(f64::NAN), ..layer_2() }.options().unwrap_err();
        assert!(matches!(error, Error::Misuse(Misuse::Survive { seconds }) if seconds.is_nan()), "{error:?}");
        let error = SessionSettings { status_interval: Some(f64::NAN), ..layer_2() }.options().unwrap_err();
        assert!(matches!(error, Error::Misuse(Misuse::StatusInterval { seconds }) if seconds.is_nan()), "{error:?}");
    }

    #[test]
    fn settings_at_their_limits_become_options() {
        let settings = SessionSettings {
            layers: 2,
            window: Some(1),
            mtu: Some(9_000),
            survive: Some(86_400.0),
            idle_timeout: Some(86_400.0),
            status_interval: Some(10.0),
        };
        let options = settings.options().unwrap();
        let day = Some(Duration::from_secs(86_400));
        assert_eq!((options.mtu, options.survives, options.quiet_timeout), (Some(9_000), day, day));
        assert_eq!(options.session.status_interval, Some(Duration::from_secs(10)));
        assert_eq!(options.session.capabilities.max_window_size, Some(1));
        let shortest = SessionSettings { status_interval: Some(0.001), ..layer_2() }.options().unwrap();
        assert_eq!(shortest.session.status_interval, Some(Duration::from_millis(1)));
    }

    #[test]
    fn the_highest_layer_brings_those_below_it() {
        let offered = |layers| {
            let capabilities = SessionSettings { layers, ..layer_2() }.options().unwrap().session.capabilities;
            (capabilities.layer1, capabilities.layer2)
        };
        assert_eq!([0, 1, 2].map(offered), [(false, false), (true, false), (true, true)]);
    }

    #[test]
    fn nothing_stated_and_0_seconds_mean_that_a_session_neither_survives_nor_ends_by_silence() {
        let zero = SessionSettings { layers: 0, survive: Some(0.0), idle_timeout: Some(0.0), ..layer_2() };
        let forever = SessionSettings { idle_timeout: Some(86_401.0), ..layer_2() };
        for settings in [layer_2(), zero, forever] {
            let options = settings.options().unwrap();
            assert_eq!((options.survives, options.quiet_timeout, options.mtu), (None, None, None));
        }
    }
}
