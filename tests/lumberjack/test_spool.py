"""A receiver with a spool: what is acknowledged is in it, once, whoever breaks off and whatever disk and store do."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire import Writer, compressed, data_frame, json_frame, window

from penstock.errors import LumberjackError
from penstock.lumberjack import Position, Receiver, Sender, Spool, SpoolPiece, SpoolReader

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
        # An event is the same bytes whenever it is sent.
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
def test_disconnects_at_every_byte_of_a_session_leave_each_event_once(tmp_path):
    """As a sender does: what was not acknowledged goes again, first, over a new connection."""
    events, told, cuts = 6, 0, range(len(session(0, 6)) + 1)
    with Spool(tmp_path / "spool") as spool, Receiver(spool=spool) as receiver:
        for end in cuts:
            first, taken = end * events, receiver.counters.connections
            with Writer(receiver.address) as writer:
                writer.send(session(first, events)[:end])
                # Every other time it breaks off before it has read an acknowledgement: everything goes again.
                safe = 0
                if end % 2 == 0:
                    writer.finish()
                    safe = acknowledged(writer.rest(), events)
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


def say_the_same(address: str, count: int = 1) -> None:
    """Send so many equal events over a connection of their own, and wait for their acknowledgement."""
    with Writer(address) as writer:
        writer.send(window(count) + b"".join(json_frame(at + 1, b'{"n":7}') for at in range(count)))
        assert writer.ack() == (2, count)


def all_have_ended(receiver: Receiver) -> None:
    deadline = time.monotonic() + 20
    while receiver.counters.open:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("tls", [False, True])
def test_equal_events_of_connections_that_ended_are_all_stored(tmp_path, tls):
    with Spool(tmp_path / "spool") as spool, Receiver(spool=spool, tls=tls) as receiver:
        for _ in range(5):
            if tls:
                with Sender(receiver.address, fingerprint=receiver.fingerprint) as sender:
                    sender.send([{"n": 7}], timeout=60)
            else:
                say_the_same(receiver.address)
        all_have_ended(receiver)
        assert spool.counters().duplicates == 0
    # And after a restart, too.
    with Spool(tmp_path / "spool") as spool, Receiver(spool=spool) as receiver:
        say_the_same(receiver.address, 2)
        say_the_same(receiver.address, 3)
    assert numbers(tmp_path / "spool") == [7] * 10


@pytest.mark.parametrize("end", ["idle", "age", "close"])
@pytest.mark.parametrize("tls", [False, True])
def test_equal_events_of_a_connection_that_the_receiver_closed_are_stored(tmp_path, end, tls):
    """A writer that is idle does not read, as Filebeat, so it does not see that the other end has closed."""
    options = {"idle": {"idle_timeout": 0.1}, "age": {"max_age": 2.0}, "close": {}}[end]
    with Spool(tmp_path / "spool") as spool:
        first = Receiver(spool=spool, tls=tls, **options)
        with Writer(first.address, tls=tls) as writer:
            writer.send(window(1) + json_frame(1, b'{"n":7}'))
            assert writer.ack() == (2, 1)
            if end == "close":
                first.close()
            all_have_ended(first)
        first.close()
        with Receiver(spool=spool) as second:
            say_the_same(second.address)
            assert spool.counters().duplicates == 0
    assert numbers(tmp_path / "spool") == [7, 7]


def test_equal_events_of_hosts_behind_one_address_are_all_stored(tmp_path):
    with Spool(tmp_path / "spool") as spool, Receiver(spool=spool) as receiver:
        # All at once; each says the same twice, and half of them close their end before they have the answer.
        writers = [Writer(receiver.address) for _ in range(40)]
        for at, writer in enumerate(writers):
            writer.send(window(1) + json_frame(1, b'{"n":7}') + window(1) + json_frame(1, b'{"n":7}'))
            if at % 2:
                writer.finish()
        for at, writer in enumerate(writers):
            if at % 2:
                assert writer.rest() == (b"2A" + (1).to_bytes(4)) * 2
            else:
                assert (writer.ack(), writer.ack()) == ((2, 1), (2, 1))
            writer.socket.close()
        assert (spool.counters().events, spool.counters().duplicates) == (80, 0)


def test_what_a_restart_finds_unacknowledged_is_left_out_once(tmp_path):
    """A sender that breaks off with its acknowledgement unread sends again; the one after it may say the same anew."""
    with Spool(tmp_path / "spool") as spool, Receiver(spool=spool) as receiver:
        with Writer(receiver.address) as writer:
            writer.send(window(1) + json_frame(1, b'{"n":7}'))
            assert writer.socket.recv(6, socket.MSG_PEEK)
        all_have_ended(receiver)
    with Spool(tmp_path / "spool") as spool, Receiver(spool=spool) as receiver:
        for duplicates in (1, 1, 1):
            say_the_same(receiver.address)
            all_have_ended(receiver)
            assert spool.counters().duplicates == duplicates
    assert numbers(tmp_path / "spool") == [7] * 3


def test_equal_events_hold_up_no_honest_sender(tmp_path):
    """Beside a search through as many equal events as are remembered, a sender waits at most 0.5 s longer."""
    many = 65_536
    equal = window(many) + compressed(b"".join(json_frame(at + 1, b"{}") for at in range(many)))

    def acknowledged_after() -> float:
        began = time.monotonic()
        with Sender(receiver.address) as sender:
            sender.send([{"n": 1}], timeout=60)
        return time.monotonic() - began

    alone, beside = [], []
    with Spool(tmp_path / "spool") as spool, Receiver(spool=spool) as receiver:
        for _ in range(3):
            alone.append(acknowledged_after())
            with Writer(receiver.address) as writer:
                writer.send(equal + equal)
                assert (writer.ack(), writer.ack()) == ((2, many), (2, many))
                writer.send(equal)
                assert writer.socket.recv(6, socket.MSG_PEEK)
            all_have_ended(receiver)
            with Writer(receiver.address) as hostile:
                hostile.send(equal)
                beside.append(acknowledged_after())
                assert hostile.ack() == (2, many)
            all_have_ended(receiver)
        counters = spool.counters()
    assert (counters.events, counters.duplicates) == (3 * (3 * many + 2), 3 * many)
    assert min(beside) - min(alone) < 0.5, (alone, beside)


def receive_into(place: Path) -> list[str]:
    """The command line of a receiver."""
    listen = ["--listen", "127.0.0.1:0", "--spool", str(place)]
    return [sys.executable, "-m", "penstock", "lumberjack", "receive", *listen]


def killed_with(place: Path, events: int) -> Path:
    """A spool whose receiver was killed, with a record for each of so many events; gives its open segment."""
    command = receive_into(place)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[1]
            with Writer(address) as writer:
                for number in range(events):
                    writer.send(window(1) + json_frame(1, b'{"n":%d}' % number))
                    assert writer.ack() == (2, 1)
        finally:
            process.kill()
    return place / "00000000000000000001.segment"


def change_record_of(segment: Path, number: int) -> bytes:
    """Change a bit of an event's text; give what the file is now."""
    data = bytearray(segment.read_bytes())
    data[data.index(b'{"n":%d}' % number) + 3] ^= 1
    segment.write_bytes(data)
    return bytes(data)


