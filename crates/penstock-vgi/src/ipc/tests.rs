use std::sync::Arc;

use arrow_array::types::Int16Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Float64Array, Int64Array, ListArray, NullArray, StringArray, StructArray,
};
use arrow_schema::{DataType, Field, Schema};

use super::*;
use crate::error::Malformed;
use crate::{Limits, Metadata};

fn decode(bytes: &[u8], size: usize) -> crate::Result<Vec<Item>> {
    let mut decoder = Decoder::new(Limits::default());
    let mut items = Vec::new();
    for piece in bytes.chunks(size.max(1)) {
        decoder.push(piece, &mut items)?;
    }
    decoder.push(&[], &mut items)?;
    decoder.handle_end()?;
    Ok(items)
}

fn encode(batches: &[Batch]) -> Vec<u8> {
    let mut out = Output::new();
    let schema = batches.first().map_or_else(|| Arc::new(Schema::empty()), |batch| Arc::clone(&batch.schema));
    stream(&schema, batches, &mut out).expect("writable");
    out.concat()
}

fn batch(columns: Vec<(&str, ArrayRef)>, metadata: &[(&[u8], &[u8])]) -> Batch {
    let rows = columns.first().map_or(1, |(_, column)| column.len());
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true)).collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    Batch::new(Arc::new(Schema::new(fields)), columns, rows).with_metadata(metadata.iter().copied().collect())
}

fn columns() -> Vec<(&'static str, ArrayRef)> {
    let lists = ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>([
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
    ]);
    let inner: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), None, Some("z")]));
    vec![
        ("float", Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-0.0)]))),
        ("text", Arc::new(StringArray::from(vec![Some("a"), Some(""), None]))),
        ("list", Arc::new(lists)),
        ("struct", Arc::new(StructArray::from(vec![(Arc::new(Field::new("s", DataType::Utf8, true)), inner)]))),
        ("enum", Arc::new(["RED", "BLUE", "RED"].into_iter().collect::<DictionaryArray<Int16Type>>())),
        ("null", Arc::new(NullArray::new(3))),
        ("view", Arc::new(arrow_array::StringViewArray::from(vec!["short", "longer than twelve bytes", ""]))),
    ]
}

#[test]
fn what_is_written_is_read_however_the_stream_is_cut() {
    let metadata: &[(&[u8], &[u8])] = &[(b"vgi_rpc.method", b"add"), (b"token", &[0, 0xFF, 0x80])];
    let sent = [batch(columns(), metadata), batch(columns(), &[])];
    let bytes = encode(&sent);
    for size in [1, 7, 8, 64, bytes.len()] {
        let items = decode(&bytes, size).expect("valid");
        let [Item::Schema(schema), Item::Batch(first), Item::Batch(second), Item::End] = items.as_slice() else {
            panic!("{items:?}");
        };
        assert_eq!(schema.fields(), sent[0].schema.fields());
        assert_eq!(first.metadata, sent[0].metadata);
        assert!(second.metadata.is_empty());
        for (read, written) in first.columns.iter().chain(&second.columns).zip(sent.iter().flat_map(|b| &b.columns)) {
            assert_eq!(read, written);
        }
    }
}

#[test]
fn batches_without_rows_and_without_columns_keep_their_counts() {
    let empty = batch(vec![], &[(b"k", b"v")]);
    let none = Batch::empty(&batch(columns(), &[]).schema, [("k", "v")].into_iter().collect());
    for (sent, rows) in [(empty, 1), (none, 0)] {
        let items = decode(&encode(std::slice::from_ref(&sent)), 4096).expect("valid");
        let Some(Item::Batch(read)) = items.get(1) else { panic!("{items:?}") };
        assert_eq!((read.rows, &read.metadata), (rows, &sent.metadata));
    }
}

