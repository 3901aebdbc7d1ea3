"""`penstock.aio.pipestream`: real loops, real sessions; what is cancelled, late, or of a loop that is gone."""

import asyncio
import doctest
import gc
import importlib
import os
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock import DocumentsError, PipeStreamError, _sending
from penstock import pipestream as blocking
from penstock.aio import _loop, documents
from penstock.aio import pipestream as ps
from penstock.aio.pipestream import Server, Session, Status

WAIT = 30.0


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 2 * WAIT))


class Ends:
    """Both ends of a session; `client` and `server` are theirs while the block runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __aenter__(self) -> "Ends":
        self.listening = await Server(state_dir=self._folder)
        accepted = asyncio.ensure_future(self.listening.accept(WAIT))
        self.client = await Session.connect(self.listening.address, fingerprint=self.listening.fingerprint)
        server = await accepted
        assert server is not None
        self.server = server
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.abort()
        await self.listening.close(0)


def test_the_twin_has_every_name_of_the_blocking_module() -> None:
    assert set(ps.__all__) == set(blocking.__all__)
    names = ("Server", "Session", "Scope", "SentEntity", "ReceivedEntity", "SinkReader")
    pairs = [(getattr(ps, name), getattr(blocking, name)) for name in names]
    pairs += [(getattr(documents, name), getattr(_sending, name)) for name in ("DocumentSender", "SentDocument")]
    for mine, other in pairs:
        # What plans of Spark send apart has no use without Spark.
        apart = {"send_some", "send_containers"}
        assert mine is not other
        public = {each for each in dir(other) if not each.startswith("_")} - apart
        assert public <= set(dir(mine)), mine
    assert ps.Status is blocking.Status


def test_the_examples_of_the_classes() -> None:
    modules = (("pipestream._session", 5), ("pipestream._server", 5), ("pipestream._reader", 5), ("documents", 6))
    for name, least in modules:
        results = doctest.testmod(importlib.import_module(f"penstock.aio.{name}"))
        assert (results.failed, results.attempted >= least) == (0, True)


def test_documents_are_sent_while_a_loop_does_other_things(tmp_path: Path) -> None:
    """Several at once, a wait that is late, one that is cancelled, and a sink that is read back in the same loop."""

    async def main() -> None:
        async with Ends(tmp_path) as ends:
            sender = documents.DocumentSender(ends.client, in_flight=2)
            sent = await sender.send("late.txt", b"nobody has taken it yet")
            assert not sent.done()
            with pytest.raises(DocumentsError) as caught:
                await sent.wait(0.01)
            assert caught.value.kind == "deadline"
            waiting = asyncio.create_task(sent.wait())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            entity = await ends.server.receive(WAIT)
            assert entity is not None
            await entity.complete()
            assert (await sent.wait(WAIT)).status == "COMPLETE"
            assert sent.done()
        async with Server(sink=tmp_path / "sink", state_dir=tmp_path, read_key="a secret of 16 bytes") as server:
            async with Session.connect(server.address, fingerprint=server.fingerprint) as session:
                sender = documents.DocumentSender(session, in_flight=2)
                every = await asyncio.gather(*(sender.send(f"{number}.txt", b"%d" % number) for number in range(9)))
                results = await asyncio.gather(*(each.wait(WAIT) for each in every))
                assert {result.status for result in results} == {"COMPLETE"}
            remote = ps.SinkReader.connect(
                server.address, fingerprint=server.fingerprint, read_key="a secret of 16 bytes"
            )
            while not await remote.sessions():
                pass
            folder = ps.SinkReader(tmp_path / "sink")
            for reader in (remote, folder):
                (closed,) = await reader.sessions()
                pieces = [piece async for piece in reader.plan(closed.session, rows=4)]
                assert [piece.rows for piece in pieces] == [4, 4, 1]
                found = [row async for batch in reader.read(pieces) for row in batch.column("content").to_pylist()]
                assert sorted(found) == [b"%d" % number for number in range(9)]
            journal, length, listed = await folder.follow()
            assert (length, [each.session for each in listed]) == (1, [closed.session]), journal
            await folder.remove(closed.session)
            assert await folder.sessions() == []

    run(main())


def test_many_tasks_share_a_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with Ends(tmp_path) as ends:

            async def send(number: int) -> None:
                sent = await ends.client.send(b"%d" % number * 1000, metadata={"number": str(number)})
                assert await sent.wait(WAIT) is Status.COMPLETE

            async def receive() -> None:
                async for entity in ends.server:
                    async with entity:
                        assert await entity.read() == b"%s" % entity.header.metadata["number"].encode() * 1000

            receivers = [asyncio.create_task(receive()) for _ in range(3)]
            async with asyncio.TaskGroup() as tasks:
                for number in range(300):
                    tasks.create_task(send(number))
            await ends.client.close(WAIT)
            await asyncio.gather(*receivers)

    run(main())


def test_a_batch_is_sent_in_order_with_one_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
            async with Session.connect(server.address, fingerprint=server.fingerprint) as session:
                metadata = [{"n": str(number)} for number in range(500)]
                sent = await session.send_many([b"x" * number for number in range(500)], metadata=metadata)
                assert [entity.entity_id for entity in sent] == list(range(1, 501))
                assert {await entity.wait(WAIT) for entity in sent} == {Status.COMPLETE}
                with pytest.raises(ValueError, match="shorter"):
                    await session.send_many([b"", b""], metadata=[{}])
                with pytest.raises(PipeStreamError, match="belongs to the protocol"):
                    await session.send_many([b"", b""], metadata=[{}, {"pipestream.x": ""}])
            # What was beside the refused one was given up, and may have been there by then.
            assert server.counters.completed in (500, 501)

    run(main())


def test_the_loop_turns_while_files_are_read_and_payloads_hashed(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(64 << 20))

    async def main() -> None:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
            turning = asyncio.create_task(turn())
            async with Session.connect(server.address, fingerprint=server.fingerprint) as session:
                before = turns
                with large.open("rb") as file:
                    sent = [await session.send(source) for source in (large, file, bytes(64 << 20))]
                assert turns - before > 100
                assert [await each.wait(WAIT) for each in sent] == [Status.COMPLETE] * 3
            turning.cancel()

    run(main())


def test_a_cancelled_wait_takes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with Ends(tmp_path) as ends:
            for number in range(50):
                waiting = asyncio.create_task(ends.server.receive())
                await asyncio.sleep(0)
                sending = asyncio.create_task(ends.client.send(b"x"))
                for _ in range(number % 7):
                    await asyncio.sleep(0.0003)
                waiting.cancel()
                sent = await sending
                # Cancelled in time or too late: the entity is with this task, or still there.
                (got,) = await asyncio.gather(waiting, return_exceptions=True)
                entity = got if isinstance(got, ps.ReceivedEntity) else await ends.server.receive(WAIT)
                assert entity is not None
                assert await entity.read() == b"x"
                await entity.complete()
                outcome = asyncio.create_task(sent.wait())
                await asyncio.sleep(0)
                outcome.cancel()
                assert await sent.wait(WAIT) is Status.COMPLETE

    run(main())


def test_a_cancelled_read_takes_nothing(tmp_path: Path) -> None:
    payload = os.urandom(3 << 20)

    async def main() -> None:
        async with Ends(tmp_path) as ends:
            sent = await ends.client.send(payload)
            entity = await ends.server.receive(WAIT)
            assert entity is not None
            head = await entity.read(10)
            for number in range(20):
                reading = asyncio.create_task(entity.read())
                await asyncio.sleep(0.0005 * (number % 4))
                reading.cancel()
                (done,) = await asyncio.gather(reading, return_exceptions=True)
                if isinstance(done, bytes):
                    head += done
            assert head + await entity.read() == payload
            await entity.complete()
            assert await sent.wait(WAIT) is Status.COMPLETE

    run(main())


def test_a_cancelled_send_is_not_sent_or_fails_and_the_session_can_close(tmp_path: Path) -> None:
    async def main() -> None:
        async with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
            async with Session.connect(server.address, fingerprint=server.fingerprint, window=4) as session:
                for number in range(60):
                    # With children, so that one that was forgotten would keep the session open for ever.
                    sending = asyncio.ensure_future(session.send(b"x", dehydrate=True))
                    await asyncio.sleep(0.0002 * (number % 5))
                    sending.cancel()
                    (done,) = await asyncio.gather(sending, return_exceptions=True)
                    if isinstance(done, ps.SentEntity):
                        await session.end_children(done)
                assert await (await session.send(b"after")).wait(WAIT) is Status.COMPLETE
            assert session.closed is not None

    run(main())


def test_a_cancelled_block_fails_the_parent_and_aborts_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with Ends(tmp_path) as ends:
            begun = asyncio.Event()
            scopes = []

            async def work() -> None:
                async with ends.client.dehydrate() as scope:
                    scopes.append(scope)
                    begun.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await scopes[0].wait(WAIT) is Status.FAILED
            assert "CancelledError" in str(scopes[0].entity.reason)
            with pytest.raises(ZeroDivisionError):
                async with ends.client:
                    raise ZeroDivisionError
            assert (await ends.server.wait_closed(WAIT)).message.endswith("ZeroDivisionError")

    run(main())


def test_time_outs_are_errors_of_kind_deadline_and_change_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with Ends(tmp_path) as ends:
            sent = await ends.client.send(b"x")
            waits = [
                sent.wait(0.01),
                ends.listening.accept(0.01),
                ends.client.receive(0.01),
                ends.client.wait_closed(0.01),
                ends.client.close(0.01),
            ]
            for wait in waits:
                with pytest.raises(PipeStreamError) as late:
                    await wait
                assert late.value.kind == "deadline"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await sent.wait()
            entity = await ends.server.receive(WAIT)
            assert entity is not None
            await entity.complete()
            assert await sent.wait(WAIT) is Status.COMPLETE

    run(main())


def test_events_come_in_batches_and_end_with_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
            async with Session.connect(server.address, fingerprint=server.fingerprint) as session:
                await (await session.send(b"x")).wait(WAIT)
                seen = [event async for event in session.events(timeout=0.2)]
                assert isinstance(seen[0], ps.AgreedEvent)
                assert any(isinstance(event, ps.ResolvedEvent) for event in seen)
            assert [type(event) async for event in session.events()][-1] is ps.ClosedEvent

    run(main())


def test_errors_are_those_of_the_twin(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(PipeStreamError) as wrong:
            await Session.connect("127.0.0.1:1")
        assert wrong.value.kind == "misuse"
        with pytest.raises(PipeStreamError, match="does not listen yet"):
            await Server(state_dir=tmp_path).accept()
        async with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
            with pytest.raises(PipeStreamError, match="the sink takes"):
                await server.accept()
            with pytest.raises(PipeStreamError):
                await Server(server.address, sink=tmp_path / "x" / "\0", state_dir=tmp_path)
            session = await Session.connect(server.address, fingerprint=server.fingerprint)
            await session.abort()
            await session.wait_closed(WAIT)
            with pytest.raises(PipeStreamError):
                await session.send(b"x")

    run(main())


def test_a_loop_that_was_closed_early_harms_no_other(tmp_path: Path) -> None:
    async def begin() -> tuple[Server, Session]:
        server = await Server(state_dir=tmp_path)
        session = await Session.connect(server.address, fingerprint=server.fingerprint)
        asyncio.ensure_future(session.receive())  # noqa: RUF006 - it is to be left behind
        await asyncio.sleep(0)
        return server, session

    async def go_on(server: Server, session: Session) -> None:
        accepted = await server.accept(WAIT)
        assert accepted is not None
        sent = await session.send(b"from another loop")
        entity = await accepted.receive(WAIT)
        assert entity is not None
        assert await entity.read() == b"from another loop"
        await entity.complete()
        assert await sent.wait(WAIT) is Status.COMPLETE
        await session.close(WAIT)
        await server.close(0)

    loop = asyncio.new_event_loop()
    server, session = loop.run_until_complete(begin())
    for task in asyncio.all_tasks(loop):
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    bridge = weakref.ref(_loop._bridges[loop])
    del loop, task
    gc.collect()
    assert bridge() is None, "the pipe of the loop goes with it"
    run(go_on(server, session))


def test_a_forked_child_has_loops_of_its_own(tmp_path: Path, run_python: Callable[[str], str]) -> None:
    program = f"""
import asyncio, os, sys
from penstock import DocumentsError, PipeStreamError, _sending
from penstock.aio.pipestream import Server, Session

async def serve():
    server = await Server(state_dir={str(tmp_path)!r}, sink={str(tmp_path / "sink")!r})
    return server, await Session.connect(server.address, fingerprint=server.fingerprint)

async def send(server):
    async with Session.connect(server.address, fingerprint=server.fingerprint) as session:
        return (await (await session.send(b"x")).wait(30)).name

loop = asyncio.new_event_loop()
server, session = loop.run_until_complete(serve())
waiting = loop.create_task(session.receive())
loop.run_until_complete(asyncio.sleep(0))
child = os.fork()
if child == 0:
    try:
        asyncio.run(session.send(b"x"))
    except PipeStreamError as error:
        print("child:", error.kind, flush=True)
    print("child:", asyncio.run(send(server)), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("parent:", loop.run_until_complete(send(server)))
waiting.cancel()
loop.run_until_complete(session.close(30))
loop.run_until_complete(server.close(0))
"""
    assert run_python(program).split("\n")[:3] == ["child: misuse", "child: COMPLETE", "parent: COMPLETE"]
