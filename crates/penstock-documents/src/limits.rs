use std::time::Duration;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// What one document may cost. Every limit ends in a FAILED part with a reason, never in an error of the whole document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How deep parts may lie; the document itself is at depth 0. A container at this depth is not entered.
    pub max_depth: u32,
    /// How many children any container may have.
    pub max_children: u64,
    /// How many children a container may have for each MiB (begun) of its own size, and at least.
    pub children_per_mib: u64,
    /// How many bytes one part may have.
    pub max_inflated: u64,
    /// How many bytes all parts of one document may have together.
    pub max_total_inflated: u64,
    /// How many times larger than its compressed form a member or stream may be, once it is beyond 1 MiB.
    pub max_ratio: u32,
    /// How many bytes of text are kept for a part; what lies beyond is cut.
    pub max_text: u64,
    /// How many bytes of one HTML or XML document are read for its text, links and embedded data.
    pub max_markup: u64,
    /// How long taking one part out of its container, or reading its text, may take.
    pub part_time: Duration,
    /// How many bytes of a member's name are kept; what lies beyond is cut.
    pub max_name: usize,
    /// How much memory the reader of a PDF may take.
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
    /// Inflating is compared with the compressed size only beyond this many bytes: small parts of zeros are no bombs.
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

/// What the reader of a PDF may cost; its implementation lies outside of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PdfLimits {
    /// How many pages are asked for at most.
    pub max_pages: u64,
    /// How many bytes of UTF-8 one page's text may have.
    pub max_text: u64,
    /// How long opening the document, and each page, may take.
    pub page_time: Duration,
    /// How many bytes of memory the reader may take.
    pub max_memory: u64,
}
