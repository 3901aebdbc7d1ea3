"""The last stage of a plan that sends a document's parts by several tasks: it orders the rows and writes the receipt.

::

    results of the groups ──▶ complete, within the limits? ──▶ containers sent: their status follows from the results
                                        │ no                            │
                     the document is sent by one task, here     rows pass, a batch at a time; each adds a line for the
                                                                receipt to a temporary file
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from penstock._sending import CLAIM_SCHEMA, PART_SCHEMA
from penstock._staged_receipts import StagedReceipts
from penstock.documents import Limits
from penstock.spark._dehydrate import Attempt, finished, identity_of, source_of, staged_receipts
from penstock.spark._divide import Task
from penstock.spark._gathered_receipt import GatheredReceipt

if TYPE_CHECKING:
    from penstock.spark.functions import Dehydrate

__all__ = ["Gather"]


@dataclass(frozen=True)
class Gather:
    """Gathers the rows of documents, for ``mapInArrow``; they must be sorted by ``ordinal``, ``place`` and ``step``."""

    options: "Dehydrate"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Gather the rows. Spark calls this once for each attempt of a task."""
        runs = _Runs(batches)
        if runs.peek() is None:
            return
        with staged_receipts(self.options) as receipts, _Gathering(self.options, receipts) as attempt:
            yield from finished(attempt, attempt.gathered(runs))


class _Runs:
    """Batches of rows, each of which belongs to one document."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._pieces = chain.from_iterable(map(_split, batches))
        self._next: deque[pa.RecordBatch] = deque()

    def peek(self) -> pa.RecordBatch | None:
        """Return the next piece without consuming it; ``None`` at the end."""
        if not self._next:
            self._next.extend([piece] if (piece := next(self._pieces, None)) is not None else [])
        return self._next[0] if self._next else None

    def document(self) -> Iterator[pa.RecordBatch]:
        """Consume and yield the pieces of the next document."""
        ordinal: int | None = None
        while (piece := self.peek()) is not None:
            own = piece.column("ordinal")[0].as_py()
            if ordinal is not None and own != ordinal:
                return
            ordinal = own
            yield self._next.popleft()

    def put_back(self, piece: pa.RecordBatch) -> None:
        """Return a piece, or the rest of one, to the front."""
        if piece.num_rows:
            self._next.appendleft(piece)


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    ordinals = batch.column("ordinal").to_pylist()
    start = 0
    for at in range(1, len(ordinals) + 1):
        if at == len(ordinals) or ordinals[at] != ordinals[start]:
            yield batch.slice(start, at - start)
            start = at


class _Gathering(Attempt):
    """An attempt for documents whose parts were sent by other tasks."""

    def __init__(self, options: "Dehydrate", receipts: StagedReceipts) -> None:
        super().__init__(options, receipts)
        self._limits = options.limits or Limits()

    def gathered(self, runs: _Runs) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all documents."""
        while runs.peek() is not None:
            yield from self._document(runs)

    def _document(self, runs: _Runs) -> Iterator[pa.RecordBatch]:
        pieces = runs.document()
        accounts: list[dict[str, Any]] = []
        for piece in pieces:
            notes = [note for note in piece.column("note").to_pylist() if note is not None]
            accounts += map(json.loads, notes)
            if len(notes) < piece.num_rows:
                # The results of groups come first; the remaining rows are parts.
                runs.put_back(piece.slice(len(notes)))
                break
        if not accounts:
            yield from map(self._shaped, pieces)
            return
        task = Task(**json.loads(accounts[0]["task"]))
        if self._is_whole(task, accounts):
            yield from self._divided(task, accounts, pieces)
            return
        deque(pieces, maxlen=0)
        yield from self._as_one(task)

    def _is_whole(self, task: Task, accounts: list[dict[str, Any]]) -> bool:
        """Return whether the groups are equivalent to the work of a single task."""
        inflated = task.inflated + sum(account["inflated"] for account in accounts)
        return (
            all(account["missing"] is None for account in accounts)
            and sum(account["children"] for account in accounts) == task.children
            # Only a task that sends all parts in order can tell which of them exceeds the limit.
            and inflated <= self._limits.max_total_inflated
        )

    def _as_one(self, task: Task) -> Iterator[pa.RecordBatch]:
        name, source = source_of(task.path, task.document, self._options)
        previous = self.previous(name)
        self._on_their_way.append(self.sender().send(name, source, previous=previous, **identity_of(task)))
        result = self.wait()
        self._receipts.add(result)
        return result.batches(claims=self._options.has_claims)

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = CLAIM_SCHEMA if self._options.has_claims else PART_SCHEMA
        return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)

    def _divided(
        self, task: Task, accounts: list[dict[str, Any]], pieces: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        previous = self.previous(task.document)
        incomplete = sum(account["incomplete"] for account in accounts)
        containers = cast("Any", task.chain)
        counts = (task.children, incomplete)
        sender, identity = self.sender(), identity_of(task)
        sent = sender.send_containers(task.document, containers, *counts, previous=previous, **identity)
        self._on_their_way.append(sent)
        result = self.wait()
        place = self._receipts.place(result.document, result.key)
        with GatheredReceipt(result, place, previous) as receipt:
            for account in accounts:
                receipt.add_scope(account["scope"])
            for batch in chain(result.placed_batches(), pieces):
                receipt.add(batch)
                yield self._shaped(batch)
            receipt.write()
