use penstock_wire::Limit;

/// The deepest nesting of types. Deeper types are an attack on the stack, not data.
pub(crate) const DEEPEST: usize = 32;

/// The limits on a peer's input. Each is checked when a length is read, before memory is allocated
/// for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes in the body of one message: 2 GiB.
    pub body: u64,
    /// The most bytes in the head of one message, a schema or the layout of a batch: 16 MiB.
    pub head: u64,
    /// The most bytes in the custom metadata of one batch, keys and values together: 8 MiB.
    pub metadata: u64,
    /// The most pairs in the custom metadata of one batch: 1,024.
    pub pairs: u64,
    /// The most rows of a batch, and values of a nested column: 2^31 - 1.
    pub rows: u64,
    /// The most bytes in the dictionaries of one stream: 256 MiB.
    pub dictionaries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 2 << 30,
            head: 16 << 20,
            metadata: 8 << 20,
            pairs: 1_024,
            rows: i32::MAX as u64,
            dictionaries: 256 << 20,
        }
    }
}

impl Limits {
    pub(crate) const fn body(&self) -> Limit {
        Limit::new("the body of an IPC message", self.body)
    }

    pub(crate) const fn head(&self) -> Limit {
        Limit::new("the head of an IPC message", self.head)
    }

    pub(crate) const fn metadata(&self) -> Limit {
        Limit::new("the custom metadata of a batch", self.metadata)
    }

    pub(crate) const fn pairs(&self) -> Limit {
        Limit::new("the number of pairs of custom metadata", self.pairs)
    }

    pub(crate) const fn rows(&self) -> Limit {
        Limit::new("the row count", self.rows)
    }

    pub(crate) const fn dictionaries(&self) -> Limit {
        Limit::new("the dictionaries of an IPC stream", self.dictionaries)
    }
}
