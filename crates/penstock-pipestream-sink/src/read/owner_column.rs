//! The owner column of rows: OwnershipContext (section 7.1) as a struct; null if a row states no
//! owner.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, NullBufferBuilder, StringBuilder};
use arrow_array::{ArrayRef, StructArray};
use arrow_schema::{DataType, Field, Fields};
use penstock_pipestream::OwnershipContext;

/// Return the fields of an owner.
pub fn owner_fields() -> Fields {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    vec![field("owner_id", DataType::Utf8), field("group_id", DataType::Utf8), field("scopes", DataType::List(scope()))]
        .into()
}

fn scope() -> Arc<Field> {
    // The name that Spark uses.
    Arc::new(Field::new("element", DataType::Utf8, true))
}

/// A builder of the owner column.
#[derive(Debug)]
pub struct OwnerColumnBuilder {
    owner_id: StringBuilder,
    group_id: StringBuilder,
    scopes: ListBuilder<StringBuilder>,
    validity: NullBufferBuilder,
}

impl Default for OwnerColumnBuilder {
    fn default() -> Self {
        Self {
            owner_id: StringBuilder::new(),
            group_id: StringBuilder::new(),
            scopes: ListBuilder::new(StringBuilder::new()).with_field(scope()),
            validity: NullBufferBuilder::new(0),
        }
    }
}

impl OwnerColumnBuilder {
    /// Add the owner of the next row, or null if it has none.
    pub fn push(&mut self, owner: Option<&OwnershipContext>) {
        self.owner_id.append_option(owner.and_then(|owner| owner.owner_id.as_deref()));
        self.group_id.append_option(owner.and_then(|owner| owner.group_id.as_deref()));
        for scope in owner.into_iter().flat_map(|owner| &owner.scopes) {
            self.scopes.values().append_value(scope);
        }
        self.scopes.append(owner.is_some());
        self.validity.append(owner.is_some());
    }

    /// Return the column, and reset the builder.
    pub fn finish(&mut self) -> ArrayRef {
        let columns: Vec<ArrayRef> =
            vec![Arc::new(self.owner_id.finish()), Arc::new(self.group_id.finish()), Arc::new(self.scopes.finish())];
        let length = columns.first().map_or(0, |column| column.len());
        let validity = self.validity.finish();
        let array = StructArray::try_new(owner_fields(), columns, validity);
        // This does not fail: the columns have the same length and the types of the fields.
        Arc::new(array.unwrap_or_else(|_| StructArray::new_null(owner_fields(), length)))
    }
}
