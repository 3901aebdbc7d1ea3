//! The sealing of a session's headers (section 10.6).

use std::sync::Arc;

use penstock_io::tls;
use penstock_pipestream::header_key::SessionHeaderKeys;
use penstock_pipestream::{EntityHeader, ErrorCode, Reason};

use crate::{Error, Result};

/// The keys that seal the headers of one session.
#[derive(Debug, Clone)]
pub(crate) struct Sealer(pub(crate) Arc<SessionHeaderKeys>);

impl Sealer {
    /// Return the header, sealed under a new random nonce.
    ///
    /// # Errors
    ///
    /// TLS if the system has no random numbers; ENTITY_TOO_LARGE if the sealed header is longer
    /// than any peer accepts.
    pub(crate) fn seal(&self, header: &EntityHeader) -> Result<EntityHeader> {
        Ok(self.0.seal(header, tls::random()?)?)
    }
}

/// Return the reason for which an entity fails whose header cannot be sealed.
pub(crate) fn unsealed(error: &Error) -> Reason {
    let code = error.code().unwrap_or(ErrorCode::InternalError);
    Reason { code, message: format!("its header cannot be sealed: {error}") }
}