#[test]
fn nulls_in_fields_declared_as_not_null_pass() {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
    let sent = Batch::new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(vec![None, Some(2)]))], 2);
    let items = decode(&encode(&[sent]), 4096).expect("valid");
    let Some(Item::Batch(read)) = items.get(1) else { panic!("{items:?}") };
    assert_eq!((&read.schema, read.columns[0].null_count()), (&schema, 1));
}

#[test]
fn a_large_body_lands_in_memory_of_its_own_and_small_ones_are_put_together() {
    let values: ArrayRef = Arc::new(Float64Array::from_iter_values((0..100_000).map(f64::from)));
    let mut out = Output::new();
    let sent = batch(vec![("x", Arc::clone(&values))], &[]);
    stream(&sent.schema, [&sent], &mut out).expect("writable");
    let pieces = out.take();
    assert_eq!(pieces.len(), 3, "head, values, end");
    assert_eq!(pieces[1].as_ptr(), values.to_data().buffers()[0].as_ptr(), "no copy is written");
}

#[test]
fn every_cut_of_a_stream_is_an_error_at_its_end() {
    let bytes = encode(&[batch(vec![("x", Arc::new(Int64Array::from(vec![1])))], &[(b"a", b"b")])]);
    for length in 1..bytes.len() {
        assert!(decode(&bytes[..length], 4096).is_err(), "{length} of {}", bytes.len());
    }
    assert!(decode(&[], 1).expect("nothing").is_empty());
}

#[test]
fn lying_lengths_are_refused_before_memory_is_taken() {
    let mut head = vec![0xFF; 4];
    head.extend_from_slice(&u32::MAX.to_le_bytes());
    let error = decode(&head, 8).expect_err("too long");
    assert_eq!(error.kind(), crate::ErrorKind::Limit);
    let error = decode(b"GET / HTTP/1.1\r\n", 4).expect_err("another protocol");
    assert_eq!(error, Malformed::Continuation(*b"GET ").into());
}

#[test]
fn one_byte_changed_anywhere_never_panics() {
    let bytes = encode(&[batch(columns(), &[(b"vgi_rpc.method", b"add")])]);
    for at in 0..bytes.len() {
        for change in [0x01, 0x80, 0xFF] {
            let mut wrong = bytes.clone();
            wrong[at] ^= change;
            // Some changes result in other values, and some in errors, but none in a panic.
            drop(decode(&wrong, wrong.len()));
        }
    }
}

#[test]
fn metadata_that_is_larger_apart_than_on_the_wire_is_limited() {
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = (0..2_000).map(|n: u32| (n.to_le_bytes().to_vec(), vec![1])).collect();
    let sent = batch(vec![], &[]).with_metadata(pairs.into_iter().collect::<Metadata>());
    let error = decode(&encode(&[sent]), 4096).expect_err("too many pairs");
    assert_eq!(error.kind(), crate::ErrorKind::Limit);
}

#[test]
fn a_batch_in_shared_memory_is_read_where_it_lies() {
    let dictionary = |columns: Vec<(&'static str, ArrayRef)>| batch(columns, &[]);
    let plain: Vec<_> = columns().into_iter().filter(|(name, _)| *name != "enum").collect();
    for sent in [dictionary(columns()), dictionary(plain)] {
        let mut out = Output::new();
        shared_form(&sent, &mut out).expect("writable");
        let bytes = arrow_buffer::Buffer::from(out.concat());
        let range = bytes.as_ptr() as usize..bytes.as_ptr() as usize + bytes.len();
        let read = read_shared(bytes.clone(), &sent.schema).expect("valid");
        assert_eq!(read.columns, sent.columns);
        let values = read.columns[0].to_data().buffers()[0].as_ptr() as usize;
        assert!(range.contains(&values), "the values were copied");
        for length in 0..bytes.len() {
            assert!(
                read_shared(bytes.slice_with_length(0, length), &sent.schema).is_err() || length + 8 >= bytes.len()
            );
        }
    }
}
