//! The children of one entry in compact form: consecutive IDs, the usual case, need one byte each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::entity_id::{id_after, is_assignable, ordinal_distance};
use crate::error::{Misuse, Result};
use crate::status::Status;

/// The effect of adding or completing a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The child was new.
    Added,
    /// The child was known and became terminal.
    Completed,
    /// The child was known, and was already terminal or is not terminal yet.
    Nothing,
}

/// Children in circular order from the first one, each with its latest status.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Children {
    first: u32,
    statuses: Statuses,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Statuses {
    /// The first child and those that follow it without a gap.
    Dense(Vec<Option<Status>>),
    /// By ordinal distance from the first child, which is the order of assignment even across the wrap.
    Sparse(BTreeMap<u32, Option<Status>>),
}

impl Children {
    pub(super) fn new() -> Self {
        Self { first: 0, statuses: Statuses::Dense(Vec::new()) }
    }

    pub(super) fn len(&self) -> usize {
        match &self.statuses {
            Statuses::Dense(statuses) => statuses.len(),
            Statuses::Sparse(statuses) => statuses.len(),
        }
    }

    pub(super) fn contains(&self, child: u32) -> bool {
        let ordinal = ordinal_distance(self.first, child);
        is_assignable(child)
            && match &self.statuses {
                Statuses::Dense(statuses) => (ordinal as usize) < statuses.len(),
                Statuses::Sparse(statuses) => statuses.contains_key(&ordinal),
            }
    }

    /// Add a child, or record the status of one. A terminal status is kept.
    pub(super) fn set(&mut self, child: u32, status: Option<Status>) -> Result<Change> {
        if !is_assignable(child) {
            return Err(Misuse::ReservedChild(child).into());
        }
        if self.len() == 0 {
            self.first = child;
        }
        let ordinal = ordinal_distance(self.first, child);
        match &mut self.statuses {
            Statuses::Dense(statuses) => {
                if let Some(known) = statuses.get_mut(ordinal as usize) {
                    return Ok(record(known, status));
                }
                if ordinal as usize == statuses.len() {
                    statuses.push(status);
                } else {
                    let mut sparse: BTreeMap<_, _> = (0..).zip(statuses.iter().copied()).collect();
                    sparse.insert(ordinal, status);
                    self.statuses = Statuses::Sparse(sparse);
                }
            }
            Statuses::Sparse(statuses) => {
                if let Some(known) = statuses.get_mut(&ordinal) {
                    return Ok(record(known, status));
                }
                statuses.insert(ordinal, status);
            }
        }
        Ok(Change::Added)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Option<Status>)> + '_ {
        let (dense, sparse) = match &self.statuses {
            Statuses::Dense(statuses) => (Some((0..).zip(statuses.iter())), None),
            Statuses::Sparse(statuses) => (None, Some(statuses.iter())),
        };
        let dense = dense.into_iter().flatten();
        let sparse = sparse.into_iter().flatten().map(|(ordinal, status)| (*ordinal, status));
        dense.chain(sparse).map(|(ordinal, status)| (id_after(self.first, ordinal), *status))
    }
}

fn record(known: &mut Option<Status>, status: Option<Status>) -> Change {
    if is_terminal(*known) || status.is_none() {
        return Change::Nothing;
    }
    *known = status;
    if is_terminal(status) { Change::Completed } else { Change::Nothing }
}

pub(super) fn is_terminal(status: Option<Status>) -> bool {
    status.is_some_and(Status::is_terminal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity_id::MODULUS;

    #[test]
    fn consecutive_children_are_dense_across_the_wrap_and_a_gap_makes_them_sparse() {
        let mut children = Children::new();
        for child in [MODULUS - 2, MODULUS - 1, 1, 2] {
            assert_eq!(children.set(child, None), Ok(Change::Added));
        }
        assert!(matches!(children.statuses, Statuses::Dense(_)));
        assert_eq!(children.set(9, Some(Status::Complete)), Ok(Change::Added));
        assert_eq!(children.set(4, None), Ok(Change::Added));
        let ids: Vec<_> = children.iter().map(|(child, _)| child).collect();
        assert_eq!(ids, [MODULUS - 2, MODULUS - 1, 1, 2, 4, 9]);
        assert!(children.contains(9) && children.contains(1) && !children.contains(3) && !children.contains(0));
        assert_eq!(children.len(), 6);
    }

    #[test]
    fn the_first_terminal_status_stands() {
        let mut children = Children::new();
        assert_eq!(children.set(1, Some(Status::Pending)), Ok(Change::Added));
        assert_eq!(children.set(1, Some(Status::Processing)), Ok(Change::Nothing));
        assert_eq!(children.set(1, Some(Status::Failed)), Ok(Change::Completed));
        assert_eq!(children.set(1, Some(Status::Complete)), Ok(Change::Nothing));
        assert_eq!(children.set(1, None), Ok(Change::Nothing));
        assert_eq!(children.iter().next(), Some((1, Some(Status::Failed))));
    }

    #[test]
    fn a_reserved_id_is_no_child() {
        for child in [0, MODULUS, u32::MAX - 1, u32::MAX] {
            assert!(Children::new().set(child, None).is_err());
        }
    }
}
