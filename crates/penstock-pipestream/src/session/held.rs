use penstock_wire::FastMap;
use serde::{Deserialize, Serialize};

use crate::EntityHeader;

/// The streams whose header arrived before its PENDING, or before its scope was bound.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct HeldStreams {
    #[serde(serialize_with = "crate::stored::in_order")]
    pub(super) by_entity: FastMap<(u16, u32), Vec<(u64, EntityHeader)>>,
    /// Streams that overtook the server's CAPABILITIES (decision 2), or their sender's SESSION.
    pub(super) early: Vec<(u64, EntityHeader)>,
    pub(super) bytes: usize,
}

impl HeldStreams {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn take(&mut self, scope: u16, entity: u32) -> Vec<(u64, EntityHeader)> {
        let taken = self.by_entity.remove(&(scope, entity)).unwrap_or_default();
        self.bytes -= taken.iter().map(|(_, header)| header.weight()).sum::<usize>();
        taken
    }

    /// Return whether a held header states that the entity has children.
    pub(super) fn is_dehydrated(&self, scope: u16, entity: u32) -> bool {
        let held = self.by_entity.get(&(scope, entity));
        held.is_some_and(|held| held.iter().any(|(_, header)| header.is_dehydrated()))
    }
}
