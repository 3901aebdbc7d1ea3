//! Rows through a real server, and columns that cannot be sent.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, MapBuilder, StringBuilder};
use arrow_array::{ArrayRef, BinaryArray, Int32Array, LargeStringArray, StringArray};
use arrow_schema::DataType;
use penstock_pipestream::merkle_root;
use penstock_pipestream_net::Status;

use super::*;
use crate::testing::{NEVER, Pair, Signal, block};

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    RecordBatch::try_from_iter(columns.iter().map(|(name, column)| (*name, Arc::clone(column)))).unwrap()
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn contents(values: &[&[u8]]) -> ArrayRef {
    Arc::new(BinaryArray::from(values.to_vec()))
}

fn options(scopes: bool) -> RowOptions {
    RowOptions { metadata: [("k".to_owned(), "v".to_owned())].into(), scopes, tolerant: false }
}

#[test]
fn rows_become_entities_with_what_their_columns_say() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let id = session.id().unwrap();
    let rows = RowSender::new(session.clone(), options(false)).unwrap();
    let mut paths = ListBuilder::new(StringBuilder::new());
    paths.append_value([Some("a"), Some("b")]);
    paths.append_null();
    let mut metadata = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    metadata.keys().append_value("colour");
    metadata.values().append_value("red");
    metadata.keys().append_value("penstock.path");
    metadata.values().append_value("of another sink");
    metadata.append(true).unwrap();
    metadata.append(false).unwrap();
    let columns: [(&str, ArrayRef); 5] = [
        ("content", contents(&[b"one", b"two!"])),
        ("document", texts(&[Some("d"), None])),
        ("path", Arc::new(paths.finish())),
        ("type", Arc::new(LargeStringArray::from(vec![Some("text/plain"), None]))),
        ("metadata", Arc::new(metadata.finish())),
    ];
    rows.send(&batch(&columns), &NEVER).unwrap();
    let root = rows.finish(&NEVER).unwrap().unwrap();
    assert_eq!(root, hex::encode(merkle_root([(1, Status::Complete), (2, Status::Complete)])));
    assert_eq!(rows.totals(), RowTotals { rows: 2, bytes: 7, scopes: 0, failed: 0, left_out: 0 });
    drop(rows);
    block(session.close()).unwrap();
    let lines = pair.log(&id);
    let line = |entity: u64| lines.iter().find(|line| line["entity"] == entity).unwrap();
    assert_eq!(std::fs::read(pair.sink().join(line(2)["file"].as_str().unwrap())).unwrap(), b"two!");
    let metadata = &line(1)["metadata"];
    assert_eq!((&metadata["k"], &metadata["colour"]), (&"v".into(), &"red".into()));
    assert_eq!((&metadata["penstock.document"], &metadata["penstock.path"]), (&"d".into(), &r#"["a","b"]"#.into()));
    assert_eq!((&line(1)["content_type"], &line(2)["content_type"]), (&"text/plain".into(), &DEFAULT.into()));
}

const DEFAULT: &str = "application/octet-stream";

#[test]
fn each_run_of_rows_of_a_document_is_a_scope_whose_digest_matches() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let rows = RowSender::new(session.clone(), options(true)).unwrap();
    for _ in 0..2 {
        let documents = texts(&[Some("d"), Some("d"), Some("e")]);
        rows.send(&batch(&[("content", contents(&[b"1", b"2", b"3"])), ("document", documents)]), &NEVER).unwrap();
    }
    rows.finish(&NEVER).unwrap();
    assert_eq!(rows.totals(), RowTotals { rows: 6, bytes: 6, scopes: 4, failed: 0, left_out: 0 });
    assert_eq!(rows.failures(), []);
    drop(rows);
    block(session.close()).unwrap();
}

#[test]
fn at_layer_0_there_is_no_root() {
    let pair = Pair::new(0);
    let session = pair.connect(0);
    let rows = RowSender::new(session.clone(), options(false)).unwrap();
    rows.send(&batch(&[("content", texts(&[Some("text")]))]), &NEVER).unwrap();
    assert_eq!((rows.finish(&NEVER).unwrap(), rows.totals().rows), (None, 1));
    drop(rows);
    block(session.close()).unwrap();
}

#[test]
fn a_row_without_content_is_refused_and_the_error_says_what_to_do() {
    let pair = Pair::new(1);
    let rows = RowSender::new(pair.connect(1), options(false)).unwrap();
    let columns = batch(&[("content", texts(&[Some("a"), None])), ("document", texts(&[Some("d"), Some("e")]))]);
    let error = rows.send(&columns, &NEVER).unwrap_err();
    let document = Some("e".to_owned());
    assert!(matches!(&error, Error::Value(Value::NullContent { document: found }) if *found == document), "{error}");
    let expected =
        "a row of the document e has no content (null); filter such rows, or coalesce their content to an empty one";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_interruption_ends_the_wait_for_rows() {
    let pair = Pair::new(1);
    let session = pair.connect(1);
    let rows = RowSender::new(session.clone(), options(false)).unwrap();
    // Nothing was announced, so this row never ends, and `finish` waits for it.
    rows.account.open(1, 1);
    let error = rows.finish(&Signal(true)).unwrap_err();
    assert!(matches!(error, Error::Interrupted("the rows were interrupted")), "{error}");
}

#[test]
fn columns_of_other_types_are_refused_by_name() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let content = || ("content", texts(&[Some("a")]));
    let wrong = |column, wanted| Value::column_type(column, wanted, &DataType::Int32);
    let refused = [
        (batch(&[("other", Arc::clone(&numbers))]), Value::MissingColumn("content")),
        (batch(&[("content", Arc::clone(&numbers))]), wrong("content", "binary or string")),
        (batch(&[content(), ("document", Arc::clone(&numbers))]), wrong("document", "a string")),
        (batch(&[content(), ("path", Arc::clone(&numbers))]), wrong("path", "an array of strings")),
        (batch(&[content(), ("metadata", Arc::clone(&numbers))]), wrong("metadata", "a map of strings")),
        (batch(&[content(), ("owner", Arc::clone(&numbers))]), wrong("owner", "a struct")),
    ];
    for (batch, expected) in refused {
        let error = EntityColumns::new(&batch).err().unwrap();
        assert!(matches!(&error, Error::Value(value) if *value == expected), "{error:?}");
    }
}

#[test]
fn memory_of_arrow_is_held_until_its_last_use_ends() {
    let columns = EntityColumns::new(&batch(&[("content", contents(&[b"one"]))])).unwrap();
    let (names, content) = (Arc::downgrade(columns.names()), columns.content(0).unwrap());
    arrow_buffers::hold(&columns);
    drop(columns);
    arrow_buffers::release_unused();
    assert!(names.upgrade().is_some(), "the content of a row is in use");
    drop(content);
    // Other tests release memory at the same time, and may hold this memory for a moment.
    let since = std::time::Instant::now();
    while names.upgrade().is_some() {
        assert!(since.elapsed().as_secs() < 60, "the memory was not given back");
        arrow_buffers::release_unused();
    }
}
