//! Labels for the entities of documents in a session whose state is on disk. By them, a process
//! that sends the same documents again finds the entities that an earlier process has announced.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use penstock_io::sync::lock;
use penstock_pipestream::part_label;

use crate::ledger::Ledger;

/// The number of times that the session has sent each document. A document that is sent twice
/// counts as two documents, numbered in the order in which they are sent.
#[derive(Debug, Default)]
pub(crate) struct Labels(Mutex<HashMap<String, u32>>);

/// The labels of one document.
#[derive(Debug)]
pub(crate) struct DocumentLabels {
    key: String,
    occurrence: u32,
}

impl Labels {
    /// Return the labels of a document. Its ledger must have the first record already.
    pub(crate) fn document(&self, ledger: &Ledger) -> DocumentLabels {
        let key = ledger.key();
        let mut occurrences = lock(&self.0);
        let next = occurrences.entry(key.clone()).or_default();
        let occurrence = *next;
        *next = next.saturating_add(1);
        DocumentLabels { key, occurrence }
    }
}

impl DocumentLabels {
    /// Return the label of a part, or of the document itself.
    pub(crate) fn part(&self, ledger: &Ledger, index: usize) -> Bytes {
        part_label(&self.key, self.occurrence, index, ledger.path(index)).into()
    }

    /// Return the label of a padding entity of a container, counted from 0.
    pub(crate) fn padding(&self, ledger: &Ledger, container: usize, number: u64) -> Bytes {
        let container = part_label(&self.key, self.occurrence, container, ledger.path(container));
        format!("{container}+{number}").into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::testing::announced_zip;

    #[test]
    fn each_entity_of_each_document_has_a_label_of_its_own_that_another_process_makes_again() {
        let ledger = announced_zip();
        let all = |labels: &Labels| {
            let (first, second) = (labels.document(&ledger), labels.document(&ledger));
            let entities = |labels: &DocumentLabels| {
                let parts = (0..3).map(|index| labels.part(&ledger, index)).collect::<Vec<_>>();
                let padding = (0..2).map(|number| labels.padding(&ledger, 0, number));
                parts.into_iter().chain(padding).collect::<Vec<_>>()
            };
            [entities(&first), entities(&second)].concat()
        };
        let labels = all(&Labels::default());
        assert_eq!(labels.iter().collect::<HashSet<_>>().len(), 10, "the same document twice is two documents");
        assert_eq!(labels, all(&Labels::default()));
    }
}
