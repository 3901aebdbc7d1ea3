/// The timers of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A task's lease or delay ends.
    Task(u32),
    /// A type's rate allows another delivery.
    Rate(u32),
    /// The next heartbeat to a worker or a producer.
    Beat(u32),
    /// The journal is tried again.
    Journal,
}
