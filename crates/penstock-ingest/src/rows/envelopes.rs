//! The columns with the document and the owner of a row (section 7.1).

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch, StructArray};
use penstock_pipestream::pipe_doc::doc_id_of_key;
use penstock_pipestream::{OwnershipContext, PipeDoc, document_key};

use super::strings::{StringColumn, list_of};
use crate::{Result, Value};

/// The substitute for a document's digest, which is unknown because its rows come one by one.
const NO_CONTENT: [u8; 32] = [0; 32];

/// The columns `doc_id` and `owner`, if the batch has them.
pub(super) struct EnvelopeColumns {
    doc_ids: Option<StringColumn>,
    owners: Option<OwnerColumn>,
}

struct OwnerColumn {
    rows: StructArray,
    owner_ids: Option<StringColumn>,
    group_ids: Option<StringColumn>,
    scopes: Option<ArrayRef>,
}

impl EnvelopeColumns {
    pub(super) fn new(batch: &RecordBatch) -> Result<Self> {
        let doc_ids = batch.column_by_name("doc_id").map(|column| StringColumn::new("doc_id", column)).transpose()?;
        let owners = batch.column_by_name("owner").map(OwnerColumn::new).transpose()?;
        Ok(Self { doc_ids, owners })
    }

    /// Return the document's message for a row, or an error if it cannot be sent. A document
    /// without an ID gets one derived from its name, so the ID is the same in every row.
    pub(super) fn get(&self, row: usize, document: Option<&str>) -> Result<Option<PipeDoc>> {
        let ownership = self.owners.as_ref().and_then(|owners| owners.get(row));
        let explicit = self.doc_ids.as_ref().and_then(|texts| texts.get(row)).map(str::to_owned);
        let Some(doc_id) = explicit.or_else(|| doc_id_of_key(&document_key(document?, &NO_CONTENT))) else {
            return match ownership {
                Some(_) => Err(Value::OwnerWithoutDocument.into()),
                None => Ok(None),
            };
        };
        let doc = PipeDoc { doc_id, entity_id: 0, ownership };
        doc.check().map_err(Value::PipeDoc)?;
        Ok(Some(doc))
    }
}

impl OwnerColumn {
    fn new(column: &ArrayRef) -> Result<Self> {
        let wrong = || Value::column_type("owner", "a struct", column.data_type());
        let rows = column.as_struct_opt().cloned().ok_or_else(wrong)?;
        let text = |name: &str| {
            let named = format!("owner.{name}");
            rows.column_by_name(name).map(|column| StringColumn::new(&named, column)).transpose()
        };
        let (owner_ids, group_ids) = (text("owner_id")?, text("group_id")?);
        let scopes = rows.column_by_name("scopes").cloned();
        if let Some(scopes) = &scopes {
            list_of("owner.scopes", scopes, 0)?;
        }
        Ok(Self { rows, owner_ids, group_ids, scopes })
    }

    fn get(&self, row: usize) -> Option<OwnershipContext> {
        if row >= self.rows.len() || self.rows.is_null(row) {
            return None;
        }
        let text = |texts: &Option<StringColumn>| texts.as_ref().and_then(|texts| texts.get(row)).map(str::to_owned);
        let scopes = self.scopes.as_ref().and_then(|scopes| list_of("owner.scopes", scopes, row).ok().flatten());
        let owner = OwnershipContext {
            owner_id: text(&self.owner_ids),
            group_id: text(&self.group_ids),
            scopes: scopes.unwrap_or_default(),
        };
        (!owner.is_empty()).then_some(owner)
    }
}
