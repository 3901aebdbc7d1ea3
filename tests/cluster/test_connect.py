"""Spark Connect: clients without Java, a server, and the executors of a standalone cluster."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_nodes import Node

from penstock import receipts

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

REMOTE, JOB, WORKERS = "builder.remote", "take_apart", "check_workers(spark)"
"""Blocks of docs/cluster.md, by what their code has."""
ROWS = 40_000


@contextmanager
def killing(worker: Node, marks: Path, patterns: list[str]) -> Iterator[None]:
    """Kill the worker's executor when a task has left a mark, once for each pattern of marks."""
    ended = threading.Event()

    def kill() -> None:
        for pattern in patterns:
            while not list(marks.glob(pattern)):
                if ended.wait(0.05):
                    return
            for executor in worker.executors():
                os.kill(executor, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(scope="module")
def remote(cluster, driver, read_key) -> Iterator[dict[str, str]]:
    """The server's URL, in the place of the page's."""
    pytest.importorskip("grpc_status", reason="pyspark[connect] is not installed")
    # The server plans data sources with a Python of its own, which no executor has.
    with cluster.connect_server(driver / "environment", PENSTOCK_KEY=read_key) as url:
        yield {"sc://connect.example.org:15002": url}


def test_the_job_of_the_page_runs_and_sends_its_environment(remote, run_client, archives, page, check_page):
    documents = archives(24, 10)
    told = run_client("page", page(REMOTE, JOB, WORKERS, **remote))
    check_page(told, documents, 10)


def test_every_plan_survives_killed_executors_and_failed_attempts(
    cluster, remote, run_client, archives, page, marks, tmp_path
):
    documents = archives(24, 25)
    plans = ["task", "shuffle", "peel", "auto"]
    (marks / "go").touch()
    told = {**page(REMOTE, **remote), "fault": "killed", "plans": plans}
    with killing(cluster.workers[1], marks, [f"began-{plan}-*" for plan in ("task", "peel")]):
        results = run_client("faults", told)
    assert list(results) == plans
    for plan, rows in results.items():
        assert sorted(row["document"] for row in rows) == sorted(path.name for path in documents.iterdir())
        assert {(row["parts"], row["status"]) for row in rows} == {(25, "COMPLETE")}
        found = receipts.verify_all(tmp_path / "receipts" / plan, tmp_path / "sink")
        assert [difference.text for _, each in found for difference in each] == []
        # More attempts than tasks: one that fails, and those of the executor that was killed.
        attempts = [mark.name.rsplit("-", 1) for mark in marks.glob(f"began-{plan}-*")]
        assert len(attempts) > len({task for task, _ in attempts})


def test_rows_written_to_a_sink_are_read_once_each_whatever_was_killed(cluster, remote, run_client, page, marks):
    with killing(cluster.workers[0], marks, ["began-*"]):
        told = run_client("rows", {**page(REMOTE, **remote), "rows": ROWS, "streams": False})
    # Some were tried again. (Tasks of the killed executor that had not begun there have a later attempt alone.)
    assert any(not mark.name.endswith("-0") for mark in marks.glob("began-*"))
    assert told["batch"] == [ROWS, ROWS]
