use std::collections::BTreeMap;
use std::fmt;

use crate::failure::Failure;
use crate::workspace::Source;

/// The bytes of a part, positioned at 0.
pub type Payload = Box<dyn Source>;

/// One part of a document, or the document itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// The path from the document through its containers; empty for the document itself.
    pub path: Vec<String>,
    /// How many containers enclose the part; the document is at 0.
    pub depth: u32,
    /// The MIME type, determined from the content.
    pub media_type: String,
    /// SHA-256 of the part's bytes as its container yielded them; `None` if they could not be read completely.
    pub sha256: Option<[u8; 32]>,
    /// The number of these bytes; `None` as for `sha256`.
    pub bytes: Option<u64>,
    /// Why the part failed, if it did.
    pub failure: Option<Failure>,
    /// The decoded text of a part that is text, cut at [`Limits::max_text`](crate::Limits::max_text).
    pub text: Option<String>,
    /// Whether the container declares the part's type or charset, as a mail does. Without that declaration the same
    /// bytes may yield another text.
    pub declared: bool,
    /// The part's own metadata: `html.title`, `mail.subject`, `text.charset`, ...
    pub metadata: BTreeMap<String, String>,
    /// Whether the part's own bytes are kept although it has children (HTML with embedded data). The bytes of archives,
    /// mails and PDFs are not: their children stand for them.
    pub keeps_payload: bool,
}

/// A step of taking a document apart.
pub enum Event {
    /// A container: its children follow, then [`Event::Leave`]. The payload is present only with
    /// [`Part::keeps_payload`].
    Enter(Part, Option<Payload>),
    /// A part without children. The payload is `None` for failed parts whose bytes cannot be read.
    Leaf(Part, Option<Payload>),
    /// The end of the innermost open container.
    Leave {
        /// How many children it had, including failed ones.
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
