"""Sinks that die, and consumers that stop early: nothing half-done counts, and nothing hangs."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock._demo.sink import SinkError
from penstock.errors import SparkError
from penstock.pipestream import Server
from penstock.spark import dehydrate

pytestmark = pytest.mark.timeout(300)


def test_a_sink_that_is_not_there_fails_the_task_and_says_so(spark, rows_of, corpus, tmp_path):
    class Nobody:
        address, fingerprint = "127.0.0.1:1", "ab" * 32

    with pytest.raises(Exception, match=r"no session with the sink 127\.0\.0\.1:1"):
        rows_of(spark, Nobody, corpus).collect()
    # The other task may be ending still, or was killed by Spark: what it has staged is hidden, and swept by the next.
    assert not list((tmp_path / "receipts").glob("[!.]*"))


def _both_tasks_are_sending(events: Path) -> bool:
    received = [json.loads(line) for line in events.read_text().splitlines(keepends=True) if line.endswith("\n")]
    sessions = Counter(event["session"] for event in received if event["event"] == "entity")
    return len(sessions) == 2 and min(sessions.values()) >= 20


def kill_while_it_receives(sink, events: Path, job: Callable[[], object]) -> BaseException:
    """Run a job, kill its sink with SIGKILL once it has received something, and give the error of the job."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
            failure.append(error)

    running = threading.Thread(target=run)
    running.start()
    deadline = time.monotonic() + 120
    while not _both_tasks_are_sending(events):
        assert time.monotonic() < deadline, "nothing reached the sink"
        time.sleep(0.01)
    os.kill(sink.pid, signal.SIGKILL)
    running.join(120)
    assert not running.is_alive()
    return failure[0]


def _closed(sink: Path, session: str) -> int | None:
    """Give the code that a session was closed with, None for one that was cut off."""
    return json.loads((sink / session / "entities.jsonl").read_text().splitlines()[-1]).get("closed")


def test_after_the_sink_was_killed_the_job_runs_again_and_its_receipts_verify(
    spark, rows_of, start_sink, many, tmp_path, differences, receipts_of
):
    sink = start_sink(tmp_path / "sink").__enter__()
    try:
        job = rows_of(spark, sink, many).collect
        failure = kill_while_it_receives(sink, tmp_path / "events.jsonl", job)
    finally:
        with pytest.raises(SinkError, match="exit code -9"):
            sink.__exit__(None, None, None)
    assert "ended early" in str(failure)
    # A task whose worker was killed with the job may leave its hidden folder. Receipts are left only by one whose
    # session had been closed before, which may happen to one of the two.
    left = receipts_of(tmp_path / "receipts")
    assert len(left) < 300
    assert {_closed(tmp_path / "sink", receipt["session"]) for receipt in left.values()} <= {0}

    with start_sink(tmp_path / "sink") as sink:
        assert rows_of(spark, sink, many).where("status = 'COMPLETE'").count() == 300 * 51
    assert len(receipts_of(tmp_path / "receipts")) == 300
    assert differences(tmp_path / "receipts", tmp_path / "sink") == []


def test_a_consumer_that_stops_early_aborts_the_session_and_leaves_no_receipt(start_sink, many, tmp_path):
    """Whoever reads the sink relies on it: only sessions closed with 0 count."""
    paths = pa.record_batch({"path": sorted(str(path) for path in many.iterdir())})
    with start_sink(tmp_path / "sink") as sink:
        apart = dehydrate(sink.address, fingerprint=sink.fingerprint, receipts=str(tmp_path / "receipts"))
        rows = apart(iter([paths]))
        assert next(rows).column("document")[0].as_py() == "000.zip"
        rows.close()
    (session,) = (path for path in (tmp_path / "sink").iterdir() if path.is_dir())
    last = json.loads((session / "entities.jsonl").read_text().splitlines()[-1])
    assert last.get("closed") != 0
    assert list((tmp_path / "receipts").iterdir()) == []


@pytest.mark.parametrize("settled", [True, False])
def test_a_sink_that_is_stopped_fails_the_task_whatever_its_code(tmp_path, settled):
    """What a stop cut off is no bad document: the task is to be tried again."""
    (tmp_path / "note.txt").write_bytes(b"A line of text.")
    server = Server(sink=tmp_path / "sink" if settled else None, state_dir=tmp_path)

    def batches():
        yield pa.record_batch({"path": [str(tmp_path / "note.txt")]})
        held = None if settled else server.accept(30).receive(30)
        while settled and not list((tmp_path / "sink").glob("*/0/1")):
            time.sleep(0.01)
        server.close(0)
        assert settled or held is not None

    receipts = tmp_path / "receipts"
    apart = dehydrate(server.address, fingerprint=server.fingerprint, receipts=str(receipts))
    with pytest.raises(SparkError, match="ended early"):
        list(apart(batches()))
    assert list(receipts.iterdir()) == []


def test_receipts_that_cannot_be_written_fail_the_task_before_anything_is_sent(tmp_path):
    (tmp_path / "note.txt").write_bytes(b"A line of text.")
    apart = dehydrate("127.0.0.1:1", fingerprint="ab" * 32, receipts=str(tmp_path / "note.txt"))
    with pytest.raises(SparkError, match=r"receipts cannot be written into .*note\.txt"):
        next(apart(iter([pa.record_batch({"path": [str(tmp_path / "note.txt")]})])))
