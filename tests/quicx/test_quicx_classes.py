"""Daemons, producers and workers in Python."""

import asyncio
import doctest
import importlib
import threading

import pytest

from penstock.aio import quicx as aio
from penstock.errors import QuicxError
from penstock.quicx import Daemon, Policy, Producer, TaskFailed, Worker
from penstock.tls import write_certificates

from ..ports import free_address

MODULES = ("_daemon", "_options", "_pool", "_producer", "_worker")


def test_the_examples_in_docstrings():
    for name in [*(f"penstock.quicx.{name}" for name in MODULES), "penstock.aio.quicx"]:
        results = doctest.testmod(importlib.import_module(name))
        assert results.attempted > 0, name
        assert results.failed == 0, name


@pytest.fixture
def daemon():
    with Daemon() as daemon:
        yield daemon


def test_a_function_that_raises_is_a_failure_with_its_reason(daemon):
    worker = Worker(daemon.address, threads=2)

    @worker.task("fails")
    def fails(payload):
        raise TaskFailed(payload.decode())

    @worker.task("breaks")
    def breaks(_payload):
        raise KeyError("x")

    with worker, Producer(daemon.address) as producer:
        worker.start()
        found = [producer.future("fails", b"no"), producer.future("breaks"), producer.future("fails", b"never")]
        assert [future.result(30).failure for future in found] == [b"no", b"KeyError: 'x'", b"never"]
    assert (daemon.counters.failed, daemon.stats.pmad_bytes_used) == (3, 0)


class _Noticed:
    """A worker's connection that says when no more tasks can come."""

    def __init__(self, native, rested):
        self._native = native
        self._rested = rested

    def __getattr__(self, name):
        return getattr(self._native, name)

    def rest(self, timeout):
        self._native.rest(timeout)
        self._rested.set()


def test_a_worker_that_is_closed_finishes_what_it_holds_and_costs_others_no_attempt(daemon, monkeypatch):
    began, go_on = threading.Event(), threading.Event()
    connect = Worker._connect
    monkeypatch.setattr(Worker, "_connect", lambda self: _Noticed(connect(self), go_on))
    worker = Worker(daemon.address)

    @worker.task("slow")
    def slow(_payload):
        began.set()
        assert go_on.wait(30)

    with Producer(daemon.address) as producer:
        first, second = producer.submit_many("slow", [b"1", b"2"])
        worker.start()
        assert began.wait(30)
        worker.close()
        assert producer.observe(first, 30).ok
        assert (producer.stats().queue_depth, daemon.counters.delivered, daemon.counters.lost) == (1, 1, 0)
        assert second == first + 1


def test_a_worker_that_was_stopped_is_not_started_again(daemon):
    def made() -> Worker:
        worker = Worker(daemon.address)
        worker.task("a")(len)
        return worker

    closed, stopped = made(), made()
    with closed:
        closed.start()
    stopped.stop()

    def again() -> None:
        other = aio.Worker(daemon.address)
        other.task("a")(asyncio.sleep)
        other.stop()
        asyncio.run(other.run())

    for call in (closed.start, closed.run, stopped.start, stopped.run, again):
        with pytest.raises(QuicxError, match=r"was stopped, .* make another one") as raised:
            call()
        assert raised.value.kind == "misuse"


def test_a_process_that_dies_has_its_task_tried_again_until_it_is_dead():
    with Daemon(max_attempts=2) as daemon, Producer(daemon.address) as producer:
        worker = Worker(daemon.address, processes=1)
        worker.task("exit")(_exit)
        worker.task("fine")(len)
        with worker:
            worker.start()
            assert producer.observe(producer.submit("exit", b"3"), 60).failure == b"max attempts"
            assert producer.observe(producer.submit("fine"), 60).ok
        [dead] = producer.dead()
        assert (dead.type, dead.attempts, dead.reason) == ("exit", 2, "the worker's connection ended")
        producer.requeue(dead.id)
        assert producer.dead() == []


def _exit(payload: bytes) -> None:
    import os

    os._exit(int(payload))


