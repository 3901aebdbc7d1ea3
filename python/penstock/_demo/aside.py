"""The demo's task queue: a Quicx worker splits the slowest documents, so that they do not hold up Spark's tasks.

::

    demo ──▶ Producer ──▶ Daemon ──▶ Worker, a separate process ──▶ the same sink, receipts and rows
      ◀──────── outcome ────────────────────┘
"""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from penstock._demo.sink import SinkProcess
from penstock.errors import SparkError
from penstock.quicx import Daemon, Outcome, Producer, Worker
from penstock.spark import dehydrate

__all__ = ["Aside"]

_TYPE = "take-apart"
# One document in this many goes to the worker, and at least one if there are two or more.
_SHARE = 10
_LOOK = 0.5
_STOP_SECONDS = 30


class Aside:
    """A daemon and a worker that process some of the documents, for as long as the ``with`` block lasts.

    Args:
        files: All documents: their sizes in bytes, names and paths. The largest are taken to be the slowest.
        sink: The sink that receives the parts.
        receipts: The folder for receipts.
        rows: The folder for the rows, as Parquet.
        log: The file for the worker's stderr.
    """

    def __init__(
        self, files: Sequence[tuple[int, str, str]], sink: SinkProcess, receipts: Path, rows: Path, log: Path
    ) -> None:
        count = 0 if len(files) == 1 else -(-len(files) // _SHARE)
        self._chosen = [(name, path) for _, name, path in sorted(files, reverse=True)[:count]]
        self._common = {"sink": sink.address, "fingerprint": sink.fingerprint, "receipts": str(receipts)}
        self.rows = rows
        """The folder of the rows, which are complete once `wait` has returned."""
        self._log = log

    @property
    def documents(self) -> list[str]:
        """The names of the documents that the worker processes instead of Spark."""
        return [name for name, _ in self._chosen]

    def __enter__(self) -> Self:
        self.rows.mkdir(parents=True)
        self._daemon = Daemon()
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "penstock._demo.aside", self._daemon.address]
            self._worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        self._producer = Producer(self._daemon.address)
        self._futures = [self._submit(name, path) for name, path in self._chosen]
        return self

    def _submit(self, name: str, path: str) -> "Future[Outcome]":
        task = {**self._common, "rows": str(self.rows), "document": name, "path": path}
        return self._producer.future(_TYPE, json.dumps(task).encode())

    def wait(self) -> None:
        """Wait until all documents of the worker are done.

        Raises:
            SparkError: A document has failed, or the worker has ended.
        """
        for name, future in zip(self.documents, self._futures, strict=True):
            failure = self._outcome(future).failure
            if failure is not None:
                raise SparkError(f"the worker could not split {name}: {failure.decode('utf-8', 'replace')}")

    def _outcome(self, future: "Future[Outcome]") -> Outcome:
        while True:
            try:
                return future.result(_LOOK)
            except Late:
                if self._worker.poll() is not None:
                    raise SparkError(f"the worker of the task queue ended; see {self._log}") from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._producer.close()
        self._worker.send_signal(signal.SIGTERM if kind is None else signal.SIGKILL)
        try:
            self._worker.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._worker.kill()
            self._worker.wait()
        self._daemon.close(drain=0)


def _take_apart(payload: bytes) -> None:
    """Split one document, like a Spark task. Running it again replaces its output."""
    task = json.loads(payload)
    apart = dehydrate(task["sink"], fingerprint=task["fingerprint"], receipts=task["receipts"])
    given = pa.RecordBatch.from_pydict({"path": [task["path"]], "document": [task["document"]]})
    rows = pa.Table.from_batches(apart(iter([given])))
    file = Path(task["rows"]) / f"{sha256(task['document'].encode()).hexdigest()[:32]}.parquet"
    hidden = file.with_name(f".{file.name}")
    pq.write_table(rows, hidden)
    hidden.rename(file)


def _main() -> None:
    worker = Worker(sys.argv[1], retry=False)
    worker.task(_TYPE)(_take_apart)
    signal.signal(signal.SIGTERM, lambda _number, _frame: worker.stop())
    worker.run()


if __name__ == "__main__":
    _main()
