"""The sender against receivers that fail, and the commands."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from wire import Writer, data_frame, json_frame, whole_window, window

from penstock import LumberjackError
from penstock._demo.logs import LogShipping
from penstock.aio import lumberjack as aio
from penstock.lumberjack import Event, LogHandler, Receiver, Sender, SpoolReader
from penstock.tls import write_certificates

from ..ports import free_address


@pytest.mark.parametrize("options", [{}, {"compress": 0}, {"protocol": 2, "sequence": "continue", "in_flight": 4}])
def test_events_arrive_whole_and_in_order(taking, options):
    receiver = taking()
    with Sender(receiver.address, window=50, **options) as sender:
        sender.send({"n": number} for number in range(1_000))
        assert sender.acknowledged == 1_000
    assert receiver.wait(1_000) == [{"n": number} for number in range(1_000)]


def test_pairs_strings_bytes_and_events_can_be_sent(taking):
    receiver = taking()
    with Sender(receiver.address) as sender:
        sender.send(["text", b'{"raw":1}', Event({"a": [1]})])
    with Sender(receiver.address, frames="map") as sender:
        sender.send([{"k": "v", "n": 1}])
    expected = [{"message": "text"}, {"raw": 1}, {"a": [1]}, {"k": "v", "n": "1"}]
    assert receiver.wait(4) == expected


def test_what_a_generator_gives_is_on_its_way_before_it_ends(taking):
    receiver = taking()

    def numbers() -> Iterator[dict[str, int]]:
        yield from ({"n": number} for number in range(5_000))
        # Where all of it were taken first, this would wait in vain.
        receiver.wait(2_000)
        yield {"n": 5_000}

    with Sender(receiver.address) as sender:
        sender.send(numbers(), timeout=60)
    assert receiver.wait(5_001) == [{"n": number} for number in range(5_001)]


def test_arrow_is_sent_by_its_column_of_json_or_row_by_row(taking):
    receiver = taking()
    with Sender(receiver.address) as sender:
        sender.send(pa.table({"event": ['{"a":1}', '{"a":2}']}))
        sender.send(pa.record_batch({"n": [1], "s": ["x"]}))
    assert receiver.wait(3) == [{"a": 1}, {"a": 2}, {"n": 1, "s": "x"}]


def test_what_was_not_acknowledged_is_sent_again_to_the_next_host(taking):
    deaf = socket.create_server(("127.0.0.1", 0))
    receiver = taking()

    def take_and_hang_up() -> None:
        connection, _ = deaf.accept()
        connection.recv(65536)
        connection.close()

    thread = threading.Thread(target=take_and_hang_up)
    thread.start()
    with Sender([f"127.0.0.1:{deaf.getsockname()[1]}", receiver.address]) as sender:
        sender.send([{"n": 1}, {"n": 2}], timeout=30)
    thread.join()
    deaf.close()
    assert receiver.wait(2) == [{"n": 1}, {"n": 2}]


def test_balance_uses_all_receivers(taking):
    receivers = [taking(), taking()]
    with Sender([each.address for each in receivers], balance=True, window=10) as sender:
        sender.send({"n": number} for number in range(200))
    assert sum(len(each.events) for each in receivers) == 200
    assert all(each.events for each in receivers)


def test_a_sender_gives_up_after_its_time():
    address = free_address()
    sender = Sender(address, retry=0.1)
    with pytest.raises(LumberjackError) as raised:
        sender.send([{"n": 1}], timeout=30)
    assert raised.value.kind == "io"
    assert address in str(raised.value)


def test_a_receiver_that_acknowledges_what_was_not_sent_is_left():
    with socket.create_server(("127.0.0.1", 0)) as wrong:

        def answer() -> None:
            connection, _ = wrong.accept()
            connection.recv(65536)
            connection.sendall(b"1A\0\0\0\x09")
            connection.recv(1)
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        sender = Sender(f"127.0.0.1:{wrong.getsockname()[1]}", retry=0.0)
        with pytest.raises(LumberjackError) as raised:
            sender.send([{"n": 1}], timeout=30)
        assert raised.value.code == "violation"
        thread.join()


def test_another_machine_wants_trust_or_plain():
    with pytest.raises(
        LumberjackError, match="is not on this machine: set fingerprint, ca or system_ca, or plain=True"
    ):
        Sender("logs.example.com:5044")
    assert Sender("logs.example.com:5044", plain=True).acknowledged == 0


def test_tls_by_fingerprint_and_by_ca_with_a_client_certificate(taking, tmp_path):
    write_certificates(tmp_path)
    receiver = taking(cert=tmp_path / "cert.pem", key=tmp_path / "key.pem", client_ca=tmp_path / "ca.pem")
    own = {"cert": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}
    with Sender(receiver.address, fingerprint=receiver.receiver.fingerprint, **own) as sender:
        sender.send([{"n": 1}], timeout=30)
    with Sender(receiver.address, ca=tmp_path / "ca.pem", **own) as sender:
        sender.send([{"n": 2}], timeout=30)
    assert receiver.wait(2) == [{"n": 1}, {"n": 2}]
    with pytest.raises(LumberjackError, match="fingerprint"):
        Sender(receiver.address, fingerprint="ab" * 32, retry=0.0).send([{"n": 3}], timeout=30)


def test_asyncio_has_both_ends():
    async def main() -> list[object]:
        async with aio.Receiver() as receiver, aio.Sender(receiver.address) as sender:
            sending = asyncio.create_task(sender.send([{"n": 1}, {"n": 2}]))
            batch = await receiver.receive(20)
            assert batch is not None
            batch.ack()
            await sending
            assert sender.acknowledged == 2
            with pytest.raises(LumberjackError):
                await receiver.receive(0.05)
            assert receiver.counters.acknowledged == 2
            return [event.content for event in batch.events()]

    assert asyncio.run(main()) == [{"n": 1}, {"n": 2}]


def test_log_records_are_events(taking):
    receiver = taking()
    logger = logging.Logger("app")
    with Sender(receiver.address) as sender:
        handler = LogHandler(sender)
        logger.addHandler(handler)
        logger.warning("disk %s", "full")
        try:
            raise ValueError("x")
        except ValueError:
            logger.exception("failed")
        handler.close()
    first, second = receiver.wait(2)
    assert (first["message"], first["log"]) == ("disk full", {"level": "WARNING", "logger": "app"})
    assert "ValueError: x" in second["error"]["stack_trace"]
    assert handler.dropped == 0


def test_fields_that_a_program_adds_to_log_records_are_in_the_events(taking):
    receiver = taking()
    logger = logging.Logger("app")
    circle: list[object] = []
    circle.append(circle)
    tags = ["a"]
    extra = {"user": "ada", "tags": tags, "path": Path("/tmp"), "circle": circle, "error": "E1", "host": 7}  # noqa: S108
    with Sender(receiver.address) as sender:
        handler = LogHandler(sender)
        logger.addHandler(handler)
        logger.warning("sent", extra=extra)
        tags.append("later")
        logger.warning("plain")
        handler.close()
    sent, plain = receiver.wait(2)
    assert {name: sent[name] for name in ("user", "tags", "path")} == {"user": "ada", "tags": ["a"], "path": "/tmp"}  # noqa: S108
    assert (sent["circle"], sent["extra"]) == ("[[...]]", {"error": "E1", "host": 7})
    assert set(plain) == {"@timestamp", "message", "log", "process", "host"}
    assert set(sent) - set(plain) == {"user", "tags", "path", "circle", "extra"}


def test_a_log_handler_makes_the_sender_for_an_address(taking, capsys):
    receiver = taking()
    logger = logging.Logger("app")
    handler = LogHandler(receiver.address)
    logger.addHandler(handler)
    for number in range(3):
        logger.warning("%d", number)
    handler.close()
    assert [event["message"] for event in receiver.wait(3)] == ["0", "1", "2"]
    assert (handler.dropped, capsys.readouterr().err) == (0, "")
    with pytest.raises(LumberjackError):
        handler._sender.send(["more"])


def test_a_log_handler_says_once_how_many_records_no_receiver_has(capsys):
    for count, text in ((1, "1 log record was"), (3, "3 log records were")):
        handler = LogHandler(free_address(), grace=0.1)
        logger = logging.Logger("app")
        logger.addHandler(handler)
        for number in range(count):
            logger.warning("%d", number)
        handler.close()
        handler.close()
        assert (handler.dropped, capsys.readouterr().err) == (count, f"penstock: {text} dropped\n")


def test_a_log_handler_refuses_what_is_no_sender():
    for wrong in (None, 5044, ["127.0.0.1:5044"], logging.Logger("app"), aio.Sender("127.0.0.1:5044")):
        with pytest.raises(TypeError, match=r"a penstock\.lumberjack\.Sender, or HOST:PORT .*, not "):
            LogHandler(wrong)
    for address in ("receiver.example:5044", "nowhere", "127.0.0.1:x"):
        with pytest.raises(LumberjackError) as refused:
            LogHandler(address)
        assert refused.value.kind == "misuse"


def test_what_json_has_nothing_for_is_sent_as_strings(taking):
    receiver = taking()
    maps = pa.array([[("k", [("inner", 1)])], None], pa.map_(pa.string(), pa.map_(pa.string(), pa.int64())))
    rows = pa.record_batch({"m": maps, "f": [float("-inf"), 1.5]})
    with Sender(receiver.address) as sender:
        sender.send([{"x": [float("nan"), float("inf")], "y": 1}, {"a": "\ud800"}, {("t", 1): "key"}])
        sender.send(rows)
        sender.send(pa.table({"event": [None, '{"n":1}']}))
    assert receiver.wait(7) == [
        {"x": ["NaN", "Infinity"], "y": 1},
        {"a": "\ud800"},
        {"('t', 1)": "key"},
        {"m": {"k": {"inner": 1}}, "f": "-Infinity"},
        {"m": None, "f": 1.5},
        {"event": None},
        {"n": 1},
    ]
    assert set(map(tuple, receiver.tags)) == {()}
    with Sender(receiver.address, frames="map") as sender:
        sender.send([{"a": "\ud800", "n": float("nan")}])
    assert receiver.wait(8)[7] == {"a": "\\ud800", "n": '"NaN"'}


CIRCLE: dict[str, object] = {}
CIRCLE["self"] = CIRCLE


@pytest.mark.parametrize(
    ("frames", "event", "kind"),
    [
        ("json", {"m": "x" * (16 << 20)}, "limit"),
        ("json", {"m": "\0" * (3 << 20)}, "limit"),
        ("json", pa.table({"event": ["x" * (16 << 20) + "y"]}), "limit"),
        ("map", {"k" * 65_537: "v"}, "limit"),
        ("map", {"k": "v" * ((16 << 20) + 1)}, "limit"),
        ("map", {str(key): "" for key in range(65_537)}, "limit"),
        ("json", CIRCLE, "misuse"),
    ],
)
def test_an_event_that_no_receiver_would_take_is_refused_before_it_is_sent(frames, event, kind):
    sender = Sender("127.0.0.1:9", frames=frames)
    with pytest.raises(LumberjackError) as raised:
        sender.send(event if isinstance(event, pa.Table) else [event])
    assert raised.value.kind == kind
    sender.abandon()


def test_a_log_record_that_cannot_be_sent_takes_no_other_with_it(taking):
    receiver = taking()
    logger = logging.Logger("app")
    with Sender(receiver.address) as sender:
        handler = LogHandler(sender)
        logger.addHandler(handler)
        for message in ("first", "sur\ud800rogate", "x" * (17 << 20), "last"):
            logger.warning(message)
        handler.close()
    assert [event["message"] for event in receiver.wait(3)] == ["first", "sur\ud800rogate", "last"]
    assert handler.dropped == 1


def test_a_program_ends_though_nobody_takes_its_log():
    address = free_address()
    logger = logging.Logger("app")
    handler = LogHandler(Sender(address, window=10), capacity=1_000, grace=0.1)
    logger.addHandler(handler)
    for number in range(3_000):
        logger.warning("%d", number)
    before = handler.dropped
    handler.close()
    # Two windows and the open one are with the sender.
    assert before < handler.dropped <= 3_000


class Stuck(Sender):
    """A sender that has room for one batch, and takes it when so many records wait in the handler."""

    def __init__(self, waiting: int) -> None:
        super().__init__("127.0.0.1:9")
        self.waiting = waiting
        self.taken: list[object] = []
        self.ended = threading.Event()
        self.handler: LogHandler | None = None

    def send(self, events, *, wait=True, timeout=None):  # noqa: ARG002
        assert self.handler is not None
        if self.taken:
            self.ended.wait(30)
        while self.handler._records.qsize() < self.waiting and not self.ended.is_set():
            time.sleep(0.001)
        self.taken += events


def test_records_that_a_full_sender_does_not_take_are_counted_exactly(capsys):
    # Two records and the end of the queue wait, and are taken from it together.
    sender = Stuck(3)
    handler = sender.handler = LogHandler(sender, grace=0.5)
    logger = logging.Logger("app")
    logger.addHandler(handler)
    logger.warning("first")
    while handler._records.qsize():
        time.sleep(0.001)
    logger.warning("second")
    logger.warning("third")
    handler.close()
    assert (len(sender.taken), handler.dropped) == (1, 2)
    assert capsys.readouterr().err == "penstock: 2 log records were dropped\n"
    logger.warning("too late")
    assert handler.dropped == 3
    sender.ended.set()
    sender.abandon()
    handler.close()
    assert handler.dropped == 3


# The commands.


class Command:
    """A command that runs."""

    def __init__(self, *arguments: object, **options: object) -> None:
        command = [sys.executable, "-m", "penstock", "lumberjack", *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, encoding="utf-8", **pipes, **options)  # type: ignore[call-overload]

    def listening(self, stream: str) -> list[str]:
        """Wait for the line that says where it listens."""
        for line in getattr(self.process, stream):
            if line.startswith("listening "):
                return line.split()
        raise AssertionError("it ended before it listened")

    def stop(self) -> tuple[int, str, str]:
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def test_receive_prints_json_lines_says_who_sent_them_and_stops_with_0():
    command = Command("receive", "--listen", "127.0.0.1:0", "--stdout", "--log-format", "json")
    line = command.listening("stderr")
    assert len(line) == 2
    with Writer(line[1]) as writer:
        writer.send(whole_window(2))
        assert writer.ack() == (2, 2)
        peer = "{}:{}".format(*writer.socket.getsockname())
    code, out, log = command.stop()
    lines = [json.loads(each) for each in log.splitlines() if each.startswith("{")]
    (access,) = [each for each in lines if each["target"] == "penstock::access"]
    assert (access["peer"], access["identity"], access["events"], access["acknowledged"]) == (peer, "-", 2, 2)
    assert access["why"] in ("the writer closed it", "the receiver stops")
    events = [json.loads(each) for each in out.splitlines()]
    assert code == 0
    assert [each["event"] for each in events] == [{"n": 1}, {"n": 2}]
    assert set(events[0]) == {"peer", "sequence", "received", "tags", "event"}
    assert events[1]["sequence"] == 2
    assert events[1]["received"].endswith("Z")


def test_receive_prints_whatever_is_acknowledged():
    command = Command(
        "receive", "--listen", "127.0.0.1:0", "--stdout", env={**os.environ, "PYTHONIOENCODING": "latin-1"}
    )
    address = command.listening("stderr")[1]
    wild = [b'{"a":\n"\\ud800"}', b'{"a":\n%s}' % (b"9" * 5_000), b'{"a":\r\n%s}' % (b"[" * 10_000 + b"]" * 10_000)]
    wild += ['{"a":"\u65e5\u672c"}'.encode()]
    with Writer(address) as writer:
        for event in wild:
            writer.send(window(1) + json_frame(1, event))
            assert writer.ack() == (2, 1)
        writer.send(window(1, 1) + data_frame(1, [(b"k", b"1"), (b"k", b"2"), (b"l", b"3")]))
        assert writer.ack() == (1, 1)
    code, out, _ = command.stop()
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 5)
    for line, event in zip(lines, wild, strict=False):
        assert line.endswith(f'"event": {event.decode()}}}'.replace("\n", " ").replace("\r", " "))
    assert json.loads(lines[4])["event"] == {"k": ["1", "2"], "l": "3"}


def test_receive_that_cannot_print_ends_with_1():
    command = Command("receive", "--listen", "127.0.0.1:0", "--stdout")
    address = command.listening("stderr")[1]
    command.process.stdout.close()
    with Writer(address) as writer:
        # Version 1 is not told to wait on.
        writer.send(whole_window(1, 1))
        assert writer.rest() == b""
    assert command.process.wait(60) == 1


def test_receive_with_tls_and_a_spool_and_send_from_standard_input(tmp_path, penstock):
    command = Command("receive", "--listen", "127.0.0.1:0", "--tls", "--spool", tmp_path / "spool")
    _, address, word, fingerprint = command.listening("stdout")
    assert word == "fingerprint"
    sent = penstock("lumberjack", "send", address, "--fingerprint", fingerprint, input='{"n":1}\nplain\n')
    assert (sent.returncode, sent.stderr) == (0, "")
    assert command.stop()[0] == 0
    data = b"".join(path.read_bytes() for path in (tmp_path / "spool").rglob("*") if path.is_file())
    assert b'"message":"plain"' in data


@pytest.mark.parametrize("frames", ["json", "map"])
def test_equal_lines_of_several_runs_are_several_events(penstock, tmp_path, frames):
    with Receiver(spool=tmp_path / "spool") as receiver:
        for _ in range(3):
            sent = penstock("lumberjack", "send", receiver.address, "--frames", frames, input="heartbeat\n")
            assert (sent.returncode, sent.stderr) == (0, "")
    rows = [row for batch in SpoolReader(tmp_path / "spool").read() for row in batch.to_pylist()]
    events = [json.loads(row["event"]) if row["event"] else dict(row["fields"]) for row in rows]
    assert [event.get("message", event.get("line")) for event in events] == ["heartbeat"] * 3
    times = [datetime.fromisoformat(event["@timestamp"]) for event in events]
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    "arguments",
    [
        ["receive", "--listen", "127.0.0.1:0"],
        ["receive", "--listen", "127.0.0.1:0", "--stdout", "--spool", "x"],
        ["receive", "--listen", "127.0.0.1:0", "--stdout", "--no-tls", "--client-ca", "ca.pem"],
        ["receive", "--listen", "127.0.0.1:0", "--stdout", "--ack", "commit"],
        ["receive", "--listen", "127.0.0.1:0", "--stdout", "--spool-bytes", "2000000"],
        ["receive", "--listen", "127.0.0.1:0", "--stdout", "--client-certificates", "optional"],
        ["send", "logs.example.com:5044"],
        ["send", "127.0.0.1:5044", "--follow"],
        ["send", "127.0.0.1:5044", "--compress", "10"],
        ["send", "nowhere"],
    ],
)
def test_a_wrong_command_line_exits_2(usage, arguments):
    assert usage("lumberjack", *arguments).returncode == 2


def test_a_read_key_that_is_short_is_refused_before_it_listens(penstock, tmp_path):
    options = ("--listen", "127.0.0.1:0", "--spool", str(tmp_path / "spool"), "--read-listen", "127.0.0.1:0")
    ended = penstock("lumberjack", "receive", *options, env={**os.environ, "PENSTOCK_KEY": "short"})
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "fewer than 16 bytes" in " ".join(ended.stderr.replace("│", " ").split())


def test_send_that_cannot_reach_anybody_exits_1(penstock):
    address = free_address()
    sent = penstock("lumberjack", "send", address, "--retry", "0", input="line\n")
    assert sent.returncode == 1
    assert len([line for line in sent.stderr.splitlines() if line.startswith("penstock: ")]) == 1


def test_send_from_a_standard_input_that_is_closed_is_one_line_and_exit_1():
    command = f"exec '{sys.executable}' -m penstock lumberjack send 127.0.0.1:9 <&-"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("penstock: standard input is closed"), ended.stderr


def test_follow_says_on_stderr_that_nobody_can_be_reached(tmp_path):
    address = free_address()
    (tmp_path / "log").write_text("line\n")
    command = Command("send", address, "--file", tmp_path / "log", "--follow", "--positions", tmp_path / "positions")
    assert address in command.process.stderr.readline()
    assert command.stop()[0] == 0


def test_follow_goes_on_over_rotation_truncation_and_a_restart(taking, tmp_path):
    receiver = taking()
    log, positions = tmp_path / "app.log", tmp_path / "positions.json"
    log.write_text("one\n")
    arguments = ("send", receiver.address, "--file", log, "--follow", "--positions", positions)

    def messages(count: int) -> list[str]:
        return [event["message"] for event in receiver.wait(count)]

    def add(path: Path, text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    command = Command(*arguments)
    assert messages(1) == ["one"]
    add(log, "two\nthr")
    assert messages(2)[1:] == ["two"]
    add(log, "ee\n")
    log.rename(tmp_path / "app.log.1")
    add(tmp_path / "app.log.1", "last of the old\n")
    log.write_text("first of the new\n")
    assert messages(5)[2:] == ["three", "last of the old", "first of the new"]
    log.write_text("cut\n")
    assert messages(6)[5:] == ["cut"]
    assert command.stop()[0] == 0
    add(log, "while nobody looked\n")
    log.rename(tmp_path / "app.log.2")
    log.write_text("after\n")
    command = Command(*arguments)
    assert messages(8)[6:] == ["while nobody looked", "after"]
    assert command.stop()[0] == 0
    kept = json.loads(positions.read_text())["files"][str(log)]
    assert kept["offset"] == len("after\n")


def test_logs_are_shipped_while_something_else_runs(tmp_path):
    log = tmp_path / "sink.log"
    with LogShipping([log], tmp_path / "logs", tmp_path / "logs.json") as shipping:
        log.write_text("one\ntwo\n")
    assert shipping.failed is None
    assert shipping.acknowledged == 2
