use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::types::EntityKey;

/// Scopes whose BARRIER arrived before they were bound, and dehydrated entities whose children's scope is unknown, both
/// by the parent's ID.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Orphans {
    #[serde(serialize_with = "crate::stored::in_order")]
    pub(super) scopes: HashMap<u32, Vec<u16>>,
    #[serde(serialize_with = "crate::stored::in_order")]
    pub(super) parents: HashMap<u32, Vec<EntityKey>>,
    /// The parents' IDs for which there may be a matching parent and scope now.
    pub(super) unchecked: Vec<u32>,
}

impl Orphans {
    pub(super) fn add_scope(&mut self, parent_id: u32, scope_id: u16) {
        self.scopes.entry(parent_id).or_default().push(scope_id);
        self.unchecked.push(parent_id);
    }

    pub(super) fn add_parent(&mut self, key: EntityKey) {
        self.parents.entry(key.entity).or_default().push(key);
    }

    /// Look again at the scopes that wait for a parent of this ID, after one was bound or failed.
    pub(super) fn recheck(&mut self, entity_id: u32) {
        if self.scopes.contains_key(&entity_id) {
            self.unchecked.push(entity_id);
        }
    }

    pub(super) fn remove_parent(&mut self, key: EntityKey) {
        if let Some(parents) = self.parents.get_mut(&key.entity) {
            parents.retain(|parent| *parent != key);
            if parents.is_empty() {
                self.parents.remove(&key.entity);
            }
        }
        self.recheck(key.entity);
    }

    /// Keep only these parents and scopes of an ID; headers have bound the others meanwhile.
    pub(super) fn keep(&mut self, entity_id: u32, parents: Vec<EntityKey>, scopes: Vec<u16>) {
        match parents.is_empty() {
            true => drop(self.parents.remove(&entity_id)),
            false => drop(self.parents.insert(entity_id, parents)),
        }
        match scopes.is_empty() {
            true => drop(self.scopes.remove(&entity_id)),
            false => drop(self.scopes.insert(entity_id, scopes)),
        }
    }
}
