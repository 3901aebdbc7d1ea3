//! Errors that the application returns through the driver's ports.

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::sync::Arc;

/// An error of the application, which gets it back unchanged.
#[derive(Debug, Clone)]
pub struct ApplicationError(Arc<dyn StdError + Send + Sync>);

impl ApplicationError {
    /// Wrap an error.
    pub fn new(error: impl StdError + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// Return the error, if it is of this type.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl Display for ApplicationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.0, f)
    }
}

impl StdError for ApplicationError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

/// The reasons why a port of the application returned no result.
#[derive(Debug, Clone)]
pub enum PortError {
    /// The port has refused or failed; only this call or stream ends.
    Failed(ApplicationError),
    /// The application ends the wait, as an interrupt does; the peer is told nothing.
    Raised(ApplicationError),
}
