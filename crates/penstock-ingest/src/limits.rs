use penstock_documents::Limits;

/// The number of children that decision 11 allows for each MiB, or part of one, of their container. More children would
/// fail their container at the receiver.
pub(crate) const CHILDREN_PER_MIB: u64 = 1000;

/// Maximum length of a document's name in bytes; the header of each of its parts contains the name.
pub(crate) const MAX_NAME: usize = 64 << 10;

/// Return limits no wider than the receiver's.
pub(crate) fn within_receiver(limits: Limits) -> Limits {
    let children_per_mib = limits.children_per_mib.min(CHILDREN_PER_MIB);
    Limits { children_per_mib, ..limits }
}