def test_large_payloads_go_by_reference(daemon, tmp_path):
    seen = []
    worker = Worker(daemon.address, spool=tmp_path)
    worker.task("take")(seen.append)
    with worker, Producer(daemon.address, spool=tmp_path) as producer:
        worker.start()
        payloads = [b"small", bytes(1 << 20), b"penstock-file/1\n{}"]
        for payload in payloads:
            assert producer.future("take", payload).result(30).ok
        assert seen == payloads
    # A file goes when the daemon knows that its task is done: by the time that the worker is closed.
    assert list(tmp_path.iterdir()) == []
    with Producer(daemon.address) as producer, pytest.raises(QuicxError) as raised:
        producer.submit("take", bytes(5_000))
    assert (raised.value.code, raised.value.kind) == (3, "limit")


def test_a_worker_connects_again_when_its_daemon_is_back(tmp_path):
    done = threading.Event()
    address = free_address()
    first = Daemon(address, journal=tmp_path)
    worker = Worker(address)
    worker.task("a")(lambda _payload: done.set())
    with worker:
        worker.start()
        first.close()
        with Daemon(address, journal=tmp_path) as second, Producer(second.address) as producer:
            task = producer.submit("a")
            assert producer.observe(task, 60).ok
            assert done.is_set()


def test_outcomes_that_cannot_be_known_are_errors(daemon):
    producer = Producer(daemon.address)
    with pytest.raises(QuicxError) as raised:
        producer.observe(77)
    assert (raised.value.code, str(raised.value)) == (2, "task 77 is not known (0x02)")
    with pytest.raises(QuicxError) as raised:
        producer.observe(producer.submit("a"), 0.01)
    assert raised.value.kind == "deadline"
    future = producer.future("a")
    daemon.close(drain=0)
    with pytest.raises(QuicxError) as raised:
        future.result(30)
    assert raised.value.kind == "io"
    producer.close()
    with pytest.raises(QuicxError, match="closed"):
        producer.submit("a")


def test_tls_lets_in_those_whom_the_authority_has_signed(tmp_path):
    write_certificates(str(tmp_path / "ours"))
    ours = {"cert": tmp_path / "ours" / "cert.pem", "key": tmp_path / "ours" / "key.pem"}
    options = {**ours, "client_ca": tmp_path / "ours" / "ca.pem"}
    with Daemon(listen=None, tls_listen="127.0.0.1:0", **options) as daemon:
        with Producer(daemon.address, fingerprint=daemon.fingerprint, **ours) as producer:
            assert producer.submit_many("a", [b"x"] * 1_000) == list(range(1, 1_001))
        with pytest.raises(QuicxError), Producer(daemon.address, fingerprint=daemon.fingerprint) as nobody:
            nobody.submit("a")
        with pytest.raises(QuicxError, match="handshake"):
            Producer(daemon.address, fingerprint="ab" * 32, **ours)
    with pytest.raises(QuicxError, match="is not on this machine: set fingerprint, ca or system_ca"):
        Producer("192.0.2.1:16381")


def test_arguments_that_make_no_sense_are_named(daemon, tmp_path):
    with Producer(daemon.address) as producer:
        for call, words in (
            (lambda: producer.observe(1 << 32), "32-bit number, not 4294967296"),
            (lambda: producer.requeue(-1), "32-bit number, not -1"),
            (lambda: producer.drop(1 << 40), "32-bit number"),
            (lambda: Policy(rate=-1), "rate must be a number above 0, not -1"),
            (lambda: Policy(rate=float("inf")), "rate must be a number above 0, not inf"),
            (lambda: Policy(attempts=0), "attempts must be from 1 to 65,535, not 0"),
            (lambda: Policy(delay=float("nan")), "delay must be from 0 to"),
            (lambda: Daemon(task_timeout=-1), "task_timeout must be from 0 to .*, not -1"),
            (lambda: Daemon(max_attempts=0), "max_attempts must be from 1 to 65,535, not 0"),
            (lambda: Daemon(allow_types=[]), "allow_types is empty"),
            (lambda: Daemon(size_classes=[64, 32]), "size_classes .* 32 is not valid"),
            (lambda: Worker(daemon.address, threads=2, processes=2), "threads=2 and processes=2"),
            (lambda: Producer(daemon.address, socket=tmp_path / "s"), "mutually exclusive"),
        ):
            with pytest.raises(QuicxError, match=words) as raised:
                call()
            assert raised.value.kind == "misuse"


