"""The receiver over real sockets: windows, acknowledgements, limits, and what is no Lumberjack."""

import json
import random
import resource
import ssl
import struct
import threading
import time
import urllib.request
import zlib
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from wire import Writer, compressed, data_frame, json_frame, whole_window, window

from penstock import LumberjackError
from penstock.lumberjack import Limits, Receiver
from penstock.tls import write_certificates


@pytest.mark.parametrize("version", [1, 2])
def test_the_last_number_of_a_window_is_acknowledged_in_its_version(taking, version):
    receiver = taking()
    with Writer(receiver.address) as writer:
        writer.send(whole_window(3, version, first=7))
        assert writer.ack() == (version, 9)
        writer.send(compressed(whole_window(50, version), version))
        assert writer.ack() == (version, 50)
    assert receiver.wait(53)[0] == {"n": 7}
    counters = receiver.receiver.counters
    assert (counters.windows, counters.events, counters.acknowledged) == (2, 53, 53)
    assert counters.peers["127.0.0.1"][0] == 53


def test_nothing_is_acknowledged_before_the_application_says_so():
    with Receiver() as receiver, Writer(receiver.address) as writer:
        writer.send(whole_window(2))
        batch = receiver.receive(20)
        assert batch is not None
        writer.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            writer.socket.recv(6)
        writer.socket.settimeout(20)
        batch.ack()
        assert writer.ack() == (2, 2)


def test_a_batch_that_is_dropped_ends_its_connection_without_an_acknowledgement():
    with Receiver() as receiver, Writer(receiver.address) as writer:
        writer.send(whole_window(2))
        batch = receiver.receive(20)
        del batch
        assert writer.rest() == b""


def test_a_slow_application_is_excused_to_version_2_by_acknowledging_nothing():
    with Receiver(keepalive=0.05) as receiver, Writer(receiver.address) as writer:
        writer.send(whole_window(2))
        batch = receiver.receive(20)
        assert batch is not None
        assert writer.socket.recv(6) == b"2A\0\0\0\0"
        batch.ack()
        assert writer.ack() == (2, 2)


def test_what_came_of_a_window_is_acknowledged_after_a_pause(taking):
    receiver = taking(pause=0.05)
    with Writer(receiver.address) as writer:
        writer.send(window(10) + json_frame(1, b"{}") + json_frame(2, b"{}"))
        assert writer.ack() == (2, 2)


def test_events_that_are_no_json_objects_or_no_utf_8_are_kept_with_a_tag(taking):
    receiver = taking()
    with Writer(receiver.address) as writer:
        writer.send(window(3) + json_frame(1, b"{oops") + json_frame(2, b"[1]") + json_frame(3, b'{"a":1}'))
        writer.send(window(1, 1) + data_frame(1, [(b"line", b"a\xffb"), (b"host", b"h")]))
        assert (writer.ack(), writer.ack()) == ((2, 3), (1, 1))
    events = receiver.wait(4)
    assert events[:3] == [b"{oops", b"[1]", {"a": 1}]
    assert events[3]["host"] == "h"
    assert receiver.tags == [["_jsonparsefailure"], ["_jsonparsefailure"], [], ["_charsetfailure"]]


def test_wild_json_costs_no_other_event_of_its_batch(taking):
    receiver = taking()
    digits, deep = b"9" * 5_000, b"[" * 5_000 + b"]" * 5_000
    with Writer(receiver.address) as writer:
        events = [b'{"a":%s,"b":1}' % digits, b'{"a":%s}' % deep, b'{"a":"\\ud800"}', b'{"n":1}']
        frames = b"".join(json_frame(at, event) for at, event in enumerate(events, 1))
        writer.send(window(4) + frames + window(1, 1) + data_frame(1, [(b"k", b"1"), (b"k", b"2")]))
        assert writer.ack() == (2, 4)
    expected = [{"a": Decimal(digits.decode()), "b": 1}, events[1], {"a": "\ud800"}, {"n": 1}, {"k": ["1", "2"]}]
    assert receiver.wait(5) == expected


def test_json_is_parsed_into_the_columns_of_a_schema():
    schema = pa.schema([("n", pa.int64()), ("name", pa.string())])
    with Receiver(schema=schema) as receiver, Writer(receiver.address) as writer:
        writer.send(window(2) + json_frame(1, b'{"n":1,"name":"a"}') + json_frame(2, b'{"n":2}'))
        batch = receiver.receive(20)
        assert batch is not None
        assert batch.record_batch.to_pylist() == [{"n": 1, "name": "a"}, {"n": 2, "name": None}]
        assert pa.record_batch(batch).num_rows == len(batch) == 2
        batch.ack()


