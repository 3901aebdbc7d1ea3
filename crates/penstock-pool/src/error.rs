use std::fmt;

/// The reason why a pool cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigError {
    /// There are no size classes, or more than 255.
    Count(usize),
    /// A class is not a multiple of 16, not above the one before it, or beyond 1 MiB.
    Class(usize),
    /// The pool has no room for a slab, or is beyond 64 GiB.
    Pool {
        /// The number of bytes requested.
        bytes: usize,
        /// The smallest size that holds a slab of these classes.
        least: usize,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "a pool has 1 to 255 size classes, not {count}"),
            Self::Class(size) => {
                write!(f, "size classes ascend and are multiples of 16 up to 1 MiB: {size} does not fit")
            }
            Self::Pool { bytes, least } => {
                write!(f, "a pool of these size classes has {least} bytes to 64 GiB, not {bytes}")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// The reason why no block was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocError {
    /// More bytes than the largest size class has.
    TooLarge {
        /// The number of bytes requested.
        bytes: usize,
        /// The largest class.
        largest: usize,
    },
    /// The class has no free block, and no slab is empty.
    Exhausted {
        /// The class.
        class: usize,
    },
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, largest } => {
                write!(f, "{bytes} bytes are above the largest size class of {largest}")
            }
            Self::Exhausted { class } => write!(f, "the pool has no free block of {class} bytes"),
        }
    }
}

impl std::error::Error for AllocError {}

/// The reason why a handle is not that of an allocated block. The call changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockError {
    /// It belongs to another pool.
    Foreign,
    /// It does not point to a block's beginning, or points beyond the pool's end.
    Interior,
    /// It was freed before; a later allocation in the same place has another stamp.
    Freed,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "the block is of another pool",
            Self::Interior => "no block begins there",
            Self::Freed => "the block was freed before",
        })
    }
}

impl std::error::Error for BlockError {}
