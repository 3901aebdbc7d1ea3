"""Send Spark's batches through a vgi worker: a function in another process, interpreter or language, or on a GPU.

::

    Spark ──batches──▶ vgi_map in the Python worker ──shared memory──▶ worker of vgi, an exchange stream
                         │ a pool that survives tasks                       │
                         └──◀── rows, or an error row ◀── answers, logs ◀───┘
"""

import inspect
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock._columns import column
from penstock.errors import SparkError
from penstock.spark._worker_logs import WorkerLogs

if TYPE_CHECKING:
    from pyspark.resource import ResourceProfile
    from pyspark.sql import DataFrame

    from penstock.vgi import Message, StreamSession, WorkerPool

__all__ = ["VgiMap", "vgi_map"]

_log = logging.getLogger("penstock.spark.vgi")

_SEGMENT = 64 << 20
"""Bytes of shared memory for each worker: enough for a batch of Spark's usual 10,000 rows in both directions."""


@dataclass(frozen=True)
class VgiMap:
    """A function for ``DataFrame.mapInArrow`` that runs in a vgi worker; created by ``vgi_map``."""

    worker: tuple[str, ...]
    method: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    protocol: type | None = None
    on_failure: Literal["retry", "row"] = "retry"
    schema: pa.Schema | None = None
    error_column: str = "error"
    timeout: float | None = 600.0
    shared_memory: int | None = _SEGMENT
    max_idle: int = 4
    idle_timeout: float = 60.0
    logs: WorkerLogs | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the worker's answer to each batch of a task."""
        with _Task(self) as task:
            for batch in batches:
                yield task.answer(batch)

    def over(
        self, frame: "DataFrame", schema: str, *, barrier: bool = False, profile: "ResourceProfile | None" = None
    ) -> "DataFrame":
        """Apply the function to a DataFrame.

        Args:
            frame: The rows that the worker receives.
            schema: The columns of the result, as a DDL string.
            barrier: Whether all tasks start together, as for ``mapInArrow``.
            profile: A resource profile that says how many GPUs a task has; the worker sees only these.
        """
        return frame.mapInArrow(self, schema, barrier, profile)


def vgi_map(
    worker: Sequence[str],
    method: str,
    *,
    arguments: Mapping[str, object] | None = None,
    protocol: type | None = None,
    on_failure: Literal["retry", "row"] = "retry",
    schema: pa.Schema | None = None,
    error_column: str = "error",
    timeout: float | None = 600.0,
    shared_memory: int | None = _SEGMENT,
    max_idle: int = 4,
    idle_timeout: float = 60.0,
) -> VgiMap:
    """Create a function for ``mapInArrow`` that sends each batch through an exchange stream of a worker.

    Each Python worker of Spark keeps its vgi workers for the tasks that follow.

    A batch fails if the worker exits, the method raises an exception or the answer exceeds ``timeout``. The messages
    that the method logs for its caller appear in the driver's log, in the logger ``penstock.spark.vgi``, once the task
    has ended (with Spark Connect in the executor's log).

    Args:
        worker: The command that starts a worker, as a list; every node must be able to run it.
        method: The worker's method, which must be an exchange stream.
        arguments: The arguments of the method: values of type str, int, float, bool or bytes, or of any type that
            ``protocol`` declares.
        protocol: The worker's service, needed for arguments of other types.
        on_failure: ``"retry"``: the task fails, and Spark retries it. ``"row"``: the rows of the batch are returned
            with nulls and the reason in ``error_column``, and the next batch gets a new worker.
        schema: The columns that the method returns; required for ``"row"``, whose rows have ``error_column`` after
            them.
        error_column: The name of the column for the reason, which is null in rows that succeeded.
        timeout: Seconds to wait for an answer, None for no limit.
        shared_memory: Bytes of shared memory that each worker has in addition to its pipe, None for none. If the system
            has too little, all data goes through the pipe.
        max_idle: How many idle workers each Python worker of Spark keeps.
        idle_timeout: Seconds that an idle worker is kept.

    Raises:
        SparkError: An option is invalid; raised on the driver.

    Example:
        >>> import sys
        >>> from penstock.spark import vgi_map
        >>> scale = vgi_map([sys.executable, "worker.py"], "scale", arguments={"factor": 2.0})
        >>> frame.mapInArrow(scale, "value double")  # doctest: +SKIP
    """
    if isinstance(worker, str) or not worker:
        raise SparkError("worker must be a list: the command and its arguments")
    if on_failure == "row" and schema is None:
        raise SparkError('on_failure="row" requires the schema that the method returns')
    if schema is not None and error_column in schema.names:
        raise SparkError(f"the method itself returns a column {error_column!r}: choose another error_column")
    made = VgiMap(
        worker=tuple(worker),
        method=method,
        arguments=dict(arguments or {}),
        protocol=protocol,
        on_failure=on_failure,
        schema=schema,
        error_column=error_column,
        timeout=timeout,
        shared_memory=shared_memory,
        max_idle=max_idle,
        idle_timeout=idle_timeout,
        logs=WorkerLogs.of_this_driver(_log),
    )
    _service(made)
    return made


