"""A receiver with a spool: what is acknowledged is in it, once, whoever breaks off and whatever disk and store do."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire import Writer, compressed, data_frame, json_frame, window

from penstock.lumberjack import Receiver, Sender, Spool, SpoolReader

from ..faults.small_disk import SmallDisk, disk
from ..objects.s3 import S3, s3

__all__ = ["disk", "s3"]


def numbers(place: str | Path, **options: object) -> list[int]:
    """The numbers of all events, in their order."""
    found = []
    for batch in SpoolReader(place, **options).read():
        for row in batch.to_pylist():
            pairs = dict(row["fields"] or ())
            found.append(int(pairs["n"]) if pairs else json.loads(row["event"])["n"])
    return found


def session(first: int, count: int) -> bytes:
    """Windows of J, D and compressed frames with so many events, from a number on."""

    def frame(at: int) -> bytes:
        # An event is the same octets whenever it is sent.
        n, sequence = first + at, at + 1 if at < half else at + 1 - half
        return data_frame(sequence, [(b"n", b"%d" % n)], 2) if n % 3 == 2 else json_frame(sequence, b'{"n":%d}' % n)

    half = count // 2
    plain, packed = (b"".join(map(frame, part)) for part in (range(half), range(half, count)))
    return (window(half) + plain if half else b"") + window(count - half) + compressed(packed)


def acknowledged(acks: bytes, count: int) -> int:
    """How many events the acknowledgements of a session cover."""
    half, whole = count // 2, 0
    for at in range(0, len(acks), 6):
        number = int.from_bytes(acks[at + 2 : at + 6])
        whole = max(whole, half + number if whole >= half and at > 0 else number)
    return whole


@pytest.mark.timeout(300)
def test_disconnects_at_every_octet_of_a_session_leave_each_event_once(tmp_path):
    """As a sender does: what was not acknowledged goes again, first, over a new connection."""
    events, told, cuts = 6, 0, range(len(session(0, 6)) + 1)
    with Spool(tmp_path / "spool") as spool, Receiver(spool=spool) as receiver:
        for end in cuts:
            first, taken = end * events, receiver.counters.connections
            with Writer(receiver.address) as writer:
                writer.send(session(first, events)[:end])
                writer.finish()
                # Every other time it breaks off before it has read an acknowledgement: everything goes again.
                safe = 0 if end % 2 else acknowledged(writer.rest(), events)
            # It was taken, and it has ended: nothing of it comes after what is sent again.
            while receiver.counters.connections <= taken or receiver.counters.open:
                time.sleep(0.001)
            assert spool.counters().events >= first + safe
            told += safe
            if safe < events:
                with Writer(receiver.address) as writer:
                    writer.send(session(first + safe, events - safe))
                    writer.finish()
                    assert acknowledged(writer.rest(), events - safe) == events - safe
        duplicates = spool.counters().duplicates
    assert numbers(tmp_path / "spool") == list(range(events * len(cuts))), "an event is missing, or is there twice"
    assert told > len(cuts)
    assert duplicates > len(cuts), "nothing was left out, so nothing was shown"


def test_a_full_disk_acknowledges_nothing_and_what_it_refused_comes_again(disk: SmallDisk):
    with Spool(disk.mount / "spool") as spool, Receiver(spool=spool) as receiver:
        with Sender(receiver.address) as sender:
            sender.send([{"n": 0}], timeout=60)
        disk.fill(leave=8192)
        refused = []
        # A window that does not fit, however often it comes.
        octets = window(2) + b"".join(
            json_frame(at + 1, b'{"n":%d,"m":"%s"}' % (at + 1, b"x" * 20_000)) for at in range(2)
        )
        for _ in range(3):
            with Writer(receiver.address) as writer:
                writer.send(octets)
                refused.append(writer.rest())
        assert refused == [b"", b"", b""]
        assert spool.counters().refused == 3
        with Writer(receiver.address) as small:
            small.send(window(1) + json_frame(1, b'{"n":1}'))
            assert small.ack() == (2, 1)
        disk.free()
        with Sender(receiver.address) as sender:
            sender.send([{"n": 2, "m": "x" * 20_000}], timeout=60)
    assert numbers(disk.mount / "spool") == [0, 1, 2]


@pytest.fixture
def kept(s3: S3) -> Iterator[Spool]:
    with Spool(s3.uri("logs/spool"), storage=s3.storage, linger=0.02) as spool:
        yield spool


def test_a_spool_in_an_object_store_is_acknowledged_when_the_store_has_it(s3: S3, kept: Spool):
    with Receiver(spool=kept) as receiver, Sender(receiver.address, window=50) as sender:
        sender.send([{"n": number} for number in range(120)], timeout=60)
        assert numbers(s3.uri("logs/spool"), storage=s3.storage) == list(range(120))
        segments = [name for name in s3.list("logs/spool/") if name.endswith(".segment")]
        assert segments
        # The store refuses for a while: nothing is acknowledged, and nothing is lost.
        refused: list[str] = []

        def refuse(method: str, path: str) -> bool:
            if method == "PUT" and len(refused) < 30:
                refused.append(path)
                return True
            return False

        s3.refuse = refuse
        sender.send([{"n": 120}], wait=False)
        sender.flush(120)
        assert refused
    kept.close()
    # Another process writes it on, and leaves out what comes again.
    with Spool(s3.uri("logs/spool"), storage=s3.storage, linger=0.02) as again, Receiver(spool=again) as receiver:
        with Writer(receiver.address) as writer:
            writer.send(window(2) + json_frame(1, b'{"n":120}') + json_frame(2, b'{"n":121}'))
            assert writer.ack() == (2, 2)
        assert again.counters().duplicates == 1
        again.commit("nightly", again.end())
    assert numbers(s3.uri("logs/spool"), storage=s3.storage)[-2:] == [120, 121]
    assert json.loads(s3.get("logs/spool/readers.json"))["nightly"][1] > 0


def test_a_segment_ends_at_its_age(tmp_path: Path):
    with Spool(tmp_path / "spool", segment_seconds=0.01) as spool, Receiver(spool=spool) as receiver:
        deadline, sent = time.monotonic() + 60, 0
        with Sender(receiver.address) as sender:
            while spool.end().segment < 3:
                assert time.monotonic() < deadline, "no segment has ended"
                sender.send([{"n": sent}], timeout=60)
                sent += 1
        assert len(list((tmp_path / "spool").glob("*.segment"))) >= 3
    assert numbers(tmp_path / "spool") == list(range(sent))