def test_a_mix_up_of_tls_says_what_it_is_and_what_to_do(tmp_path):
    write_certificates(str(tmp_path / "ours"))
    ours = {"cert": tmp_path / "ours" / "cert.pem", "key": tmp_path / "ours" / "key.pem"}
    options = {**ours, "client_ca": tmp_path / "ours" / "ca.pem"}
    with Daemon(tls_listen="127.0.0.1:0", **options) as daemon:
        assert daemon.tls_address is not None
        with (
            Producer(daemon.tls_address) as plain,
            pytest.raises(QuicxError, match=f"{daemon.tls_address} speaks TLS, .* whom to trust"),
        ):
            plain.stats()
        worker = Worker(daemon.tls_address, retry=False)
        worker.task("a")(len)
        with pytest.raises(QuicxError, match=f"{daemon.tls_address} speaks TLS"):
            worker.run()
        with pytest.raises(QuicxError, match=f"{daemon.address} does not speak TLS there: name its TLS port"):
            Producer(daemon.address, fingerprint=daemon.fingerprint)
        refused = f"{daemon.tls_address} .*requires a client certificate.* cert and key"
        with Producer(daemon.tls_address, fingerprint=daemon.fingerprint) as nobody:
            # The connection is over with the first; whoever asks then hears why, too.
            for _ in range(2):
                with pytest.raises(QuicxError, match=refused):
                    nobody.stats()


def test_the_dead_list_is_complete():
    policies = {"a": Policy(retry_failed=True, attempts=1)}

    async def dead(address: str) -> list[int]:
        async with aio.Producer(address) as producer:
            return [task.id for task in await producer.dead()]

    with Daemon(policies=policies) as daemon, Producer(daemon.address) as producer:
        worker = Worker(daemon.address)

        @worker.task("a")
        def fail(_payload: bytes) -> None:
            raise TaskFailed("x" * 1_024)

        with worker:
            ids = producer.submit_many("a", [b""] * 1_100)
            worker.start()
            assert producer.observe(ids[-1], 60).failure == b"x" * 1_024
        assert [task.id for task in producer.dead()] == ids
        assert asyncio.run(dead(daemon.address)) == ids


def test_for_asyncio_workers_run_coroutines_side_by_side(tmp_path):
    async def main() -> tuple[list[bool], bytes | None, int]:
        async with (
            aio.Daemon(policies={"a": Policy(priority=1)}) as daemon,
            aio.Producer(daemon.address, spool=tmp_path) as producer,
        ):
            worker = aio.Worker(daemon.address, concurrency=3, spool=tmp_path)
            together = asyncio.Barrier(3)

            @worker.task("a")
            async def meet(_payload: bytes) -> None:
                await together.wait()

            @worker.task("b")
            async def fails(payload: bytes) -> None:
                raise TaskFailed(str(len(payload)))

            running = asyncio.create_task(worker.run())
            ids = await producer.submit_many("a", [b"1", b"2", b"3"])
            met = [(await producer.observe(number)).ok for number in ids]
            failed = await producer.observe(await producer.submit("b", bytes(9_000)))
            worker.stop()
            await running
            with pytest.raises(QuicxError):
                await producer.observe(99)
            return met, failed.failure, await daemon.close()

    assert asyncio.run(main()) == ([True, True, True], b"9000", 0)


def test_a_task_with_a_key_is_one_however_often_it_is_submitted(daemon, tmp_path):
    key, other = b"k" * 16, b"o" * 16

    async def again() -> list[int]:
        async with aio.Producer(daemon.address, spool=tmp_path) as producer:
            first = await producer.submit("a", b"x" * 5_000, key=key)
            return [first, *await producer.submit_many("a", [b"x", b"y"], keys=[other, b"3" * 16])]

    with Producer(daemon.address, spool=tmp_path) as producer:
        assert producer.submit("a", b"x" * 5_000, key=key) == 1
        assert producer.submit_many("a", [b"x", b"x" * 5_000, b"y"], keys=[other, key, other]) == [2, 1, 2]
        assert asyncio.run(again()) == [1, 2, 3]
        assert (daemon.counters.submitted, daemon.counters.merged) == (3, 4)
        assert [file.name for file in tmp_path.iterdir()] == [f"{key.hex()}.payload"]
        for call in (
            lambda: producer.submit("a", key=b"short"),
            lambda: producer.submit_many("a", [b"x"], keys=[key, other]),
        ):
            with pytest.raises(QuicxError, match=r"16 bytes|2 keys"):
                call()
