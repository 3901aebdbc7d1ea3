"""The second stage of a plan that sends a document's parts by several tasks: each task sends groups in its own session.

A group is sent below an entity that represents its container in that session. Its rows contain everything that a
receipt needs, and a row before them holds the result of the group. A document that was not divided is completed here.
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from penstock._columns import rows_batch
from penstock._staged_receipts import StagedReceipts
from penstock.documents import DocumentResult
from penstock.spark._dehydrate import Attempt, finished, identity_of, source_of, staged_receipts
from penstock.spark._divide import Task, stamp
from penstock.spark._paths import from_column
from penstock.spark._placed import PLACED_SCHEMA, with_note

if TYPE_CHECKING:
    from penstock.spark.functions import Dehydrate

__all__ = ["SendApart"]


@dataclass(frozen=True)
class SendApart:
    """Sends the groups that the rows name, for ``mapInArrow``; a document's rows must be adjacent and in order."""

    options: "Dehydrate"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the groups. Spark calls this once for each attempt of a task."""
        groups = _groups(batches)
        first = next(groups, None)
        if first is None:
            return
        with staged_receipts(self.options) as receipts, _Sending(self.options, receipts) as attempt:
            yield from finished(attempt, attempt.apart(chain([first], groups)))


@dataclass(frozen=True)
class _Group:
    """Some children of one document, or the whole document; the Rust core reads its attributes."""

    ordinal: int
    task: Task
    text: str
    places: list[tuple[int, int]]

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.task.digest)

    @property
    def bytes(self) -> int:
        return int((self.task.chain or [{}])[0]["bytes"])

    @property
    def depth(self) -> int:
        return len(self.task.chain or []) - 1


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[_Group]:
    rows = (row for batch in batches for row in batch.to_pylist())
    for (ordinal, text), found in groupby(rows, key=lambda row: (row["ordinal"], row["task"])):
        places: list[tuple[int, int]] = []
        for row in found:
            if places and places[-1][1] + 1 == row["first"]:
                places[-1] = (places[-1][0], row["last"])
            else:
                places.append((row["first"], row["last"]))
        yield _Group(ordinal, Task(**json.loads(text)), text, places)


class _Sending(Attempt):
    """An attempt whose documents are divided."""

    def __init__(self, options: "Dehydrate", receipts: StagedReceipts) -> None:
        super().__init__(options, receipts)
        self._groups: deque[_Group] = deque()

    def apart(self, groups: Iterator[_Group]) -> Iterator[pa.RecordBatch]:
        """Send groups while earlier ones are still being received; yield their rows."""
        sender = self.sender()
        for group in groups:
            if len(self._on_their_way) == self._options.in_flight:
                yield from self._settle_group()
            task, previous = group.task, self.previous(group.task.document)
            if task.chain is None:
                name, source = source_of(task.path, task.document, self._options)
                sent = sender.send(name, source, previous=previous, **identity_of(task))
            else:
                _, source = source_of(task.path, task.document, self._options)
                some = cast("Any", group)
                sent = sender.send_some(task.document, source, some, previous=previous, **identity_of(task))
            self._groups.append(group)
            self._on_their_way.append(sent)
        while self._on_their_way:
            yield from self._settle_group()

    def _settle_group(self) -> Iterator[pa.RecordBatch]:
        result = self.wait()
        group = self._groups.popleft()
        if group.task.chain is None:
            self._receipts.add(result)
            return (with_note(batch, group.ordinal) for batch in result.placed_batches())
        return self._rows(group, result)

    def _rows(self, group: _Group, result: DocumentResult) -> Iterator[pa.RecordBatch]:
        account = result.group()
        if stamp(from_column(group.task.path), self._options.storage) != group.task.stamp:
            account["missing"] = "the file has changed since it was divided"
        note = json.dumps({"task": group.text, "first": group.places[0][0], **account})
        row = {"document": group.task.document, "place": -1, "step": group.places[0][0]}
        yield with_note(rows_batch([row], PLACED_SCHEMA), group.ordinal, note)
        if account["missing"] is None:
            # The first row, which represents the container here, is omitted.
            for batch in result.placed_batches(1):
                yield with_note(batch, group.ordinal)
