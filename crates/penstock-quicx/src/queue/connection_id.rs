/// The ID of a queue's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// The index of the connection, which is reused once the connection is closed.
    pub index: u32,
    pub(super) generation: u32,
}
