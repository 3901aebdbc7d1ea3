"""The sender against receivers that fail, and the commands."""

import asyncio
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from wire import Writer, whole_window

from penstock import LumberjackError
from penstock._demo.logs import LogShipping
from penstock.aio import lumberjack as aio
from penstock.lumberjack import Event, LogHandler, Sender
from penstock.tls import write_certificates


@pytest.mark.parametrize("options", [{}, {"compress": 0}, {"protocol": 2, "sequence": "continue", "in_flight": 4}])
def test_events_arrive_whole_and_in_order(taking, options):
    receiver = taking()
    with Sender(receiver.address, window=50, **options) as sender:
        sender.send({"n": number} for number in range(1_000))
        assert sender.acknowledged == 1_000
    assert receiver.wait(1_000) == [{"n": number} for number in range(1_000)]


def test_pairs_strings_octets_and_events_can_be_sent(taking):
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
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
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
    with pytest.raises(LumberjackError, match="whom to trust"):
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


# The commands.


class Command:
    """A command that runs."""

    def __init__(self, *arguments: object, **options: object) -> None:
        command = [sys.executable, "-m", "penstock", "lumberjack", *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes, **options)  # type: ignore[call-overload]

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


def test_receive_prints_json_lines_and_stops_with_0():
    command = Command("receive", "--listen", "127.0.0.1:0", "--stdout")
    line = command.listening("stderr")
    assert len(line) == 2
    with Writer(line[1]) as writer:
        writer.send(whole_window(2))
        assert writer.ack() == (2, 2)
    code, out, _ = command.stop()
    events = [json.loads(each) for each in out.splitlines()]
    assert code == 0
    assert [each["event"] for each in events] == [{"n": 1}, {"n": 2}]
    assert set(events[0]) == {"peer", "sequence", "received", "tags", "event"}
    assert events[1]["sequence"] == 2
    assert events[1]["received"].endswith("Z")


def test_receive_with_tls_and_a_spool_and_send_from_standard_input(tmp_path, penstock):
    command = Command("receive", "--listen", "127.0.0.1:0", "--tls", "--spool", tmp_path / "spool")
    _, address, word, fingerprint = command.listening("stdout")
    assert word == "fingerprint"
    sent = penstock("lumberjack", "send", address, "--fingerprint", fingerprint, input='{"n":1}\nplain\n')
    assert (sent.returncode, sent.stderr) == (0, "")
    assert command.stop()[0] == 0
    octets = b"".join(path.read_bytes() for path in (tmp_path / "spool").rglob("*") if path.is_file())
    assert b'{"message":"plain"' in octets


@pytest.mark.parametrize(
    "arguments",
    [
        ["receive", "--listen", "127.0.0.1:0"],
        ["receive", "--listen", "127.0.0.1:0", "--stdout", "--spool", "x"],
        ["receive", "--listen", "127.0.0.1:0", "--stdout", "--no-tls", "--client-ca", "ca.pem"],
        ["send", "logs.example.com:5044"],
        ["send", "127.0.0.1:5044", "--follow"],
        ["send", "127.0.0.1:5044", "--compress", "10"],
        ["send", "nowhere"],
    ],
)
def test_a_wrong_command_line_exits_2(penstock, arguments):
    assert penstock("lumberjack", *arguments).returncode == 2


def test_send_that_cannot_reach_anybody_exits_1(penstock):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    sent = penstock("lumberjack", "send", address, "--retry", "0", input="line\n")
    assert sent.returncode == 1
    assert len([line for line in sent.stderr.splitlines() if line.startswith("penstock: ")]) == 1


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
