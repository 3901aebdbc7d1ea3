//! Documents through a real server, and afterwards the contents of its sink and the receipt.

use std::fs;
use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering};

use penstock_io::hex;
use penstock_io::runtime::Interrupted;
use penstock_pipestream::messages::CompletionPolicy;
use penstock_pipestream_net::channel;
use serde_json::Value;

use super::*;
use crate::privacy::PrivacyOptions;
use crate::testing::{Memory, NEVER, Pair, Signal, block, document, document_options, sha256, zip};
use crate::{ChildGroup, DocumentOutcome, Error, divide};

fn open(bytes: &[u8]) -> impl FnOnce() -> Payload + use<> {
    let bytes = bytes.to_vec();
    || Box::new(Cursor::new(bytes))
}

/// Send a document and wait for its receipt.
fn receipt(sender: &DocumentSender, document: Document, bytes: &[u8]) -> Value {
    let sent = sender.send(document, open(bytes), None, Memory, &NEVER).unwrap();
    whole_receipt(&sent)
}

fn whole_receipt(sent: &SentDocument) -> Value {
    let outcome = sent.wait(None, &NEVER).unwrap().unwrap();
    serde_json::from_str(&outcome.receipt(true).unwrap()).unwrap()
}

fn sample() -> Vec<u8> {
    zip(&[("a.txt", b"text a"), ("b.zip", &zip(&[("c.txt", b"text c")])), ("d.bin", &[0, 1, 2, 3])])
}

#[test]
fn a_zip_arrives_in_its_parts_and_its_receipt_says_where_each_is() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let id = session.id().unwrap();
    let options = DocumentOptions { authority: Some("sink.example".to_owned()), ..document_options() };
    let sender = DocumentSender::new(session.clone(), options).unwrap();
    let bytes = sample();
    let receipt = receipt(&sender, document("in/sample.zip"), &bytes);
    block(session.close()).unwrap();
    let lines = pair.log(&id);
    assert_eq!((&receipt["status"], &receipt["reason"]), (&"COMPLETE".into(), &Value::Null));
    assert_eq!((&receipt["session"], &receipt["root"]), (&(*id).into(), &serde_json::json!([0, 1])));
    assert_eq!(receipt["sha256"], hex::encode(sha256(&bytes)));
    assert_eq!(receipt["uri"], format!("pipestream://sink.example/{id}/0/1"));
    let parts = receipt["parts"].as_array().unwrap();
    let paths: Vec<Value> = parts.iter().map(|part| part["path"].clone()).collect();
    let expected = [&["a.txt"][..], &["b.zip"], &["b.zip", "c.txt"], &["d.bin"]];
    assert_eq!(paths, expected.map(|path| serde_json::json!(path)));
    let contents: [&[u8]; 3] = [b"text a", b"text c", &[0, 1, 2, 3]];
    let files = parts.iter().filter_map(|part| part["file"].as_str());
    let stored: Vec<Vec<u8>> = files.map(|file| fs::read(pair.sink().join(file)).unwrap()).collect();
    assert_eq!(stored, contents, "the zips themselves stay behind");
    let scopes = receipt["scopes"].as_array().unwrap();
    let counts: Vec<_> = scopes.iter().map(|scope| (scope["processed"].as_u64(), scope["depth"].as_u64())).collect();
    assert_eq!(counts, [(Some(3), Some(1)), (Some(1), Some(2))]);
    let header = &lines.iter().find(|line| line["scope"] == 0).unwrap()["metadata"];
    assert_eq!(
        (&header["penstock.document"], &header["penstock.sha256"]),
        (&"in/sample.zip".into(), &receipt["sha256"])
    );
}

