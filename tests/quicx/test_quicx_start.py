"""``penstock quicx start``: its configuration file, its pidfile, and how it ends."""

import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.quicx import Producer

_WRONG = [
    ("journal = 3", "journal must be of type str, not 3"),
    ('journal = ""', "journal is empty"),
    ('listen = "nope"', "listen must be HOST:PORT, not 'nope'"),
    ("pool-bytes = 0", "pool-bytes must be from 1 to"),
    ("max-attempts = 0", "max-attempts must be from 1 to 65,535, not 0"),
    ("max-attempts = 65536", "max-attempts must be from 1 to 65,535, not 65536"),
    ("max-connections = 0", "max-connections must be from 1 to"),
    ("task-timeout = -1", "task-timeout must be from 0 to 3,153,600,000, not -1.0"),
    ("heartbeat-interval = nan", "heartbeat-interval must be from 0 to 3,153,600,000, not nan"),
    ("drain = -5", "drain must be from 0 to 3,153,600,000, not -5.0"),
    ("allow-types = []", "allow-types is empty"),
    ('allow-types = ["a", ""]', "allow-types: a task type must have 1 to 255 bytes"),
    ("size-classes = [64, 32]", "size-classes must be ascending multiples of 16"),
    ("size-classes = [100]", "size-classes must be ascending multiples of 16, up to 1,048,576; 100 is not valid"),
    ("[types.a]\nattempts = 0", "types.a.attempts must be from 1 to 65,535, not 0"),
    ("[types.a]\ntask-timeout = inf", "types.a.task-timeout must be from 0 to 3,153,600,000, not inf"),
    ("[types.a]\nrate = inf", "types.a.rate must be a number above 0, not inf"),
    ("[types.a]\nrate = 0", "types.a.rate must be a number above 0, not 0.0"),
    ("[types.a]\ndelay = 1e300", "types.a.delay must be from 0 to 3,153,600,000, not 1e+300"),
    ("[types.a]\nstart-delay = -1", "types.a.start-delay must be from 0 to 3,153,600,000, not -1.0"),
    ("[types.a]\nback-off = 0.5", "types.a.back-off must be from 1 to"),
    ("[types.a]\npriority = 3000000000", "types.a.priority must be from -2,147,483,648 to 2,147,483,647"),
    ('[types.""]\nattempts = 1', "types: a task type must have 1 to 255 bytes"),
    ("[types]\nretry-failed = true", "types.retry-failed must be a table, [types.retry-failed], not True"),
]


@pytest.mark.parametrize(("text", "words"), _WRONG)
def test_a_value_of_the_file_is_checked_as_that_of_the_command_line(tmp_path, monkeypatch, text, words):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    path = tmp_path / "quicx.toml"
    path.write_text(text)
    result = CliRunner().invoke(app, ["quicx", "start", "--config", str(path)], env={"COLUMNS": "1000"})
    assert result.exit_code == 2, result.stderr
    assert f"{path}: {words}" in " ".join(result.stderr.split())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_right_behind_the_ready_line_ends_it_without_a_word_too_many(start, number):
    process, _ = start()
    process.send_signal(number)
    _, logged = process.communicate(timeout=60)
    assert (process.returncode, "panicked" in logged, "Traceback" in logged) == (0, False, False), logged


def test_a_client_that_stops_it_ends_it_as_well(start):
    process, address = start()
    with Producer(address) as producer:
        producer.stop_daemon()
    _, logged = process.communicate(timeout=60)
    assert (process.returncode, "panicked" in logged) == (0, False), logged


def test_a_pidfile_is_one_daemons_at_a_time_and_goes_with_its_own(start, tmp_path):
    path = tmp_path / "pid"
    first, _ = start("--pidfile", "pid")
    command = [sys.executable, "-m", "penstock", "quicx", "start", "--listen", "127.0.0.1:0", "--pidfile", "pid"]
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert f"pid: pidfile is in use by process {first.pid}" in second.stderr
    assert path.read_text() == f"{first.pid}\n"
    # One that was killed has it no more.
    first.kill()
    first.wait(timeout=60)
    third, _ = start("--pidfile", "pid")
    assert path.read_text() == f"{third.pid}\n"
    third.send_signal(signal.SIGTERM)
    third.communicate(timeout=60)
    assert (third.returncode, path.exists()) == (0, False)


def test_a_pidfile_that_somebody_has_replaced_stays(start, tmp_path):
    process, _ = start("--pidfile", "pid")
    (tmp_path / "new").write_text("of somebody else\n")
    (tmp_path / "new").replace(tmp_path / "pid")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert (tmp_path / "pid").read_text() == "of somebody else\n"
