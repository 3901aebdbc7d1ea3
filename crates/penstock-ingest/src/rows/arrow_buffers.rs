//! Memory of Arrow that the IO thread uses, given back by a thread of the caller.
//!
//! Arrow's memory may belong to an object of the caller (in Python, what came by a socket does), and giving that back
//! may take a lock, as that of Python's interpreter. The IO thread must not wait for it, least of all while the process
//! ends. So whoever hands memory over holds a share of it here, and looks now and then whether it is the last one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow_array::ArrayRef;

use super::columns::{EntityColumns, RowNames};

static BUFFERS: Mutex<Vec<ArrowBuffers>> = Mutex::new(Vec::new());

/// What the rows of one batch use.
struct ArrowBuffers {
    _content: ArrayRef,
    content_in_use: Weak<()>,
    names: Arc<RowNames>,
}

/// Hold a share of what the rows of a batch use.
pub(super) fn hold(columns: &EntityColumns) {
    let (content, content_in_use) = columns.memory();
    let (_content, content_in_use) = (Arc::clone(content), Weak::clone(content_in_use));
    buffers().push(ArrowBuffers { _content, content_in_use, names: Arc::clone(columns.names()) });
}

/// Give back what nobody else uses any more.
pub(super) fn release_unused() {
    let (unused, used): (Vec<_>, Vec<_>) = {
        let mut buffers = buffers();
        buffers
            .drain(..)
            .partition(|each| each.content_in_use.strong_count() == 0 && Arc::strong_count(&each.names) == 1)
    };
    buffers().extend(used);
    // Dropped without the lock: an owner may take its time.
    drop(unused);
}

fn buffers() -> MutexGuard<'static, Vec<ArrowBuffers>> {
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}
