use std::time::Duration;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// The limits of one document. Exceeding one results in a FAILED part with a reason, never in an error of the whole
/// document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The deepest level of parts; the document itself is at depth 0. A container at this depth is not entered.
    pub max_depth: u32,
    /// The most children of any container.
    pub max_children: u64,
    /// The most children of a container for each MiB, or part of one, of its own size.
    pub children_per_mib: u64,
    /// The most bytes of one part.
    pub max_inflated: u64,
    /// The most bytes of all parts of one document together.
    pub max_total_inflated: u64,
    /// The largest ratio of a member's or stream's size to its compressed size, once the size exceeds 1 MiB.
    pub max_ratio: u32,
    /// The most bytes of text that are kept for a part; the rest is cut off.
    pub max_text: u64,
    /// The most bytes of one HTML or XML document that are read for its text, links and embedded data.
    pub max_markup: u64,
    /// The time limit for reading one part out of its container, or for reading its text.
    pub part_time: Duration,
    /// The most bytes of a member's name that are kept; the rest is cut off.
    pub max_name: usize,
    /// The most memory for the reader of a PDF.
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
    /// The most pages that are requested.
    pub max_pages: u64,
    /// The most bytes of UTF-8 of one page's text.
    pub max_text: u64,
    /// The time limit for opening the document, and for each page.
    pub page_time: Duration,
    /// The most bytes of memory for the reader.
    pub max_memory: u64,
}
