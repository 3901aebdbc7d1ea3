"""A worker that doubles every column of what it gets."""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.vgi import AnnotatedBatch, CallContext, ExchangeState, OutputCollector, Stream, run_server

COLUMNS = 16
SCHEMA = pa.schema([(f"c{number}", pa.float64()) for number in range(COLUMNS)])


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every column twice as large."""
    return pa.RecordBatch.from_arrays([pc.multiply(column, 2.0) for column in batch.columns], schema=SCHEMA)


@dataclass
class Double(ExchangeState):
    """Doubles."""

    def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:  # noqa: A002, ARG002
        """Double a batch."""
        out.emit(doubled(input.batch))


class Doubling(Protocol):
    """What the worker has."""

    def double(self) -> Stream[Double]: ...


class DoublingImpl:
    """Does it."""

    def double(self) -> Stream[Double]:
        """Double batches."""
        return Stream(output_schema=SCHEMA, state=Double(), input_schema=SCHEMA)


if __name__ == "__main__":
    run_server(Doubling, DoublingImpl())
