use std::collections::BTreeMap;
use std::fmt;

use crate::failure::Failure;
use crate::workspace::Source;

/// The bytes of a part, positioned at 0.
pub type Payload = Box<dyn Source>;

/// One part of a document, or the document itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// The way down from the document through its containers; empty for the document itself.
    pub path: Vec<String>,
    /// How many containers the part lies in; the document is at 0.
    pub depth: u32,
    /// The MIME type, told by content.
    pub media_type: String,
    /// SHA-256 of the part's bytes as they came out of its container; `None` if they were never obtained.
    pub sha256: Option<[u8; 32]>,
    /// How many bytes that are.
    pub bytes: Option<u64>,
    /// Why the part failed, if it did.
    pub failure: Option<Failure>,
    /// The decoded text of a part that is text, cut at [`Limits::max_text`](crate::Limits::max_text).
    pub text: Option<String>,
    /// Whether its container says its type or its charset, as a mail does: its bytes alone need not give the same text.
    pub declared: bool,
    /// What the part says of itself: `html.title`, `mail.subject`, `text.charset`, ...
    pub metadata: BTreeMap<String, String>,
    /// Whether the part's own bytes go with it although it has children (HTML with embedded data). The bytes of
    /// archives, mails and PDFs stay behind: their children stand for them.
    pub keeps_payload: bool,
}

/// A step of taking a document apart.
pub enum Event {
    /// A container: its children follow, then [`Event::Leave`]. The payload comes only with
    /// [`Part::keeps_payload`].
    Enter(Part, Option<Payload>),
    /// A part without children. `None` for failed parts whose bytes were never obtained.
    Leaf(Part, Option<Payload>),
    /// The end of the container that was entered last and not yet left.
    Leave {
        /// How many children it had, failed ones too.
        children: u64,
    },
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enter(part, payload) => {
                f.debug_tuple("Enter").field(part).field(&payload.as_ref().map(|_| "payload")).finish()
            }
            Self::Leaf(part, payload) => {
                f.debug_tuple("Leaf").field(part).field(&payload.as_ref().map(|_| "payload")).finish()
            }
            Self::Leave { children } => f.debug_struct("Leave").field("children", children).finish(),
        }
    }
}
