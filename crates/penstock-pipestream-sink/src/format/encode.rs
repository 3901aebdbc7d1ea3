//! The lines of a list, as sinks write them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use penstock_io::hex;
use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, OwnershipContext, Reason, Status};
use penstock_pipestream_net::port::{PROOF, in_words};
use serde::{Deserialize, Serialize, Serializer};

use crate::format::OWNER;
use crate::references::ReferenceFields;

/// A line of `entities.jsonl`.
#[derive(Serialize)]
struct Line<'a> {
    scope: u16,
    /// The number of earlier uses of the scope's ID, if any.
    #[serde(skip_serializing_if = "is_zero")]
    scope_use: u32,
    entity: u32,
    /// The number of earlier uses of the entity's ID, if any.
    #[serde(skip_serializing_if = "is_zero")]
    entity_use: u32,
    parent: Option<u32>,
    layer: Option<u32>,
    content_type: Option<&'a str>,
    bytes: Option<u64>,
    sha256: Option<String>,
    #[serde(serialize_with = "visible")]
    metadata: &'a BTreeMap<String, String>,
    status: &'static str,
    reason: Option<String>,
    file: Option<&'a str>,
    /// The number of attempts, if more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    /// The claim check under which the entity was deferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<ReferenceField<'a>>,
    /// The hash that identifies the owner of the session's transaction to a restarted server.
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_owner: Option<&'a str>,
    /// The ID of the entity's document, if its header names one (section 7.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    doc_id: Option<String>,
    /// The document's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<OwnerField>,
}

/// Write the metadata that readers see: without the keys that identify a transaction's owner.
fn visible<S: Serializer>(metadata: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(metadata.iter().filter(|(key, _)| !matches!(key.as_str(), OWNER | PROOF)))
}

fn transaction_owner(header: &EntityHeader) -> Option<&str> {
    header.metadata.get(OWNER).map(String::as_str)
}

/// The owner of an entity's document.
#[derive(Serialize)]
struct OwnerField {
    owner_id: Option<String>,
    group_id: Option<String>,
    scopes: Vec<String>,
}

impl From<OwnershipContext> for OwnerField {
    fn from(ownership: OwnershipContext) -> Self {
        Self { owner_id: ownership.owner_id, group_id: ownership.group_id, scopes: ownership.scopes }
    }
}

/// Return the ID and the owner of an entity's document. An entity whose header names them wrongly
/// has failed.
fn document(header: Option<&EntityHeader>) -> (Option<String>, Option<OwnerField>) {
    let doc = header.and_then(|header| header.document().ok().flatten());
    doc.map_or((None, None), |doc| (Some(doc.doc_id), doc.ownership.map(Into::into)))
}

/// The object that an entity refers to, and the file of its message, if that is not the entity's
/// file.
#[derive(Serialize)]
struct ReferenceField<'a> {
    #[serde(flatten)]
    referred: &'a ReferenceFields,
    message: Option<String>,
}

/// The last line of a list.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClosedLine {
    pub(crate) closed: u64,
}

/// Properties of a stored payload.
#[derive(Debug, Clone)]
pub(crate) struct PayloadProperties {
    /// The payload's name, relative to the sink; `None` if it has no file.
    pub(crate) file: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) sha256: [u8; 32],
    /// The object that the payload refers to, if any.
    pub(crate) reference: Option<Arc<ReferenceFields>>,
}

impl PayloadProperties {
    /// Return the payload's files, relative to the sink: its bytes, and a message next to them, if
    /// any.
    pub(crate) fn files(&self) -> impl Iterator<Item = String> + use<> {
        let message = self.reference().and_then(|reference| reference.message);
        self.file.clone().into_iter().chain(message)
    }

    /// Return an error unless the payload's file, if it has one, exists in the folder `sink` and
    /// has the expected length.
    pub(crate) fn check(&self, sink: &Path) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let found = fs::symlink_metadata(sink.join(file)).map_err(|error| {
            let message = format!("{file}: {error}");
            io::Error::new(error.kind(), message)
        })?;
        if found.is_file() && found.len() == self.bytes {
            return Ok(());
        }
        let message = format!("{file} has {} bytes, its line says {}", found.len(), self.bytes);
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }

    fn reference(&self) -> Option<ReferenceField<'_>> {
        let referred = self.reference.as_deref()?;
        let message = self.file.as_deref().and_then(|file| referred.message_file(file)).map(|(name, _)| name);
        Some(ReferenceField { referred, message })
    }

    /// Return the content type of the payload's bytes.
    fn content_type<'a>(&'a self, header: &'a EntityHeader) -> &'a str {
        self.reference.as_ref().and_then(|referred| referred.content_type()).unwrap_or(&header.content_type)
    }
}

/// The outcome of an entity that is not complete.
#[derive(Debug)]
pub(crate) struct End<'a> {
    pub(crate) parent_id: u32,
    pub(crate) status: Status,
    pub(crate) reason: Option<&'a Reason>,
    /// The number of attempts that failed before the last one.
    pub(crate) failures: u32,
    pub(crate) claim: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn attempts(failures: u32) -> Option<u32> {
    (failures > 0).then(|| failures.saturating_add(1))
}

