"""Buffers, jobs, senders and consumers, over real sockets."""

import asyncio
import copy
import hashlib
import io
import json
import pickle
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.aio import pimp as aio_pimp
from penstock.errors import PimpError
from penstock.pimp import Buffer, Consumer, Job, Limits, Sender, new_job_id

VECTORS = Path(__file__).parents[1] / "vectors" / "pimp"


def ask(url: str, method: str = "GET", body: object = None, key: str | None = None) -> tuple[int, Any]:
    """Make a request without any of our clients."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    request = urllib.request.Request(url, data=data, method=method, headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def test_whatever_is_sent_is_read(buffer: Buffer, tmp_path: Path) -> None:
    noise = bytes(range(256)) * 4096
    file = tmp_path / "file"
    file.write_bytes(noise)
    cases: list[tuple[object, bytes, str]] = [
        ("grüße", "grüße".encode(), "identity"),
        (noise, noise, "base64"),
        (bytearray(b"a"), b"a", "base64"),
        (memoryview(b"\xff"), b"\xff", "base64"),
        (file, noise, "base64"),
        (io.StringIO("text"), b"text", "identity"),
        (io.BytesIO(noise), noise, "base64"),
        ((str(number) for number in range(1000)), "".join(map(str, range(1000))).encode(), "identity"),
        (["a", [b"b", ["c"]]], b"abc", "identity"),
        ("", b"", "base64"),
    ]
    for data, expected, encoding in cases:
        job = Job.create(buffer.url)
        with job.sender() as sender:
            sender.send(data)
        consumer = job.consumer()
        assert (consumer.read(), consumer.metadata.content_encoding) == (expected, encoding)
        status = job.status()
        assert (status.state, status.sha256) == ("COMPLETED", hashlib.sha256(expected).hexdigest())
        assert sender.bytes_written == len(expected)
        assert sender.last_index == status.next_index - 1
    for wrong in (3, None, {"a": 1}):
        with pytest.raises(TypeError, match="bytes, str, a path"), Job.create(buffer.url).sender() as sender:
            sender.send(wrong)


def test_what_is_compressed_is_read_as_it_was(buffer: Buffer) -> None:
    job = Job.create(buffer.url)
    with job.sender(gzip=True, content_type="text/csv", meta={"rows": 3}) as sender:
        sender.send("a,b\n" * 100_000)
    consumer = job.consumer()
    assert consumer.read() == b"a,b\n" * 100_000
    metadata = consumer.metadata
    assert (metadata.compression, metadata.content_type, metadata.meta) == ("gzip", "text/csv", {"rows": 3})
    assert job.status().bytes < 10_000


def test_batches_go_as_arrow_or_as_lines_of_json(buffer: Buffer) -> None:
    table = pa.table({"n": range(5000), "name": [f"n{number}" for number in range(5000)]})
    job = Job.create(buffer.url)
    with job.sender() as sender:
        for batch in table.to_batches(max_chunksize=1000):
            sender.send(batch)
    consumer = job.consumer()
    assert consumer.arrow_schema() == table.schema
    assert pa.Table.from_batches(consumer.batches()).equals(table)
    assert consumer.receive() is None
    assert consumer.metadata.content_type == "application/vnd.apache.arrow.stream"
    job = Job.create(buffer.url)
    with job.sender(arrow="jsonl") as sender:
        sender.send(table)
    consumer = job.consumer()
    assert [json.loads(line) for line in "".join(consumer.text()).splitlines()] == table.to_pylist()
    assert (consumer.metadata.content_type, consumer.metadata.content_encoding) == ("application/x-ndjson", "identity")


def test_what_comes_is_read_before_it_is_whole(job: Job) -> None:
    consumer, sender = job.consumer(), job.sender(content_type="text/plain")
    for word in ("one", "two"):
        sender.send(word)
        assert consumer.receive(timeout=20) == word.encode()
    with pytest.raises(PimpError) as late:
        consumer.receive(timeout=0.05)
    assert (late.value.kind, late.value.code) == ("deadline", "DEADLINE")
    sender.send("three")
    sender.finish()
    sender.finish()
    assert (consumer.receive(timeout=20), consumer.receive()) == (b"three", None)
    assert consumer.next_index == job.status().next_index
    with pytest.raises(PimpError, match="ended"):
        sender.send("more")


def test_a_sender_that_fails_tells_the_consumer(job: Job) -> None:
    def pages() -> Iterator[str]:
        yield "the beginning"
        raise ValueError("no such page")

    with pytest.raises(ValueError, match="no such page"), job.sender() as sender:
        sender.send(pages())
    with pytest.raises(PimpError, match="no such page") as failed:
        job.consumer().read()
    assert (failed.value.code, job.status().state) == ("FAILED", "FAILED")


def test_a_consumer_that_wants_no_more_stops_the_sender(job: Job) -> None:
    sent = threading.Event()

    def endless() -> Any:
        while True:
            yield "a word, "
            sent.set()

    thread = threading.Thread(target=lambda: (sent.wait(), job.with_key(None).cancel()))
    thread.start()
    with pytest.raises(PimpError) as cancelled, job.sender(flush_interval=0.01) as sender:
        sender.send(endless())
    thread.join()
    assert (cancelled.value.code, job.status().state) == ("CANCELLED", "FAILED")


def test_a_takeover_leaves_the_old_key_without_rights(job: Job) -> None:
    old = job.sender()
    old.send("one ")
    old.flush()
    taken = job.take_over()
    old.send("lost")
    with pytest.raises(PimpError) as refused:
        old.flush()
    assert refused.value.code == "UNAUTHORIZED"
    with pytest.raises(PimpError) as twice:
        taken.take_over(etag='"1"')
    assert twice.value.code == "PRECONDITION_FAILED"
    # The same chunks as before, and one more.
    with taken.sender() as sender:
        sender.send("one ")
        sender.flush()
        sender.send("and two")
    assert taken.consumer().read() == b"one and two"


def test_who_writes_behind_another_writer_writes_the_same_or_is_told(job: Job) -> None:
    with job.sender() as sender:
        sender.send("the first payload")
    with pytest.raises(PimpError) as other, job.sender() as sender:
        sender.send("the second payload")
    assert other.value.code == "CONFLICT"
    with job.sender() as sender:
        sender.send("the first payload")
    assert job.consumer().read() == b"the first payload"


def test_a_job_that_is_taken_over_ends_whatever_its_chunks_were(buffer: Buffer) -> None:
    for pieces in (["one "], ["one two"], ["one ", "three"], []):
        job = Job.create(buffer.url)
        old = job.sender()
        for piece in ("one ", "two"):
            old.send(piece)
            old.flush()
        taken = job.take_over()

        def write(job: Job, pieces: list[str]) -> None:
            with job.sender(content_type="text/plain; charset=utf-8") as sender:
                for piece in pieces:
                    sender.send(piece)
                    sender.flush()

        with pytest.raises(PimpError) as other:
            write(taken, pieces)
        assert other.value.code == "CONFLICT"
        with pytest.raises(PimpError, match="another writer") as failed:
            taken.consumer().read()
        assert failed.value.code == "FAILED", pieces


class Racing:
    """What a job asks its buffer with; another writer writes a chunk behind each of the first looks."""

    def __init__(self, native: Any, key: str, races: int) -> None:
        self._native, self._key, self._races = native, key, races

    def status(self, key: str | None, timeout: float | None) -> Any:
        found = self._native.status(key, timeout)
        if self._races:
            self._races -= 1
            self._native.write_chunks(self._key, [(found["next_index"], "and more ")], False, None, None)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)


def test_the_end_of_a_job_is_written_behind_a_chunk_that_comes_into_its_place(buffer: Buffer) -> None:
    for reason, races in ((None, 2), ("no more", 1), (None, 99)):
        job = Job.create(buffer.url)
        sender = job.sender(content_type="text/plain")
        sender.send("some ")
        sender.flush()
        sender.abandon()
        ours = job.with_key(job.key)
        ours.__dict__["_native"] = Racing(job._native, str(job.key), races)
        if races == 99:
            with pytest.raises(PimpError, match="another writer keeps changing") as never:
                ours.finish()
            assert never.value.code == "CONFLICT"
            continue
        ours.finish(reason)
        if reason is None:
            assert job.consumer().read() == b"some and more and more "
        else:
            with pytest.raises(PimpError, match="no more"):
                job.consumer().read()


def test_chunk_0_does_not_wait_for_the_payload(job: Job) -> None:
    sender, consumer = job.sender(), job.consumer()
    assert consumer.metadata.content_type == "application/octet-stream"
    sender.send("late ")
    sender.send(["text"])
    sender.finish()
    assert consumer.read() == b"late text"
    with pytest.raises(PimpError, match="ended"):
        sender.send("more")
    with pytest.raises(PimpError, match="ended"):
        sender.flush()
    gone = job.sender()
    gone.abandon()
    with pytest.raises(PimpError, match="abandoned"):
        gone.send("x")


def test_every_reason_reaches_the_consumer(buffer: Buffer) -> None:
    for reason, told in [("no file 'a\udcff.txt'", r"no file 'a\\udcff.txt'"), ("long " * 20_000, "long long ")]:
        for gzip in (False, True):
            job = Job.create(buffer.url)

            def pages(reason: str) -> Iterator[str]:
                yield "a beginning"
                raise OSError(reason)

            with pytest.raises(OSError, match=r"no file|long"), job.sender(gzip=gzip) as sender:
                sender.send(pages(reason))
            with pytest.raises(PimpError, match=told) as failed:
                job.consumer().read()
            assert failed.value.code == "FAILED"
    job = Job.create(buffer.url)
    job.finish("a\udcff")
    with pytest.raises(PimpError, match="udcff"):
        job.consumer().read()


def test_batches_without_rows_have_columns_and_columns_have_a_name_each(buffer: Buffer) -> None:
    empty = pa.table({"n": pa.array([], pa.int64())})
    for data in (empty, empty.to_reader(), pa.record_batch({"n": pa.array([], pa.int64())})):
        job = Job.create(buffer.url)
        with job.sender() as sender:
            sender.send(data)
        assert pa.Table.from_batches(job.consumer().batches(), empty.schema).num_rows == 0
        assert job.consumer().arrow_schema() == empty.schema
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with (
        pytest.raises(ValueError, match="duplicate columns in a line of JSON: a"),
        Job.create(buffer.url).sender(arrow="jsonl") as sender,
    ):
        sender.send(twice)


def test_a_buffer_that_is_closed_has_its_grace_and_no_more() -> None:
    held = Buffer(behind_proxy=True)
    job = Job.create(held.url)
    host, port = held.address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as slow:
        head = f"POST /pimp/{job.id}/chunks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {job.key}\r\n"
        slow.sendall(f"{head}Content-Length: 9\r\n\r\n".encode())
        assert job.status().state == "CREATED"
        held.close(grace=0)
        assert slow.recv(100) == b"", "a body that does not come would be told so"


def test_batches_are_believed_when_the_job_has_ended_well(buffer: Buffer) -> None:
    table = pa.table({"n": [1, 2, 3]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole = sink.getvalue()

    def end(sender: Sender, how: str) -> None:
        if how == "FAILED":
            sender.fail("no more")
        else:
            sender.send(b"behind the end")
            sender.finish()

    # Chunks that cut it anywhere.
    job = Job.create(buffer.url)
    with job.sender(content_type="application/vnd.apache.arrow.stream") as sender:
        for at in range(0, len(whole), 7):
            sender.send(whole[at : at + 7])
            sender.flush()
    assert pa.Table.from_batches(job.consumer(wait=0, poll_interval=0.01).batches()).equals(table)
    for code in ("FAILED", "CORRUPT"):
        job = Job.create(buffer.url)
        sender = job.sender(content_type="application/vnd.apache.arrow.stream")
        sender.send(whole)
        sender.flush()
        end(sender, code)
        with pytest.raises(PimpError) as failed:
            list(job.consumer().batches())
        assert failed.value.code == code


def test_a_job_as_large_as_its_buffer_allows_is_read() -> None:
    with Buffer(behind_proxy=True, limits=Limits(job=80 << 20, value=1 << 20, chunks=5_000)) as large:
        job = Job.create(large.url)
        payload = b"0123456789abcdef" * (1 << 16) * 60
        with job.sender(content_type="text/plain", chunk_bytes=1 << 20) as sender:
            sender.send(payload)
        assert job.consumer().read() == payload
        with pytest.raises(PimpError) as refused:
            job.consumer(max_bytes=59 << 20).read()
        assert refused.value.code == "TOO_LARGE"


def test_another_consumer_goes_on_where_one_was(job: Job) -> None:
    sender, first = job.sender(content_type="text/plain"), job.consumer()
    start = first.position
    sender.send("one ")
    assert first.receive(timeout=20) == b"one "
    program = (
        "import pickle, sys\n"
        "job, position = pickle.load(sys.stdin.buffer)\n"
        "consumer = job.consumer(position=position)\n"
        "sys.stdout.buffer.write(consumer.receive(timeout=20))\n"
        "print(); print(consumer.position)\n"
    )
    sender.send("two ")
    sender.flush()
    given = pickle.dumps((job.with_key(None), first.position))
    ran = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, timeout=60, check=True)
    text, position = ran.stdout.decode().splitlines()
    assert text == "two "
    sender.send("three")
    sender.finish()
    last = job.consumer(position=position)
    assert (last.metadata.content_type, last.read()) == ("text/plain", b"three")
    assert job.consumer(position=last.position).read() == b""
    assert job.consumer(position=start).read() == b"one two three"

    async def later() -> bytes:
        return await aio_pimp.Job(job.url, read_key="reader").consumer(position=position).read()

    assert asyncio.run(later()) == b"three"
    with pytest.raises(PimpError, match="no position in a job"):
        Job.create(job.url.partition("/pimp/")[0]).consumer(position=position)


def test_who_takes_a_job_over_may_fail_it_whatever_is_written(job: Job) -> None:
    old = job.sender()
    old.send("one ")
    old.flush()
    taken = job.take_over()
    new = taken.sender()
    new.send("another beginning")
    new.fail("no more")
    with pytest.raises(PimpError, match="no more"):
        taken.consumer().read()


def test_keys_are_asked_for_and_not_shown(buffer: Buffer, job: Job) -> None:
    assert job.key is not None
    assert job.key not in repr(job)
    assert copy.deepcopy(job) == job
    stranger = Job(job.url)
    with pytest.raises(PimpError) as unknown:
        stranger.status()
    assert unknown.value.code == "UNAUTHORIZED"
    with pytest.raises(PimpError, match="no key for writing"):
        stranger.sender()
    with pytest.raises(PimpError) as taken:
        Job.create(buffer.url, job_id=job.id)
    assert taken.value.code == "CONFLICT"
    assert job.ensure() is False
    job.delete()
    with pytest.raises(PimpError) as gone:
        job.consumer().read()
    assert gone.value.code == "NOT_FOUND"


def test_a_job_that_is_too_large_says_so_to_both() -> None:
    with Buffer(behind_proxy=True, limits=Limits(job=200_000, chunks=64)) as small:
        job = Job.create(small.url)
        with pytest.raises(PimpError) as large, job.sender() as sender:
            sender.send(bytes(1 << 20))
        assert large.value.code == "TOO_LARGE"
        with pytest.raises(PimpError, match="larger than the buffer allows") as failed:
            job.consumer().read()
        assert failed.value.code == "FAILED"


def test_keys_go_to_allowed_hosts_and_never_in_plain_text_over_a_network() -> None:
    path = f"pimp/{new_job_id()}"
    for url in (f"http://buffer.example/{path}", f"http://10.0.0.1/{path}", f"ftp://localhost/{path}", "x", path):
        with pytest.raises(PimpError) as refused:
            Sender(Job(url, key="key"), content_type="text/plain")
        assert refused.value.code == "MISUSE", url
    for hosts in ([], ["other.example"], ["127.0.0.1:1"]):
        with pytest.raises(PimpError, match="allowed_hosts"):
            Consumer(Job(f"http://127.0.0.1:2/{path}", allowed_hosts=hosts))
    with pytest.raises(PimpError, match="jobId"):
        Consumer(Job("http://127.0.0.1/pimp/none"))


def test_https_is_the_default_and_trust_is_checked(tmp_path: Path) -> None:
    with Buffer(state_dir=tmp_path) as buffer:
        assert buffer.url.startswith("https://")
        assert buffer.fingerprint is not None
        job = Job.create(buffer.url, fingerprint=buffer.fingerprint)
        with job.sender() as sender:
            sender.send("secret")
        ca = Job(job.url, key=job.key, ca=tmp_path / "certificate" / "ca.pem")
        assert ca.consumer().read() == b"secret"
        with pytest.raises(PimpError) as refused:
            Job(job.url, fingerprint="ab" * 32, retry=0.0).status()
        assert refused.value.kind == "io"
    with pytest.raises(PimpError, match="loopback"):
        Buffer("0.0.0.0:0", behind_proxy=True)
    with pytest.raises(PimpError, match="jwt_secret is empty"):
        Buffer(behind_proxy=True, jwt_secret=b"")
    with pytest.raises(PimpError, match="is not a store"):
        Buffer(store="ftp://127.0.0.1/")


def test_the_example_of_the_specification_is_read(job: Job) -> None:
    values = ['{"contentType":"application/json","contentEncoding":"identity"}', '[{"id":1},', '{"id":2}]']
    chunks = [
        {"jobId": job.id, "index": index, "value": value, "done": index == 2, "error": None, "createdAt": 1}
        for index, value in enumerate(values)
    ]
    assert ask(job.write_url, "POST", {"chunks": chunks}, job.key) == (201, {"written": 3})
    assert ask(job.write_url, "POST", {"chunks": chunks}, job.key) == (200, {"written": 0, "duplicates": 3})
    assert json.loads(job.consumer().read()) == [{"id": 1}, {"id": 2}]
    assert ask(f"{job.url}?from=3", key="reader") == (200, {"chunks": [], "nextIndex": 3})


def vectors(name: str) -> list[dict[str, Any]]:
    """Read a file of vectors, which the tests of the core read too."""
    cases: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    assert len(cases) > 10
    return cases


def test_every_payload_vector_is_read_as_it_says(buffer: Buffer) -> None:
    for case in vectors("payloads"):
        job = Job.create(buffer.url)
        values = [json.dumps(case["metadata"]), *case["values"]]
        chunks: list[dict[str, object]] = [
            {"jobId": job.id, "index": index, "value": value, "done": False, "error": None, "createdAt": 1}
            for index, value in enumerate(values)
        ]
        chunks[-1] |= {"done": True, "sha256": case.get("sha256")}
        assert ask(job.write_url, "POST", {"chunks": chunks}, job.key)[0] == 201, case["name"]
        if "code" not in case:
            assert job.consumer().read() == bytes.fromhex(case["payload"]), case["name"]
            continue
        with pytest.raises(PimpError) as corrupt:
            job.consumer().read()
        assert corrupt.value.code == case["code"], case["name"]


def test_every_write_vector_is_answered_as_it_says(buffer: Buffer) -> None:
    job = Job.create(buffer.url, job_id="550e8400-e29b-41d4-a716-446655440000")
    for case in vectors("writes-invalid"):
        body = bytes.fromhex(case["hex"]) if "hex" in case else case["body"].encode()
        status, answer = ask(job.write_url, "POST", body, job.key)
        assert (status, answer["code"]) == (case["status"], {400: "MALFORMED", 413: "TOO_LARGE"}[status]), case["name"]
    assert job.status().chunks == 0
    for case in vectors("writes"):
        status, answer = ask(job.write_url, "POST", case["body"].encode(), job.key)
        assert (status, answer["written"]) == (201, len(case["stored"])), case["name"]
        assert answer.get("duplicates", 0) == case["duplicates"], case["name"]
        _, found = ask(job.url)
        assert found["chunks"] == sorted(case["stored"], key=lambda chunk: int(chunk["index"])), case["name"]
        job.delete()
        job.ensure()


def test_the_twins_of_asyncio_do_the_same(tmp_path: Path) -> None:
    async def words() -> Any:
        for word in ("one ", "two ", "three"):
            yield word

    async def main() -> None:
        async with aio_pimp.Buffer(behind_proxy=True, store=tmp_path) as buffer:
            job = await aio_pimp.Job.create(buffer.url, read_key="reader", ttl=60)
            consumer = job.consumer()
            reading = asyncio.create_task(consumer.read())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(reading), 0.05)
            async with job.sender() as sender:
                await sender.send(words())
                await sender.flush()
                await sender.send(io.StringIO(", four"))
            assert await reading == b"one two three, four"
            assert (await consumer.metadata()).content_encoding == "identity"
            taken = await job.take_over()
            assert await taken.cancel() is False
            await taken.delete()
            with pytest.raises(PimpError) as gone:
                await job.status()
            assert gone.value.code == "NOT_FOUND"
            job = await aio_pimp.Job.create(buffer.url)
            with pytest.raises(PimpError) as late:
                await job.consumer().receive(timeout=0.05)
            assert late.value.code == "DEADLINE"
            with pytest.raises(ValueError, match="odd"):
                async with job.sender() as sender:
                    raise ValueError("odd")
            with pytest.raises(PimpError, match="odd"):
                await job.consumer().read()

    asyncio.run(main())


def test_tasks_that_begin_together_share_what_they_begin(job: Job) -> None:
    async def main() -> None:
        ours = aio_pimp.Job(job.url, key=job.key, read_key="reader")
        sender = ours.sender(content_type="text/plain")
        await asyncio.gather(sender.send("one"), sender.send("two"))
        await sender.finish()
        consumer = ours.consumer()
        _, data = await asyncio.gather(consumer.metadata(), consumer.receive())
        assert (data or b"") + await consumer.read() in {b"onetwo", b"twoone"}

    asyncio.run(main())


def test_the_consumer_of_asyncio_gives_batches_and_files(tmp_path: Path) -> None:
    table = pa.table({"n": list(range(1000))})

    async def main() -> None:
        async with aio_pimp.Buffer(behind_proxy=True) as buffer:
            job = await aio_pimp.Job.create(buffer.url)
            async with job.sender() as sender:
                for batch in table.to_batches(max_chunksize=100):
                    await sender.send(batch)
            consumer = job.consumer()
            assert await consumer.arrow_schema() == table.schema
            start = consumer.position
            assert pa.Table.from_batches([batch async for batch in consumer.batches()]).equals(table)
            assert await consumer.receive() is None
            assert (await job.consumer(position=consumer.position).read(), consumer.position == start) == (b"", False)
            seen: list[int] = []
            data = await job.consumer().save(tmp_path / "table.arrows", progress=seen.append)
            assert seen[-1] == data == (tmp_path / "table.arrows").stat().st_size
            assert pa.ipc.open_stream(tmp_path / "table.arrows").read_all().equals(table)

    asyncio.run(main())
