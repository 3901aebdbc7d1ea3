//! Pseudonyms of documents and of the paths to their parts, for a boundary that names must not cross (section 10.6).
//!
//! ```text
//!  of a document    the first 16 bytes of HMAC-SHA-256(key, 0x00, name), in hex
//!  of a step        the first 16 bytes of HMAC-SHA-256(key, 0x01, length of the name (4, big-endian), the name,
//!                   then for each step down to this one its length (4) and its name), in hex
//!  of a doc_id      the first 16 bytes of HMAC-SHA-256(key, 0x02, doc_id), as a UUID of version 8
//!  of an owner      the first 16 bytes of HMAC-SHA-256(key, 0x03, field number in OwnershipContext (1), text), in hex
//! ```
//!
//! A name has the same pseudonym while the key stays the same, so that a document that is sent again can be recognised.
//! A step's pseudonym depends on the whole path above it, so equal names in two documents are not recognisable as
//! equal.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use penstock_wire::hex;
use sha2::{Digest as _, Sha256};

use crate::error::{Misuse, Result};
use crate::pipe_doc::{OwnershipContext, PipeDoc, uuid_v8};
use crate::sizes::MIN_PSEUDONYM_KEY;

/// The bytes of a pseudonym.
const LENGTH: usize = 16;
/// The bytes of a SHA-256 block, to which HMAC pads its key.
const BLOCK: usize = 64;

/// A maker of pseudonyms. Its key is never shown.
#[derive(Clone)]
pub struct Pseudonyms(Hmac<Sha256>);

impl Pseudonyms {
    /// Make a maker of pseudonyms from a key of at least 16 bytes.
    pub fn new(key: &[u8]) -> Result<Self> {
        if key.len() < MIN_PSEUDONYM_KEY {
            return Err(Misuse::Pseudonym { length: key.len() }.into());
        }
        let mut block = [0; BLOCK];
        // RFC 2104: a key longer than a block is hashed first.
        let digest = Sha256::digest(key);
        let key = if key.len() > BLOCK { digest.as_slice() } else { key };
        for (byte, secret) in block.iter_mut().zip(key) {
            *byte = *secret;
        }
        Ok(Self(Hmac::new(&block.into())))
    }

    /// Return the pseudonym of a document.
    pub fn document(&self, name: &str) -> String {
        let mut mac = self.0.clone();
        mac.update(&[0]);
        mac.update(name.as_bytes());
        short(mac)
    }

    /// Return a document's message under pseudonyms: its identifier, its owner, the owner's group and the access
    /// scopes.
    pub fn pipe_doc(&self, doc: &PipeDoc) -> PipeDoc {
        let ownership = doc.ownership.as_ref().map(|ownership| OwnershipContext {
            owner_id: ownership.owner_id.as_deref().map(|text| short(self.mac(&[3, 1], text))),
            group_id: ownership.group_id.as_deref().map(|text| short(self.mac(&[3, 2], text))),
            scopes: ownership.scopes.iter().map(|text| short(self.mac(&[3, 3], text))).collect(),
        });
        let mut bits = [0; LENGTH];
        for (bit, byte) in bits.iter_mut().zip(self.mac(&[2], &doc.doc_id).finalize().into_bytes()) {
            *bit = byte;
        }
        PipeDoc { doc_id: uuid_v8(bits), entity_id: doc.entity_id, ownership }
    }

    fn mac(&self, kind: &[u8], text: &str) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(kind);
        mac.update(text.as_bytes());
        mac
    }

    /// Return the pseudonyms of the steps down to a part of a document.
    pub fn path<S: AsRef<str>>(&self, document: &str, path: &[S]) -> Vec<String> {
        let mut mac = self.0.clone();
        mac.update(&[1]);
        let step = |mac: &mut Hmac<Sha256>, name: &str| {
            mac.update(&u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes());
            mac.update(name.as_bytes());
            short(mac.clone())
        };
        step(&mut mac, document);
        path.iter().map(|name| step(&mut mac, name.as_ref())).collect()
    }
}

fn short(mac: Hmac<Sha256>) -> String {
    let bytes = mac.finalize().into_bytes();
    hex::encode(bytes.get(..LENGTH).unwrap_or_default())
}

impl fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pseudonyms")
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use penstock_testkit::vectors::Hex;

    #[derive(Deserialize)]
    struct Vector {
        key: Hex,
        document: String,
        path: Vec<String>,
        pseudonym: String,
        steps: Vec<String>,
    }

    #[test]
    fn the_vectors_hold() {
        let text = include_str!("../../../tests/vectors/pipestream/pseudonyms.json");
        let vectors: Vec<Vector> = serde_json::from_str(text).unwrap();
        assert!(vectors.len() >= 4);
        for vector in vectors {
            let pseudonyms = Pseudonyms::new(&vector.key.0).unwrap();
            assert_eq!(pseudonyms.document(&vector.document), vector.pseudonym);
            assert_eq!(pseudonyms.path(&vector.document, &vector.path), vector.steps);
        }
    }

    #[test]
    fn a_step_is_known_again_only_where_all_above_it_is_the_same() {
        let pseudonyms = Pseudonyms::new(&[7; 16]).unwrap();
        let way = pseudonyms.path("a.zip", &["b", "c"]);
        assert_eq!(pseudonyms.path("a.zip", &["b"]), way[..1]);
        assert_ne!(pseudonyms.path("b.zip", &["b", "c"]), way);
        assert_ne!(pseudonyms.path("a.zip", &["bc"])[0], way[1]);
        assert_ne!(pseudonyms.document("b"), pseudonyms.path("", &["b"])[0]);
    }

    #[test]
    fn the_pseudonyms_of_an_envelope_are_known_again_and_tell_nothing_of_it() {
        let pseudonyms = Pseudonyms::new(&[7; 16]).unwrap();
        let ownership = |owner: &str, group: &str, scope: &str| OwnershipContext {
            owner_id: Some(owner.to_owned()),
            group_id: Some(group.to_owned()),
            scopes: vec![scope.to_owned()],
        };
        let doc = |doc_id: &str, ownership| PipeDoc { doc_id: doc_id.to_owned(), entity_id: 9, ownership };
        let found = pseudonyms.pipe_doc(&doc("d", Some(ownership("same", "same", "same"))));
        assert!(found.check().is_ok() && crate::pipe_doc::is_uuid(&found.doc_id) && found.entity_id == 9);
        let hidden = found.ownership.clone().unwrap();
        let texts = [hidden.owner_id.unwrap(), hidden.group_id.unwrap(), hidden.scopes[0].clone()];
        assert!(texts.iter().all(|text| text.len() == 32 && !text.contains("same")));
        assert!(texts[0] != texts[1] && texts[1] != texts[2] && texts[0] != texts[2], "fields cannot be compared");
        assert_eq!(found, pseudonyms.pipe_doc(&doc("d", Some(ownership("same", "same", "same")))));
        assert_ne!(found.doc_id, pseudonyms.pipe_doc(&doc("e", None)).doc_id);
        assert_eq!(pseudonyms.pipe_doc(&doc("d", None)).ownership, None);
    }

    #[test]
    fn a_short_key_is_refused_and_none_is_shown() {
        assert!(Pseudonyms::new(&[1; 15]).is_err());
        assert_eq!(format!("{:?}", Pseudonyms::new(&[1; 16]).unwrap()), "Pseudonyms");
    }
}
