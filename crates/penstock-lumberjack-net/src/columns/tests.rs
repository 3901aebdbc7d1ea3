use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use penstock_lumberjack::{Accepts, Data, Decoder, Frame, Limits, Version};

use super::layout::{CHARSET_FAILURE, JSON_FAILURE};
use super::*;
use crate::{Error, Misuse};

fn origin() -> Origin {
    Origin { peer: "192.0.2.1:5".into(), identity: None, received: 1_700_000_000_000_000 }
}

fn with_pairs(pairs: &[(&[u8], &[u8])], take: impl FnOnce(Pairs<'_>)) {
    let mut bytes = Vec::new();
    Data::encode(Version::V1, 1, pairs.iter().copied(), &mut bytes).unwrap();
    let mut decoder = Decoder::new(Accepts::Writer, Limits::default());
    decoder.input().extend_from_slice(&bytes);
    let Some(Frame::Data(data)) = decoder.next_frame().unwrap() else { panic!("it is no D frame") };
    take(data.pairs);
}

fn texts(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = batch.column_by_name(name).unwrap().as_string::<i32>().clone();
    (0..column.len()).map(|row| column.is_valid(row).then(|| column.value(row).to_owned())).collect()
}

fn shown(column: &ArrayRef) -> String {
    format!("{column:?}").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn layout(fields: Vec<Field>) -> Layout {
    Layout::typed(Arc::new(Schema::new(fields))).unwrap()
}

fn nullable(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

#[test]
fn what_is_no_json_object_keeps_its_bytes_and_is_tagged() {
    let mut builder = Builder::new(&Layout::raw());
    let wrong: [&[u8]; 6] = [b"[1]", b"{\"a\":1,}", b"", b"{\"a\":\"\xff\"}", b"null", b"{} {}"];
    builder.push_json(7, b" {\"a\": 1}\n");
    for bytes in wrong {
        builder.push_json(8, bytes);
    }
    let batch = builder.finish(&origin()).unwrap();
    assert_eq!(batch.num_rows(), 7);
    let raw = batch.column_by_name("raw").unwrap().as_binary::<i32>();
    let tags = batch.column_by_name("tags").unwrap();
    assert!(raw.is_null(0) && tags.is_null(0));
    assert_eq!(texts(&batch, "event")[0].as_deref(), Some(" {\"a\": 1}\n"));
    for (row, bytes) in wrong.into_iter().enumerate() {
        assert_eq!(raw.value(row + 1), bytes);
        assert!(shown(&tags.slice(row + 1, 1)).contains(JSON_FAILURE));
    }
    assert!(builder.is_empty() && builder.finish(&origin()).unwrap().num_rows() == 0);
}

#[test]
fn pairs_that_are_not_utf8_are_escaped_without_loss() {
    let mut builder = Builder::new(&Layout::raw());
    with_pairs(&[(b"line", b"a\\b\xff\xfe"), (b"line", b"c\\d")], |pairs| builder.push_map(1, pairs));
    with_pairs(&[(b"line", b"clean \\x")], |pairs| builder.push_map(2, pairs));
    let batch = builder.finish(&origin()).unwrap();
    let fields = batch.column_by_name("fields").unwrap().as_map();
    let values = fields.values().as_string::<i32>();
    assert_eq!(values.iter().flatten().collect::<Vec<_>>(), ["a\\\\b\\xff\\xfe", "c\\d", "clean \\x"]);
    let tags = batch.column_by_name("tags").unwrap();
    assert!(shown(&tags.slice(0, 1)).contains(CHARSET_FAILURE) && tags.is_null(1));
    assert_eq!(texts(&batch, "event"), [None, None]);
}

#[test]
fn fields_fill_their_columns_and_the_rest_is_rescued() {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let file = DataType::Struct(vec![nullable("path", DataType::Utf8), nullable("line", DataType::Int32)].into());
    let layout = layout(vec![
        nullable("@timestamp", time),
        nullable("n", DataType::Int64),
        nullable("f", DataType::Float64),
        nullable("ok", DataType::Boolean),
        nullable("text", DataType::Utf8),
        nullable("file", file),
        nullable("list", DataType::List(Arc::new(nullable("element", DataType::Int32)))),
        nullable("labels", layout::pairs_type()),
        nullable("price", DataType::Decimal128(5, 2)),
        nullable("_sequence", DataType::Int64),
        nullable("_rescue", DataType::Utf8),
        nullable("_raw", DataType::Binary),
    ]);
    let mut builder = Builder::new(&layout);
    builder.push_json(
        1,
        br#"{"@timestamp":"2023-11-14T22:13:20.5Z","n":-5,"f":2,"ok":true,"text":{"a":[1]},
            "file":{"path":"/a\u0041","line":3},"list":[1,null,3],"labels":{"a":"b"},"price":19.90}"#,
    );
    builder.push_json(2, br#"{"more":[1, {"x":"\""}],"n":"five","n":6,"file":{"path":"p","other":1},"list":[1,"x"]}"#);
    builder.push_json(
        3,
        br#"{"n":9223372036854775808,"f":1e999,"list":3,"@timestamp":"yesterday","ok":null,"price":0.001}"#,
    );
    builder.push_json(4, br#"{"n":4,"file":{"path":"#);
    builder.push_json(5, br#"{"n":5,"price":"-7"}"#);
    let batch = builder.finish(&origin()).unwrap();
    assert_eq!(batch.schema(), layout.schema());
    let numbers = batch.column_by_name("n").unwrap().as_primitive::<arrow_array::types::Int64Type>();
    assert_eq!(numbers.iter().collect::<Vec<_>>(), [Some(-5), None, None, Some(4), Some(5)]);
    assert_eq!(texts(&batch, "text")[0].as_deref(), Some(r#"{"a":[1]}"#));
    assert!(shown(batch.column_by_name("@timestamp").unwrap()).contains("2023-11-14T22:13:20.500"));
    let file = batch.column_by_name("file").unwrap().as_struct();
    assert_eq!(file.column(0).as_string::<i32>().value(0), "/aA");
    let price = batch.column_by_name("price").unwrap().as_primitive::<arrow_array::types::Decimal128Type>();
    assert_eq!(price.iter().collect::<Vec<_>>(), [Some(1990), None, None, None, Some(-700)]);
    let rescued = texts(&batch, "_rescue");
    assert_eq!(rescued[0], None);
    let second = r#"{"more":[1, {"x":"\""}],"n":"five","n":6,"file":{"path":"p","other":1},"list":[1,"x"]}"#;
    assert_eq!(rescued[1].as_deref(), Some(second));
    let third = r#"{"n":9223372036854775808,"f":1e999,"list":3,"@timestamp":"yesterday","price":0.001}"#;
    assert_eq!(rescued[2].as_deref(), Some(third));
    assert_eq!(rescued[3..], [None, None]);
    let raw = batch.column_by_name("_raw").unwrap().as_binary::<i32>();
    assert_eq!(raw.value(3), br#"{"n":4,"file":{"path":"#);
}

#[test]
fn a_spooled_batch_is_reshaped_to_what_the_builder_would_have_made() {
    let layout = layout(vec![
        nullable("n", DataType::Int32),
        nullable("line", DataType::Utf8),
        nullable("_peer", DataType::Utf8),
        nullable("_received", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        nullable("_tags", DataType::List(layout::element())),
        nullable("_rescue", DataType::Utf8),
    ]);
    let fill = |builder: &mut Builder| {
        builder.push_json(1, br#"{"n":1,"line":"a","x":2}"#);
        builder.push_json(2, b"no JSON");
        with_pairs(&[(b"line", b"b\xff"), (b"n", b"12"), (b"y", b"\"z\"")], |pairs| builder.push_map(3, pairs));
        with_pairs(&[(b"n", b"twelve")], |pairs| builder.push_map(4, pairs));
        builder.finish(&origin()).unwrap()
    };
    let raw = fill(&mut Builder::new(&Layout::raw()));
    let typed = fill(&mut Builder::new(&layout));
    assert_eq!(reshape(&layout, &raw).unwrap(), typed);
    assert_eq!(texts(&typed, "_rescue")[2].as_deref(), Some(r#"{"y":"\"z\""}"#));
    assert_eq!(texts(&typed, "_rescue")[3].as_deref(), Some(r#"{"n":"twelve"}"#));
    let error = reshape(&layout, &typed).unwrap_err();
    assert!(matches!(&error, Error::Misuse(Misuse::RawColumn { column }) if column == "event"), "{error:?}");
}

#[test]
fn a_column_that_no_event_is_made_into_is_named() {
    let amount = DataType::Decimal256(50, 2);
    let inner = DataType::Struct(vec![nullable("amount", amount.clone())].into());
    let (found, wanted) = (DataType::Utf8, DataType::Int64);
    for (field, expected) in [
        (nullable("price", inner), Misuse::ColumnType { column: "price.amount".to_owned(), found: amount }),
        (
            nullable("_sequence", DataType::Utf8),
            Misuse::MetadataColumn { column: "_sequence".to_owned(), found, wanted },
        ),
    ] {
        let error = Layout::typed(Arc::new(Schema::new(vec![field]))).unwrap_err();
        assert!(matches!(&error, Error::Misuse(misuse) if *misuse == expected), "{error:?}");
    }
}
