//! The Assembly Manifest for Python; `penstock.pipestream.Manifest` wraps it.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_io::sync::lock;
use penstock_pipestream::{Completion, EntryKey, ManifestLimits, Now, Status};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::IntoPyErr;

/// Which children belong to which parents, and which parents are complete.
#[pyclass(frozen, name = "Manifest", module = "penstock._core")]
pub(crate) struct Manifest(Mutex<penstock_pipestream::Manifest>);

/// A parent whose children are all terminal, in the fields of the dataclass.
#[derive(IntoPyObject)]
pub(crate) struct ResolutionFields {
    scope_id: u16,
    parent_id: u32,
    state: u8,
    children: u64,
    succeeded: u64,
    failed: u64,
    deferred: u64,
}

#[pymethods]
impl Manifest {
    #[new]
    fn new(max_entries: usize, max_age: f64, orphan_age: f64, max_orphans: usize) -> PyResult<Self> {
        let limits = ManifestLimits {
            max_entries,
            max_age: seconds("max_age", max_age)?,
            orphan_age: seconds("orphan_age", orphan_age)?,
            max_orphans,
        };
        Ok(Self(Mutex::new(penstock_pipestream::Manifest::new(limits))))
    }

    fn open(&self, scope_id: u16, parent_id: u32) -> PyResult<()> {
        self.manifest().open(now(), key(scope_id, parent_id)).map_err(IntoPyErr::into_py_err)
    }

    fn add_child(&self, scope_id: u16, parent_id: u32, child_id: u32, status: Option<u8>) -> PyResult<()> {
        let status = status.map(Status::try_from).transpose().map_err(IntoPyErr::into_py_err)?;
        self.manifest().add_child(key(scope_id, parent_id), child_id, status).map_err(IntoPyErr::into_py_err)
    }

    /// Record a child's status; return the name of the effect: applied, repeated, orphaned.
    fn complete_child(&self, scope_id: u16, parent_id: u32, child_id: u32, status: u8) -> PyResult<&'static str> {
        let status = Status::try_from(status).map_err(IntoPyErr::into_py_err)?;
        let done = self.manifest().complete_child(now(), key(scope_id, parent_id), child_id, status);
        Ok(match done.map_err(IntoPyErr::into_py_err)? {
            Completion::Applied => "applied",
            Completion::Repeated => "repeated",
            Completion::Orphaned => "orphaned",
        })
    }

    fn seal(&self, scope_id: u16, parent_id: u32) -> PyResult<()> {
        self.manifest().seal(key(scope_id, parent_id)).map_err(IntoPyErr::into_py_err)
    }

    fn pop_resolved(&self) -> Option<ResolutionFields> {
        let resolution = self.manifest().pop_resolved()?;
        Some(ResolutionFields {
            scope_id: resolution.key.scope,
            parent_id: resolution.key.entity,
            state: resolution.state.code(),
            children: resolution.children,
            succeeded: resolution.succeeded,
            failed: resolution.failed,
            deferred: resolution.deferred,
        })
    }

    fn remove(&self, scope_id: u16, parent_id: u32) -> bool {
        self.manifest().remove(key(scope_id, parent_id))
    }

    /// Drop orphans that have waited too long, and remove and return the entries that were open too long.
    fn expire(&self) -> Vec<(u16, u32)> {
        self.manifest().handle_timeout(now()).into_iter().map(|key| (key.scope, key.entity)).collect()
    }

    fn children(&self, scope_id: u16, parent_id: u32) -> Vec<(u32, Option<u8>)> {
        let manifest = self.manifest();
        let children = manifest.children(key(scope_id, parent_id));
        children.map(|(child, status)| (child, status.map(Status::code))).collect()
    }

    fn unresolved_count(&self, scope_id: u16, parent_id: u32) -> usize {
        self.manifest().unresolved_count(key(scope_id, parent_id))
    }

    fn orphan_count(&self) -> usize {
        self.manifest().orphan_count()
    }

    fn contains(&self, scope_id: u16, parent_id: u32) -> bool {
        self.manifest().contains(key(scope_id, parent_id))
    }

    fn __len__(&self) -> usize {
        self.manifest().len()
    }
}

impl Manifest {
    /// Lock the manifest. Every method leaves it consistent, so a poisoned lock is harmless.
    fn manifest(&self) -> MutexGuard<'_, penstock_pipestream::Manifest> {
        lock(&self.0)
    }
}

fn key(scope: u16, entity: u32) -> EntryKey {
    EntryKey { scope, entity }
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|error| PyValueError::new_err(format!("{name}={value}: {error}")))
}

fn now() -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { instant: Instant::now(), unix_micros: u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX) }
}
