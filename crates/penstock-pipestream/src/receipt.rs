//! The digests with which a receipt proves the content, in addition to the protocol's Merkle root,
//! which covers only IDs and statuses.
//!
//! ```text
//!  leaf = SHA-256(0x00 ‖ for each path segment: its length, 4 bytes big-endian ‖ its UTF-8
//!                      ‖ the part's SHA-256, or 32 zero bytes where the bytes were never obtained ‖ Stat, 1 byte)
//!  node = SHA-256(0x01 ‖ left ‖ right)       an odd last node goes up unhashed
//!  root of no parts = SHA-256 of nothing
//! ```
//!
//! The leaves are in the receipt's order, depth first in the order of the containers. The JSON around these digests,
//! and the comparison with a sink's files, are implemented elsewhere.

use penstock_wire::hex;
use sha2::{Digest as _, Sha256};

use crate::error::{Misuse, Result};
use crate::merkle::{Digest, Peaks};
use crate::status::Status;

const LEAF: [u8; 1] = [0x00];
const NODE: [u8; 1] = [0x01];
/// The digest of a part whose bytes were never read.
const NO_BYTES: Digest = [0; 32];
/// The hex digits of a document's key.
const KEY_DIGITS: usize = 32;

/// The streaming content root: parts are added in the receipt's order, and only one node for each level is kept.
#[derive(Debug, Clone, Default)]
pub struct ContentTree {
    peaks: Peaks,
}

impl ContentTree {
    /// Make a tree without parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Add the next part: its path, the digest of its bytes if they were read, and its status. A segment whose length
    /// does not fit into 4 bytes is rejected.
    pub fn push<P>(&mut self, path: P, sha256: Option<&[u8; 32]>, status: Status) -> Result<()>
    where
        P: IntoIterator<Item: AsRef<str>>,
    {
        let mut leaf = Sha256::new_with_prefix(LEAF);
        for segment in path {
            let segment = segment.as_ref();
            let length = u32::try_from(segment.len()).map_err(|_| Misuse::PathSegment)?;
            leaf.update(length.to_be_bytes());
            leaf.update(segment);
        }
        leaf.update(sha256.unwrap_or(&NO_BYTES));
        leaf.update([status.code()]);
        self.peaks.push(leaf.finalize().into(), node);
        Ok(())
    }

    /// Return how many parts were added.
    pub fn len(&self) -> u64 {
        self.peaks.len
    }

    /// Return whether no part was added.
    pub fn is_empty(&self) -> bool {
        self.peaks.len == 0
    }

    /// Return the root over all parts added so far; more may be added afterwards.
    pub fn root(&self) -> [u8; 32] {
        self.peaks.root(node)
    }
}

/// Return the content root over parts in the receipt's order.
pub fn content_root<P>(parts: impl IntoIterator<Item = (P, Option<[u8; 32]>, Status)>) -> Result<[u8; 32]>
where
    P: IntoIterator<Item: AsRef<str>>,
{
    let mut tree = ContentTree::new();
    for (path, sha256, status) in parts {
        tree.push(path, sha256.as_ref(), status)?;
    }
    Ok(tree.root())
}

/// Return a document's key, which names its receipt: the first 32 hex digits of SHA-256(path, one zero byte, the
/// document's SHA-256 in hex).
pub fn document_key(path: &str, sha256: &[u8; 32]) -> String {
    let digest = Sha256::new_with_prefix(path).chain_update([0]).chain_update(hex::encode(sha256)).finalize();
    let mut key = hex::encode(digest);
    key.truncate(KEY_DIGITS);
    key
}

