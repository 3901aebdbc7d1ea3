"""The sink: rows that are submitted as tasks, each once, even if Spark runs its task several times.

Each task has a key (SUBMIT_ONCE), which the daemon recognizes: a hash of the job or micro-batch, the partition, the
task's type and payload, and the number of equal tasks before it in the partition. The result therefore depends neither
on the order of the rows nor on what a failed attempt had already submitted.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from hashlib import blake2b
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from penstock._backoff import attempts
from penstock.errors import QuicxError, SparkError
from penstock.quicx import Producer
from penstock.quicx._options import ReachOptions
from penstock.quicx._producer import KEY
from penstock.spark._micro_batch import micro_batch
from penstock.spark._options import Options
from penstock.spark.quicx.reach import read_reach, read_spool

__all__ = ["QuicxStreamWriter", "QuicxWriter", "Submitted", "Submitting"]

_LOG = logging.getLogger("penstock.spark")
_TOGETHER = 1_024
"""How many tasks are submitted together."""
_QUEUE_FULL = 1
_COLUMNS = {
    "payload": (BinaryType(), StringType()),
    "type": (StringType(),),
    "key": (BinaryType(), StringType()),
}


@dataclass(frozen=True)
class Submitted(WriterCommitMessage):
    """The report of a Spark task to the driver: how many tasks the daemon has accepted."""

    tasks: int


@dataclass(frozen=True)
class _Row:
    """A task to be submitted."""

    type: str
    payload: bytes
    key: bytes


@dataclass(frozen=True)
class Submitting:
    """The daemon to which tasks are submitted, and how rows become tasks."""

    reach: ReachOptions
    type: str | None = None
    """The type of all tasks; None: the column ``type`` contains it."""
    whole: bool = True
    """Whether the payload is a column; otherwise it is the row as JSON."""
    spool: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    spool_above: int = 3_072
    retry: int = 60

    @classmethod
    def read(cls, options: Options, schema: StructType, *, overwrite: bool) -> "Submitting":
        """Read and check options and columns, on the driver."""
        if overwrite:
            raise SparkError("the quicx sink only appends: use mode('append'), and outputMode('append')")
        kind = options.text("type")
        names = schema.fieldNames()
        if kind is None and "type" not in names:
            raise SparkError('the quicx sink requires a task type: set .option("type", ...), or add a column type')
        if kind is not None and not 1 <= len(kind.encode()) <= 255:
            raise options.error("type", "must have 1 to 255 bytes of UTF-8")
        whole = "payload" in names
        if whole:
            _check_columns(schema)
        elif kind is None and schema["type"].dataType != StringType():
            raise SparkError("the column type of the quicx sink must be a string")
        submitting = cls(
            read_reach(options),
            kind,
            whole,
            *read_spool(options),
            options.positive("spoolAbove", 3_072),
            options.positive("retry", 60),
        )
        options.finish()
        return submitting

    def submit(self, batches: Iterable[pa.RecordBatch], job: str) -> Submitted:
        """Submit rows and wait until the daemon has accepted all of them."""
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        keys = _Keys(f"{job}/{partition}")
        connection = _Connection(self)
        count = 0
        try:
            for batch in batches:
                rows = [self._row(row, keys) for row in batch.to_pylist()]
                for at in range(0, len(rows), _TOGETHER):
                    connection.submit(rows[at : at + _TOGETHER])
                count += len(rows)
        finally:
            connection.close()
        return Submitted(count)

    def _row(self, row: dict[str, Any], keys: "_Keys") -> _Row:
        kind = self.type
        if kind is None:
            kind = row.pop("type")
        if not kind:
            raise SparkError("a row for the quicx sink has no type")
        content = row.get("payload") if self.whole else json.dumps(row, default=_plain, ensure_ascii=False)
        if content is None:
            raise SparkError("a row for the quicx sink has no payload")
        payload = content.encode() if isinstance(content, str) else bytes(content)
        own = row.get("key") if self.whole else None
        return _Row(kind, payload, keys.of(kind, payload) if own is None else _Keys.own(own))


def _check_columns(schema: StructType) -> None:
    for column in schema.fields:
        types = _COLUMNS.get(column.name)
        if types is None:
            raise SparkError(f"unknown column {column.name!r} for the quicx sink; valid columns: payload, type, key")
        if column.dataType not in types:
            words = " or ".join(each.simpleString() for each in types)
            raise SparkError(f"the column {column.name} of the quicx sink must be {words}, not {column.dataType}")


def _plain(value: Any) -> str:
    """Return the JSON form of a Spark value: times in ISO 8601, bytes in hex, all others as strings."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


