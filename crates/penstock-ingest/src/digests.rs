//! Digests of scopes that an earlier process of the session has heard: they are what follows from how the entities of the scope have
//! ended, which is what a session compares every digest with when it comes.

use std::collections::HashMap;

use penstock_pipestream::merkle_root;
use penstock_pipestream_net::{EntityKey, ScopeDigest, Status};

use crate::ledger::Ledger;

/// Give the containers at these places, in ascending order, the digests of their scopes, where all that is in there has ended.
pub(crate) fn recall(ledger: &mut Ledger, containers: &[usize]) {
    let mut found: HashMap<usize, Vec<(EntityKey, Status)>> = containers.iter().map(|at| (*at, Vec::new())).collect();
    for record in &ledger.records {
        if let Some((parent, key)) = record.parent.zip(record.key)
            && let Some(entities) = found.get_mut(&parent)
        {
            entities.push((key, record.status));
        }
    }
    for (at, mut entities) in found {
        let Some(record) = ledger.records.get_mut(at) else { continue };
        entities.extend(record.padding.iter().map(|padding| (padding.key, padding.status)));
        record.digest = record.scope.and_then(|scope| digest(scope.scope, &entities));
    }
}

/// Return the digest over these entities; none where one of them has no terminal status.
fn digest(scope_id: u16, entities: &[(EntityKey, Status)]) -> Option<ScopeDigest> {
    if !entities.iter().all(|(_, status)| status.is_terminal()) {
        return None;
    }
    let count = |counts: fn(Status) -> bool| entities.iter().filter(|(_, status)| counts(*status)).count() as u64;
    Some(ScopeDigest {
        scope_id,
        processed: entities.len() as u64,
        succeeded: count(|status| status == Status::Complete),
        failed: count(|status| matches!(status, Status::Failed | Status::Abandoned)),
        deferred: count(|status| status == Status::Deferred),
        merkle_root: merkle_root(entities.iter().map(|(key, status)| (key.entity, *status))),
    })
}
