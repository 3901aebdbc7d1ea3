//! Sealing of the headers of a session (section 10.6).

use std::sync::Arc;

use penstock_io::tls;
use penstock_pipestream::EntityHeader;
use penstock_pipestream::header_key::SessionHeaderKeys;

use crate::Result;

/// Seals the headers of one session.
#[derive(Debug, Clone)]
pub(crate) struct Sealer(pub(crate) Arc<SessionHeaderKeys>);

impl Sealer {
    /// Return the sealed header, under a separate nonce.
    ///
    /// # Errors
    ///
    /// A system without random numbers; ENTITY_TOO_LARGE where the sealed header is larger than a peer reads.
    pub(crate) fn seal(&self, header: &EntityHeader) -> Result<EntityHeader> {
        Ok(self.0.seal(header, tls::random()?)?)
    }
}
