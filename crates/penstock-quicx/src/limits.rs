/// The bytes of a reason that are kept; the rest is skipped (decision 3).
pub const REASON: usize = 64 << 10;
/// The largest payload of a frame; a larger one ends the connection (decision 3).
pub const LARGEST: u32 = 64 << 20;
/// The largest payload of a SUBSCRIBE.
pub(crate) const SUBSCRIBE: usize = 64 << 10;
