"""The job of docs/cluster.md on every kind of cluster: executors share no process, folder or modules with it."""

from pathlib import Path

import pytest

from penstock import __version__

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

DOCUMENTS, PARTS = 24, 10
SESSION, REMOTE, JOB, WORKERS = "builder.getOrCreate", "builder.remote", "take_apart", "check_workers(spark)"
"""Blocks of the page, by what their code has."""


def check(told: dict, documents: Path, differences) -> None:
    """Every document once and whole, every receipt right, and every task in the environment that travelled."""
    assert sorted(row["document"] for row in told["rows"]) == sorted(path.name for path in documents.iterdir())
    assert {(row["parts"], row["status"]) for row in told["rows"]} == {(PARTS, "COMPLETE")}
    assert differences() == []
    for place in told["places"]:
        folder = place["folder"]
        assert place["python"].startswith(f"{folder}/environment/"), place
        assert place["penstock"].startswith(f"{folder}/environment/"), place
        assert place["seen"] == []
    assert {worker["executable"] for worker in told["workers"]} >= {place["python"] for place in told["places"]}
    assert {(worker["penstock"], worker["problem"]) for worker in told["workers"]} == {(__version__, None)}


def test_a_standalone_cluster_takes_its_python_from_the_archive(cluster, submit, result, archives, page, differences):
    documents = archives(DOCUMENTS, PARTS)
    told = result(submit("page", page(SESSION, JOB, WORKERS), cluster.master))
    check(told, documents, differences)
    nodes = {place["folder"].split("/work/")[0] for place in told["places"]}
    assert nodes == {str(worker.folder) for worker in cluster.workers}


def test_local_cluster_takes_its_python_from_the_archive(submit, result, archives, page, differences):
    documents = archives(DOCUMENTS, PARTS)
    blocks = page(SESSION, JOB, WORKERS)
    told = result(submit("page", {**blocks, "hidden": []}, "local-cluster[2,1,1024]"))
    check(told, documents, differences)
    assert len({place["folder"] for place in told["places"]}) == 2


def test_spark_connect_runs_the_same_job_and_sends_the_archive(
    cluster, driver, run_client, archives, page, differences
):
    pytest.importorskip("grpc_status", reason="pyspark[connect] is not installed")
    documents = archives(DOCUMENTS, PARTS)
    # The server plans data sources with a Python of its own, which no executor has.
    with cluster.connect_server(driver / "environment") as url:
        told = run_client("page", page(REMOTE, JOB, WORKERS, **{"sc://connect.example.org:15002": url}))
    check(told, documents, differences)
