use std::collections::BTreeMap;

use bytes::Bytes;
use penstock_testkit::vectors::Hex;
use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::ChunkInfo;
use crate::error::{EntityError, Error, ErrorCode};

const FIRST: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const SECOND: &str = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";

fn session(number: u8) -> SessionId {
    SessionId::new([number; 16])
}

fn keys(text: &str) -> SessionHeaderKeys {
    HeaderKeys::parse(text).expect("keys").for_session(session(1)).expect("derived")
}

fn header() -> EntityHeader {
    let metadata = [
        ("pipestream.dehydrated", "1"),
        ("pipestream.child-scope", "42"),
        ("penstock.document", "salaries-2026.zip"),
        ("penstock.path", "[\"board.xlsx\"]"),
    ];
    EntityHeader {
        entity_id: 7,
        parent_id: 3,
        scope_id: 2,
        layer: 1,
        content_type: "application/zip".to_owned(),
        payload_length: 5,
        checksum: Bytes::from_static(&[9; 32]),
        metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        chunk_info: None,
        completion_policy: None,
    }
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    secret: String,
    session: String,
    nonce: Hex,
    scope_id: u32,
    entity_id: u32,
    parent_id: u32,
    payload_length: u64,
    checksum: Hex,
    content_type: String,
    metadata: BTreeMap<String, String>,
    sealed: String,
}

#[test]
fn the_vectors_hold() {
    let text = include_str!("../../../../tests/vectors/pipestream/sealed-headers.json");
    let vectors: Vec<Vector> = serde_json::from_str(text).expect("valid JSON");
    assert!(vectors.len() >= 3);
    for vector in vectors {
        let session = SessionId::parse(&vector.session).expect("an ID");
        let keys = HeaderKeys::parse(&vector.secret).expect("a secret").for_session(session).expect("derived");
        let header = EntityHeader {
            scope_id: vector.scope_id,
            entity_id: vector.entity_id,
            parent_id: vector.parent_id,
            payload_length: vector.payload_length,
            checksum: vector.checksum.0.into(),
            content_type: vector.content_type,
            metadata: vector.metadata,
            ..EntityHeader::default()
        };
        let sealed = keys.seal(&header, vector.nonce.0.try_into().expect("12 bytes")).expect("sealed");
        assert_eq!(sealed.metadata.get(SEALED), Some(&vector.sealed), "{}", vector.name);
        assert_eq!(keys.open(&sealed), Some(header), "{}", vector.name);
    }
}

#[test]
fn a_sealed_header_shows_nothing_of_its_metadata_and_its_type() {
    let sealed = keys(FIRST).seal(&header(), [5; 12]).expect("sealed");
    assert_eq!(sealed.content_type, "application/octet-stream");
    assert_eq!(sealed.metadata.keys().collect::<Vec<_>>(), [SEALED]);
    let bytes = sealed.encode();
    for shown in ["salaries", "board", "zip", "penstock", "child-scope"] {
        let found = bytes.windows(shown.len()).any(|window| window == shown.as_bytes());
        assert!(!found, "{shown} can be read");
    }
    let entry = STANDARD.decode(&sealed.metadata[SEALED]).expect("base64");
    assert!(!entry.windows(8).any(|window| window == b"salaries"));
    assert_eq!(keys(FIRST).open(&sealed), Some(header()));
}

#[test]
fn a_sealed_header_opens_for_its_own_session_entity_and_payload_only() {
    let sealed = keys(FIRST).seal(&header(), [5; 12]).expect("sealed");
    let others = [
        EntityHeader { entity_id: 8, ..sealed.clone() },
        EntityHeader { scope_id: 4, ..sealed.clone() },
        EntityHeader { parent_id: 4, ..sealed.clone() },
        EntityHeader { payload_length: 6, ..sealed.clone() },
        EntityHeader { checksum: Bytes::from_static(&[8; 32]), ..sealed.clone() },
        EntityHeader {
            chunk_info: Some(ChunkInfo { total_chunks: 2, chunk_index: 1, chunk_offset: 3 }),
            ..sealed.clone()
        },
    ];
    for other in others {
        assert_eq!(keys(FIRST).open(&other), None, "{other:?}");
    }
    let elsewhere = HeaderKeys::parse(FIRST).expect("keys").for_session(session(2)).expect("derived");
    assert_eq!(elsewhere.open(&sealed), None);
    let mut more = sealed.clone();
    more.metadata.insert("penstock.document".to_owned(), "forged".to_owned());
    assert_eq!(keys(FIRST).open(&more), None, "nothing stands beside a sealed entry");
}