def _bomb() -> bytes:
    """A frame that would be legal, a thousand times as long as what it comes in."""
    return zlib.compress(json_frame(1, b'{"m":"%s"}' % bytes(8 << 20).replace(b"\0", b"x")), 9)


def _large() -> bytes:
    """A frame that would be legal, of two MiB that do not become much smaller."""
    return zlib.compress(json_frame(1, b'{"m":"%s"}' % random.Random(1).randbytes(1 << 20).hex().encode()))


def _c(packed: bytes, *, more: int = 0) -> bytes:
    return b"2C" + struct.pack(">I", len(packed) + more) + packed + bytes(more)


HUGE = struct.pack(">I", 2**32 - 1)
BAD = {
    "a window of 2^32-1": ("limit", b"2W" + HUGE),
    "a window of 0": ("violation", window(0)),
    "2^32-1 pairs": ("limit", b"1D" + struct.pack(">I", 1) + HUGE + b"abc"),
    "a key of 2^32-1": ("limit", b"1D" + struct.pack(">II", 1, 1) + HUGE + b"abc"),
    "a value of 2^32-1": ("limit", b"1D" + struct.pack(">III", 1, 1, 1) + b"k" + HUGE + b"abc"),
    "JSON of 2^32-1": ("limit", b"2J" + struct.pack(">I", 1) + HUGE + b"{"),
    "a compressed frame of 2^32-1": ("limit", b"2C" + HUGE + b"x"),
    "more inflated than may be": ("limit", _c(_large())),
    "a bomb": ("limit", _c(_bomb())),
    "C in C": ("violation", compressed(compressed(json_frame(1, b"{}")))),
    "a partial frame in C": ("malformed", compressed(json_frame(1, b"{}")[:-1])),
    "an empty C": ("malformed", _c(b"")),
    "no zlib in C": ("malformed", _c(b"oops")),
    "a C that is cut off": ("malformed", window(1) + _c(zlib.compress(json_frame(1, b"{}"))[:-1])),
    "bytes behind the stream in C": ("malformed", window(1) + _c(zlib.compress(json_frame(1, b"{}")), more=2)),
    "an event beyond the window": ("violation", json_frame(1, b"{}") + json_frame(2, b"{}") + json_frame(3, b"{}")),
    "another version": ("malformed", b"3W" + struct.pack(">I", 1)),
    "another version in the midst of a window": ("malformed", window(2) + json_frame(1, b"{}") + b"3J\0\0"),
    "another type": ("malformed", b"2Z" + struct.pack(">I", 1)),
    "an acknowledgement": ("violation", b"2A" + struct.pack(">I", 1)),
}


@pytest.mark.parametrize(("kind", "data"), BAD.values(), ids=BAD)
def test_bad_input_ends_its_connection_alone_after_what_was_whole_is_acknowledged(taking, kind, data):
    # A bomb has to go by its ratio, so what may be inflated lies above it.
    receiver = taking(limits=Limits(window=4096, inflated=1 << 20 if data == _c(_large()) else 256 << 20))
    with Writer(receiver.address) as good, Writer(receiver.address) as writer:
        writer.send(whole_window(3) + data)
        writer.socket.settimeout(20)
        acknowledged = writer.rest()
        assert acknowledged.startswith(b"2A\0\0\0\x03"), acknowledged
        good.send(whole_window(1))
        assert good.ack() == (2, 1)
    receiver.close()
    assert {name: count for name, count in receiver.receiver.counters.errors.items() if count} == {kind: 1}
    assert receiver.receiver.counters.held_bytes == 0


def test_sequence_numbers_may_jump_and_a_new_window_may_come_before_the_old_one_is_full(taking):
    receiver = taking()
    with Writer(receiver.address) as writer:
        writer.send(window(3) + json_frame(5, b"{}") + window(2) + json_frame(2**32 - 1, b"{}") + json_frame(0, b"{}"))
        data = writer.socket.recv(6)
        assert data == b"2A\0\0\0\0"
        writer.send(window(1) + json_frame(9, b"{}"))
        assert writer.ack() == (2, 9)
    assert len(receiver.wait(4)) == 4


def test_a_frame_that_comes_too_slowly_ends_its_connection(taking):
    receiver = taking(frame_timeout=0.1)
    with Writer(receiver.address) as writer:
        writer.send(whole_window(2) + b"2")
        assert writer.rest() == b"2A\0\0\0\x02"
    receiver.close()
    assert receiver.receiver.counters.errors["deadline"] == 1