#[test]
fn what_an_earlier_session_has_is_not_sent_again_and_what_has_changed_is() {
    let pair = Pair::new(1);
    let first = pair.connect(1);
    let sender = DocumentSender::new(first.clone(), document_options()).unwrap();
    let before = receipt(&sender, document("a.zip"), &sample());
    block(first.close()).unwrap();
    let second = pair.connect(1);
    let sender = DocumentSender::new(second.clone(), document_options()).unwrap();
    let again = |bytes: &[u8]| {
        let previous = PreviousReceipt::new(&before.to_string()).unwrap();
        receipt(&sender, Document { previous, ..document("a.zip") }, bytes)
    };
    let same = again(&sample());
    for field in ["status", "session", "root", "content_root", "parts"] {
        assert_eq!(same[field], before[field], "all of it stays where it is: {field}");
    }
    let changed =
        again(&zip(&[("a.txt", b"text A"), ("b.zip", &zip(&[("c.txt", b"text c")])), ("d.bin", &[0, 1, 2, 3])]));
    block(second.close()).unwrap();
    let id = second.id().unwrap();
    let lines = pair.log(&id);
    let sessions: Vec<&Value> = changed["parts"].as_array().unwrap().iter().map(|part| &part["session"]).collect();
    let (new, old) = (Value::from(&*id), &before["session"]);
    assert_eq!(sessions, [&new, old, old, old]);
    assert_eq!((&changed["session"], &changed["status"]), (&new, &"COMPLETE".into()));
    assert_eq!(changed["parts"][3], before["parts"][3]);
    let entities = lines.iter().filter(|line| line.get("entity").is_some()).count();
    assert_eq!(entities, 2, "the document itself and the part that has changed");
}

#[test]
fn groups_of_children_are_sent_apart_and_their_containers_after_them() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let sender = DocumentSender::new(session.clone(), document_options()).unwrap();
    let bytes = zip(&[("1", b"one".as_slice()), ("2", b"two"), ("3", b"three")]);
    let reopen = || -> std::io::Result<Payload> { Ok(open(&bytes)()) };
    let division = divide("a.zip", reopen, || Memory, Limits::default(), 8 << 10).unwrap();
    let mut counted = ElsewhereChildren { children: 0, incomplete: 0 };
    let mut paths = Vec::new();
    for ChildGroup { first, last, .. } in division.groups {
        let [ContainerPart { sha256, bytes: length, .. }] = division.chain.as_slice() else { panic!("one container") };
        let selection = ChildSelection { sha256: *sha256, length: *length, depth: 0, places: vec![(first, last)] };
        let sent = sender.send_children(document("a.zip"), open(&bytes), &selection, Memory, &NEVER).unwrap();
        let outcome = sent.wait(None, &NEVER).unwrap().unwrap();
        let group: Value = serde_json::from_str(&outcome.group().unwrap()).unwrap();
        assert_eq!(group["scope"]["processed"], group["children"]);
        counted.children += group["children"].as_u64().unwrap();
        paths.extend(whole_receipt(&sent)["parts"].as_array().unwrap().iter().map(|part| part["path"][0].clone()));
    }
    assert_eq!((counted.children, paths), (3, ["1", "2", "3"].map(Value::from).to_vec()));
    let sent = sender.send_containers(document("a.zip"), division.chain.clone(), counted, &NEVER).unwrap();
    assert_eq!(whole_receipt(&sent)["status"], "COMPLETE");
    let lacking = ElsewhereChildren { incomplete: 1, ..counted };
    let sent = sender.send_containers(document("a.zip"), division.chain, lacking, &NEVER).unwrap();
    let receipt = whole_receipt(&sent);
    assert_eq!((&receipt["status"], &receipt["reason"]), (&"FAILED".into(), &"1 of 3 parts are not COMPLETE".into()));
    block(session.close()).unwrap();
}

#[test]
fn a_container_that_is_none_any_more_is_said_to_be_missing() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let sender = DocumentSender::new(session.clone(), document_options()).unwrap();
    let selection = ChildSelection { sha256: [1; 32], length: 4, depth: 0, places: vec![(1, 2)] };
    let sent = sender.send_children(document("a.zip"), open(b"text"), &selection, Memory, &NEVER).unwrap();
    let group = sent.wait(None, &NEVER).unwrap().unwrap().group().unwrap();
    let group: Value = serde_json::from_str(&group).unwrap();
    assert_eq!(group["missing"], "the container has changed: text/plain");
    block(session.close()).unwrap();
}