@dataclass
class _Keys:
    """Computes the keys of a partition's tasks."""

    partition: str
    _seen: Counter[bytes] = field(default_factory=Counter)

    def of(self, kind: str, payload: bytes) -> bytes:
        """Return the key of the next task: the same in each attempt, in any order of the rows."""
        content = blake2b(f"{self.partition}\0{kind}\0".encode(), digest_size=KEY)
        content.update(payload)
        digest = content.digest()
        self._seen[digest] += 1
        return blake2b(digest + self._seen[digest].to_bytes(8, "big"), digest_size=KEY).digest()

    @staticmethod
    def own(key: str | bytes) -> bytes:
        """Return the key for a user's own key: the same in all jobs."""
        data = key.encode() if isinstance(key, str) else bytes(key)
        return blake2b(b"key\0" + data, digest_size=KEY).digest()


class _Connection:
    """A producer that reconnects; the keys tell the daemon which tasks it has already accepted."""

    def __init__(self, options: Submitting) -> None:
        self._options = options
        self._producer: Producer | None = None

    def submit(self, rows: list[_Row]) -> None:
        """Submit tasks; this may take any time as long as some are accepted."""
        by_type: dict[str, list[_Row]] = {}
        for row in rows:
            by_type.setdefault(row.type, []).append(row)
        for kind, waiting in by_type.items():
            while waiting:
                waiting = self._some(kind, waiting)

    def _some(self, kind: str, rows: list[_Row]) -> list[_Row]:
        """Submit tasks; return those that the full queue rejected, which are fewer than ``rows``."""
        problem: QuicxError | None = None
        for _ in attempts(self._options.retry):
            try:
                self._open().submit_many(kind, [row.payload for row in rows], keys=[row.key for row in rows])
            except QuicxError as error:
                problem = error
                if error.code == _QUEUE_FULL:
                    left = [row for row, task in zip(rows, error.accepted, strict=True) if task == 0]
                    if len(left) < len(rows):
                        return left
                elif error.kind in {"io", "deadline"}:
                    _LOG.info("the daemon is gone: %s", error)
                    self.close()
                else:
                    break
            else:
                return []
        raise SparkError(f"{self._where()} did not accept the tasks: {problem}", "io") from problem

    def _where(self) -> str:
        return str(self._options.reach.socket or self._options.reach.address)

    def _open(self) -> Producer:
        if self._producer is None:
            reach, options = self._options.reach, self._options
            self._producer = Producer(
                reach.address,
                socket=reach.socket,
                fingerprint=reach.fingerprint,
                ca=reach.ca,
                system_ca=reach.system_ca,
                cert=reach.cert,
                key=reach.key,
                server_name=reach.server_name,
                plain=reach.plain,
                spool=options.spool,
                spool_above=options.spool_above,
                storage=options.storage,
            )
        return self._producer

    def close(self) -> None:
        """Close the connection, if there is one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


@dataclass(frozen=True)
class QuicxWriter(DataSourceArrowWriter):
    """Submits the rows of a job. Spark creates one for each job on the driver and sends copies of it to the tasks."""

    submitting: Submitting
    job: str

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "QuicxWriter":
        """Create the writer from the options; invalid ones raise an error here, before any task runs."""
        return cls(
            Submitting.read(Options(options, "sink", "quicx"), schema, overwrite=overwrite), f"spark/{uuid4().hex}"
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Submitted:
        """Submit the rows of a partition."""
        return self.submitting.submit(iterator, self.job)


@dataclass(frozen=True)
class QuicxStreamWriter(DataSourceStreamArrowWriter):
    """Submits the rows of each micro-batch, once even if it runs again."""

    submitting: Submitting

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "QuicxStreamWriter":
        """Create the writer from the options; invalid ones raise an error here, before any task runs."""
        return cls(Submitting.read(Options(options, "sink", "quicx"), schema, overwrite=overwrite))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Submitted:
        """Submit the rows of a partition."""
        return self.submitting.submit(iterator, micro_batch("quicx"))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Do nothing: the daemon already has the tasks."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Do nothing: if the micro-batch runs again, the daemon recognizes the tasks that it already has."""
