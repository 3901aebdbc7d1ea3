//! What an earlier receipt says of a document's parts, so that those that are the same need not be sent again.

use std::collections::HashMap;

use penstock_documents::Part;
use serde::Deserialize;

/// Where a part lies since an earlier session.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) session: String,
    /// Its scope and its own ID.
    pub(crate) ids: (u16, u32),
    pub(crate) file: Option<String>,
    pub(crate) attempts: u32,
}

/// The parts of an earlier receipt that are COMPLETE, by the way down to them.
#[derive(Debug, Default)]
pub(crate) struct Previous(HashMap<Vec<String>, Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    sha256: String,
    bytes: u64,
    /// The document itself has none in its receipt.
    media_type: Option<String>,
    kept: Kept,
}

#[derive(Deserialize)]
struct Receipt {
    status: String,
    sha256: Option<String>,
    bytes: Option<u64>,
    session: String,
    root: Option<(u16, u32)>,
    file: Option<String>,
    parts: Vec<ReceiptPart>,
}

#[derive(Deserialize)]
struct ReceiptPart {
    path: Vec<String>,
    r#type: String,
    sha256: Option<String>,
    bytes: Option<u64>,
    status: String,
    attempts: u32,
    session: String,
    scope: Option<u16>,
    entity: Option<u32>,
    file: Option<String>,
}

impl Previous {
    /// Reads a receipt.
    pub(crate) fn new(receipt: &str) -> serde_json::Result<Self> {
        let receipt: Receipt = serde_json::from_str(receipt)?;
        let root = ReceiptPart {
            path: Vec::new(),
            r#type: String::new(),
            sha256: receipt.sha256,
            bytes: receipt.bytes,
            status: receipt.status,
            attempts: 1,
            session: receipt.session,
            scope: receipt.root.map(|(scope, _)| scope),
            entity: receipt.root.map(|(_, entity)| entity),
            file: receipt.file,
        };
        let mut found: HashMap<Vec<String>, Vec<Entry>> = HashMap::new();
        for (index, part) in std::iter::once(root).chain(receipt.parts).enumerate() {
            let (Some(sha256), Some(bytes), Some(scope), Some(entity)) =
                (part.sha256, part.bytes, part.scope, part.entity)
            else {
                continue;
            };
            if part.status == "COMPLETE" {
                let ReceiptPart { session, file, attempts, .. } = part;
                let kept = Kept { session, ids: (scope, entity), file, attempts };
                let media_type = (index > 0).then_some(part.r#type);
                found.entry(part.path).or_default().push(Entry { sha256, bytes, media_type, kept });
            }
        }
        Ok(Self(found))
    }

    /// The place of the part that is the same as `part`, for nobody else from now on. A container's octets are not in
    /// the sink, a leaf's are.
    pub(crate) fn take(&mut self, part: &Part, hollow: bool) -> Option<Kept> {
        let (sha256, bytes) = (crate::documents::hex(part.sha256.as_ref()?), part.bytes?);
        let entries = self.0.get_mut(&part.path)?;
        let same = |entry: &Entry| {
            let of_type = entry.media_type.as_ref().is_none_or(|media_type| *media_type == part.media_type);
            entry.sha256 == sha256 && entry.bytes == bytes && of_type && entry.kept.file.is_none() == hollow
        };
        let at = entries.iter().position(same)?;
        Some(entries.remove(at).kept)
    }
}
