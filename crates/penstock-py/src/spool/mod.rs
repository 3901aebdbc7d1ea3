//! The spool of a Lumberjack receiver for Python; `penstock.lumberjack` wraps it in `Spool` and `SpoolReader`.

pub(crate) mod reader;
pub(crate) mod writer;

use penstock_lumberjack_net::columns::Layout;
use penstock_lumberjack_spool::{Plan, PlanLimits, Position, Store};
use pyo3::prelude::*;
use pyo3_arrow::PySchema;

use crate::lumberjack::raised;

/// Run blocking work without the interpreter's lock.
fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> penstock_lumberjack_net::Result<T> + Send) -> PyResult<T> {
    py.detach(work).map_err(|error| raised(&error))
}

/// The segment, header, start, end, skip and rows of a piece.
pub(crate) type PieceTuple = (u64, u64, u64, u64, u64, u64);
type PositionTuple = (u64, u64);

fn position((segment, row): PositionTuple) -> Position {
    Position { segment, row }
}

/// Divide the spool into pieces; return them and the position where they end.
fn divide(
    py: Python<'_>,
    store: &dyn Store,
    start: PositionTuple,
    until: Option<PositionTuple>,
    limits: PlanLimits,
) -> PyResult<(Vec<PieceTuple>, PositionTuple)> {
    let Plan { pieces, end } =
        detached(py, || penstock_lumberjack_spool::plan(store, position(start), until.map(position), limits))?;
    let tuples =
        pieces.into_iter().map(|piece| (piece.segment, piece.header, piece.start, piece.end, piece.skip, piece.rows));
    Ok((tuples.collect(), (end.segment, end.row)))
}

/// Return the columns of the raw layout, as a pyarrow schema.
#[pyfunction]
pub(crate) fn event_schema(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    PySchema::new(Layout::raw().schema()).into_pyarrow(py)
}

/// Return the layout of a schema, or the raw layout if there is none.
pub(crate) fn layout(schema: Option<PySchema>) -> PyResult<Layout> {
    let Some(schema) = schema else { return Ok(Layout::raw()) };
    Layout::typed(schema.into_inner()).map_err(|error| raised(&error))
}
