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
from cluster_nodes import command_line, descendants, reason

from penstock import receipts

from ..long_form import LONG

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DOCUMENTS, PARTS = 40, 25
EVERY_PLAN = ["task", "shuffle", "peel", "auto"]
# "auto" is "peel" for what is large and "task" for the rest; the long tests and those with Spark Connect run it too.
PLANS = [["task", "shuffle", "peel"], ["task", "peel"]]
MASTERS = ["standalone", "local-cluster[2,2,1024]"]
BLOCKS = ["builder.getOrCreate", "enableFullRetryOnMismatch"]
"""Blocks of docs/cluster.md, by what their code has: the session, and what a job that shuffles parts sets."""


@pytest.fixture
def check(tmp_path: Path) -> Callable[[dict, list[str]], None]:
    """The results of each plan have every document once and whole, and receipts that verify tell of the same."""

    def check(told: dict, plans: list[str]) -> None:
        assert list(told) == plans
        for plan, rows in told.items():
            names = [path.name for path in (tmp_path / "documents").iterdir()]
            assert sorted(row["document"] for row in rows) == sorted(names)
            assert {(row["parts"], row["status"]) for row in rows} == {(PARTS, "COMPLETE")}
            folder = tmp_path / "receipts" / plan
            roots = {path.stem: json.loads(path.read_text())["content_root"] for path in folder.glob("*.json")}
            assert {row["key"]: row["content_root"] for row in rows} == roots
            found = receipts.verify_all(folder, tmp_path / "sink")
            assert [f"{path.name}: {difference.text}" for path, each in found for difference in each] == []
            if plan != "task":
                receipt = json.loads(next(folder.glob("*.json")).read_text())
                assert len({part["session"] for part in receipt["parts"]}) > 1, plan

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
            assert self.process.poll() is None, reason((self._folder / "driver.log").read_text())
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


def executors_of(process: subprocess.Popen[str]) -> list[int]:
    """The executors of `local-cluster`, which the driver has started; the one that was started first in front."""
    return sorted(pid for pid in descendants(process.pid) if "CoarseGrainedExecutorBackend" in command_line(pid))


@pytest.mark.parametrize(("master", "plans"), list(zip(MASTERS, PLANS, strict=True)))
def test_killed_executors_and_failed_attempts(
    cluster, submit, result, archives, page, marks, tmp_path, check, master, plans
):
    archives(DOCUMENTS, PARTS)
    told = {**page(*BLOCKS), "fault": "killed", "plans": plans}
    job = Job(submit("faults", told, cluster.master if master == "standalone" else master), tmp_path)

    def kill_one_of(number: int) -> None:
        if master == "standalone":
            kill_executor(cluster.workers[number % 2])
        else:
            os.kill(executors_of(job.process)[0], signal.SIGKILL)

    for number, _ in enumerate(plans):
        job.sends(200)
        kill_one_of(number)
        job.has_composites()
    # Its tasks have ended: what they had computed and shuffled is gone, and is computed again.
    sessions = {path.name for path in (tmp_path / "sink").iterdir()}
    kill_one_of(0)
    (marks / "go").touch()
    check(result(job.process), plans)
    assert {path.name for path in (tmp_path / "sink").iterdir()} > sessions


def test_both_copies_of_a_speculative_task_end_well(cluster, submit, result, archives, page, marks, check):
    """Only on two hosts: Spark places no copy on the host of the first attempt, and `local-cluster` has but one."""
    archives(DOCUMENTS // 4, PARTS)
    plans = PLANS[0]
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
    }
    told = {**page(*BLOCKS), "fault": "speculation", "plans": plans}
    told = result(submit("faults", told, cluster.master, **settings))
    # Both copies have sent all of their documents and shown receipts, each for a session of its own.
    for plan in plans:
        assert {"ended-0-0", "ended-0-1"} <= {mark.name for mark in (marks / plan).iterdir()}, plan
    check(told, plans)


@pytest.mark.skipif(not LONG, reason="LONG FORM: executors are killed again and again with PENSTOCK_LONG_TESTS=1")
@pytest.mark.parametrize("seed", range(3))
def test_executors_are_killed_again_and_again(cluster, submit, result, archives, page, marks, tmp_path, check, seed):
    chance = random.Random(seed)
    archives(DOCUMENTS, PARTS)
    settings = {"spark.task.maxFailures": "20", "spark.stage.maxConsecutiveAttempts": "20"}
    told = {**page(*BLOCKS), "fault": "killed", "plans": EVERY_PLAN}
    job = Job(submit("faults", told, cluster.master, **settings), tmp_path)
    for _ in EVERY_PLAN:
        for _ in range(3):
            job.sends(chance.randrange(10, 300))
            kill_executor(chance.choice(cluster.workers))
        job.has_composites()
    (marks / "go").touch()
    check(result(job.process), EVERY_PLAN)
