use penstock_documents::Limits;

/// As many children as decision 11 allows for each MiB of their container, and at least. More of them would fail their
/// container at the receiver.
pub(crate) const CHILDREN_PER_MIB: u64 = 1000;

/// Return limits that are no wider than the receiver's.
pub(crate) fn within_receiver(limits: Limits) -> Limits {
    let children_per_mib = limits.children_per_mib.min(CHILDREN_PER_MIB);
    Limits { children_per_mib, ..limits }
}
