"""`penstock pipestream serve` and `penstock cert`, in processes of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from penstock import PipeStreamError
from penstock.pipestream import Session, Status

WAIT = 30.0
READY = re.compile(r"listening (127\.0\.0\.1:\d+) fingerprint (sha256:[0-9a-f]{64})\n")


@pytest.fixture
def serve(tmp_path):
    """Start `penstock pipestream serve` and give the process, its address and its fingerprint."""
    processes = []

    def start(*arguments):
        command = [sys.executable, "-m", "penstock", "pipestream", "serve", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            [*command, "--sink", str(tmp_path / "sink"), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PENSTOCK_STATE": str(tmp_path / "state")},
        )
        processes.append(process)
        line = process.stdout.readline()
        match = READY.fullmatch(line)
        assert match, (line, process.stderr.read())
        return process, match[1], match[2]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def stop(process, number=signal.SIGTERM):
    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT)
    return process.returncode, out, err


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_sink_in_another_process(serve, tmp_path):
    process, address, fingerprint = serve("--events", tmp_path / "events.jsonl")
    with Session.connect(address, fingerprint=fingerprint) as session:
        with session.dehydrate(metadata={"penstock.document": "a.zip"}) as scope:
            scope.send(b"one", content_type="text/plain")
            scope.announce_failed("it is encrypted")
        assert scope.wait(WAIT) is Status.FAILED
        session.send(b"x" * 5_000_000, chunk_size=1_000_000)
    code, out, err = stop(process)
    assert (code, out) == (0, "")
    # What an operator sees of a session: that it began, and how it ended.
    assert [session.id in line for line in err.splitlines()] == [True, True]
    folder = tmp_path / "sink" / session.id
    assert (folder / str(scope.scope_id) / "1").read_bytes() == b"one"
    assert (folder / "0" / "2").stat().st_size == 5_000_000
    assert lines(folder / "entities.jsonl")[-1] == {"closed": 0}
    events = lines(tmp_path / "events.jsonl")
    assert {event["session"] for event in events} == {session.id}
    assert [event["event"] for event in events][:: len(events) - 1] == ["capabilities", "closed"]
    digest = next(event for event in events if event["event"] == "digest")
    assert digest["merkle_root"] == scope.digest.merkle_root.hex()
    assert (digest["processed"], digest["succeeded"], digest["failed"]) == (2, 1, 1)
    kinds = {event["event"] for event in events}
    assert kinds == {"capabilities", "entity", "status", "digest", "barrier", "error", "closed"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_an_idle_server_cleanly(serve, number):
    process, _, _ = serve("--log-level", "error", "--log-format", "json")
    assert stop(process, number) == (0, "", "")


def test_work_in_flight_is_finished_after_the_signal(serve, tmp_path):
    process, address, fingerprint = serve()
    with Session.connect(address, fingerprint=fingerprint) as session:
        with session.dehydrate() as scope:
            # The server knows of the scope, then.
            scope.send(b"before").wait(WAIT)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            # The server takes no new connections, and this one may come to its end.
            with pytest.raises(PipeStreamError):
                Session.connect(address, fingerprint=fingerprint, timeout=2)
            assert scope.send(b"after").wait(WAIT) is Status.COMPLETE
        assert scope.wait(WAIT) is Status.COMPLETE
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, out) == (0, ""), err
    assert (tmp_path / "sink" / session.id / str(scope.scope_id) / "2").read_bytes() == b"after"


def test_idle_sessions_end_well_when_the_server_stops(serve, tmp_path):
    process, address, fingerprint = serve()
    sessions = [Session.connect(address, fingerprint=fingerprint) for _ in range(3)]
    assert sessions[0].send(b"before").wait(WAIT) is Status.COMPLETE
    assert stop(process)[0] == 0
    for session in sessions:
        assert session.wait_closed(WAIT).name == "PIPESTREAM_NO_ERROR"
    assert lines(tmp_path / "sink" / sessions[0].id / "entities.jsonl")[-1] == {"closed": 0}


def test_a_second_signal_does_not_wait(serve):
    process, address, fingerprint = serve()
    session = Session.connect(address, fingerprint=fingerprint)
    session.dehydrate().send(b"x").wait(WAIT)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    assert stop(process)[0] == -signal.SIGTERM
    session.abort()


def test_a_killed_server_on_this_machine_is_noticed_long_before_the_idle_time_out(serve):
    process, address, fingerprint = serve()
    session = Session.connect(address, fingerprint=fingerprint)
    process.send_signal(signal.SIGSTOP)
    sent = session.send(b"x" * 100)
    process.kill()
    # Nobody says so, but the system knows that nobody has the port: no 30 seconds of idle time-out.
    assert sent.wait(20) is Status.FAILED
    assert sent.reason.name == "PIPESTREAM_CONTROL_RESET"
    assert f"no longer listens at {address}" in sent.reason.message
    with pytest.raises(PipeStreamError):
        session.close(WAIT)


def test_options_reach_the_session(serve):
    process, address, fingerprint = serve("--layers", "0", "--window", "7", "--max-payload", "10")
    with Session.connect(address, fingerprint=fingerprint) as session:
        assert (session.agreement.layer, session.agreement.max_window_size) == (0, 7)
        sent = session.send(b"x" * 11)
        assert sent.wait(WAIT) is Status.FAILED
        assert sent.reason.name == "PIPESTREAM_ENTITY_TOO_LARGE"
    assert stop(process)[0] == 0


def test_client_certificates_by_the_command_line(serve, penstock, tmp_path):
    made = penstock("cert", tmp_path / "certificates")
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "certificates"
    cert, key, ca = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
    _, address, fingerprint = serve("--cert", cert, "--key", key, "--client-ca", ca)
    assert made.stdout == f"fingerprint {fingerprint}\n"
    with Session.connect(address, ca=ca, cert=cert, key=key) as session:
        assert session.send(b"x").wait(WAIT) is Status.COMPLETE
    with pytest.raises(PipeStreamError):
        Session.connect(address, ca=ca)


def test_certificates_are_not_written_over(penstock, tmp_path):
    assert penstock("cert", tmp_path).returncode == 0
    again = penstock("cert", tmp_path)
    assert (again.returncode, again.stdout) == (1, "")
    assert re.fullmatch(r"penstock: .*/ca\.pem already exists\n", again.stderr)


WRONG = [
    [],
    ["--listen", "127.0.0.1:0"],
    ["--sink", "x"],
    ["--listen", "127.0.0.1", "--sink", "x"],
    ["--listen", "127.0.0.1:99999", "--sink", "x"],
    ["--listen", "127.0.0.1:0", "--sink", "x", "--layers", "3"],
    ["--listen", "127.0.0.1:0", "--sink", "x", "--metrics", "127.0.0.1"],
    ["--listen", "127.0.0.1:0", "--sink", "x", "--window", "0"],
    ["--listen", "127.0.0.1:0", "--sink", "x", "--max-payload", "-1"],
    ["--listen", "127.0.0.1:0", "--sink", "x", "--cert", "c.pem"],
    ["--listen", "127.0.0.1:0", "--sink", "x", "--log-level", "loud"],
    ["--listen", "127.0.0.1:0", "--sink", "x", "extra"],
    ["--listen", "127.0.0.1:0", "--sink", "x", "--layers", "1", "--state", "y"],
    ["--listen", "127.0.0.1:0", "--sink", "x", "--survive", "0", "--state", "y"],
    ["--listen", "127.0.0.1:0", "--sink", "s3://bucket/x", "--state", "y"],
]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_a_wrong_command_line_is_exit_2(usage, tmp_path, arguments):
    ended = usage("pipestream", "serve", *arguments, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert not list(tmp_path.iterdir())


def test_what_fails_is_exit_1_and_one_line(penstock, tmp_path):
    common = ("pipestream", "serve", "--sink", tmp_path / "sink")
    for arguments, text in (
        (("--listen", "203.0.113.1:0"), "cannot listen on 203.0.113.1:0"),
        (("--listen", "127.0.0.1:0", "--cert", "c.pem", "--key", "k.pem"), "c.pem"),
        (("--listen", "127.0.0.1:0", "--events", tmp_path / "no" / "e"), "no/e"),
    ):
        ended = penstock(*common, *arguments, cwd=tmp_path, env={**os.environ, "PENSTOCK_STATE": str(tmp_path)})
        assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
        assert ended.stderr.startswith("penstock: ")
        assert ended.stderr.count("\n") == 1
        assert text in ended.stderr


def health(url):
    try:
        with urllib.request.urlopen(f"{url}/healthz") as answer:  # noqa: S310
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_metrics_and_health_are_served_and_documented(serve, pytestconfig, tmp_path):
    process, address, fingerprint = serve("--metrics", "127.0.0.1:0", "--state", tmp_path / "sessions")
    # The log says where; the line on stdout is what it always is.
    line = next(line for line in process.stderr if "metrics at" in line)
    url = re.search(r"http://127\.0\.0\.1:\d+", line)[0]
    with Session.connect(address, fingerprint=fingerprint) as session:
        assert session.send(b"x").wait(WAIT) is Status.COMPLETE
        with urllib.request.urlopen(f"{url}/metrics") as answer:  # noqa: S310 - a URL of ours
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            text = answer.read().decode()
        assert "penstock_pipestream_open_connections 1" in text.splitlines()
        assert 'penstock_pipestream_entities_total{status="COMPLETE"} 1' in text.splitlines()
        with urllib.request.urlopen(f"{url}/healthz") as answer:  # noqa: S310
            assert answer.read() == b"ok\n"
        # While it stops it is not well; the scope keeps it from ending at once.
        with session.dehydrate() as scope:
            scope.send(b"x").wait(WAIT)
            process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + WAIT
            while health(url) == 200:
                assert time.monotonic() < deadline
            assert health(url) == 503
    process.communicate(timeout=WAIT)
    assert process.returncode == 0

    page = (pytestconfig.rootpath / "docs" / "operations.md").read_text()
    told = set(re.findall(r"^\| `(penstock_\w+?)(?:_total)?(?:\{\w+\})?` \|", page, re.MULTILINE))
    # Without --events there is no log that could lose anything.
    given = set(re.findall(r"^# HELP (\w+) ", text, re.MULTILINE))
    assert {name for name in told if "event_" not in name} == given
    limits = page.partition("## Limits")[2].partition("## Memory")[0]
    rows = re.findall(r"^\| .* \|$", limits, re.MULTILINE)
    rows = [row for row in rows if not row.endswith("| counted as |")]
    counted = set()
    for row in rows:
        *_, cell, _ = row.split("|")
        assert "`" in cell, f"no counter for {row}"
        counted |= set(re.findall(r"`(\w+)`", cell))
    known = set(re.findall(r'limit_exceeded_total\{limit="(\w+)"\}', text))
    assert {name for name in counted if not name.endswith("_total")} == known
    assert len(rows) >= 20
    assert all(f"penstock_pipestream_{name}" in text for name in counted if name.endswith("_total"))