def test_a_bit_that_changed_costs_its_event_and_is_told_to_everybody(tmp_path):
    segment = killed_with(tmp_path / "spool", 20)
    damaged = change_record_of(segment, 7)
    with Spool(tmp_path / "spool") as spool:
        assert spool.counters().damaged == 1
        assert segment.with_suffix(".damaged").read_bytes() == damaged
        with pytest.raises(LumberjackError, match=r"rows 7 to 7 are lost.*00000000000000000001\.damaged"):
            numbers(tmp_path / "spool")
        reader = SpoolReader(tmp_path / "spool")
        rest = [row["event"] for row in read_pieces(reader, reader.plan(Position(1, 8))[0])]
        assert rest == [f'{{"n":{number}}}' for number in range(8, 20)]
        skipping = [row["event"] for row in read_pieces(reader, reader.plan()[0], skip_damaged=True)]
        assert skipping == [f'{{"n":{number}}}' for number in range(20) if number != 7]
        # The receiver goes on, and tells it to who asks for metrics.
        with Receiver(spool=spool, metrics="127.0.0.1:0") as receiver:
            say_the_same(receiver.address)
            with urllib.request.urlopen(f"http://{receiver.metrics_address}/metrics") as answer:
                assert b"penstock_lumberjack_spool_damaged_total 1" in answer.read()
        assert reader.end() == Position(2, 1)


