/// The ID of a queue's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Its index, which is reused once it is closed.
    pub index: u32,
    pub(super) generation: u32,
}
