use penstock_wire::Limit;

/// Limits on a peer's input, with their defaults (decision 7). Each is checked when a length is read, before memory is
/// allocated for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a compressed payload: 32 MiB.
    pub compressed: u64,
    /// Bytes that a compressed payload may inflate to: 256 MiB.
    pub inflated: u64,
    /// The largest ratio of inflated to compressed length: 1,000. It is not checked for up to 64 KiB of inflated data.
    pub ratio: u64,
    /// Bytes of a key: 64 KiB.
    pub key: u64,
    /// Bytes of a value, or of a JSON document: 16 MiB.
    pub value: u64,
    /// Pairs of an event: 65,536.
    pub pairs: u64,
    /// Bytes of the frame of an event of pairs: 64 MiB.
    pub data: u64,
    /// Events of a window: 65,536.
    pub window: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            compressed: 32 << 20,
            inflated: 256 << 20,
            ratio: 1_000,
            key: 64 << 10,
            value: 16 << 20,
            pairs: 65_536,
            data: 64 << 20,
            window: 65_536,
        }
    }
}

impl Limits {
    pub(crate) const fn compressed(&self) -> Limit {
        Limit::new("the length of a compressed frame", self.compressed)
    }

    pub(crate) const fn inflated(&self) -> Limit {
        Limit::new("the inflated length of a compressed frame", self.inflated)
    }

    pub(crate) const fn ratio(&self) -> Limit {
        Limit::new("the ratio of a compressed frame", self.ratio)
    }

    pub(crate) const fn key(&self) -> Limit {
        Limit::new("the length of a key", self.key)
    }

    pub(crate) const fn value(&self) -> Limit {
        Limit::new("the length of a value", self.value)
    }

    pub(crate) const fn json(&self) -> Limit {
        Limit::new("the length of a JSON document", self.value)
    }

    pub(crate) const fn pairs(&self) -> Limit {
        Limit::new("the pair count", self.pairs)
    }

    pub(crate) const fn data(&self) -> Limit {
        Limit::new("the length of a data frame", self.data)
    }

    pub(crate) const fn window(&self) -> Limit {
        Limit::new("the window", self.window)
    }
}
