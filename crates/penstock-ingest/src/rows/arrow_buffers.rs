//! Memory of Arrow that the IO thread uses, given back by a thread of Python.
//!
//! Arrow's memory may be that of a Python object (what came by a socket is), and giving that back takes the
//! interpreter's lock. The IO thread must not wait for it, least of all while the interpreter ends. So whoever hands
//! memory over keeps a share of it here, and looks now and then whether it is the last one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::columns::{Columns, Names};

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

struct Kept {
    octets: Bytes,
    names: Arc<Names>,
}

/// Keeps a share of what the rows of a batch use.
pub(super) fn keep(columns: &Columns) {
    kept().push(Kept { octets: columns.octets().clone(), names: Arc::clone(columns.names()) });
}

/// Gives back what nobody else uses any more.
pub(super) fn sweep() {
    let (unused, used): (Vec<_>, Vec<_>) = {
        let mut kept = kept();
        kept.drain(..).partition(|each| each.octets.is_unique() && Arc::strong_count(&each.names) == 1)
    };
    kept().extend(used);
    drop(unused);
}

fn kept() -> MutexGuard<'static, Vec<Kept>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}
