"""The job of docs/cluster.md on every kind of cluster: executors share no process, folder or modules with it."""

from pathlib import Path

import pytest
from scripts.spark_classes import NODE_ARCHIVE, unshare_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DOCUMENTS, PARTS = 24, 10
SESSION, JOB, WORKERS = "builder.getOrCreate", "take_apart", "check_workers(spark)"
"""Blocks of the page, by what their code has."""


def test_a_standalone_cluster_takes_its_python_from_the_archive_and_streams_carry_each_row_once(
    cluster, submit, result, archives, page, check_page, tmp_path
):
    documents = archives(DOCUMENTS, PARTS)
    shared = tmp_path / "shared"
    shared.mkdir()
    told = {**page(SESSION, JOB, WORKERS), "rows": 4000, "shared": str(shared)}
    told = result(submit("page", told, cluster.master))
    check_page(told, documents, PARTS)
    nodes = {place["folder"].split("/work/")[0] for place in told["places"]}
    assert nodes == {str(worker.folder) for worker in cluster.workers}
    assert told["carried"] == {"batch": [4000, 4000], "streamed": [4000, 4000], "both": 8000}


def test_the_jvms_of_the_nodes_map_the_archive_of_sparks_classes(cluster):
    """Without it each executor takes three times the CPU to start, and no test would show it."""
    if not (unshare_command() and NODE_ARCHIVE.exists() and NODE_ARCHIVE.stat().st_size):
        pytest.skip("NOT TESTED: the archive for nodes; it was not written: `python scripts/spark_classes.py`")
    # A node sees it under another path.
    inode = str(NODE_ARCHIVE.stat().st_ino)
    for worker in cluster.workers:
        maps = Path(f"/proc/{worker.process.pid}/maps").read_text().splitlines()
        assert inode in {line.split()[4] for line in maps}


def test_local_cluster_takes_its_python_from_the_archive(submit, result, archives, page, check_page):
    documents = archives(DOCUMENTS, PARTS)
    blocks = page(SESSION, JOB, WORKERS)
    told = result(submit("page", {**blocks, "hidden": []}, "local-cluster[2,1,1024]"))
    check_page(told, documents, PARTS)
    assert len({place["folder"] for place in told["places"]}) == 2
