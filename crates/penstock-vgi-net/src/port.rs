//! Errors of the application, from its side of the driver's ports.

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::sync::Arc;

/// An error of the application, which gets it back as it was.
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

/// Why a port of the application has no result.
#[derive(Debug, Clone)]
pub enum PortError {
    /// It has refused or failed: only this call or stream ends.
    Failed(ApplicationError),
    /// The application ends the wait, as an interrupt does: the peer is told nothing.
    Raised(ApplicationError),
}
