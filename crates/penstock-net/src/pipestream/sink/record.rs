use std::collections::BTreeMap;

use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Reason, Status};
use serde::Serialize;

use super::super::transport::hex;

/// A line of `entities.jsonl`.
#[derive(Serialize)]
struct Line<'a> {
    scope: u16,
    entity: u32,
    parent: Option<u32>,
    layer: Option<u32>,
    content_type: Option<&'a str>,
    bytes: Option<u64>,
    sha256: Option<String>,
    metadata: &'a BTreeMap<String, String>,
    status: &'static str,
    reason: Option<String>,
    file: Option<&'a str>,
}

#[derive(Serialize)]
struct ClosedLine {
    closed: u64,
}

/// What is known of a payload.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    /// Its name below the sink's folder.
    pub(super) file: Option<String>,
    pub(super) bytes: u64,
    pub(super) sha256: [u8; 32],
}

/// The line of an entity that is complete.
pub(super) fn complete(key: EntityKey, header: &EntityHeader, placed: &Placed) -> Vec<u8> {
    encode(&Line {
        scope: key.scope,
        entity: key.entity,
        parent: (header.parent_id != 0).then_some(header.parent_id),
        layer: Some(header.layer),
        content_type: Some(&header.content_type),
        bytes: Some(placed.bytes),
        sha256: Some(hex(&placed.sha256)),
        metadata: &header.metadata,
        status: Status::Complete.name(),
        reason: None,
        file: placed.file.as_deref(),
    })
}

/// The line of an entity that is not, with what is known of it: `payload` where it was verified.
pub(super) fn failed(
    key: EntityKey,
    parent_id: u32,
    header: Option<&EntityHeader>,
    payload: Option<&Placed>,
    status: Status,
    reason: Option<&Reason>,
) -> Vec<u8> {
    let parent = header.map_or(parent_id, |header| header.parent_id);
    let reason = reason.map_or_else(|| "no reason was given".to_owned(), text);
    encode(&Line {
        scope: key.scope,
        entity: key.entity,
        parent: (parent != 0).then_some(parent),
        layer: header.map(|header| header.layer),
        content_type: header.map(|header| header.content_type.as_str()),
        bytes: payload.map(|payload| payload.bytes),
        sha256: payload.map(|payload| hex(&payload.sha256)),
        metadata: header.map_or(&BTreeMap::new(), |header| &header.metadata),
        status: status.name(),
        reason: Some(reason),
        file: payload.and_then(|payload| payload.file.as_deref()),
    })
}

/// The last line.
pub(super) fn closed(code: ErrorCode) -> Vec<u8> {
    encode(&ClosedLine { closed: code.code() })
}

fn text(reason: &Reason) -> String {
    match (reason.code, reason.message.as_str()) {
        (code, "") => code.name().to_owned(),
        // Nobody's error: a part of it failed.
        (ErrorCode::NoError, message) => message.to_owned(),
        (code, message) => format!("{}: {message}", code.name()),
    }
}

fn encode(line: &impl Serialize) -> Vec<u8> {
    // Every key is a string and a Vec takes everything, so this does not fail.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: EntityKey = EntityKey { scope: 2, scope_use: 0, entity: 7, entity_use: 0 };

    #[test]
    fn a_complete_entity_has_every_field() {
        let metadata = BTreeMap::from([("penstock.path".to_owned(), "[\"a\"]".to_owned())]);
        let header = EntityHeader { parent_id: 3, content_type: "text/plain".into(), metadata, ..Default::default() };
        let placed = Placed { file: Some("ab/2/7".into()), bytes: 5, sha256: [0xAB; 32] };
        let expected = format!(
            "{{\"scope\":2,\"entity\":7,\"parent\":3,\"layer\":0,\"content_type\":\"text/plain\",\"bytes\":5,\
             \"sha256\":\"{}\",\"metadata\":{{\"penstock.path\":\"[\\\"a\\\"]\"}},\"status\":\"COMPLETE\",\
             \"reason\":null,\"file\":\"ab/2/7\"}}\n",
            "ab".repeat(32)
        );
        assert_eq!(String::from_utf8(complete(KEY, &header, &placed)).unwrap(), expected);
    }

    #[test]
    fn an_entity_that_never_had_a_header_has_a_line_too() {
        let reason = Reason { code: ErrorCode::IntegrityError, message: "why".into() };
        let line = String::from_utf8(failed(KEY, 0, None, None, Status::Failed, Some(&reason))).unwrap();
        let expected = "{\"scope\":2,\"entity\":7,\"parent\":null,\"layer\":null,\"content_type\":null,\
             \"bytes\":null,\"sha256\":null,\"metadata\":{},\"status\":\"FAILED\",\
             \"reason\":\"PIPESTREAM_INTEGRITY_ERROR: why\",\"file\":null}\n";
        assert_eq!(line, expected);
        assert_eq!(closed(ErrorCode::NoError), b"{\"closed\":0}\n");
    }
}
