"""The data source "lumberjack" on a cluster: no executor has the folder of the spool."""

import pytest

from penstock.lumberjack import Receiver, Sender, Spool

from ..ports import free_address

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EVENTS = 6_000


def test_executors_read_spools_whose_folders_only_the_driver_has(cluster, submit, result, driver, read_key, tmp_path):
    own = free_address()
    events = [{"n": number} for number in range(EVENTS)]
    with (
        Spool(driver / "spool") as spool,
        Receiver(spool=spool) as receiver,
        Sender(receiver.address) as sender,
        Sender(own) as to_the_query,
    ):
        sender.send(events, timeout=60)
        address, fingerprint = spool.serve(read_key=read_key, state=tmp_path)
        options = {
            "beside": {"address": address, "fingerprint": fingerprint},
            "own": {"listen": own, "spool": str(driver / "own")},
            "shared": str(tmp_path),
            "events": EVENTS,
        }
        job = submit("logs", options, cluster.master)
        # It waits until the query's port is open, and until the events are on the driver's disk.
        to_the_query.send(events, timeout=300)
        told = result(job)
    numbers, folders = told["batch"]
    workers = tuple(str(worker.folder) for worker in cluster.workers)
    assert folders
    assert [folder for folder in folders if not folder.startswith(workers)] == []
    assert numbers == told["streamed"] == told["own"] == list(range(EVENTS))
