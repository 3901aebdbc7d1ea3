use std::time::Duration;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// The limits of one document. Exceeding one results in a FAILED part with a reason, never in an error of the whole
/// document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The deepest level of parts; the document itself is at depth 0. A container at this depth is not entered.
    pub max_depth: u32,
    /// The maximum number of children of any container.
    pub max_children: u64,
    /// The maximum number of children of a container for each MiB, or started MiB, of its own size.
    pub children_per_mib: u64,
    /// The maximum size of one part in bytes.
    pub max_inflated: u64,
    /// The maximum size of all parts of one document together, in bytes.
    pub max_total_inflated: u64,
    /// The largest ratio of a member's or stream's size to its compressed size, once the size exceeds 1 MiB.
    pub max_ratio: u32,
    /// The maximum number of bytes of text kept for a part; the rest is cut off.
    pub max_text: u64,
    /// The maximum number of bytes of an HTML or XML document that are searched for text, links and embedded data.
    pub max_markup: u64,
    /// The time limit for reading one part out of its container, or for reading its text.
    pub part_time: Duration,
    /// The maximum number of bytes kept of a member's name; the rest is cut off.
    pub max_name: usize,
    /// The memory limit of the PDF reader, in bytes.
    pub pdf_memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_depth: 7,
            max_children: 1_000_000,
            children_per_mib: 1000,
            max_inflated: 4 * GIB,
            max_total_inflated: 64 * GIB,
            max_ratio: 1000,
            max_text: 16 * MIB,
            max_markup: 64 * MIB,
            part_time: Duration::from_secs(60),
            max_name: 4096,
            pdf_memory: GIB,
        }
    }
}

impl Limits {
    /// The ratio is checked only beyond this many bytes: small parts of zeros are not bombs.
    pub(crate) const RATIO_FLOOR: u64 = MIB;

    /// Return how many children a container of `bytes` bytes may have.
    pub fn children_of(&self, bytes: u64) -> u64 {
        let allowed = self.children_per_mib.saturating_mul(bytes.div_ceil(MIB).max(1));
        allowed.min(self.max_children)
    }

    /// Return the limits for the reader of a PDF of `bytes` bytes.
    pub(crate) fn pdf(&self, bytes: u64) -> PdfLimits {
        PdfLimits {
            max_pages: self.children_of(bytes),
            max_text: self.max_text,
            page_time: self.part_time,
            max_memory: self.pdf_memory,
        }
    }
}

/// The limits for the reader of a PDF, which is implemented outside this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PdfLimits {
    /// The maximum number of pages that are requested.
    pub max_pages: u64,
    /// The maximum size of one page's text, in bytes of UTF-8.
    pub max_text: u64,
    /// The time limit for opening the document, and for each page.
    pub page_time: Duration,
    /// The memory limit of the reader, in bytes.
    pub max_memory: u64,
}
