"""Large payloads lie in a folder as long as their tasks may need them, and no longer."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from penstock.aio import quicx as aio
from penstock.errors import QuicxError
from penstock.quicx import Daemon, Producer, Worker
from penstock.quicx._spool import Spool

LARGE = b"x" * 9_000
KEY = b"k" * 16


def names(folder: Path) -> list[str]:
    """Give the names of all that lies there."""
    return sorted(path.name for path in folder.iterdir())


def test_what_the_daemon_refuses_leaves_nothing(tmp_path):
    with Daemon(allow_types=["x"]) as daemon, Producer(daemon.address, spool=tmp_path) as producer:
        for submit in (
            lambda: producer.submit("y", LARGE),
            lambda: producer.submit("y", LARGE, key=KEY),
            lambda: producer.submit_many("y", [LARGE, b"small", LARGE]),
            lambda: producer.future("y", LARGE),
        ):
            with pytest.raises(QuicxError) as raised:
                submit()
            assert (raised.value.code, names(tmp_path)) == (4, [])


def test_what_never_leaves_the_client_leaves_nothing(tmp_path):
    with Daemon() as daemon, Producer(daemon.address, spool=tmp_path) as producer:
        for submit, error in (
            (lambda: producer.submit("t" * 300, LARGE), QuicxError),
            (lambda: producer.submit_many("t" * 300, [LARGE, LARGE]), QuicxError),
            (lambda: producer.submit(5, LARGE), TypeError),
            (lambda: producer.submit("t", "x" * 9_000), TypeError),
            (lambda: producer.submit_many("t", [LARGE, "x" * 9_000]), TypeError),
        ):
            with pytest.raises(error):
                submit()
            assert names(tmp_path) == []
    with pytest.raises(QuicxError, match="closed"):
        producer.submit("t", LARGE)
    assert names(tmp_path) == []


def test_of_many_only_those_that_were_taken_stay(tmp_path):
    with Daemon(pool_bytes=40_000, size_classes=[256]) as daemon, Producer(daemon.address, spool=tmp_path) as producer:
        with pytest.raises(QuicxError) as raised:
            # Small ones nearly fill the pool.
            producer.submit_many("a", [b"y" * 200] * 110 + [LARGE] * 20)
        taken = [task for task in raised.value.accepted[110:] if task]
        assert 0 < len(taken) < 20
        assert len(names(tmp_path)) == len(taken)


def test_for_asyncio_likewise(tmp_path):
    async def main() -> None:
        async with aio.Daemon(allow_types=["x"]) as daemon, aio.Producer(daemon.address, spool=tmp_path) as producer:
            for submit in (producer.submit("y", LARGE), producer.submit_many("y", [LARGE, LARGE])):
                with pytest.raises(QuicxError):
                    await submit
                assert names(tmp_path) == []
            with pytest.raises(QuicxError, match="32-bit"):
                await producer.observe(1 << 32)
            assert await producer.submit("x", LARGE) == 1
            assert len(names(tmp_path)) == 1

    asyncio.run(main())


def test_a_refusal_does_not_take_the_payload_of_a_task_that_is_there(tmp_path):
    spool = tmp_path / "spool"
    daemon = Daemon(journal=tmp_path / "journal")
    with Producer(daemon.address, spool=spool) as producer:
        producer.submit("a", LARGE, key=KEY)
    daemon.close()
    # The same task, offered to a daemon that does not want it.
    with (
        Daemon(allow_types=["x"]) as other,
        Producer(other.address, spool=spool) as producer,
        pytest.raises(QuicxError),
    ):
        producer.submit("a", LARGE, key=KEY)
    seen = []
    with (
        Daemon(journal=tmp_path / "journal") as daemon,
        Producer(daemon.address) as producer,
        Worker(daemon.address, spool=spool) as worker,
    ):
        worker.task("a")(seen.append)
        worker.start()
        assert producer.observe(1, 30).ok
    assert (seen, names(spool)) == ([LARGE], [])


def test_a_payload_is_on_the_disk_with_its_name_before_its_task_is_submitted(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def look(handle: int) -> None:
        fsync(handle)
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        synced.append(names(tmp_path) if is_folder else "file")

    monkeypatch.setattr(os, "fsync", look)
    with Daemon() as daemon, Producer(daemon.address, spool=tmp_path) as producer:
        producer.submit("a", LARGE, key=KEY)
        assert synced == ["file", [f"{KEY.hex()}.payload"]]
        producer.submit("a", b"small")
        assert len(synced) == 2


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    with Daemon() as daemon, Producer(daemon.address, spool=tmp_path) as producer:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(QuicxError, match="No space left"):
            producer.submit_many("a", [LARGE, LARGE])
        assert (names(tmp_path), daemon.stats.queue_depth) == ([], 0)


@pytest.mark.parametrize("kind", [Worker, aio.Worker])
def test_a_worker_without_the_spool_fails_what_refers_to_it_and_says_why(tmp_path, kind):
    seen = []

    async def take(payload: bytes) -> None:
        seen.append(payload)

    def outcomes(address: str) -> list[bytes | None]:
        with Producer(address, spool=tmp_path) as producer, Producer(address) as plain:
            # What only looks like a reference is a payload like any, from somebody who has no spool.
            ids = [producer.submit("a", LARGE), plain.submit("a", b"penstock-file/1\n{}")]
            return [producer.observe(each, 30).failure for each in ids]

    async def serve(address: str) -> list[bytes | None]:
        worker = aio.Worker(address)
        worker.task("a")(take)
        running = asyncio.create_task(worker.run())
        found = await asyncio.to_thread(outcomes, address)
        worker.stop()
        await running
        return found

    with Daemon() as daemon:
        if kind is Worker:
            with Worker(daemon.address) as worker:
                worker.task("a")(seen.append)
                worker.start()
                refers, looks = outcomes(daemon.address)
        else:
            refers, looks = asyncio.run(serve(daemon.address))
    assert refers is not None
    assert b"spool" in refers
    assert b"this worker has none" in refers
    assert (looks, seen) == (None, [b"penstock-file/1\n{}"])
    # It may be told of the spool and run again.
    assert len(names(tmp_path)) == 1


def test_a_key_that_comes_again_has_one_file_and_the_same(tmp_path):
    spool = Spool.at(tmp_path)
    assert spool is not None
    first, made = spool.put(LARGE, KEY)
    before = (tmp_path / f"{KEY.hex()}.payload").stat().st_ino
    assert (made, spool.put(LARGE, KEY)) == (True, (first, False))
    assert (tmp_path / f"{KEY.hex()}.payload").stat().st_ino == before


def test_what_was_done_before_it_was_submitted_again_has_no_file(tmp_path):
    other = b"o" * 16

    async def again(address: str) -> list[int]:
        async with aio.Producer(address, spool=tmp_path) as producer:
            first = await producer.submit("a", LARGE, key=KEY)
            return [first, *await producer.submit_many("a", [LARGE, LARGE], keys=[KEY, other])]

    with Daemon() as daemon, Producer(daemon.address, spool=tmp_path) as producer:
        with Worker(daemon.address, spool=tmp_path) as worker:
            worker.task("a")(len)
            worker.start()
            first = producer.submit("a", LARGE, key=KEY)
            assert producer.observe(first, 30).ok
        assert names(tmp_path) == []
        assert producer.submit("a", LARGE, key=KEY) == first
        assert names(tmp_path) == []
        assert producer.submit_many("a", [LARGE, LARGE], keys=[KEY, other]) == [first, first + 1]
        assert names(tmp_path) == [f"{other.hex()}.payload"]
        assert asyncio.run(again(daemon.address)) == [first, first, first + 1]
        # A task that waits has its file, and keeps it.
        assert names(tmp_path) == [f"{other.hex()}.payload"]
        with Worker(daemon.address, spool=tmp_path) as worker:
            worker.task("a")(len)
            worker.start()
            assert producer.observe(first + 1, 30).ok
    assert names(tmp_path) == []
