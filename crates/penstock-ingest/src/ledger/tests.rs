use std::io::Cursor;

use penstock_pipestream::{OwnershipContext, content_root};
use penstock_pipestream_net::{EntityKey, ErrorCode, ScopeDigest};

use super::*;
use crate::outcome::DocumentOutcome;
use crate::privacy::PrivacyOptions;
use crate::testing::{SESSION, announced_zip, failed, key, ledger, part, receipt, resolution, sha256, ticket};

const DOC_ID: &str = "00000000-0000-8000-8000-000000000001";

/// Record all three entities of [`announced_zip`] as COMPLETE.
fn complete(ledger: &mut Ledger) {
    for index in 0..3 {
        ledger.settle(index, resolution(Status::Complete));
    }
}

#[test]
fn a_receipt_has_these_bytes() {
    let mut ledger = announced_zip().with_identity(
        Identity::new(
            Some(DOC_ID.to_owned()),
            Some(OwnershipContext { owner_id: Some("me".to_owned()), group_id: None, scopes: vec!["read".to_owned()] }),
        )
        .unwrap(),
        Some("sink.example".to_owned()),
    );
    complete(&mut ledger);
    ledger.records[0].digest =
        Some(ScopeDigest { scope_id: 2, processed: 2, succeeded: 2, failed: 0, deferred: 0, merkle_root: [0xAB; 32] });
    let [x, y] = ["x.txt", "y.txt"].map(|name| sha256(name.as_bytes()));
    let parts = [("x.txt", x), ("y.txt", y)].map(|(name, digest)| ([name], Some(digest), Status::Complete));
    let root = hex::encode(content_root(parts).unwrap());
    let (zip, x, y) = (hex::encode(sha256(b"the zip")), hex::encode(x), hex::encode(y));
    let (session, merkle) = (SESSION, "ab".repeat(32));
    let head = format!(
        r#"{{"version":1,"document":"in/a.zip","sha256":"{zip}","bytes":7,"status":"COMPLETE","reason":null,"content_root":"{root}","#
    );
    let place = format!(r#""session":"{session}","root":[0,1],"file":null,"#);
    let identity = format!(
        r#""doc_id":"{DOC_ID}","owner":{{"owner_id":"me","group_id":null,"scopes":["read"]}},"uri":"pipestream://sink.example/{session}/0/1","#
    );
    let scope = format!(
        r#"{{"session":"{session}","scope":2,"parent":[0,1],"depth":1,"merkle_root":"{merkle}","processed":2,"succeeded":2,"failed":0,"deferred":0}}"#
    );
    let part = |name: &str, digest: &str, entity: u32| {
        format!(
            r#"{{"path":["{name}"],"type":"text/plain","sha256":"{digest}","bytes":5,"status":"COMPLETE","reason":null,"attempts":1,"session":"{session}","scope":2,"entity":{entity},"file":"{session}/2/{entity}"}}"#
        )
    };
    let (x, y) = (part("x.txt", &x, 1), part("y.txt", &y, 2));
    let expected = format!(r#"{head}{place}{identity}"scopes":[{scope}],"parts":[{x},{y}]}}"#);
    let outcome = DocumentOutcome::new(ledger).unwrap();
    assert_eq!(outcome.receipt(true).unwrap(), expected);
    assert_eq!(outcome.key(), document_key("in/a.zip", &sha256(b"the zip")));
    assert_eq!((outcome.content_root(), outcome.counts()), (root.as_str(), (2, 2)));
    let short: serde_json::Value = serde_json::from_str(&outcome.receipt(false).unwrap()).unwrap();
    assert_eq!((short["parts"].as_array(), short["scopes"].as_array()), (Some(&vec![]), Some(&vec![])));
    assert_eq!((&short["status"], &short["content_root"]), (&"COMPLETE".into(), &root.into()));
}

#[test]
fn a_container_whose_parts_are_not_complete_says_how_many() {
    let mut ledger = announced_zip();
    ledger.settle(0, resolution(Status::Failed));
    ledger.settle(1, resolution(Status::Complete));
    ledger.settle(2, failed(ErrorCode::IntegrityError, "the checksum differs"));
    let receipt = receipt(ledger);
    assert_eq!((&receipt["status"], &receipt["reason"]), (&"FAILED".into(), &"1 of 2 parts are not COMPLETE".into()));
    let part = &receipt["parts"][1];
    assert_eq!((&part["status"], &part["reason"]), (&"FAILED".into(), &"the checksum differs".into()));
    assert_eq!((part["file"].as_str(), part["entity"].as_u64()), (None, Some(2)));
}

#[test]
fn a_part_with_bytes_that_fails_for_its_parts_alone_is_in_the_sink() {
    let mut own = ledger("a.html");
    own.add(&part(&[], "text/html", b"<img>"), None, false);
    own.announce(0, &ticket(0, 1, Some(2)));
    own.add(&part(&["image"], "image/png", b"png"), Some(0), false);
    own.announce(1, &ticket(2, 1, None));
    own.settle(0, resolution(Status::Failed));
    own.settle(1, resolution(Status::Abandoned));
    let receipt = receipt(own);
    assert_eq!(receipt["file"], format!("{SESSION}/0/1"));
    assert_eq!((receipt["parts"][0]["file"].as_str(), &receipt["parts"][0]["status"]), (None, &"ABANDONED".into()));
}

#[test]
fn every_part_that_is_not_complete_has_a_reason() {
    let unsaid = [
        (resolution(Status::Deferred), "set aside by the receiver"),
        (resolution(Status::Skipped), "left out by the receiver"),
        (resolution(Status::Failed), "no reason was given"),
        (failed(ErrorCode::EntityTooLarge, ""), ErrorCode::EntityTooLarge.name()),
        (failed(ErrorCode::EntityTooLarge, "too large"), "too large"),
    ];
    for (resolution, reason) in unsaid {
        let mut ledger = ledger("a");
        ledger.add(&part(&[], "x/y", b"a"), None, false);
        ledger.announce(0, &ticket(0, 1, None));
        ledger.settle(0, resolution);
        assert_eq!(receipt(ledger)["reason"], reason);
    }
}

#[test]
fn the_first_reason_stands_and_a_complete_part_has_none() {
    let mut ledger = announced_zip();
    ledger.set_reason(1, "the first");
    ledger.settle(1, failed(ErrorCode::InternalError, "the second"));
    assert_eq!(ledger.records[1].reason.as_deref(), Some("the first"));
    ledger.set_reason(2, "a worry");
    ledger.settle(2, resolution(Status::Complete));
    assert_eq!((ledger.records[2].status, ledger.records[2].reason.as_deref()), (Status::Complete, None));
}

#[test]
fn a_part_that_was_never_announced_was_sent_no_time_and_is_nowhere() {
    let mut ledger = ledger("a");
    ledger.add(&part(&[], "x/y", b"a"), None, false);
    ledger.fail_unsent(0, "the session is closed");
    let receipt = receipt(ledger);
    assert_eq!((&receipt["status"], &receipt["reason"]), (&"FAILED".into(), &"the session is closed".into()));
    assert_eq!((receipt["root"].as_array(), receipt["file"].as_str()), (None, None));
}

#[test]
fn the_receipt_has_the_attempts_and_the_claim_check_of_a_part() {
    let mut ledger = announced_zip();
    ledger.settle(0, resolution(Status::Complete));
    ledger.settle(1, Resolution { attempts: 3, ..resolution(Status::Complete) });
    ledger.settle(2, Resolution { claim: Some(0xBEEF), ..resolution(Status::Deferred) });
    let receipt = receipt(ledger);
    assert_eq!(receipt["parts"][0]["attempts"], 3);
    assert!(receipt["parts"][0].get("claim").is_none());
    assert_eq!(receipt["parts"][1]["claim"], "000000000000beef");
}

#[test]
fn a_part_that_stays_is_where_the_earlier_session_has_it_until_it_is_renewed() {
    let place = || PreviousPart {
        session: "f".repeat(32),
        ids: (7, 9),
        file: Some("there".to_owned()),
        attempts: 2,
        claim: None,
        reason: Some("later".to_owned()),
    };
    let mut ledger = announced_zip();
    ledger.keep(1, place());
    ledger.keep_deferred(2, place());
    assert_eq!(ledger.set_aside_before(0), (2, 1));
    let (x, y) = (&ledger.records[1], &ledger.records[2]);
    assert_eq!((x.status, x.reason.as_deref()), (Status::Complete, None));
    assert_eq!((x.ids(), x.file(SESSION), x.attempts()), (Some((7, 9)), Some("there".to_owned()), 2));
    assert_eq!(x.session(SESSION), "f".repeat(32));
    assert_eq!((y.status, y.reason.as_deref()), (Status::Deferred, Some("later")));
    ledger.renew(1);
    let x = &ledger.records[1];
    assert_eq!((x.status, x.ids(), x.session(SESSION)), (Status::Pending, Some((2, 1)), SESSION));
    assert_eq!(ledger.set_aside_before(0), (2, 1));
}

#[test]
fn ids_that_are_used_again_have_names_of_their_own_in_the_sink() {
    use crate::record::file_of;
    assert_eq!(file_of(key(2, 3), "s"), "s/2/3");
    let again = EntityKey { scope_use: 1, entity_use: 4, ..key(2, 3) };
    assert_eq!(file_of(again, "s"), "s/2.1/3.4");
}

#[test]
fn a_header_says_where_a_part_lies_and_of_a_container_what_its_bytes_were() {
    let ledger = announced_zip();
    let expected = [("penstock.document", "in/a.zip"), ("penstock.path", r#"["x.txt"]"#)];
    assert_eq!(ledger.metadata(1, false), texts(&expected));
    let digest = hex::encode(sha256(b"the zip"));
    let expected = [
        ("penstock.document", "in/a.zip"),
        ("penstock.path", "[]"),
        ("penstock.sha256", &digest),
        ("pipestream.original-length", "7"),
    ];
    assert_eq!(ledger.metadata(0, true), texts(&expected));
}

#[test]
fn under_pseudonyms_a_header_has_no_name() {
    let options = PrivacyOptions { pseudonym_key: Some(vec![7; 16].into()), ..PrivacyOptions::default() };
    let ledger = announced_zip().with_privacy(Privacy::new(options).unwrap());
    let metadata = ledger.metadata(1, false);
    assert!(metadata.values().all(|value| !value.contains("a.zip") && !value.contains("x.txt")), "{metadata:?}");
    assert_eq!(ledger.path(1), ["x.txt"], "the account keeps the true names");
}

#[test]
fn parts_of_a_selection_have_the_places_that_they_have_in_the_document() {
    let mut ledger = ledger("a.tar").with_selection([1; 32], [4, 5, 9].into_iter());
    ledger.add(&part(&["inner.zip"], "application/zip", b"zip"), None, true);
    for name in ["p", "q"] {
        ledger.add(&part(&["inner.zip", name], "x/y", b""), Some(0), false);
    }
    ledger.add(&part(&["inner.zip", "q", "r"], "x/y", b""), Some(2), false);
    let places: Vec<u64> = ledger.records.iter().map(|record| record.place).collect();
    assert_eq!(places, [0, 4, 5, 5]);
    assert_eq!(ledger.path(3), ["inner.zip", "q", "r"]);
    assert_eq!(ledger.key(), document_key("a.tar", &[1; 32]), "the key is that of the document");
}

#[test]
fn texts_and_contents_come_back_and_large_contents_are_not_kept() {
    let mut ledger = ledger("a");
    let (small, large) = (part(&[], "x/y", b"small"), part(&["l"], "x/y", &[7; 101]));
    ledger.add(&small, None, false);
    ledger.add(&large, Some(0), false);
    let mut payload: Payload = Box::new(Cursor::new(b"small"));
    ledger.keep_text(0, &small, "text").unwrap();
    ledger.keep_content(0, &small, &mut payload).unwrap();
    ledger.keep_content(1, &large, &mut (Box::new(Cursor::new(vec![7_u8; 101])) as Payload)).unwrap();
    ledger.keep_text(1, &large, "more").unwrap();
    assert_eq!(
        (ledger.text(0).unwrap().as_deref(), ledger.content(0).unwrap().as_deref()),
        (Some("text"), Some(&b"small"[..]))
    );
    assert_eq!((ledger.text(1).unwrap().as_deref(), ledger.content(1).unwrap()), (Some("more"), None));
    assert_eq!((ledger.row_bytes(0), ledger.row_bytes(1), ledger.row_bytes(2)), (9, 4, 0));
    let mut again = Vec::new();
    payload.read_to_end(&mut again).unwrap();
    assert_eq!(again, b"small", "the payload is left to be read from its start");
}

#[test]
fn children_elsewhere_count_for_the_policy() {
    let policy = DocumentPolicy::new(penstock_pipestream::messages::CompletionPolicy::default(), "strict".to_owned());
    let mut ledger =
        Ledger::new("a".to_owned(), SESSION.into(), RowContent { text: false, max_content: 0 }, policy.ok());
    ledger.add(&part(&[], "application/zip", b"zip"), None, true);
    ledger.announce(0, &ticket(0, 1, Some(2)));
    ledger.count_elsewhere(10, 3);
    ledger.settle(0, resolution(Status::Complete));
    assert_eq!(ledger.counts(), (10, 3));
    let receipt = receipt(ledger);
    assert_eq!((&receipt["policy"], &receipt["outcome"]), (&"strict".into(), &"PARTIAL".into()));
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}
