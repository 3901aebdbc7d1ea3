"""Spark Connect: clients without Java, a server, and the executors of a standalone cluster."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_nodes import Cluster, Node

from penstock import receipts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REMOTE, SEND, JOB, WORKERS = "builder.remote", "addArtifact", "take_apart", "check_workers(spark)"
SHUFFLE = "enableFullRetryOnMismatch"
"""Blocks of docs/cluster.md, by what their code has."""
ROWS = 16_000


def has_results(server: Node, mark: Path) -> bool:
    """Whether the driver has heard of the end of partition 0, if the mark is that of a task which is held."""
    if not mark.name.startswith("held-"):
        return True
    stage = mark.name.rpartition("-")[2]
    return re.search(rf"Finished task 0\.\d+ in stage {stage}\.", (server.folder / "log").read_text()) is not None


@contextmanager
def killing(cluster: Cluster, number: int, marks: Path, **when: str) -> Iterator[None]:
    """Kill a worker's executor once for each name, when a task has left a mark of its pattern; leave a mark of it."""
    ended = threading.Event()
    worker = cluster.workers[number]

    def kill() -> None:
        for name, pattern in when.items():
            while not any(has_results(cluster.server, mark) for mark in marks.glob(pattern)):
                if ended.wait(0.05):
                    return
            for executor in worker.executors():
                os.kill(executor, signal.SIGKILL)
            (marks / f"killed-{name}").touch()

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
    archive = driver / "environment.tar.gz"
    with cluster.connect_server(driver / "environment", archive, PENSTOCK_KEY=read_key) as url:
        yield {"sc://connect.example.org:15002": url}


def test_the_job_of_the_page_runs_and_sends_its_environment(remote, run_client, archives, page, check_page):
    documents = archives(24, 10)
    told = run_client("page", page(REMOTE, SEND, JOB, WORKERS, **remote))
    check_page(told, documents, 10)


def test_every_plan_survives_killed_executors_and_failed_attempts(
    cluster, remote, run_client, archives, page, marks, tmp_path
):
    documents = archives(24, 25)
    plans = ["task", "shuffle", "peel", "auto"]
    (marks / "go").touch()
    # While "task" sends, and when "peel" has results of which some are lost with what they were made from.
    told = {**page(REMOTE, SHUFFLE, **remote), "fault": "killed", "plans": plans, "held": ["peel"]}
    with killing(cluster, 1, marks, task="began-task-*", peel="held-peel-*"):
        results = run_client("faults", told)
    assert list(results) == plans
    for plan, rows in results.items():
        assert sorted(row["document"] for row in rows) == sorted(path.name for path in documents.iterdir())
        assert {(row["parts"], row["status"]) for row in rows} == {(25, "COMPLETE")}
        found = receipts.verify_all(tmp_path / "receipts" / plan, tmp_path / "sink")
        assert [difference.text for _, each in found for difference in each] == []
        # Second attempts, for the one that fails and for those of the executor that was killed: it may have been before
        # their first attempts had made their marks.
        assert list(marks.glob(f"began-{plan}-*-[1-9]"))


def test_rows_written_to_a_sink_are_read_once_each_whatever_was_killed_and_by_streams_too(
    cluster, remote, run_client, page, marks, tmp_path
):
    shared = tmp_path / "shared"
    shared.mkdir()
    with killing(cluster, 0, marks, rows="began-*"):
        told = run_client("rows", {**page(REMOTE, **remote), "rows": ROWS, "shared": str(shared)})
    # Some were tried again. (Tasks of the killed executor that had not begun there have a later attempt alone.)
    assert any(not mark.name.endswith("-0") for mark in marks.glob("began-*"))
    assert told == {"batch": [ROWS, ROWS], "streamed": [ROWS, ROWS], "both": 2 * ROWS}


def test_a_client_sees_how_far_its_jobs_and_queries_are(remote, run_client, page):
    told = run_client("progress", page(REMOTE, **remote))
    assert told["rows"] == 1000
    # Three of four tasks had ended while the last one waited for the client to see that.
    assert told["during"] == [4, 3]
    assert told["after"] == told["tasks"] >= 4
    assert told["lines"][0] == "rows"
    assert told["lines"][-1].startswith("rows: done in")
    assert told["batch"] == [True, "lines", True, 0, 3]


def test_a_cancelled_job_stops_the_query_of_a_client(remote, run_client, page):
    told = run_client("cancelled", page(REMOTE, **remote))
    assert told == {"code": "CANCELLED", "cause": told["cause"], "state": "FAILED", "tags": [], "rows": 5}
    assert told["cause"].endswith("Exception")
