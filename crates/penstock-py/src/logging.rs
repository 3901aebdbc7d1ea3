//! Logs of the Rust side, to stderr.

use std::io::stderr;
use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tracing::subscriber::set_global_default;
use tracing_subscriber::EnvFilter;

static INSTALLED: OnceLock<()> = OnceLock::new();

/// Send the logs of the Rust side to stderr. `level` is a level or a list of directives
/// (`info,penstock_quicx_net=debug`), `format` is "text" or "json". The first call of a process decides; later ones
/// change nothing.
#[pyfunction]
pub(crate) fn init_logging(level: &str, format: &str) -> PyResult<()> {
    let filter = EnvFilter::try_new(level)
        .map_err(|error| PyValueError::new_err(format!("{level:?} is not a log level: {error}")))?;
    let json = match format {
        "text" => false,
        "json" => true,
        other => return Err(PyValueError::new_err(format!("{other:?} is not a log format: text or json"))),
    };
    INSTALLED.get_or_init(|| install(filter, json));
    Ok(())
}

fn install(filter: EnvFilter, json: bool) {
    // Where stderr takes nothing, on a full disk say, there is nowhere to say so: to try would panic.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).log_internal_errors(false);
    // An error means that somebody embedding this module has installed a subscriber of their own: theirs stands. `try_init` would
    // take the records of the crate `log` as well, with which a peer writes lines by rustls, and html5ever what documents say.
    let _ = if json {
        set_global_default(builder.json().flatten_event(true).finish())
    } else {
        set_global_default(builder.with_ansi(false).finish())
    };
}
