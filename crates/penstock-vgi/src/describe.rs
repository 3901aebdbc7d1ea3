//! `__describe__` (section 14), in both dialects.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, StringArray};
use arrow_schema::{Field, Schema};
use penstock_wire::hex;
use sha2::{Digest, Sha256};

use crate::error::{Error, Misuse, Result};
use crate::ipc::Batch;
use crate::metadata::{Metadata, REQUEST_VERSION, key};
use crate::protocol::{Dialect, Method, Protocol};

/// The description of a server's methods, which is made once.
#[derive(Debug)]
pub struct Description {
    batch: Batch,
}

impl Description {
    /// Make the description of a service: one row for each method, in the order of their names.
    pub fn new(protocol: &Protocol, dialect: Dialect, server_id: &str) -> Self {
        let methods = sorted(protocol);
        let (fields, columns) = columns(&methods, dialect).into_iter().unzip::<_, _, Vec<Field>, Vec<ArrayRef>>();
        let mut batch = Batch::new(Arc::new(Schema::new(fields)), columns, methods.len());
        let mut metadata = Metadata::new();
        metadata.push(key::PROTOCOL_NAME, protocol.name().as_bytes());
        metadata.push(key::REQUEST_VERSION, REQUEST_VERSION);
        metadata.push(key::DESCRIBE_VERSION, dialect.describe_version());
        if dialect == Dialect::V0_10 {
            metadata.push(key::PROTOCOL_HASH, protocol_hash(protocol));
        }
        metadata.push(key::SERVER_ID, server_id.as_bytes());
        batch.metadata = metadata;
        Self { batch }
    }

    /// Return the description as a batch.
    pub const fn batch(&self) -> &Batch {
        &self.batch
    }
}

impl Dialect {
    /// Return the version of its descriptions.
    pub const fn describe_version(self) -> &'static str {
        match self {
            Self::Spec => "2",
            Self::V0_10 => "4",
        }
    }
}

fn sorted(protocol: &Protocol) -> Vec<&Method> {
    let mut methods: Vec<&Method> = protocol.methods().iter().collect();
    methods.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    methods
}

fn columns(methods: &[&Method], dialect: Dialect) -> Vec<(Field, ArrayRef)> {
    let required = |name: &str, column: ArrayRef, dialect: Dialect| {
        // The reference package declares every column as nullable.
        (Field::new(name, column.data_type().clone(), dialect == Dialect::V0_10), column)
    };
    let optional = |name: &str, column: ArrayRef| (Field::new(name, column.data_type().clone(), true), column);
    let text = |of: &dyn Fn(&Method) -> Option<String>| -> ArrayRef {
        Arc::new(methods.iter().map(|method| of(method)).collect::<StringArray>())
    };
    let bytes = |of: &dyn Fn(&Method) -> Option<Vec<u8>>| -> ArrayRef {
        Arc::new(methods.iter().map(|method| of(method)).collect::<BinaryArray>())
    };
    let flag = |of: &dyn Fn(&Method) -> Option<bool>| -> ArrayRef {
        Arc::new(methods.iter().map(|method| of(method)).collect::<BooleanArray>())
    };
    let name = required("name", text(&|method| Some(method.name.clone())), dialect);
    let kind = required("method_type", text(&|method| Some(method.kind.name().into())), dialect);
    let doc = optional("doc", text(&|method| method.doc.clone()));
    let has_return = required("has_return", flag(&|method| Some(method.has_return)), dialect);
    let params = required("params_schema_ipc", bytes(&|method| Some(method.serialized.params.clone())), dialect);
    let result = required("result_schema_ipc", bytes(&|method| Some(method.serialized.result.clone())), dialect);
    let types = optional("param_types_json", text(&|method| method.param_types.clone()));
    let defaults = optional("param_defaults_json", text(&|method| method.param_defaults.clone()));
    let has_header = required("has_header", flag(&|method| Some(method.header.is_some())), dialect);
    let header = optional("header_schema_ipc", bytes(&|method| method.serialized.header.clone()));
    let exchange = optional("is_exchange", flag(&|method| method.is_exchange));
    match dialect {
        Dialect::Spec => vec![name, kind, doc, has_return, params, result, types, defaults, has_header, header],
        Dialect::V0_10 => vec![name, kind, has_return, params, result, has_header, header, exchange],
    }
}

/// Return the SHA-256, in hex, over the parts that all implementations of the same service share.
pub fn protocol_hash(protocol: &Protocol) -> String {
    let rows = sorted(protocol).into_iter().map(|method| Row {
        name: &method.name,
        kind: method.kind.name(),
        has_return: method.has_return,
        has_header: method.header.is_some(),
        is_exchange: method.is_exchange,
        schemas: [
            &method.serialized.params,
            &method.serialized.result,
            method.serialized.header.as_deref().unwrap_or_default(),
        ],
    });
    hash(protocol.name(), rows)
}

/// Return the SHA-256 over the rows of a description of dialect 0.10, in the given order.
///
/// # Errors
///
/// Misuse for a batch that is not such a description.
pub fn description_hash(protocol_name: &str, batch: &Batch) -> Result<String> {
    let column = |name: &str| {
        let column = batch.schema.index_of(name).ok().and_then(|index| batch.columns.get(index));
        column.ok_or_else(|| Error::from(Misuse::NoColumn(name.to_owned())))
    };
    let wrong = || Error::from(Misuse::ColumnTypes);
    let text = |name: &str| column(name)?.as_string_opt::<i32>().ok_or_else(wrong);
    let flag = |name: &str| column(name)?.as_boolean_opt().ok_or_else(wrong);
    let bytes = |name: &str| column(name)?.as_binary_opt::<i32>().ok_or_else(wrong);
    let (names, kinds) = (text("name")?, text("method_type")?);
    let (returns, headers, exchanges) = (flag("has_return")?, flag("has_header")?, flag("is_exchange")?);
    let params = bytes("params_schema_ipc")?;
    let (results, header_schemas) = (bytes("result_schema_ipc")?, bytes("header_schema_ipc")?);
    let rows = (0..batch.rows).map(|row| Row {
        name: names.value(row),
        kind: kinds.value(row),
        has_return: returns.value(row),
        has_header: headers.value(row),
        is_exchange: exchanges.is_valid(row).then(|| exchanges.value(row)),
        schemas: [
            params.value(row),
            results.value(row),
            if header_schemas.is_valid(row) { header_schemas.value(row) } else { &[] },
        ],
    });
    Ok(hash(protocol_name, rows))
}

/// The part of a method that the hash covers.
struct Row<'a> {
    name: &'a str,
    kind: &'a str,
    has_return: bool,
    has_header: bool,
    is_exchange: Option<bool>,
    schemas: [&'a [u8]; 3],
}

fn hash<'a>(protocol_name: &str, rows: impl Iterator<Item = Row<'a>>) -> String {
    let mut hash = Sha256::new();
    hash.update(b"vgi_rpc.describe.v4|1|");
    hash.update(protocol_name);
    hash.update(b"|");
    let flag = |flag: bool| -> &[u8] { if flag { b"1" } else { b"0" } };
    for Row { name, kind, has_return, has_header, is_exchange, schemas } in rows {
        hash.update(b"\x1f");
        hash.update(name);
        let flags = [kind.as_bytes(), flag(has_return), flag(has_header), is_exchange.map_or(b"-", flag)];
        for field in flags.into_iter().chain(schemas) {
            hash.update(b"\x1e");
            hash.update(field);
        }
    }
    hex::encode(hash.finalize())
}
