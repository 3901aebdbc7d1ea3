/// A connection of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Its place, which is used again once it is closed.
    pub index: u32,
    pub(super) generation: u32,
}