def test_the_log_says_which_rows_are_lost(tmp_path):
    segment = killed_with(tmp_path / "spool", 20)
    change_record_of(segment, 7)
    change_record_of(segment, 9)
    with subprocess.Popen(
        receive_into(tmp_path / "spool"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.terminate()
        _, log = process.communicate(timeout=60)
    errors = [line for line in log.splitlines() if "ERROR" in line]
    assert len(errors) == 1, log
    assert "7 to 7, 9 to 9" in errors[0]
    assert ".damaged" in errors[0]


def read_pieces(reader: SpoolReader, pieces: list[SpoolPiece], **how: bool) -> list[dict[str, object]]:
    return [row for batch in reader.read(pieces, **how) for row in batch.to_pylist()]


def test_without_room_for_a_copy_a_damaged_spool_stays_as_it_is(disk: SmallDisk):
    place = disk.mount / "spool"
    segment = killed_with(place, 20)
    damaged = change_record_of(segment, 7)
    disk.fill()
    with pytest.raises(LumberjackError, match="cannot copy, so nothing is changed"):
        Spool(place)
    assert segment.read_bytes() == damaged
    disk.free()
    with Spool(place) as spool:
        assert spool.counters().damaged == 1
    assert segment.with_suffix(".damaged").read_bytes() == damaged
    assert [path.name for path in place.iterdir() if path.name.startswith(".tmp")] == []


def test_without_dedup_everything_is_stored(tmp_path):
    with Spool(tmp_path / "spool", dedup=False) as spool, Receiver(spool=spool) as receiver:
        for _ in range(2):
            with Writer(receiver.address) as writer:
                writer.send(window(1) + json_frame(1, b'{"n":7}'))
                assert writer.socket.recv(6, socket.MSG_PEEK)
            all_have_ended(receiver)
    assert numbers(tmp_path / "spool") == [7, 7]


def test_a_full_disk_acknowledges_nothing_and_what_it_refused_comes_again(disk: SmallDisk):
    with Spool(disk.mount / "spool") as spool, Receiver(spool=spool) as receiver:
        with Sender(receiver.address) as sender:
            sender.send([{"n": 0}], timeout=60)
        disk.fill(leave=8192)
        refused = []
        # A window that does not fit, however often it comes.
        data = window(2) + b"".join(
            json_frame(at + 1, b'{"n":%d,"m":"%s"}' % (at + 1, b"x" * 20_000)) for at in range(2)
        )
        for _ in range(3):
            with Writer(receiver.address) as writer:
                writer.send(data)
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
        with Writer(receiver.address) as writer:
            writer.send(window(1) + json_frame(1, b'{"n":121}'))
            assert writer.socket.recv(6, socket.MSG_PEEK)
    kept.close()
    # Another process writes it on, and leaves out what comes again.
    with Spool(s3.uri("logs/spool"), storage=s3.storage, linger=0.02) as again, Receiver(spool=again) as receiver:
        with Writer(receiver.address) as writer:
            writer.send(window(2) + json_frame(1, b'{"n":121}') + json_frame(2, b'{"n":122}'))
            assert writer.ack() == (2, 2)
        assert again.counters().duplicates == 1
        assert numbers(s3.uri("logs/spool"), storage=s3.storage)[-2:] == [121, 122]
        again.commit("nightly", again.end())
    assert json.loads(s3.get("logs/spool/readers.json"))["nightly"][0] > 0


def test_who_opens_a_spool_in_an_object_store_shuts_out_who_wrote_it_before(s3: S3, kept: Spool):
    with Receiver(spool=kept) as receiver, Sender(receiver.address) as sender:
        sender.send([{"n": 0}], timeout=60)
        with Spool(s3.uri("logs/spool"), storage=s3.storage, linger=0.02) as second, Receiver(spool=second) as other:
            with Writer(receiver.address) as writer:
                writer.send(window(1) + json_frame(1, b'{"n":1}'))
                assert writer.rest() == b""
            with pytest.raises(LumberjackError, match="another receiver has opened this spool since"):
                kept.commit("nightly", Position(1, 1))
            with Sender(other.address) as moved:
                moved.send([{"n": 1}], timeout=60)
            second.commit("nightly", second.end())
            assert kept.counters().refused == 1
    assert numbers(s3.uri("logs/spool"), storage=s3.storage) == [0, 1]
    assert len([name for name in s3.list("logs/spool/") if "writer-" in name]) == 1


def test_a_reader_cannot_commit_what_is_not_there(tmp_path: Path):
    with Spool(tmp_path / "spool", ack="commit") as spool:
        for beyond in (Position(1, 1), Position(2, 0), Position(9, 9)):
            with pytest.raises(LumberjackError, match=r"'?\"nightly\"'? commits row \d+ of segment \d+"):
                spool.commit("nightly", beyond)


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
