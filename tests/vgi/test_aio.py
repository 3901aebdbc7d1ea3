"""`penstock.aio.vgi`: every way to connect, streams, and what a task leaves behind that is cancelled."""

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from worker import VALUES, About, Service, ServiceImpl

from penstock.aio import vgi as aio
from penstock.errors import VgiError
from penstock.vgi import (
    AnnotatedBatch,
    CallContext,
    ExchangeState,
    Message,
    OutputCollector,
    RpcError,
    RpcServer,
    Stream,
    make_pipe_pair,
)
from penstock.vgi.http import HttpServer
from penstock.vgi.rpc import serve_tcp, serve_unix

WORKER = [sys.executable, str(Path(__file__).with_name("worker.py"))]
WAIT = 30.0


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a task; none of its threads is left then."""
    asyncio.run(asyncio.wait_for(main(), 2 * WAIT))
    for thread in threading.enumerate():
        if thread.name.startswith("vgi-aio"):
            thread.join(WAIT)
            assert not thread.is_alive()


def values(*numbers: float) -> AnnotatedBatch:
    return AnnotatedBatch.from_pydict({"value": list(numbers)})


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Unix socket that threads of this process serve."""
    path = str(tmp_path_factory.mktemp("aio") / "socket")
    ready = threading.Event()
    server = RpcServer(Service, ServiceImpl(), enable_describe=True)
    serving = {"threaded": True, "announce": ready.set}
    threading.Thread(target=serve_unix, args=(server, path), kwargs=serving, daemon=True).start()
    assert ready.wait(WAIT)
    return path


@pytest.fixture(scope="module")
def web() -> Iterator[HttpServer]:
    with HttpServer(RpcServer(Service, ServiceImpl(), enable_describe=True)) as running:
        yield running


@pytest.fixture(params=["subprocess", "pool", "unix", "http", "pipe"])
def opened(request: pytest.FixtureRequest, sockets: str, web: HttpServer) -> Callable[..., Any]:
    def connect(**options: Any) -> Any:
        if request.param == "subprocess":
            return aio.connect(Service, WORKER, **options)
        if request.param == "pool":
            return aio.WorkerPool(shm_size=1 << 20).connect(Service, WORKER, **options)
        if request.param == "unix":
            return aio.unix_connect(Service, sockets, **options)
        if request.param == "http":
            return aio.http_connect(Service, web.url, **options)
        return aio.serve_pipe(Service, ServiceImpl(), **options)

    return connect


def test_a_service_is_called_over_every_transport(opened: Callable[..., Any]) -> None:
    logs: list[Message] = []

    async def main() -> None:
        async with opened(on_log=logs.append) as service:
            assert await service.add(a=1.0) == 3.0
            with pytest.raises(RpcError, match="boom"):
                await service.boom(text="boom")
            async with await service.scale(factor=2.0) as stream:
                assert (await stream.exchange(values(1.0, 2.0))).batch.to_pydict() == {"value": [2.0, 4.0]}
            stream = await service.count_with(n=2)
            assert await stream.header() == About(2)
            assert (await stream.typed_header(About)).rows == 2
            assert [batch.batch["value"].to_pylist() async for batch in stream] == [[2.0], [1.0]]
            with pytest.raises(AttributeError, match="no RPC method"):
                await service.nope()
            with pytest.raises(TypeError):
                await service.add(a="text")

    run(main)
    assert [each.message for each in logs] == ["2 values", "2 left", "1 left"]


def test_tcp_is_a_way_too(capfd: pytest.CaptureFixture[str]) -> None:
    threading.Thread(target=serve_tcp, args=(RpcServer(Service, ServiceImpl()),), daemon=True).start()
    said, deadline = "", time.monotonic() + WAIT
    # The end of the line may be lost: `readouterr` empties the file after it has read it.
    while (told := re.search(r":(\d+)\s*$", said)) is None and time.monotonic() < deadline:
        said += capfd.readouterr().out
        time.sleep(0.01)
    assert told is not None, said
    port = int(told[1])

    async def main() -> None:
        async with aio.tcp_connect(Service, "127.0.0.1", port) as service:
            assert await service.add(a=1.0) == 3.0

    run(main)


def test_a_server_tells_what_it_has(web: HttpServer) -> None:
    async def main() -> None:
        assert set((await aio.http_introspect(web.url)).methods) >= {"add", "scale"}
        ours, theirs = make_pipe_pair()
        server = aio.RpcServer(Service, ServiceImpl(), enable_describe=True)
        serving = asyncio.create_task(server.serve(theirs))
        assert set((await aio.introspect(ours)).methods) >= {"add", "scale"}
        ours.close()
        await serving

    run(main)


class Meeting(Protocol):
    def meet(self) -> int: ...
    def hold(self) -> int: ...
    def held(self) -> "Stream[Held]": ...


@dataclass
class Held(ExchangeState):
    left: int

    def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:  # noqa: A002, ARG002
        EVENTS["entered"].set()
        assert EVENTS["go on"].wait(WAIT)
        out.emit(input.batch)

    def on_cancel(self, ctx: CallContext) -> None:  # noqa: ARG002
        EVENTS["cancelled"].set()


