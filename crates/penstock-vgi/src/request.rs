//! Requests (sections 5 and 13), which clients write, and servers check before they call a method.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, SchemaRef};

use crate::Result;
use crate::cast::cast;
use crate::failure::Failure;
use crate::ipc::{self, Batch, Output};
use crate::metadata::{Metadata, REQUEST_VERSION, key};
use crate::protocol::{DESCRIBE, Method, Protocol};

/// A valid request for a method.
#[derive(Debug, Clone)]
pub struct Request {
    /// The index of the method in its protocol.
    pub method: usize,
    /// The value of each parameter, an array of length 1; `None` for an omitted parameter with a
    /// default.
    pub values: Vec<Option<ArrayRef>>,
    /// All metadata of the request.
    pub metadata: Metadata,
    /// The number of bytes of its columns on the wire.
    pub bytes: u64,
}

/// The reasons why a request is rejected before a method is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// The request names no method, or has a wrong number of rows.
    Protocol,
    /// The version is missing, or is another one.
    Version,
    /// The method does not exist.
    Method,
    /// A parameter is missing, unknown, null or of another type.
    Params,
}

/// The result of parsing a request.
#[derive(Debug)]
pub enum Parsed {
    /// A call.
    Call(Request),
    /// A request for the description.
    Describe,
    /// A rejected request: the reason, the schema of the error stream, and the error.
    Rejected(Rejection, SchemaRef, Failure),
}

/// Parse the first batch of a request.
pub fn parse(protocol: &Protocol, batch: Batch, describe: bool) -> Parsed {
    let empty = || Arc::clone(protocol.empty_schema());
    let reject = |why, error_type, message: &str| Parsed::Rejected(why, empty(), Failure::new(error_type, message));
    let Some(name) = batch.metadata.get(key::METHOD) else {
        return reject(
            Rejection::Protocol,
            "ProtocolError",
            "Missing 'vgi_rpc.method' in the custom metadata of the request batch",
        );
    };
    match batch.metadata.get(key::REQUEST_VERSION) {
        Some(REQUEST_VERSION) => {}
        Some(other) => {
            let message = format!("Unsupported request version '{}', expected '1'", other.escape_ascii());
            return reject(Rejection::Version, "VersionError", &message);
        }
        None => {
            let message = "Missing 'vgi_rpc.request_version' in the custom metadata of the request batch, expected '1'";
            return reject(Rejection::Version, "VersionError", message);
        }
    }
    let name = String::from_utf8_lossy(name).into_owned();
    if describe && name == DESCRIBE {
        return Parsed::Describe;
    }
    let Some((index, method)) = protocol.find(&name).and_then(|index| Some((index, protocol.method(index)?))) else {
        return reject(Rejection::Method, "AttributeError", &unknown(protocol, &name, describe));
    };
    if batch.rows != 1 && !batch.columns.is_empty() {
        let rows = || format!("Expected 1 row in the request batch, got {}", batch.rows);
        let message = batch.unresolved().map_or_else(rows, str::to_owned);
        return reject(Rejection::Protocol, "ProtocolError", &message);
    }
    match values(method, &batch) {
        Ok(values) => Parsed::Call(Request { method: index, values, bytes: batch.bytes, metadata: batch.metadata }),
        Err(message) => {
            let schema = if method.result.fields().is_empty() { empty() } else { Arc::clone(&method.result) };
            Parsed::Rejected(Rejection::Params, schema, Failure::new("TypeError", &message))
        }
    }
}

pub(crate) fn unknown(protocol: &Protocol, name: &str, describe: bool) -> String {
    let mut names: Vec<&str> = protocol.methods().iter().map(|method| method.name.as_str()).collect();
    names.extend(describe.then_some(DESCRIBE));
    names.sort_unstable();
    let names: Vec<String> = names.into_iter().map(|name| format!("'{name}'")).collect();
    format!("Unknown method: '{name}'. Available methods: [{}]", names.join(", "))
}

/// Return the values of the parameters. Columns may come in any order, the sender's nullability is
/// ignored, and a type may differ if it can be cast without loss.
fn values(method: &Method, batch: &Batch) -> Result<Vec<Option<ArrayRef>>, String> {
    let name = &method.name;
    let params = method.params.fields();
    let extra = batch.schema.fields().iter().find(|field| params.find(field.name()).is_none());
    if let Some(field) = extra {
        return Err(format!("{name}() got an unexpected parameter '{}'", field.name()));
    }
    params
        .iter()
        .map(|param| {
            let param_name = param.name();
            let Some(column) = batch.column(param_name) else {
                if method.optional.contains(param_name) {
                    return Ok(None);
                }
                return Err(format!("{name}() is missing the parameter '{param_name}'"));
            };
            let value = if fits(column.data_type(), param.data_type()) {
                Arc::clone(column)
            } else {
                let (is, wanted) = (column.data_type(), param.data_type());
                cast(column, wanted)
                    .ok_or_else(|| format!("{name}() parameter '{param_name}' is {is}, expected {wanted}"))?
            };
            if value.is_null(0) && !method.nulls.contains(param_name) {
                return Err(format!("{name}() parameter '{param_name}' is not optional but got None"));
            }
            Ok(Some(value))
        })
        .collect()
}

/// Return whether a column can be used without a cast. Names and nullability of nested fields may
/// differ, because they do not change the values.
fn fits(is: &DataType, wanted: &DataType) -> bool {
    is == wanted || is.equals_datatype(wanted)
}

/// Return the message for a client whose stream input does not match the schema.
pub(crate) fn mismatch(wanted: &SchemaRef, came: &SchemaRef) -> String {
    let fields = |schema: &SchemaRef| {
        let fields = schema.fields().iter().map(|field| format!("{}: {}", field.name(), field.data_type()));
        fields.collect::<Vec<_>>().join(", ")
    };
    format!("Input schema mismatch: expected {}, got {}", fields(wanted), fields(came))
}

/// Write a request: a stream of one batch with the method's name and the version.
pub fn write(method: &str, mut params: Batch, metadata: Metadata, out: &mut Output) -> Result<()> {
    let mut pairs = Metadata::new();
    pairs.push(key::METHOD, method.as_bytes());
    pairs.push(key::REQUEST_VERSION, REQUEST_VERSION);
    metadata.iter().for_each(|(key, value)| pairs.push(key, value));
    params.metadata = pairs;
    let schema = Arc::clone(&params.schema);
    ipc::stream(&schema, [&params], out)
}
