"""The commands of Quicx."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import Error, QuicxError
from penstock.quicx import Producer, Worker
from penstock.quicx._options import read_config


@dataclass
class Ran:
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def quicx(monkeypatch):
    """Run a command in this process, whose signals stay as they are."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def run(*arguments: str, stdin: str | None = None) -> Ran:
        result = CliRunner().invoke(app, ["quicx", *arguments], input=stdin)
        if isinstance(result.exception, Error | OSError):
            return Ran(1, result.stdout, str(result.exception))
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


def test_a_command_runs_for_each_task_and_what_fails_is_dead_at_last(start, quicx, tmp_path):
    config = tmp_path / "quicx.toml"
    config.write_text("max-attempts = 2\n[types.add]\nretry-failed = true\ndelay = 0.01\n")
    process, address = start("--config", str(config), "--pidfile", "pid")
    assert int((tmp_path / "pid").read_text()) == process.pid
    to = ("--connect", address)
    assert quicx("submit", "add", "-", *to, stdin="hello").out == "1\n"
    shell = 'read line; echo "$line" >> taken; test "$line" = hello || { echo "not $line" >&2; exit 3; }'
    command = [sys.executable, "-m", "penstock", "quicx", "work", "add", *to, "--", "sh", "-c", shell]
    worker = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    with Producer(address) as producer:
        assert producer.observe(1, 60).ok
        assert producer.observe(int(quicx("submit", "add", "no", *to).out), 60).failure == b"not no\n"
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert (tmp_path / "taken").read_text() == "hello\nno\nno\n"
    listed = json.loads(quicx("dead", "list", "--json", *to).out)
    assert listed == {"id": 2, "type": "add", "attempts": 2, "reason": "not no\n"}
    assert quicx("dead", "requeue", "2", *to).code == 0
    refused = quicx("dead", "drop", "2", *to)
    assert (refused.code, "not on the dead list" in refused.err) == (1, True)
    status = json.loads(quicx("status", "--json", *to).out)
    assert status == {
        "queue_depth": 1, "workers_total": 0, "workers_idle": 0, "pmad_bytes_used": 16, "pmad_bytes_total": 64 << 20,
    }  # fmt: skip
    assert "queue_depth" in quicx("status", *to).out
    assert quicx("stop", *to).code == 0
    _, logged = process.communicate(timeout=60)
    assert (process.returncode, "tasks are lost" in logged, (tmp_path / "pid").exists()) == (0, True, False)


def test_status_is_shown_again_and_again_until_it_is_interrupted(start):
    _, address = start()
    command = [sys.executable, "-m", "penstock", "quicx", "status", "--watch", "--json", "--connect", address]
    with Producer(address) as producer:
        watching = subprocess.Popen(command, text=True, stdout=subprocess.PIPE)
        assert json.loads(watching.stdout.readline())["queue_depth"] == 0
        producer.submit("a")
        while json.loads(watching.stdout.readline())["queue_depth"] == 0:
            pass
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)
    assert watching.returncode == 0


def test_purge_forgets_the_dead_and_removes_old_payloads_alone(start, quicx, tmp_path):
    (tmp_path / "quicx.toml").write_text("max-attempts = 1\n[types.a]\nretry-failed = true\n")
    _, address = start("--config", "quicx.toml")
    spool, to = tmp_path / "spool", ("--connect", address)
    with Producer(address, spool=spool) as producer, Worker(address, spool=spool) as worker:

        @worker.task("a")
        def fail(payload: bytes) -> None:
            raise ValueError(len(payload))

        worker.start()
        dead = [producer.future("a", bytes([number]) * 5_000) for number in range(3)]
        assert [future.result(60).failure for future in dead] == [b"ValueError: 5000"] * 3
        assert len(producer.dead()) == 3
        large = sorted(spool.iterdir())
        assert len(large) == 3
        (spool / "notes.txt").touch()
        for old in (*large[:2], spool / "notes.txt"):
            os.utime(old, (0, 0))
        assert quicx("dead", "purge", "--spool", str(spool), *to).out == "deleted 3 dead tasks\nremoved 2 payloads\n"
        assert producer.dead() == []
        assert sorted(spool.iterdir()) == sorted([large[2], spool / "notes.txt"])
    assert quicx("dead", "purge", *to).out == "deleted 0 dead tasks\n"
    missing = quicx("dead", "purge", "--spool", str(tmp_path / "none"), *to)
    assert (missing.code, "is not a directory" in missing.err) == (1, True)


def test_a_command_line_that_makes_no_sense_is_refused_with_2(quicx, tmp_path):
    (tmp_path / "bad.toml").write_text("max-attempts = true\n")
    for arguments in [
        ("start", "--config", str(tmp_path / "bad.toml")),
        ("start", "--cert", "c.pem", "--key", "k.pem"),
        ("status", "--connect", "192.0.2.1:16381"),
        ("status", "--connect", "nowhere"),
        ("status", "--socket", "s", "--system-ca"),
        ("status", "--socket", "s", "--connect", "127.0.0.1:1"),
        ("work", "a", "--", "no-such-command"),
        ("submit", "a", "b", "--storage", "region=x"),
        ("dead", "drop", "0"),
    ]:
        assert quicx(*arguments).code == 2, arguments
    unreachable = quicx("status", "--socket", "no-such-socket")
    assert (unreachable.code, "no-such-socket" in unreachable.err) == (1, True)


def test_a_configuration_says_what_is_wrong_with_it(tmp_path):
    path = tmp_path / "quicx.toml"
    for text, message in [
        ("journal = 3", "journal must be of type str"),
        ("color = 1", "unknown option color"),
        ("[types.mail]\nretries = 1", r"unknown option types\.mail\.retries"),
        ("[types.mail]\nunique = 1", r"types\.mail\.unique must be of type bool"),
        ("types = 1", "table of tables"),
        ("= 1", "quicx.toml"),
    ]:
        path.write_text(text)
        with pytest.raises(QuicxError, match=message):
            read_config(path)
    path.write_text("task-timeout = 5\nmax-attempts = 2\n[types.mail]\nrate = 3\n")
    found = read_config(path)
    mail = found["policies"]["mail"]
    assert (found["task_timeout"], mail.task_timeout, mail.attempts, mail.rate) == (5.0, 5.0, 2, 3.0)