EVENTS: dict[str, threading.Event] = {}


class MeetingImpl:
    def __init__(self) -> None:
        self.barrier = threading.Barrier(2)

    def meet(self) -> int:
        return self.barrier.wait(WAIT)

    def hold(self) -> int:
        EVENTS["entered"].set()
        assert EVENTS["go on"].wait(WAIT)
        return 7

    def held(self) -> Stream[Held]:
        return Stream(output_schema=VALUES, state=Held(1), input_schema=VALUES)


@pytest.fixture
def events() -> Iterator[dict[str, threading.Event]]:
    EVENTS.update({name: threading.Event() for name in ("entered", "go on", "cancelled")})
    yield EVENTS
    EVENTS["go on"].set()


def test_calls_over_http_do_not_wait_for_each_other() -> None:
    with HttpServer(RpcServer(Meeting, MeetingImpl())) as running:

        async def main() -> None:
            async with aio.http_connect(Meeting, running.url) as meeting:
                assert sorted(await asyncio.gather(meeting.meet(), meeting.meet())) == [0, 1]

        run(main)


def test_a_cancelled_call_is_waited_for_by_the_next(events: dict[str, threading.Event]) -> None:
    async def main() -> None:
        async with aio.serve_pipe(Meeting, MeetingImpl()) as meeting:
            task = asyncio.create_task(meeting.hold())
            assert await asyncio.to_thread(events["entered"].wait, WAIT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            events["go on"].set()
            assert await meeting.hold() == 7

    run(main)


@pytest.mark.parametrize("way", ["call", "stream", "timeout", "http"])
def test_who_leaves_a_connection_does_not_wait_for_what_it_gave_up(
    events: dict[str, threading.Event], way: str
) -> None:
    ours, theirs = make_pipe_pair()
    server = RpcServer(Meeting, MeetingImpl())

    def serve() -> None:
        # It sees the end of a stream that nobody ended.
        with suppress(VgiError):
            server.serve(theirs)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    web = HttpServer(server) if way == "http" else None

    async def give_up(meeting: Any) -> None:
        if way in ("call", "http"):
            await meeting.hold()
            return
        async with await meeting.held() as stream:
            if way == "stream":
                await stream.exchange(values(1.0))
            else:
                # Within the stream's block: it is left with another error than that of the cancelled task.
                async with asyncio.timeout(0.05):
                    await stream.exchange(values(1.0))

    async def main() -> None:
        opened = aio.RpcConnection(Meeting, ours) if web is None else aio.http_connect(Meeting, web.url)
        async with opened as meeting:
            task = asyncio.create_task(give_up(meeting))
            if way != "timeout":
                assert await asyncio.to_thread(events["entered"].wait, WAIT)
                task.cancel()
            with pytest.raises((asyncio.CancelledError, TimeoutError)):
                await task
        # The method still runs.
        assert not events["go on"].is_set()

    run(main)
    events["go on"].set()
    ours.close()
    serving.join(WAIT)
    assert not serving.is_alive()
    if web is not None:
        web.close()


@pytest.mark.parametrize("way", ["http", "pipe"])
def test_a_stream_that_is_left_is_not_cancelled_for_the_call_of_another_task(
    events: dict[str, threading.Event], way: str
) -> None:
    async def use(opened: Any) -> None:
        async with opened as meeting:
            async with await meeting.held():
                other = asyncio.create_task(meeting.hold())
                assert await asyncio.to_thread(events["entered"].wait, WAIT)
            # The call of the other task still runs, and leaving the stream did not wait for it.
            assert not other.done()
            events["go on"].set()
            assert await other == 7
            assert await meeting.hold() == 7

    async def main() -> None:
        if way == "pipe":
            await use(aio.serve_pipe(Meeting, MeetingImpl()))
            return
        with HttpServer(RpcServer(Meeting, MeetingImpl())) as running:
            await use(aio.http_connect(Meeting, running.url))

    run(main)
    assert not events["cancelled"].is_set()


def test_a_cancelled_task_cancels_its_stream(events: dict[str, threading.Event]) -> None:
    events["go on"].set()

    async def use(meeting: Any, begun: asyncio.Event) -> None:
        async with await meeting.held() as stream:
            await stream.exchange(values(1.0))
            begun.set()
            await asyncio.Event().wait()

    async def main() -> None:
        async with aio.serve_pipe(Meeting, MeetingImpl()) as meeting:
            begun = asyncio.Event()
            task = asyncio.create_task(use(meeting, begun))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(events["cancelled"].wait, WAIT)
            # The connection carries the next call.
            assert await meeting.hold() == 7

    run(main)


def test_a_connection_that_cannot_be_made_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="socket"):
            async with aio.unix_connect(Service, str(tmp_path / "no-socket")):
                pass
        with pytest.raises(FileNotFoundError):
            async with aio.connect(Service, ["/no/such/worker"]):
                pass

    run(main)
