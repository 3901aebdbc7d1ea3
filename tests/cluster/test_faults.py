"""Executors that are killed, attempts that fail, copies of slow tasks: no part twice, none missing, receipts verify."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import receipts

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

DOCUMENTS, PARTS = 100, 25


@pytest.fixture
def check(tmp_path: Path) -> Callable[[dict], None]:
    """The results of each plan have every document once and whole, and receipts that verify tell of the same."""

    def check(told: dict) -> None:
        assert told
        for plan, rows in told.items():
            names = [path.name for path in (tmp_path / "documents").iterdir()]
            assert sorted(row["document"] for row in rows) == sorted(names)
            assert {(row["parts"], row["status"]) for row in rows} == {(PARTS, "COMPLETE")}
            folder = tmp_path / "receipts" / plan
            roots = {path.stem: json.loads(path.read_text())["content_root"] for path in folder.glob("*.json")}
            assert {row["key"]: row["content_root"] for row in rows} == roots
            found = receipts.verify_all(folder, tmp_path / "sink")
            assert [f"{path.name}: {difference.text}" for path, each in found for difference in each] == []

    return check


class Job:
    """A job whose executors are killed while its tasks send."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.entities = 0
        self._folder = folder
        self._events = (folder / "events.jsonl").open("rb")

    def sends(self, more: int) -> None:
        """Wait until the sink has received so many entities more."""
        wanted = self.entities + more
        deadline = time.monotonic() + 240
        while self.entities < wanted:
            assert self.process.poll() is None, (self._folder / "driver.log").read_text()[-4000:]
            assert time.monotonic() < deadline
            self._count()
            time.sleep(0.02)

    def has_composites(self) -> None:
        """Wait until the job has computed one plan's; what the driver's Python writes to stderr comes the same way."""
        assert self.process.stdout is not None
        assert any(line == f"{DOCUMENTS} composites\n" for line in self.process.stdout)
        self._count()

    def _count(self) -> None:
        self.entities += sum(b'"event":"entity"' in line.replace(b" ", b"") for line in self._events.readlines())


def kill_executor(worker) -> None:
    for executor in worker.executors():
        os.kill(executor, signal.SIGKILL)


def test_killed_executors_and_failed_attempts(cluster, submit, result, archives, options, marks, tmp_path, check):
    archives(DOCUMENTS, PARTS)
    job = Job(submit("faults", {**options, "fault": "killed"}, cluster.master), tmp_path)
    one, two = cluster.workers
    for worker in (one, two):
        job.sends(200)
        kill_executor(worker)
        job.has_composites()
    # Its tasks have ended: what they had computed and shuffled is gone, and is computed again.
    sessions = {path.name for path in (tmp_path / "sink").iterdir()}
    kill_executor(one)
    (marks / "go").touch()
    check(result(job.process))
    assert {path.name for path in (tmp_path / "sink").iterdir()} > sessions


def test_both_copies_of_a_speculative_task_end_well(cluster, submit, result, archives, options, marks, check):
    archives(DOCUMENTS // 4, PARTS)
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
    }
    told = result(submit("faults", {**options, "fault": "speculation"}, cluster.master, **settings))
    # Both copies have sent all of their documents and shown receipts, each for a session of its own.
    assert {"ended-0-0", "ended-0-1"} <= {mark.name for mark in marks.iterdir()}
    check(told)


@pytest.mark.skipif(not os.environ.get("PENSTOCK_LONG_TESTS"), reason="long: PENSTOCK_LONG_TESTS=1")
@pytest.mark.parametrize("seed", range(3))
def test_executors_are_killed_again_and_again(cluster, submit, result, archives, options, marks, tmp_path, check, seed):
    chance = random.Random(seed)
    archives(DOCUMENTS, PARTS)
    settings = {"spark.task.maxFailures": "20", "spark.stage.maxConsecutiveAttempts": "20"}
    job = Job(submit("faults", {**options, "fault": "killed"}, cluster.master, **settings), tmp_path)
    for _ in range(2):
        for _ in range(3):
            job.sends(chance.randrange(10, 800))
            kill_executor(chance.choice(cluster.workers))
        job.has_composites()
    (marks / "go").touch()
    check(result(job.process))
