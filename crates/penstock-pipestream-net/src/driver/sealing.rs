//! Headers that are sealed with a header key (section 10.6). Headers that arrive are opened before the session sees
//! them; headers to be sent are sealed after the session has bound them.
//!
//! A session's keys are derived from its ID. Headers that arrive before the ID is known wait here; their payloads wait
//! in their streams.

use std::sync::Arc;

use penstock_pipestream::header_key::{HeaderKeys, SessionHeaderKeys, refused};
use penstock_pipestream::{self as core, EntityHeader};
use tokio::sync::oneshot;

use crate::command::{BufferedEntity, Verdict};
use crate::conceal::conceal;

/// A session's header keys, where it has any.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    pub(super) secrets: Option<HeaderKeys>,
    pub(super) keys: Option<Arc<SessionHeaderKeys>>,
    pub(super) early: Vec<EarlyStream>,
    /// Number of bytes of the headers in `early`; `limit` is its maximum.
    pub(super) early_bytes: usize,
    limit: usize,
}

/// An entity stream whose header waits for the session's ID.
#[derive(Debug)]
pub(super) enum EarlyStream {
    Partial { stream: u64, header: Arc<EntityHeader>, reply: oneshot::Sender<Verdict> },
    Whole(BufferedEntity),
}

impl EarlyStream {
    fn header(&self) -> &EntityHeader {
        match self {
            Self::Partial { header, .. } => header,
            Self::Whole(arrival) => &arrival.header,
        }
    }
}

impl Sealing {
    pub(super) fn new(secrets: Option<HeaderKeys>, limit: usize) -> Self {
        Self { secrets, limit, ..Self::default() }
    }

    /// Forget the early streams of a connection that was lost.
    pub(super) fn forget_early(&mut self) {
        (self.early, self.early_bytes) = (Vec::new(), 0);
    }

    pub(super) fn open(&self, header: &EntityHeader) -> EntityHeader {
        let mut opened = self.keys.as_ref().and_then(|keys| keys.open(header)).unwrap_or_else(|| refused(header));
        // The transaction's token was in the sealed part, out of reach for the code that reads
        // streams.
        conceal(&mut opened);
        opened
    }

    pub(super) fn hold(&mut self, early: EarlyStream) -> core::Result<()> {
        self.early_bytes = self.early_bytes.saturating_add(early.header().weight());
        if self.early_bytes > self.limit {
            return Err(core::LimitError::EarlyHeaders { bytes: self.limit }.into());
        }
        self.early.push(early);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use penstock_pipestream::SessionId;

    use super::*;
    use crate::sealer::Sealer;

    #[test]
    fn a_transactions_token_is_removed_once_a_sealed_header_is_opened() {
        let secrets = HeaderKeys::parse(&"ab".repeat(32)).expect("a key");
        let keys = Arc::new(secrets.for_session(SessionId::parse(&"01".repeat(16)).expect("an ID")).expect("keys"));
        let token = ("penstock.transaction-token".to_owned(), "a token of some length".to_owned());
        let header = EntityHeader { entity_id: 1, metadata: [token.clone()].into(), ..EntityHeader::default() };
        let sealed = Sealer(Arc::clone(&keys)).seal(&header).expect("sealed");
        let sealing = Sealing { secrets: Some(secrets), keys: Some(keys), ..Sealing::default() };
        let opened = sealing.open(&sealed);
        assert!(opened.metadata.values().all(|value| *value != token.1));
        let mut plain = header;
        conceal(&mut plain);
        assert_eq!(opened.metadata, plain.metadata);
    }
}