#[test]
fn padding_and_pseudonyms_hide_how_many_parts_there_are_and_their_names() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let id = session.id().unwrap();
    let privacy =
        PrivacyOptions { pad_children: 8, pseudonym_key: Some(vec![7; 16].into()), ..PrivacyOptions::default() };
    let options = DocumentOptions { privacy: Privacy::new(privacy).unwrap(), ..document_options() };
    let sender = DocumentSender::new(session.clone(), options).unwrap();
    let receipt = receipt(&sender, document("secret.zip"), &zip(&[("hidden.txt", b"text".as_slice())]));
    block(session.close()).unwrap();
    let log: Vec<String> = pair.log(&id).iter().map(Value::to_string).collect();
    assert!(log.iter().all(|line| !line.contains("secret.zip") && !line.contains("hidden.txt")));
    assert_eq!(
        (&receipt["document"], receipt["parts"][0]["path"][0].as_str()),
        (&"secret.zip".into(), Some("hidden.txt"))
    );
    let scope = &receipt["scopes"][0];
    assert_eq!((scope["processed"].as_u64(), scope["padding"].as_array().unwrap().len()), (Some(8), 7));
    let padding = scope["padding"][0]["file"].as_str().unwrap();
    assert_eq!(fs::read(pair.sink().join(padding)).unwrap().len(), 4, "as long as the child before");
    assert_eq!((&receipt["privacy"]["pad_children"], receipt["parts"].as_array().unwrap().len()), (&8.into(), 1));
}

#[test]
fn at_layer_0_a_container_in_a_document_is_kept_whole() {
    let pair = Pair::new(0);
    let session = pair.connect(0);
    let sender = DocumentSender::new(session.clone(), document_options()).unwrap();
    let inner = zip(&[("c.txt", b"text c".as_slice())]);
    let receipt = receipt(&sender, document("a.zip"), &zip(&[("b.zip", &inner)]));
    block(session.close()).unwrap();
    let parts = receipt["parts"].as_array().unwrap();
    assert_eq!((parts.len(), &parts[0]["status"]), (1, &"COMPLETE".into()));
    assert_eq!(fs::read(pair.sink().join(parts[0]["file"].as_str().unwrap())).unwrap(), inner);
}

#[test]
fn a_file_that_is_sent_whole_and_changed_meanwhile_is_refused() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let options = DocumentOptions { dehydrate: false, ..document_options() };
    let sender = DocumentSender::new(session.clone(), options).unwrap();
    let bytes = vec![7; 2 << 20];
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &bytes[1..]).unwrap();
    let sent = sender.send(document("a"), open(&bytes), Some(file.path().to_owned()), Memory, &NEVER).unwrap();
    let receipt = whole_receipt(&sent);
    let reason = "the part cannot be stored for sending: the bytes have changed since they were first read";
    assert_eq!((&receipt["status"], &receipt["reason"]), (&"FAILED".into(), &reason.into()));
    block(session.close()).unwrap();
}

/// Interrupts that begin after a number of checks.
struct After(AtomicUsize);

impl Interrupts for After {
    fn pending(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }

    fn check(&self) -> std::result::Result<(), Interrupted> {
        Ok(())
    }
}

#[test]
fn an_interrupted_document_fails_what_it_has_begun_and_leaves_a_session_that_can_be_closed() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let id = session.id().unwrap();
    let sender = DocumentSender::new(session.clone(), document_options()).unwrap();
    // The zip is announced, but not its first member.
    let interrupts = After(AtomicUsize::new(1));
    let error = sender.send(document("a.zip"), open(&sample()), None, Memory, &interrupts).unwrap_err();
    assert!(matches!(error, Error::Interrupted("the document was interrupted")), "{error}");
    let next = receipt(&sender, document("b.zip"), &sample());
    assert_eq!(next["status"], "COMPLETE");
    block(session.close()).unwrap();
    let lines = pair.log(&id);
    let first = lines.iter().find(|line| line["scope"] == 0 && line["entity"] == 1).unwrap();
    assert_eq!(first["status"], "FAILED");
}

