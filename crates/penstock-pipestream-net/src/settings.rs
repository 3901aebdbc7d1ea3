//! Options of a session as a user states them, in layers and seconds. An error names the option and its limit.

use std::time::Duration;

use penstock_io::DriverError as _;

use crate::options::SessionOptions;
use crate::transport::check_mtu;
use crate::{Error, Result};

/// The longest time that a session waits, in seconds: a day.
const LONGEST: f64 = 86_400.0;
/// The shortest and the longest status interval, in seconds: an idle connection is lost after 30.
const SHORTEST_INTERVAL: f64 = 0.001;
const LONGEST_INTERVAL: f64 = 10.0;

/// What a user states of a session; what is not set has the default of [`SessionOptions`].
#[derive(Debug, Clone, Default)]
pub struct SessionSettings {
    /// The highest layer that this end offers: 0, 1 or 2.
    pub layers: u8,
    /// The largest window of open entities that this end accepts; not 0.
    pub window: Option<u32>,
    /// The largest UDP payload that is tried, in bytes.
    pub mtu: Option<i64>,
    /// Seconds for which the session survives without a connection, up to a day. 0: it does not. Layer 2.
    pub survive: Option<f64>,
    /// Seconds of silence after which a session without open entities ends. 0, and more than a day: never.
    pub idle_timeout: Option<f64>,
    /// Seconds between two blocks of stream 0, from 0.001 to 10.
    pub status_interval: Option<f64>,
}

impl SessionSettings {
    /// Check the settings, and return the options.
    ///
    /// # Errors
    ///
    /// Misuse, with the name of the setting and what it may be.
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
            other => return Err(Error::misuse(format!("layers={other}: this end has layers 0 to 2"))),
        };
        match self.window {
            Some(0) => return Err(Error::misuse("window=0: nothing could be sent".into())),
            Some(_) => capabilities.max_window_size = self.window,
            None => {}
        }
        Ok(options)
    }

    fn survives(&self) -> Result<Option<Duration>> {
        let Some(seconds) = self.survive.filter(|seconds| *seconds != 0.0) else { return Ok(None) };
        if self.layers < 2 {
            return Err(Error::misuse(format!("layers={}: sessions survive at layer 2", self.layers)));
        }
        let survives = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= LONGEST);
        let wrong = || Error::misuse(format!("survive={seconds}: 0 to {LONGEST} seconds"));
        survives.map(Some).ok_or_else(wrong)
    }

    fn quiet_timeout(&self) -> Result<Option<Duration>> {
        let Some(seconds) = self.idle_timeout else { return Ok(None) };
        let quiet = Duration::try_from_secs_f64(seconds)
            .map_err(|error| Error::misuse(format!("idle_timeout={seconds}: {error}")))?;
        Ok(Some(quiet).filter(|quiet| !quiet.is_zero() && seconds <= LONGEST))
    }

    fn status_interval(&self) -> Result<Option<Duration>> {
        let Some(seconds) = self.status_interval else { return Ok(None) };
        if (SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&seconds) {
            return Ok(Some(Duration::from_secs_f64(seconds)));
        }
        Err(Error::misuse(format!(
            "status_interval={seconds}: it is from {SHORTEST_INTERVAL} to {LONGEST_INTERVAL} seconds"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer_2() -> SessionSettings {
        SessionSettings { layers: 2, ..SessionSettings::default() }
    }

    #[test]
    fn a_setting_beyond_its_limit_is_refused_with_its_name_and_the_limit() {
        for (settings, expected) in [
            (SessionSettings { layers: 3, ..layer_2() }, "layers=3: this end has layers 0 to 2"),
            (SessionSettings { window: Some(0), ..layer_2() }, "window=0: nothing could be sent"),
            (SessionSettings { mtu: Some(1_199), ..layer_2() }, "mtu=1199: it must be from 1200 to 9000 bytes"),
            (SessionSettings { mtu: Some(9_001), ..layer_2() }, "mtu=9001: it must be from 1200 to 9000 bytes"),
            (SessionSettings { survive: Some(86_400.5), ..layer_2() }, "survive=86400.5: 0 to 86400 seconds"),
            (SessionSettings { survive: Some(-1.0), ..layer_2() }, "survive=-1: 0 to 86400 seconds"),
            (SessionSettings { survive: Some(f64::NAN), ..layer_2() }, "survive=NaN: 0 to 86400 seconds"),
            (SessionSettings { layers: 1, survive: Some(5.0), ..layer_2() }, "layers=1: sessions survive at layer 2"),
            (SessionSettings { idle_timeout: Some(-0.5), ..layer_2() }, "idle_timeout=-0.5: "),
            (
                SessionSettings { status_interval: Some(0.0009), ..layer_2() },
                "status_interval=0.0009: it is from 0.001 to 10 seconds",
            ),
            (
                SessionSettings { status_interval: Some(10.1), ..layer_2() },
                "status_interval=10.1: it is from 0.001 to 10 seconds",
            ),
            (
                SessionSettings { status_interval: Some(f64::NAN), ..layer_2() },
                "status_interval=NaN: it is from 0.001 to 10 seconds",
            ),
        ] {
            let error = settings.options().unwrap_err();
            assert!(
                matches!(&error, Error::Local(penstock_io::Error::Misuse(text)) if text.contains(expected)),
                "{error}"
            );
        }
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