/// Return the line of an entity that is complete after `failures` failed attempts.
pub(crate) fn complete(key: EntityKey, failures: u32, header: &EntityHeader, placed: &PayloadProperties) -> Vec<u8> {
    let (doc_id, owner) = document(Some(header));
    encode(&Line {
        scope: key.scope,
        scope_use: key.scope_use,
        entity: key.entity,
        entity_use: key.entity_use,
        parent: (header.parent_id != 0).then_some(header.parent_id),
        layer: Some(header.layer),
        content_type: Some(placed.content_type(header)),
        bytes: Some(placed.bytes),
        sha256: Some(hex::encode(placed.sha256)),
        metadata: &header.metadata,
        status: Status::Complete.name(),
        reason: None,
        file: placed.file.as_deref(),
        reference: placed.reference(),
        attempts: attempts(failures),
        claim: None,
        transaction_owner: transaction_owner(header),
        doc_id,
        owner,
    })
}

/// Return the line of an entity that is not complete, with its known properties: `payload` only if
/// it was verified.
pub(crate) fn failed(
    key: EntityKey,
    end: &End<'_>,
    header: Option<&EntityHeader>,
    payload: Option<&PayloadProperties>,
) -> Vec<u8> {
    let parent = header.map_or(end.parent_id, |header| header.parent_id);
    let (doc_id, owner) = document(header);
    let reason = end.reason.map_or_else(|| "no reason was given".to_owned(), in_words);
    encode(&Line {
        scope: key.scope,
        scope_use: key.scope_use,
        entity: key.entity,
        entity_use: key.entity_use,
        parent: (parent != 0).then_some(parent),
        layer: header.map(|header| header.layer),
        content_type: header.map(|header| header.content_type.as_str()),
        bytes: payload.map(|payload| payload.bytes),
        sha256: payload.map(|payload| hex::encode(payload.sha256)),
        metadata: header.map_or(&BTreeMap::new(), |header| &header.metadata),
        status: end.status.name(),
        reason: Some(reason),
        file: payload.and_then(|payload| payload.file.as_deref()),
        reference: payload.and_then(PayloadProperties::reference),
        attempts: attempts(end.failures),
        claim: end.claim.map(|claim| format!("{claim:016x}")),
        transaction_owner: header.and_then(transaction_owner),
        doc_id,
        owner,
    })
}

/// Return the last line of a list.
pub(crate) fn closed(code: ErrorCode) -> Vec<u8> {
    encode(&ClosedLine { closed: code.code() })
}

fn encode(line: &impl Serialize) -> Vec<u8> {
    // Every key is a string and writing to a Vec does not fail, so this does not fail.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Return the code with which a list that ends with `tail` is closed; `None` if it is not closed.
pub(crate) fn code_of(tail: &[u8]) -> Option<u64> {
    let last = tail.strip_suffix(b"\n")?.rsplit(|byte| *byte == b'\n').next()?;
    serde_json::from_slice::<ClosedLine>(last).ok().map(|line| line.closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: EntityKey = EntityKey { scope: 2, scope_use: 0, entity: 7, entity_use: 0 };

    #[test]
    fn a_complete_entity_has_every_field() {
        let metadata = BTreeMap::from([("penstock.path".to_owned(), "[\"a\"]".to_owned())]);
        let header = EntityHeader { parent_id: 3, content_type: "text/plain".into(), metadata, ..Default::default() };
        let placed = PayloadProperties { file: Some("ab/2/7".into()), bytes: 5, sha256: [0xAB; 32], reference: None };
        let expected = format!(
            "{{\"scope\":2,\"entity\":7,\"parent\":3,\"layer\":0,\"content_type\":\"text/plain\",\"bytes\":5,\
             \"sha256\":\"{}\",\"metadata\":{{\"penstock.path\":\"[\\\"a\\\"]\"}},\"status\":\"COMPLETE\",\
             \"reason\":null,\"file\":\"ab/2/7\"}}\n",
            "ab".repeat(32)
        );
        assert_eq!(String::from_utf8(complete(KEY, 0, &header, &placed)).unwrap(), expected);
    }

    #[test]
    fn metadata_does_not_show_what_the_owner_of_a_transaction_is_known_by() {
        let mut header = EntityHeader::default();
        for (key, value) in [(OWNER, "0a"), (PROOF, "0b"), ("penstock.transaction", "k")] {
            header.metadata.insert(key.to_owned(), value.to_owned());
        }
        let placed = PayloadProperties { file: None, bytes: 0, sha256: [0; 32], reference: None };
        let line = String::from_utf8(complete(KEY, 0, &header, &placed)).unwrap();
        assert!(line.contains("\"metadata\":{\"penstock.transaction\":\"k\"}"), "{line}");
        assert!(line.ends_with("\"transaction_owner\":\"0a\"}\n") && !line.contains("0b"), "{line}");
    }

    #[test]
    fn an_entity_that_never_had_a_header_has_a_line_too() {
        let reason = Reason { code: ErrorCode::IntegrityError, message: "why".into() };
        let end = End { parent_id: 0, status: Status::Failed, reason: Some(&reason), failures: 0, claim: None };
        let line = String::from_utf8(failed(KEY, &end, None, None)).unwrap();
        let expected = "{\"scope\":2,\"entity\":7,\"parent\":null,\"layer\":null,\"content_type\":null,\
             \"bytes\":null,\"sha256\":null,\"metadata\":{},\"status\":\"FAILED\",\
             \"reason\":\"PIPESTREAM_INTEGRITY_ERROR: why\",\"file\":null}\n";
        assert_eq!(line, expected);
        assert_eq!(closed(ErrorCode::NoError), b"{\"closed\":0}\n");
    }
}
