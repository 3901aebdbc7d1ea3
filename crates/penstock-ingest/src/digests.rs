//! Scope digests that an earlier process of the session has received. They are computed from the
//! outcomes of the scope's entities; a session compares every received digest with the same
//! computation.

use std::collections::HashMap;

use penstock_pipestream::merkle_root;
use penstock_pipestream_net::{EntityKey, ScopeDigest, Status};

use crate::ledger::Ledger;

/// Set the scope digest of each container at these indices, if all entities of its scope have
/// ended.
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

/// Return the digest over these entities; `None` if one of them has no terminal status.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::Padding;
    use crate::testing::{announced_zip, key, resolution};

    fn ended(second: Status) -> Ledger {
        let mut ledger = announced_zip();
        ledger.settle(1, resolution(Status::Complete));
        if second != Status::Pending {
            ledger.settle(2, resolution(second));
        }
        ledger.records[0].padding.push(Padding { key: key(2, 3), status: Status::Complete });
        ledger
    }

    #[test]
    fn a_digest_follows_from_how_the_entities_of_the_scope_have_ended() {
        let mut ledger = ended(Status::Deferred);
        recall(&mut ledger, &[0]);
        let root = merkle_root([(1, Status::Complete), (2, Status::Deferred), (3, Status::Complete)]);
        let expected =
            ScopeDigest { scope_id: 2, processed: 3, succeeded: 2, failed: 0, deferred: 1, merkle_root: root };
        assert_eq!(ledger.records[0].digest, Some(expected));
        let mut ledger = ended(Status::Abandoned);
        recall(&mut ledger, &[0]);
        assert_eq!(ledger.records[0].digest.as_ref().map(|digest| (digest.succeeded, digest.failed)), Some((2, 1)));
    }

    #[test]
    fn a_scope_in_which_something_has_not_ended_has_no_digest() {
        let mut ledger = ended(Status::Pending);
        recall(&mut ledger, &[0]);
        assert_eq!(ledger.records[0].digest, None);
    }
}
