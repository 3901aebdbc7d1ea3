"""Spark Connect: clients without Java, a server, and the executors of a standalone cluster."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

REMOTE, JOB, WORKERS = "builder.remote", "take_apart", "check_workers(spark)"
"""Blocks of docs/cluster.md, by what their code has."""
ROWS = 40_000


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


def test_rows_written_to_a_sink_are_read_once_each_whatever_was_killed(cluster, remote, run_client, page, marks):
    ended = threading.Event()

    def kill() -> None:
        while not list(marks.glob("began-*")) and not ended.is_set():
            time.sleep(0.05)
        for executor in cluster.workers[0].executors():
            os.kill(executor, signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        told = run_client("rows", {**page(REMOTE, **remote), "rows": ROWS, "streams": False})
    finally:
        ended.set()
        killing.join()
    # A killed executor and a failed attempt: more attempts began than there are tasks.
    assert len(list(marks.glob("began-*"))) > 4
    assert told["batch"] == [ROWS, ROWS]