#[test]
fn every_changed_byte_of_an_entry_is_noticed() {
    let sealed = keys(FIRST).seal(&header(), [5; 12]).expect("sealed");
    let entry = STANDARD.decode(&sealed.metadata[SEALED]).expect("base64");
    for at in 0..entry.len() {
        let mut changed = entry.clone();
        changed[at] ^= 1;
        let metadata = [(SEALED.to_owned(), STANDARD.encode(&changed))].into();
        assert_eq!(keys(FIRST).open(&EntityHeader { metadata, ..sealed.clone() }), None, "byte {at}");
    }
    for length in 0..entry.len() {
        let metadata = [(SEALED.to_owned(), STANDARD.encode(&entry[..length]))].into();
        let cut = EntityHeader { metadata, ..sealed.clone() };
        assert_eq!(keys(FIRST).open(&cut), None, "{length} bytes");
        assert!(check_open(&cut.metadata).is_err(), "{length} bytes");
    }
}

#[test]
fn a_secret_can_be_rotated() {
    let old = keys(FIRST).seal(&header(), [5; 12]).expect("sealed");
    let rotated = keys(&format!("{SECOND}\n\n{FIRST}\n"));
    assert_eq!(rotated.open(&old), Some(header()), "earlier secrets open");
    let new = rotated.seal(&header(), [6; 12]).expect("sealed");
    assert_eq!((keys(SECOND).open(&new), keys(FIRST).open(&new)), (Some(header()), None), "the first one seals");
}

#[test]
fn a_text_that_is_no_key_is_refused_and_no_key_is_shown() {
    for (wrong, misuse) in [
        ("", Misuse::HeaderKeyCount { count: 0 }),
        ("secret", Misuse::HeaderKeyLine { line: 1 }),
        (&format!("{FIRST}\nab"), Misuse::HeaderKeyLine { line: 2 }),
    ] {
        assert_eq!(HeaderKeys::parse(wrong).expect_err("no key"), misuse.into());
    }
    assert!(HeaderKeys::parse(&[FIRST; 17].join("\n")).is_err());
    let shown = format!("{:?}", HeaderKeys::parse(FIRST).expect("a key"));
    assert!(!shown.contains("0001020304"), "{shown}");
}

#[test]
fn a_header_that_is_not_opened_fails_its_entity_and_names_its_childrens_scope() {
    let sealed = keys(FIRST).seal(&header(), [5; 12]).expect("sealed");
    let outside = Outside { dehydrated: true, child_scope: Some(42) };
    let kept = refused(&sealed);
    assert_eq!((&kept, Outside::of(&kept)), (&sealed, outside));
    assert_eq!(kept.check(100).map_err(|error| error.code()), Err(ErrorCode::IntegrityError));
    let plain = refused(&header());
    assert_eq!((plain.metadata.len(), Outside::of(&plain)), (1, outside), "nothing in the clear is believed");
    let error = plain.check(100).expect_err("refused");
    assert_eq!(error, Error::from(EntityError::ClearHeader).at(2, 7));
    let malformed = EntityHeader { metadata: [(SEALED.to_owned(), "?".to_owned())].into(), ..header() };
    assert_eq!(malformed.check(100).map_err(|error| error.code()), Err(ErrorCode::EntityInvalid));
    assert_eq!(header().check(100), Ok(()));
}

#[test]
fn a_header_above_the_limit_is_not_sealed() {
    let metadata = [("m".to_owned(), "m".repeat(900_000))].into();
    let error = keys(FIRST).seal(&EntityHeader { metadata, ..header() }, [5; 12]).expect_err("too long");
    assert_eq!(error.code(), ErrorCode::EntityTooLarge);
}

proptest! {
    #[test]
    fn what_is_sealed_opens(
        content_type in ".{0,40}",
        metadata in prop::collection::btree_map(".{0,20}", ".{0,200}", 0..6),
        entity_id: u32,
        nonce: [u8; 12],
    ) {
        let header = EntityHeader { content_type, metadata, entity_id, ..header() };
        let sealed = keys(FIRST).seal(&header, nonce).expect("sealed");
        prop_assert_eq!(keys(FIRST).open(&sealed), Some(header));
    }

    #[test]
    fn any_entry_is_taken_without_harm(entry in ".{0,120}") {
        let metadata = [(SEALED.to_owned(), entry)].into();
        let header = EntityHeader { metadata, ..header() };
        prop_assert_eq!(keys(FIRST).open(&header), None);
        prop_assert!(check_open(&header.metadata).is_err());
        Outside::of(&header);
    }
}
