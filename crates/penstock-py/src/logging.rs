//! Logs of the Rust code, written to stderr.

use std::io::stderr;
use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tracing::subscriber::set_global_default;
use tracing_subscriber::EnvFilter;

static INSTALLED: OnceLock<()> = OnceLock::new();

/// Send the logs of the Rust side to stderr. `level` is a level or a list of directives
/// (`info,penstock_quicx_net=debug`), `format` is "text" or "json". The first call in a process takes effect; later
/// ones change nothing.
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
    // If stderr cannot be written to, for example on a full disk, the problem cannot be reported at
    // all, and reporting it to stderr would panic.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).log_internal_errors(false);
    // An error means that the program that embeds this module has installed a subscriber, which
    // stays in use. `try_init` would also capture the records of the crate `log`, which a peer can
    // write through rustls, and a document through html5ever.
    let _ = if json {
        set_global_default(builder.json().flatten_event(true).finish())
    } else {
        set_global_default(builder.with_ansi(false).finish())
    };
}
