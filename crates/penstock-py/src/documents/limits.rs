//! The limits of a document, from the attributes of `penstock.documents.Limits`.

use std::time::Duration;

use penstock_documents::Limits;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The attributes of the dataclass, in its units.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct LimitFields {
    max_depth: u32,
    max_children: u64,
    children_per_mib: u64,
    max_inflated: u64,
    max_total_inflated: u64,
    max_ratio: u32,
    max_text: u64,
    max_markup: u64,
    part_seconds: f64,
    max_name: usize,
    pdf_memory: u64,
}

impl TryFrom<LimitFields> for Limits {
    type Error = PyErr;

    fn try_from(fields: LimitFields) -> PyResult<Self> {
        let part_time = Duration::try_from_secs_f64(fields.part_seconds)
            .map_err(|error| PyValueError::new_err(format!("part_seconds: {error}")))?;
        // These numbers go through a pipe and into the lengths of frames, so larger ones are
        // useless.
        let max_text = fields.max_text.min(u64::from(u32::MAX));
        Ok(Self {
            max_depth: fields.max_depth,
            max_children: fields.max_children,
            children_per_mib: fields.children_per_mib,
            max_inflated: fields.max_inflated,
            max_total_inflated: fields.max_total_inflated,
            max_ratio: fields.max_ratio,
            max_text,
            max_markup: fields.max_markup,
            part_time,
            max_name: fields.max_name,
            pdf_memory: fields.pdf_memory,
        })
    }
}

impl From<Limits> for LimitFields {
    fn from(limits: Limits) -> Self {
        Self {
            max_depth: limits.max_depth,
            max_children: limits.max_children,
            children_per_mib: limits.children_per_mib,
            max_inflated: limits.max_inflated,
            max_total_inflated: limits.max_total_inflated,
            max_ratio: limits.max_ratio,
            max_text: limits.max_text,
            max_markup: limits.max_markup,
            part_seconds: limits.part_time.as_secs_f64(),
            max_name: limits.max_name,
            pdf_memory: limits.pdf_memory,
        }
    }
}

/// Return the defaults of the Rust core, which the dataclass repeats; a test compares both.
#[pyfunction]
pub(crate) fn default_limits() -> LimitFields {
    Limits::default().into()
}
