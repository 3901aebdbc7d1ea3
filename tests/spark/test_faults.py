"""Tasks that fail, sinks that die, workers that fork: nothing twice in the results, and nothing that hangs."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock._demo.sink import SinkError
from penstock.spark import PART_SCHEMA, dehydrate

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def rows_of(spark, sink, folder, tmp_path, **options):
    apart = dehydrate(sink.address, fingerprint=sink.fingerprint, receipts=str(tmp_path / "receipts"), **options)
    documents = spark.read.format("documents").option("minPartitions", "2").load(str(folder))
    return documents.mapInArrow(apart, PART_SCHEMA)


def fail_first_attempt(after_rows: bool):
    """A step behind dehydrate that fails in the first attempt of partition 0: after its last rows, or on its first."""

    def step(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        failing = context.partitionId() == 0 and context.attemptNumber() == 0
        for batch in batches:
            if failing and not after_rows:
                raise RuntimeError("the first attempt is to fail")
            yield batch
        if failing:
            raise RuntimeError("the first attempt is to fail")

    return step


@pytest.fixture(scope="module")
def retrying(start_spark):
    with start_spark("local[2,3]") as session:
        yield session


@pytest.mark.parametrize("after_rows", [True, False])
def test_a_retried_task_is_once_in_the_results(retrying, sink, corpus, tmp_path, after_rows, differences, receipts_of):
    failing = rows_of(retrying, sink, corpus, tmp_path).mapInArrow(fail_first_attempt(after_rows), PART_SCHEMA)
    rows = failing.select("document", "path", "depth").collect()
    documents = [row.document for row in rows if row.depth == 0]
    receipts = receipts_of(tmp_path / "receipts")
    assert sorted(documents) == sorted(receipts)
    assert len(rows) == sum(1 + len(receipt["parts"]) for receipt in receipts.values())
    assert differences(tmp_path / "receipts", tmp_path / "sink") == []
    attempts = [path for path in (tmp_path / "sink").iterdir() if path.is_dir()]
    assert len(attempts) == 3
    assert len({receipt["session"] for receipt in receipts.values()}) == 2


def test_a_sink_that_is_not_there_fails_the_task_and_says_so(spark, corpus, tmp_path):
    class Nobody:
        address, fingerprint = "127.0.0.1:1", "ab" * 32

    with pytest.raises(Exception, match=r"no session with the sink 127\.0\.0\.1:1"):
        rows_of(spark, Nobody, corpus, tmp_path).collect()
    assert not list((tmp_path / "receipts").glob("*"))


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
    while not (events.exists() and events.stat().st_size > 100_000):
        assert time.monotonic() < deadline, "nothing reached the sink"
        time.sleep(0.01)
    os.kill(sink.pid, signal.SIGKILL)
    running.join(120)
    assert not running.is_alive()
    return failure[0]


def test_after_the_sink_was_killed_the_job_runs_again_and_its_receipts_verify(
    spark, start_sink, many, tmp_path, differences, receipts_of
):
    sink = start_sink(tmp_path / "sink").__enter__()
    try:
        job = rows_of(spark, sink, many, tmp_path).collect
        failure = kill_while_it_receives(sink, tmp_path / "events.jsonl", job)
    finally:
        with pytest.raises(SinkError, match="exit code -9"):
            sink.__exit__(None, None, None)
    assert "ended before its time" in str(failure)
    assert not list((tmp_path / "receipts").glob("*"))

    with start_sink(tmp_path / "sink") as sink:
        assert rows_of(spark, sink, many, tmp_path).where("status = 'COMPLETE'").count() == 300 * 51
    assert len(receipts_of(tmp_path / "receipts")) == 300
    assert differences(tmp_path / "receipts", tmp_path / "sink") == []


@pytest.mark.parametrize("reuse", ["true", "false"])
def test_workers_are_forked_and_used_again(start_spark, sink, corpus, tmp_path, reuse, differences):
    with start_spark("local[2]", **{"spark.python.worker.reuse": reuse}) as spark:
        counts = {rows_of(spark, sink, corpus, tmp_path / str(turn)).count() for turn in range(3)}
    assert len(counts) == 1
    assert differences(tmp_path / "2" / "receipts", tmp_path / "sink") == []


FORKING = """
import os, sys
import pyarrow as pa
from penstock.spark import dehydrate

def run(name):
    apart = dehydrate(sys.argv[1], fingerprint=sys.argv[2])
    batches = apart(iter([pa.record_batch({"path": [sys.argv[3]]})]))
    print(name, sum(batch.num_rows for batch in batches), flush=True)

run("before")
child = os.fork()
run("child" if child == 0 else "parent")
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_process_that_sent_documents_may_fork_and_both_send_more(run_python, sink, corpus):
    printed = run_python(FORKING, sink.address, sink.fingerprint, str(corpus / "nested.zip"))
    lines = dict(line.split() for line in printed.splitlines())
    assert set(lines) == {"before", "child", "parent"}
    assert len(set(lines.values())) == 1


def test_a_dead_sink_leaves_no_closed_session_behind(spark, start_sink, many, tmp_path):
    """What whoever reads the sink relies on: only closed sessions count."""
    with start_sink(tmp_path / "sink") as sink:
        rows_of(spark, sink, many, tmp_path, in_flight=1).limit(1).collect()
    for session in (path for path in (tmp_path / "sink").iterdir() if path.is_dir()):
        lines = (session / "entities.jsonl").read_text().splitlines()
        closed = [json.loads(line)["closed"] for line in lines if line.startswith('{"closed"')]
        assert 0 not in closed
