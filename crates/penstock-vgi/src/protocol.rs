//! The methods of a service and their schemas.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};

use crate::error::{Misuse, Result};

/// The built-in method that describes the others (section 14).
pub const DESCRIBE: &str = "__describe__";

/// The variants of the protocol that a server may speak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The specification.
    #[default]
    Spec,
    /// Release 0.10 of the reference package.
    V0_10,
}

impl Dialect {
    /// Return the dialect with this name: `spec` or `0.10`.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "spec" => Ok(Self::Spec),
            "0.10" => Ok(Self::V0_10),
            _ => Err(Misuse::Dialect(name.to_owned()).into()),
        }
    }

    /// Return its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::V0_10 => "0.10",
        }
    }
}

/// The number of answers of a method: one, or a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodKind {
    /// One answer.
    Unary,
    /// A stream, whose direction depends on the method's state.
    Stream,
}

impl MethodKind {
    /// Return its name in descriptions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Stream => "stream",
        }
    }
}

/// The schemas of a method as `pa.Schema.serialize()` writes them. The hash of dialect 0.10 covers
/// these bytes, so the creator of the schemas must supply them.
#[derive(Debug, Clone, Default)]
pub struct Serialized {
    /// The schema of the parameters.
    pub params: Vec<u8>,
    /// The schema of the result.
    pub result: Vec<u8>,
    /// The schema of the header.
    pub header: Option<Vec<u8>>,
}

/// A method.
#[derive(Debug, Clone)]
pub struct Method {
    /// The method's name on the wire.
    pub name: String,
    /// Whether the method is unary or a stream.
    pub kind: MethodKind,
    /// One field per parameter.
    pub params: SchemaRef,
    /// One field `result`, or no field.
    pub result: SchemaRef,
    /// Parameters that a request may omit.
    pub optional: Vec<String>,
    /// Parameters that may be null. The nullability of a field does not decide this: some fields
    /// are declared as not null and yet contain nulls.
    pub nulls: Vec<String>,
    /// The schema of the stream's header, if it has one.
    pub header: Option<SchemaRef>,
    /// Whether a stream takes input, if the declaration says so.
    pub is_exchange: Option<bool>,
    /// Whether a unary method returns a value.
    pub has_return: bool,
    /// The docstring.
    pub doc: Option<String>,
    /// The schemas as IPC messages, for descriptions: params, result and header.
    pub serialized: Serialized,
    /// The types of the parameters in JSON: `{"name": "type"}`.
    pub param_types: Option<String>,
    /// The defaults of the parameters in JSON: `{"name": default}`.
    pub param_defaults: Option<String>,
}

/// A service: a name and methods.
#[derive(Debug, Clone)]
pub struct Protocol {
    name: String,
    methods: Vec<Method>,
    by_name: HashMap<String, usize>,
    empty: SchemaRef,
}

impl Protocol {
    /// Make a service. Reject two methods with the same name.
    pub fn new(name: impl Into<String>, methods: Vec<Method>) -> Result<Self> {
        let mut by_name = HashMap::with_capacity(methods.len());
        for (index, method) in methods.iter().enumerate() {
            if by_name.insert(method.name.clone(), index).is_some() {
                return Err(Misuse::MethodName(method.name.clone()).into());
            }
        }
        Ok(Self { name: name.into(), methods, by_name, empty: Arc::new(Schema::empty()) })
    }

    /// Return its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Return its methods, in the given order.
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// Return the index of a method.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Return the method at an index.
    pub fn method(&self, index: usize) -> Option<&Method> {
        self.methods.get(index)
    }

    /// Return the schema without fields (appendix B).
    pub const fn empty_schema(&self) -> &SchemaRef {
        &self.empty
    }
}