#[test]
fn a_document_that_waits_for_room_hears_its_interrupts() {
    // Entities arrive but are never accepted, so the first document never ends.
    let (consumer, _sessions) = channel(1);
    let pair = Pair::with_consumer(1, |_| consumer);
    let options = DocumentOptions { in_flight: 1, ..document_options() };
    let sender = DocumentSender::new(pair.connect(1), options).unwrap();
    sender.send(document("a.txt"), open(b"text"), None, Memory, &NEVER).unwrap();
    let error = sender.send(document("b.txt"), open(b"text"), None, Memory, &Signal(true)).unwrap_err();
    assert!(matches!(error, Error::Interrupted(_)), "{error}");
}

#[test]
fn a_wait_that_was_interrupted_goes_on() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let sender = DocumentSender::new(session.clone(), document_options()).unwrap();
    let sent = sender.send(document("a.zip"), open(&sample()), None, Memory, &NEVER).unwrap();
    let past = std::time::Instant::now().checked_sub(std::time::Duration::from_secs(1));
    let early = sent.wait(past, &NEVER).unwrap();
    let outcome: std::sync::Arc<DocumentOutcome> = sent.wait(None, &NEVER).unwrap().unwrap();
    assert!(early.is_none_or(|early| std::sync::Arc::ptr_eq(&early, &outcome)));
    assert_eq!(outcome.counts(), (4, 4));
    assert!(sent.is_done());
    block(session.close()).unwrap();
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let pair = Pair::new(1);
    let refused = |layer: u8, change: &dyn Fn(&mut DocumentOptions)| {
        let mut options = document_options();
        change(&mut options);
        DocumentSender::new(pair.connect(layer), options).unwrap_err()
    };
    let privacy = |options: PrivacyOptions| Privacy::new(options).unwrap();
    let policy = DocumentPolicy::new(CompletionPolicy::default(), "strict".to_owned()).unwrap();
    let error = refused(1, &|options| options.policy = Some(policy.clone()));
    let misuse = Misuse::PolicyLayer { layer: 1 };
    assert!(
        matches!(&error, Error::Session(penstock_pipestream_net::Error::Misuse(found)) if *found == misuse),
        "{error:?}"
    );
    assert_eq!(error.to_string(), "a policy needs layer 2, and layer 1 was agreed on");
    let padding = |options: &mut DocumentOptions| {
        options.privacy = privacy(PrivacyOptions { pad_children: 8, ..PrivacyOptions::default() });
    };
    let error = refused(0, &padding);
    assert!(matches!(&error, Error::Value(crate::Value::PaddingLayer)), "{error:?}");
    let error = refused(1, &|options| {
        let by_reference = Some("s3://bucket/prefix".to_owned());
        options.privacy = privacy(PrivacyOptions { by_reference, ..PrivacyOptions::default() });
    });
    assert!(matches!(&error, Error::Value(crate::Value::ReferenceParts)), "{error:?}");
}

#[test]
fn a_document_has_a_name_and_a_session_that_is_open() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let sender = DocumentSender::new(session.clone(), document_options()).unwrap();
    for name in [String::new(), "x".repeat(MAX_NAME + 1)] {
        let error = sender.send(document(&name), open(b""), None, Memory, &NEVER).unwrap_err();
        assert!(matches!(&error, Error::Value(crate::Value::NameLength)), "{error}");
        assert_eq!(error.to_string(), "a document's name has 1 to 65536 bytes");
    }
    block(session.close()).unwrap();
    let error = sender.send(document("a"), open(b""), None, Memory, &NEVER).unwrap_err();
    assert!(matches!(error, Error::Session(penstock_pipestream_net::Error::Closed(_))), "{error}");
}