/// Return the label of a part in a session that outlives its process: the document's key, the
/// part's position in the receipt, which distinguishes parts with the same path, and 32 hex digits
/// of its path. `time` is how often the session has had the same document before. Labels are
/// shorter than 100 bytes, whatever the path.
pub fn part_label<P>(key: &str, time: u32, place: usize, path: P) -> String
where
    P: IntoIterator<Item: AsRef<str>>,
{
    let mut way = Sha256::new();
    for segment in path {
        let segment = segment.as_ref();
        way.update((segment.len() as u64).to_be_bytes());
        way.update(segment);
    }
    let mut way = hex::encode(way.finalize());
    way.truncate(KEY_DIGITS);
    format!("{key}.{time}/{place}/{way}")
}

fn node(left: &Digest, right: &Digest) -> Digest {
    Sha256::new_with_prefix(NODE).chain_update(left).chain_update(right).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Vectors {
        content_root: Vec<RootVector>,
        document_key: Vec<KeyVector>,
    }

    #[derive(serde::Deserialize)]
    struct RootVector {
        name: String,
        parts: Vec<(Vec<String>, Option<String>, String)>,
        content_root: String,
    }

    #[derive(serde::Deserialize)]
    struct KeyVector {
        document: String,
        sha256: String,
        key: String,
    }

    fn vectors() -> Vectors {
        let text = include_str!("../../../tests/vectors/pipestream/receipt.json");
        serde_json::from_str(text).expect("valid JSON")
    }

    fn digest(text: &str) -> [u8; 32] {
        hex::decode(text).expect("64 hex digits")
    }

    #[test]
    fn every_content_root_holds() {
        let vectors = vectors().content_root;
        assert!(vectors.len() >= 8, "only {} vectors", vectors.len());
        for vector in vectors {
            let parts = vector.parts.iter().map(|(path, sha256, name)| {
                let status = Status::ALL.into_iter().find(|status| status.name() == name).expect("a status");
                (path.as_slice(), sha256.as_deref().map(digest), status)
            });
            let root = content_root(parts).expect("short names");
            assert_eq!(hex::encode(root), vector.content_root, "{}", vector.name);
        }
    }

    #[test]
    fn every_document_key_holds() {
        let vectors = vectors().document_key;
        assert!(vectors.len() >= 3, "only {} vectors", vectors.len());
        for vector in vectors {
            assert_eq!(document_key(&vector.document, &digest(&vector.sha256)), vector.key, "{}", vector.document);
        }
    }

    #[test]
    fn a_label_is_that_of_one_part_alone_and_short() {
        let long = "x".repeat(100_000);
        let labels = [
            part_label("k", 0, 0, [""; 0]),
            part_label("k", 1, 0, [""; 0]),
            part_label("k", 0, 1, ["a", "b"]),
            part_label("k", 0, 2, ["a", "b"]),
            part_label("k", 0, 1, ["ab"]),
            part_label("l", 0, 1, ["ab"]),
            part_label(&document_key("d", &[7; 32]), u32::MAX, 1_000_000, [long.as_str()]),
        ];
        assert_eq!(labels.iter().collect::<std::collections::BTreeSet<_>>().len(), labels.len());
        assert!(labels.iter().all(|label| label.len() < 100));
        assert_eq!(labels[2], part_label("k", 0, 1, ["a", "b"]));
    }

    type Part = (&'static [&'static str], Option<[u8; 32]>, Status);

    #[test]
    fn a_change_to_path_digest_or_status_or_order_changes_the_root() {
        let part = |path: &'static [&'static str], byte: u8, status| (path, Some([byte; 32]), status);
        let root = |parts: [Part; 2]| content_root(parts).expect("short");
        let base = root([part(&["a", "b"], 1, Status::Complete), part(&["c"], 2, Status::Complete)]);
        for other in [
            root([part(&["ab"], 1, Status::Complete), part(&["c"], 2, Status::Complete)]),
            root([part(&["a", "b"], 3, Status::Complete), part(&["c"], 2, Status::Complete)]),
            root([part(&["a", "b"], 1, Status::Failed), part(&["c"], 2, Status::Complete)]),
            root([part(&["c"], 2, Status::Complete), part(&["a", "b"], 1, Status::Complete)]),
        ] {
            assert_ne!(base, other);
        }
    }
}
