"""Executors that are killed, attempts that fail, copies of slow tasks: no part twice, none missing, receipts verify."""

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


def check(told: dict, documents: Path, parts: int, receipts: Path, differences) -> None:
    """The results have every document once and whole, and receipts that verify tell of the same."""
    assert sorted(row["document"] for row in told["rows"]) == sorted(path.name for path in documents.iterdir())
    assert {(row["parts"], row["status"]) for row in told["rows"]} == {(parts, "COMPLETE")}
    roots = {path.stem: json.loads(path.read_text())["content_root"] for path in receipts.glob("*.json")}
    assert {row["key"]: row["content_root"] for row in told["rows"]} == roots
    assert differences() == []


def sessions(sink: Path) -> dict[str, object]:
    """The code with which each session of a sink was closed; None for one that was not."""
    found = {}
    for listed in sink.glob("*/entities.jsonl"):
        last = (listed.read_bytes().splitlines() or [b"{}"])[-1]
        found[listed.parent.name] = json.loads(last).get("closed")
    return found


def wait_until(condition, process, log: Path) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def entities_of_each_session(events: Path) -> Counter:
    lines = events.read_text().splitlines(keepends=True) if events.exists() else []
    received = [json.loads(line) for line in lines if line.endswith("\n")]
    return Counter(event["session"] for event in received if event["event"] == "entity")


def test_killed_executors_and_failed_attempts(cluster, submit, result, archives, options, marks, tmp_path, differences):
    documents = archives(120, 25)
    job = submit("faults", {**options, "fault": "killed"}, cluster.master)
    events, log = tmp_path / "events.jsonl", tmp_path / "driver.log"

    # While it sends: every worker has an executor, and one of them dies with its tasks half done.
    wait_until(lambda: sum(entities_of_each_session(events).values()) > 200, job, log)
    kill_executor(cluster.workers[0])
    assert job.stdout is not None
    # What the driver's Python writes to stderr comes the same way.
    assert "120 composites" in next(line for line in job.stdout if line.endswith(" composites\n"))
    before = sessions(tmp_path / "sink")
    assert differences() == []

    # After its tasks have ended: what it had computed and shuffled is gone, and is computed again.
    kill_executor(cluster.workers[1])
    (marks / "go").touch()
    check(result(job), documents, 25, tmp_path / "receipts", differences)
    after = sessions(tmp_path / "sink")
    assert len(after) > len(before)
    named = {json.loads(path.read_text())["session"] for path in (tmp_path / "receipts").glob("*.json")}
    assert {after[session] for session in named} == {0}


def kill_executor(worker) -> None:
    (executor,) = worker.executors()
    os.kill(executor, signal.SIGKILL)


def test_both_copies_of_a_speculative_task_end_well(
    cluster, submit, result, archives, options, marks, tmp_path, differences
):
    documents = archives(24, 10)
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
    }
    job = submit("faults", {**options, "fault": "speculation"}, cluster.master, **settings)
    told = result(job)
    # Both copies have sent all of their documents and shown receipts, each for a session of its own.
    assert {"ended-0-0", "ended-0-1"} <= {mark.name for mark in marks.iterdir()}
    check(told, documents, 10, tmp_path / "receipts", differences)


@pytest.mark.skipif(not os.environ.get("PENSTOCK_LONG_TESTS"), reason="long: PENSTOCK_LONG_TESTS=1")
@pytest.mark.parametrize("seed", range(3))
def test_executors_are_killed_again_and_again(
    cluster, submit, result, archives, options, marks, tmp_path, differences, seed
):
    chance = random.Random(seed)
    documents = archives(300, 25)
    settings = {"spark.task.maxFailures": "20", "spark.stage.maxConsecutiveAttempts": "20"}
    job = submit("faults", {**options, "fault": "killed"}, cluster.master, **settings)
    events, log = tmp_path / "events.jsonl", tmp_path / "driver.log"
    for wanted in sorted(chance.sample(range(100, 7000), 4)):
        wait_until(lambda wanted=wanted: sum(entities_of_each_session(events).values()) > wanted, job, log)
        for executor in chance.choice(cluster.workers).executors():
            os.kill(executor, signal.SIGKILL)
    (marks / "go").touch()
    check(result(job), documents, 25, tmp_path / "receipts", differences)
