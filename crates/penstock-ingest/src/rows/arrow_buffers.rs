//! References to Arrow memory that the IO thread uses, kept so that a thread of the caller releases
//! it.
//!
//! Arrow memory may belong to an object of the caller (in Python, data received from a socket
//! does), and releasing it may take a lock such as the interpreter's. The IO thread must not wait
//! for that lock, especially not while the process ends. So the thread that hands memory over keeps
//! a reference here, and regularly checks whether it is the last reference.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use arrow_array::ArrayRef;
use penstock_io::sync::lock;

use super::columns::{EntityColumns, RowNames};

static BUFFERS: Mutex<Vec<ArrowBuffers>> = Mutex::new(Vec::new());

/// The memory that the rows of one batch use.
struct ArrowBuffers {
    _content: ArrayRef,
    content_in_use: Weak<()>,
    names: Arc<RowNames>,
}

/// Keep a reference to the memory that the rows of a batch use.
pub(super) fn hold(columns: &EntityColumns) {
    let (content, content_in_use) = columns.memory();
    let (_content, content_in_use) = (Arc::clone(content), Weak::clone(content_in_use));
    buffers().push(ArrowBuffers { _content, content_in_use, names: Arc::clone(columns.names()) });
}

/// Release memory that is no longer used elsewhere.
pub(super) fn release_unused() {
    let (unused, used): (Vec<_>, Vec<_>) = {
        let mut buffers = buffers();
        buffers
            .drain(..)
            .partition(|each| each.content_in_use.strong_count() == 0 && Arc::strong_count(&each.names) == 1)
    };
    buffers().extend(used);
    // Drop the memory without the lock, because its owner may take long to release it.
    drop(unused);
}

fn buffers() -> MutexGuard<'static, Vec<ArrowBuffers>> {
    lock(&BUFFERS)
}