def test_disconnects_at_every_byte_of_a_session_lose_nothing_that_was_acknowledged(taking):
    receiver = taking(pause=0.02)
    session = whole_window(2) + compressed(whole_window(2, first=3)) + data_frame(1, [(b"k", b"v")])
    acknowledged = 0
    for end in range(len(session) + 1):
        with Writer(receiver.address) as writer:
            writer.send(session[:end])
            writer.finish()
            acks = writer.rest()
        acknowledged += {0: 0, 1: 0, 2: 2, 4: 4}.get(int.from_bytes(acks[-4:]), 0)
    assert acknowledged > len(session)
    assert len(receiver.wait(acknowledged)) >= acknowledged


def test_thousands_that_send_an_byte_at_a_time_hold_nobody_up_and_cost_little(taking):
    receiver = taking()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Both ends of a connection are in this process.
    count = min(2_000, (most - 256) // 2)
    assert count >= 1_000, f"only {most} files may be open"
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resident = memory()
    slow = [Writer(receiver.address) for _ in range(count)]
    try:
        for byte in whole_window(1)[:9]:
            for writer in slow:
                writer.send(bytes([byte]))
        with Writer(receiver.address) as writer:
            writer.send(whole_window(5))
            assert writer.ack() == (2, 5)
        assert receiver.receiver.counters.held_bytes <= 9 * count
        assert memory() - resident < count * (64 << 10), "of each connection, with the Python object of its writer"
        for writer in slow:
            writer.send(whole_window(1)[9:])
        assert {writer.ack() for writer in slow} == {(2, 1)}
        assert len(receiver.wait(count + 5)) == count + 5
    finally:
        for writer in slow:
            writer.socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def memory() -> int:
    """Bytes of this process, where the system tells."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() if statm.exists() else 0


def test_bytes_of_all_connections_together_are_bounded():
    with Receiver(max_bytes=1 << 20) as receiver:
        big = json_frame(1, b'{"m":"%s"}' % (b"x" * 600_000))
        writers = [Writer(receiver.address) for _ in range(6)]
        for writer in writers:
            threading.Thread(target=writer.send, args=(window(1) + big,)).start()
        seen = 0
        while seen < len(writers):
            batch = receiver.receive(20)
            assert batch is not None
            assert receiver.counters.held_bytes <= (1 << 20) + 2 * 700_000
            batch.ack()
            seen += len(batch)
        for writer in writers:
            assert writer.ack() == (2, 1)
            writer.socket.close()


def test_what_is_inflated_of_half_a_frame_counts():
    text = b"".join(b"%d" % number for number in range(200_000))
    frames = window(1) + compressed(json_frame(1, b'"%s"' % text))
    assert len(frames) < len(text) // 2
    with Receiver() as receiver, Writer(receiver.address) as writer:
        writer.send(frames[:-50])
        deadline = time.monotonic() + 20
        while receiver.counters.held_bytes < len(text) // 10 * 9:
            assert time.monotonic() < deadline, receiver.counters.held_bytes
            time.sleep(0.01)
        writer.send(frames[-50:])
        batch = receiver.receive(20)
        assert batch is not None
        batch.ack()
        assert writer.ack() == (2, 1)


def test_a_connection_too_many_is_closed(taking):
    receiver = taking(max_connections=1)
    with Writer(receiver.address) as first:
        first.send(whole_window(1))
        assert first.ack() == (2, 1)
        with Writer(receiver.address) as second:
            assert second.rest() == b""
    assert receiver.receiver.counters.refused == 1


def test_a_connection_ends_at_its_age_between_two_windows(taking):
    receiver = taking(max_age=0.1)
    with Writer(receiver.address) as writer:
        writer.send(whole_window(2)[:-3])
        writer.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            writer.socket.recv(1)
        writer.socket.settimeout(20)
        writer.send(whole_window(2)[-3:])
        assert writer.rest() == b"2A\0\0\0\x02"


@pytest.mark.parametrize(
    ("data", "tls", "name"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", False, "http"),
        (b"<13>hello, syslog", False, "plain_text"),
        (b"\x16\x03\x01\x02\x00\x01", False, "tls"),
        (whole_window(1), True, "plain_lumberjack"),
        (b"<13>hello, syslog", True, "plain_text"),
    ],
)
def test_what_is_another_protocol_is_named(taking, tmp_path, data, tls, name):
    receiver = taking(tls=tls, state_dir=tmp_path)
    with Writer(receiver.address) as writer:
        writer.send(data)
        answer = writer.rest()
    if name == "http":
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert answer.endswith(b"\r\n\r\nThis port takes Lumberjack, and not HTTP.\r\n")
    else:
        assert answer == b""
    assert receiver.receiver.counters.foreign[name] == 1


def test_tls_with_client_certificates_names_the_writer_and_reloads_without_dropping_anybody(taking, tmp_path):
    first = write_certificates(tmp_path / "a")
    receiver = taking(cert=tmp_path / "a/cert.pem", key=tmp_path / "a/key.pem", client_ca=tmp_path / "a/ca.pem")
    assert receiver.receiver.fingerprint == first
    context = ssl.create_default_context(cafile=str(tmp_path / "a/ca.pem"))
    context.load_cert_chain(tmp_path / "a/cert.pem", tmp_path / "a/key.pem")

    def connect(context: ssl.SSLContext) -> Writer:
        writer = Writer(receiver.address)
        writer.socket = context.wrap_socket(writer.socket, server_hostname="localhost")
        return writer

    with connect(context) as old:
        old.send(whole_window(1))
        assert old.ack() == (2, 1)
        second = write_certificates(tmp_path / "b")
        for name in ("cert.pem", "key.pem", "ca.pem"):
            (tmp_path / "b" / name).replace(tmp_path / "a" / name)
        assert receiver.receiver.reload()
        assert receiver.receiver.fingerprint == first
        anonymous = ssl.create_default_context(cafile=str(tmp_path / "a/ca.pem"))
        with pytest.raises((ssl.SSLError, ConnectionError)), connect(anonymous) as refused:  # noqa: PT012
            refused.send(whole_window(1))
            refused.socket.recv(1)
        context = ssl.create_default_context(cafile=str(tmp_path / "a/ca.pem"))
        context.load_cert_chain(tmp_path / "a/cert.pem", tmp_path / "a/key.pem")
        with connect(context) as new:
            new.send(whole_window(1))
            assert new.ack() == (2, 1)
        old.send(whole_window(1))
        assert old.ack() == (2, 1)
    assert second != first
    assert "penstock development certificate" in receiver.receiver.counters.peers


def test_a_receiver_that_stops_acknowledges_what_came():
    with Receiver() as receiver, Writer(receiver.address) as writer:
        writer.send(window(10) + json_frame(1, b"{}") + json_frame(2, b"{}"))
        while receiver.counters.events < 2:
            pass
        closing = threading.Thread(target=receiver.close)
        closing.start()
        batch = receiver.receive(20)
        assert batch is not None
        batch.ack()
        assert writer.rest() == b"2A\0\0\0\x02"
        closing.join()


def test_metrics_and_health(taking):
    receiver = taking(metrics="127.0.0.1:0")
    with Writer(receiver.address) as writer:
        writer.send(whole_window(4))
        assert writer.ack() == (2, 4)
        url = f"http://{receiver.receiver.metrics_address}"
        with urllib.request.urlopen(f"{url}/metrics", timeout=20) as response:  # noqa: S310
            page = response.read().decode()
        with urllib.request.urlopen(f"{url}/healthz", timeout=20) as response:  # noqa: S310
            assert response.status == 200
    for line in (
        "penstock_lumberjack_events_total 4",
        "penstock_lumberjack_acknowledged_events_total 4",
        'penstock_lumberjack_peer_events_total{peer="127.0.0.1"} 4',
        "penstock_lumberjack_open_connections 1",
    ):
        assert line in page.splitlines(), page


def test_options_that_do_not_fit_are_refused(tmp_path):
    for options in (
        {"tls": False, "client_ca": tmp_path / "ca.pem"},
        {"tls": True, "cert": tmp_path / "cert.pem"},
        {"keepalive": -1.0},
        {"listen": "nowhere"},
    ):
        with pytest.raises(LumberjackError) as raised:
            Receiver(**options)
        assert raised.value.code in {"misuse", "io"}


def test_a_spool_is_durable_before_it_is_acknowledged(tmp_path):
    with Receiver(spool=tmp_path / "spool") as receiver, Writer(receiver.address) as writer:
        writer.send(whole_window(5))
        assert writer.ack() == (2, 5)
        segments = [path for path in (tmp_path / "spool").rglob("*") if path.is_file() and path.stat().st_size]
        assert any(json.dumps({"n": 3}, separators=(",", ":")).encode() in path.read_bytes() for path in segments)
        with pytest.raises(LumberjackError):
            receiver.receive(0.1)
