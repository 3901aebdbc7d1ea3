//! The worked examples of the specification, as bytes that pyarrow and Python's own HMAC have written: `tests/vectors/vgi`.
// Vectors that do not say what they should fail the test that reads them.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use arrow_array::{Array, Float64Array};
use penstock_testkit::vectors::{Hex, load};
use penstock_vgi::ipc::{Decoder, Item, read_schema, read_streams, write_schema};
use penstock_vgi::shm_layout::{Region, Table};
use penstock_vgi::{Batch, Class, Dialect, Identity, Limits, Refused, Signer, Token};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    name: String,
    #[serde(rename = "section")]
    _section: String,
    hex: Hex,
    fields: Vec<(String, String, bool)>,
    batches: Vec<Expected>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    rows: usize,
    columns: BTreeMap<String, Vec<f64>>,
    metadata: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Bytes {
    empty_schema: Plain,
    segment_header: Header,
    tokens: Vec<SealedToken>,
}

#[derive(Debug, Deserialize)]
struct Plain {
    hex: Hex,
}

#[derive(Debug, Deserialize)]
struct Header {
    hex: Hex,
    size: u64,
    regions: Vec<(u64, u64)>,
    explained: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedToken {
    name: String,
    dialect: String,
    key: Hex,
    identity: Option<(String, String)>,
    created_at: u64,
    state: Hex,
    stream_id: String,
    hex: Hex,
}

fn bytes() -> Bytes {
    load("vgi", "bytes").expect("vectors").pop().expect("one of them")
}

fn check(stream: &Stream, items: &[Item]) {
    let Item::Schema(schema) = &items[0] else { unreachable!("{}: no schema", stream.name) };
    let fields: Vec<_> = schema.fields().iter().map(|field| (field.name().clone(), field.is_nullable())).collect();
    let expected: Vec<_> = stream.fields.iter().map(|(name, _, nullable)| (name.clone(), *nullable)).collect();
    assert_eq!(fields, expected, "{}", stream.name);
    assert!(matches!(items.last(), Some(Item::End)), "{}", stream.name);
    assert_eq!(items.len(), stream.batches.len() + 2, "{}", stream.name);
    for (item, expected) in items[1..].iter().zip(&stream.batches) {
        let Item::Batch(batch) = item else { unreachable!("{}: no batch", stream.name) };
        assert_eq!(batch.rows, expected.rows, "{}", stream.name);
        for (name, values) in &expected.columns {
            let column = batch.column(name).expect("the column");
            let floats = column.as_any().downcast_ref::<Float64Array>().expect("floats");
            assert_eq!(floats.values().as_ref(), values.as_slice(), "{}", stream.name);
        }
        let metadata: BTreeMap<String, String> = batch
            .metadata
            .iter()
            .map(|(key, value)| (String::from_utf8_lossy(key).into(), String::from_utf8_lossy(value).into()))
            .collect();
        assert_eq!(metadata, expected.metadata, "{}", stream.name);
    }
}

fn batches(items: Vec<Item>) -> Vec<Batch> {
    let batches = items.into_iter().filter_map(|item| match item {
        Item::Batch(batch) => Some(batch),
        Item::Schema(_) | Item::End => None,
    });
    batches.collect()
}

#[test]
fn streams_say_what_the_specification_says_whole_and_byte_by_byte() {
    let streams: Vec<Stream> = load("vgi", "streams").expect("vectors");
    assert!(streams.len() >= 8);
    for stream in &streams {
        let whole = read_streams(&stream.hex.0.clone().into(), &Limits::default()).expect("readable");
        check(stream, &whole);
        let mut decoder = Decoder::new(Limits::default());
        let mut items = Vec::new();
        for byte in &stream.hex.0 {
            decoder.push(&[*byte], &mut items).expect("readable");
        }
        check(stream, &items);
    }
}

#[test]
fn each_batch_is_of_the_class_that_section_7_gives_it() {
    let streams: Vec<Stream> = load("vgi", "streams").expect("vectors");
    let classes = |name: &str| -> Vec<Class> {
        let stream = streams.iter().find(|stream| stream.name == name).expect("a vector of that name");
        let items = read_streams(&stream.hex.0.clone().into(), &Limits::default()).expect("readable");
        batches(items).iter().map(Batch::class).collect()
    };
    assert!(matches!(classes("an answer behind a message").as_slice(), [Class::Log(_), Class::Data]));
    assert!(matches!(classes("the answer of a method that returns nothing").as_slice(), [Class::Data]));
    assert!(matches!(classes("an error").as_slice(), [Class::Error(failure)] if failure.error_type == "ValueError"));
    assert!(matches!(classes("a pointer into shared memory").as_slice(), [Class::Shared]));
    assert!(matches!(classes("a pointer to external storage").as_slice(), [Class::External]));
}

#[test]
fn the_empty_schema_is_read_and_ours_says_the_same() {
    let bytes = bytes();
    let schema = read_schema(&bytes.empty_schema.hex.0, &Limits::default()).expect("a schema");
    assert!(schema.fields().is_empty());
    let ours = write_schema(&schema).expect("writable");
    assert_eq!(read_schema(&ours, &Limits::default()), Ok(schema));
}

#[test]
fn the_header_of_a_segment_is_written_byte_for_byte() {
    let Header { hex, size, regions, explained } = bytes().segment_header;
    let table = Table::read(&hex.0, size).expect("a header");
    let expected: Vec<Region> = regions.iter().map(|&(offset, length)| Region { offset, length }).collect();
    assert_eq!(table.regions(), expected);
    assert_eq!(table.write(), hex.0);
    let pieces: String = explained.iter().map(|piece| piece["hex"].as_str().expect("hex")).collect();
    assert_eq!(pieces, penstock_wire::hex::encode(&hex.0));
}

#[test]
fn tokens_are_opened_and_sealed_byte_for_byte() {
    let bytes = bytes();
    assert!(bytes.tokens.len() >= 3);
    for vector in bytes.tokens {
        let signer = Signer::new(vector.key.0, Dialect::parse(&vector.dialect).expect("a dialect"), 0);
        let identity = vector
            .identity
            .map_or(Identity::Anonymous, |(domain, principal)| Identity::Principal { domain, principal });
        let token: Token = signer.open(&vector.hex.0, &identity, 0).expect("its signature holds");
        assert_eq!((token.created_at, &token.state), (vector.created_at, &vector.state.0), "{}", vector.name);
        assert_eq!(token.stream_id, vector.stream_id, "{}", vector.name);
        assert_eq!(token.input_schema, bytes.empty_schema.hex.0, "{}", vector.name);
        assert_eq!(signer.seal(&token, &identity), vector.hex.0, "{}", vector.name);
        let mut changed = vector.hex.0;
        changed[10] ^= 1;
        assert_eq!(signer.open(&changed, &identity, 0), Err(Refused::Forged), "{}", vector.name);
    }
}