class _Task:
    """One attempt of a task: its stream, or none after a failure."""

    def __init__(self, options: VgiMap) -> None:
        self._options = options
        self._open = ExitStack()
        self._stream: StreamSession | None = None

    def __enter__(self) -> "_Task":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def answer(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from penstock.vgi import AnnotatedBatch, RpcError

        try:
            if self._stream is None:
                self._stream = self._connect()
            given = self._stream.exchange(AnnotatedBatch(batch)).batch
            return given if self._options.on_failure == "retry" else self._with_errors(given)
        except (RpcError, OSError) as error:
            self._leave()
            if self._options.on_failure == "retry":
                raise
            _log.warning("%s of %s failed: %s", self._options.method, self._options.worker, error)
            return self._failed(batch.num_rows, str(error))

    def _connect(self) -> "StreamSession":
        options = self._options
        pool = _pool(os.getpid(), options.max_idle, options.idle_timeout, _segment(options.shared_memory))
        context: Any = pool.connect(_service(options), _command(options.worker), on_log=self._take_log)
        proxy: Any = self._open.enter_context(context)
        proxy._caller.client.timeout = options.timeout
        stream: StreamSession = getattr(proxy, options.method)(**options.arguments)
        return stream

    def _leave(self) -> None:
        """Release the worker; a broken one does not return to the pool."""
        self._stream = None
        done, self._open = self._open, ExitStack()
        try:
            done.close()
        except OSError as error:
            _log.warning("a worker ended with an error: %s", error)

    def _take_log(self, message: "Message") -> None:
        line = f"{self._options.method}: {message.message}"
        level = _LEVELS.get(message.level.value, logging.INFO)
        _log.log(level, "%s", line)
        if self._options.logs is not None:
            self._options.logs.add(level, line)

    def _with_errors(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = self._options.schema
        assert schema is not None  # noqa: S101 -- vgi_map had refused
        columns = [batch.column(name).cast(schema.field(name).type) for name in schema.names]
        return self._rows(columns, pa.nulls(batch.num_rows, pa.utf8()))

    def _failed(self, rows: int, reason: str) -> pa.RecordBatch:
        schema = self._options.schema
        assert schema is not None  # noqa: S101 -- vgi_map had refused
        nothing = [pa.nulls(rows, each.type) for each in schema]
        return self._rows(nothing, column([reason] * rows, pa.utf8()))

    def _rows(self, columns: list[pa.Array], errors: pa.Array) -> pa.RecordBatch:
        schema = self._options.schema
        assert schema is not None  # noqa: S101 -- vgi_map had refused
        return pa.RecordBatch.from_arrays([*columns, errors], names=[*schema.names, self._options.error_column])


_LEVELS = {
    "EXCEPTION": logging.ERROR,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}


@lru_cache(maxsize=8)
def _pool(_process: int, max_idle: int, idle_timeout: float, segment: int | None) -> "WorkerPool":
    """Return the pool of this process; it outlives the task, so the next task finds its workers warm."""
    from penstock.vgi import WorkerPool

    return WorkerPool(max_idle=max_idle, idle_timeout=idle_timeout, shm_size=segment)


def _segment(wanted: int | None) -> int | None:
    """Return how many bytes of shared memory a worker gets: none unless four times as much is free."""
    if wanted is None:
        return None
    try:
        return wanted if shutil.disk_usage("/dev/shm").free >= 4 * wanted else None  # noqa: S108 -- it is asked about
    except OSError:
        # There is no such folder: this system keeps its segments elsewhere.
        return None


def _command(worker: tuple[str, ...]) -> list[str]:
    """Return the command, with only this task's GPUs visible."""
    from pyspark import TaskContext

    context = TaskContext.get()
    gpus = None if context is None else context.resources().get("gpu")
    if gpus is None:
        return list(worker)
    return ["env", f"CUDA_VISIBLE_DEVICES={','.join(gpus.addresses)}", *worker]


def _service(options: VgiMap) -> type:
    """Return the service: the caller's protocol, or one made to fit the arguments."""
    from penstock.vgi import Stream

    if options.protocol is not None:
        return options.protocol
    kinds = {name: type(value) for name, value in options.arguments.items()}
    odd = [name for name, kind in kinds.items() if kind not in (str, int, float, bool, bytes)]
    if odd:
        raise SparkError(
            f"the arguments {', '.join(odd)} are not str, int, float, bool or bytes: set protocol= to the service"
        )
    return _make_service(options.method, tuple(kinds.items()), Stream)


def _make_service(method: str, kinds: tuple[tuple[str, type], ...], returns: type) -> type:
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in kinds]

    def stream(self: object, **_: object) -> None:
        """Stand in for the worker's method."""

    made: Any = stream
    made.__name__ = method
    made.__annotations__ = {**dict(kinds), "return": returns}
    owner = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    made.__signature__ = inspect.Signature([owner, *parameters])
    return type("Worker", (), {method: made})
