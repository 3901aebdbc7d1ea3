//! Entity IDs, their cursor and their window, for Python.

use std::sync::{Mutex, MutexGuard};

use penstock_io::sync::lock;
use penstock_pipestream::entity_id::{distance, is_before, ordinal_distance};
use pyo3::prelude::*;

use crate::error::IntoPyErr;

/// The IDs of one scope (section 9.1): the next ID to assign, the resolved ones, and the cursor.
#[pyclass(frozen, name = "EntityIdSpace", module = "penstock.pipestream")]
pub(crate) struct EntityIdSpace(Mutex<penstock_pipestream::EntityIdSpace>);

#[pymethods]
impl EntityIdSpace {
    #[new]
    #[pyo3(signature = (max_window, *, last_assigned=0, cursor=1))]
    fn new(max_window: u32, last_assigned: u32, cursor: u32) -> PyResult<Self> {
        penstock_pipestream::EntityIdSpace::with_start(max_window, last_assigned, cursor)
            .map(|space| Self(Mutex::new(space)))
            .map_err(IntoPyErr::into_py_err)
    }

    /// Take the next ID; `None` means back-pressure: the window is full.
    fn assign(&self) -> Option<u32> {
        self.space().assign()
    }

    /// Mark an ID as resolved and return whether the cursor moved. An ID that is not in flight changes nothing.
    fn resolve(&self, entity_id: u32) -> bool {
        self.space().resolve(entity_id)
    }

    /// Return whether the ID is assigned but not resolved.
    fn is_unresolved(&self, entity_id: u32) -> bool {
        self.space().is_unresolved(entity_id)
    }

    /// Move the cursor to the peer's, which resolves every ID before it; return whether it moved.
    fn advance_to(&self, cursor: u32) -> PyResult<bool> {
        self.space().advance_to(cursor).map_err(IntoPyErr::into_py_err)
    }

    /// Return the lowest unresolved ID or, if there is none, the next unassigned one.
    #[getter]
    fn cursor(&self) -> u32 {
        self.space().cursor()
    }

    /// Return the ID assigned last; 0 at the start.
    #[getter]
    fn last_assigned(&self) -> u32 {
        self.space().last_assigned()
    }

    /// Return the ID that would be assigned next if the window allowed it.
    #[getter]
    fn next_id(&self) -> u32 {
        self.space().next_id()
    }

    /// Return how many IDs lie from the cursor to the last assigned one.
    #[getter]
    fn in_flight(&self) -> u32 {
        self.space().in_flight()
    }

    /// Return the effective window.
    #[getter]
    fn max_window(&self) -> u32 {
        self.space().max_window()
    }

    /// Return whether the window allows no further ID.
    #[getter]
    fn is_full(&self) -> bool {
        self.space().is_full()
    }

    /// Return `(to - start) mod 0xFFFFFFFD`, the measure of window and cursor.
    #[staticmethod]
    fn distance(start: u32, to: u32) -> u32 {
        distance(start, to)
    }

    /// Return how many assignments lead from one assignable ID to the other.
    #[staticmethod]
    fn ordinal_distance(start: u32, to: u32) -> u32 {
        ordinal_distance(start, to)
    }

    /// Return whether `first` comes before `second` in circular order, or equals it (section 9.3).
    #[staticmethod]
    fn is_before(first: u32, second: u32) -> bool {
        is_before(first, second)
    }

    fn __repr__(&self) -> String {
        let space = self.space();
        format!(
            "EntityIdSpace({}, last_assigned={}, cursor={})",
            space.max_window(),
            space.last_assigned(),
            space.cursor()
        )
    }
}

impl EntityIdSpace {
    /// Lock the space. Every method leaves it consistent, so a poisoned lock is harmless.
    fn space(&self) -> MutexGuard<'_, penstock_pipestream::EntityIdSpace> {
        lock(&self.0)
    }
}
