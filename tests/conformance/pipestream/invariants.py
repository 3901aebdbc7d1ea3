"""What must hold in the sink and in the events file whatever a peer has done."""

import json
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from .wire import Stat

__all__ = ["EVENTS", "Tail", "check_event", "check_session", "check_sink", "closed_code", "lines", "log_of"]

Line = dict[str, Any]

NUMBER, TEXT, FLAG = (int,), (str,), (bool,)
NUMBER_OR_NULL = (int, type(None))
HEX32 = re.compile(r"[0-9a-f]{64}")
SESSION = re.compile(r"[0-9a-f]{32}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")

# The table of interfaces.md: the fields of each event beside `event`, `session` and `time`.
EVENTS: dict[str, dict[str, tuple[type, ...]]] = {
    "capabilities": {
        "layers": NUMBER,
        "max_scope_depth": NUMBER,
        "max_entities_per_scope": NUMBER,
        "max_window_size": NUMBER,
    },
    "entity": {
        "scope": NUMBER,
        "entity": NUMBER,
        "parent": NUMBER_OR_NULL,
        "path": (str, type(None)),
        "bytes": NUMBER,
        "sha256": TEXT,
        "content_type": TEXT,
    },
    "status": {
        "scope": NUMBER,
        "entity": NUMBER,
        "status": TEXT,
        "depth": NUMBER,
        "cursor": NUMBER_OR_NULL,
        "by": TEXT,
    },
    "digest": {
        "scope": NUMBER,
        "merkle_root": TEXT,
        "processed": NUMBER,
        "succeeded": NUMBER,
        "failed": NUMBER,
        "deferred": NUMBER,
    },
    "barrier": {"barrier": NUMBER, "parent": NUMBER, "released": FLAG},
    "checkpoint": {"checkpoint_id": TEXT, "scope": NUMBER, "satisfied": FLAG},
    "error": {"code": NUMBER, "scope": NUMBER_OR_NULL, "entity": NUMBER_OR_NULL, "message": TEXT},
    "closed": {"code": NUMBER, "reason": TEXT},
}
STATUSES = {status.name for status in Stat}
LOG_FIELDS = {"scope", "entity", "parent", "layer", "content_type", "bytes", "sha256", "metadata"}
LOG_FIELDS |= {"status", "reason", "file"}


def lines(path: Path) -> list[Line]:
    """The JSON lines of a file that may still be written: a last line without its end does not count."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.split(b"\n")] if whole else []


class Tail:
    """The JSON lines of a file that grows; what was read is not read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: list[Line] = []
        self._read = 0

    def lines(self) -> list[Line]:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._read += len(whole) + 1
                self.found += (json.loads(line) for line in whole.split(b"\n"))
        return self.found


def log_of(sink: Path, session: str) -> list[Line]:
    return lines(sink / session / "entities.jsonl")


def closed_code(sink: Path, session: str) -> int | None:
    """The code on the last line of a session's list, once it is there."""
    log = log_of(sink, session)
    code = log[-1].get("closed") if log else None
    assert code is None or isinstance(code, int)
    return code


def check_event(line: Line) -> None:
    """Exactly the fields of the table, of the right types."""
    fields = EVENTS[line["event"]]
    assert set(line) == {"event", "session", "time", *fields}, line
    for name, types in fields.items():
        # A bool is an int to Python, not to JSON.
        assert type(line[name]) in types, (name, line)
    assert SESSION.fullmatch(line["session"]), line
    assert TIME.fullmatch(line["time"]), line
    assert line.get("by", "us") in ("peer", "us"), line
    assert line.get("status", "PENDING") in STATUSES, line
    for name in ("sha256", "merkle_root"):
        assert name not in line or HEX32.fullmatch(line[name]), line


def check_session(sink: Path, session: str) -> None:
    """A session that is over: its folder holds its list and whole entities, each as its line says, and nothing else."""
    folder = sink / session
    log = log_of(sink, session)
    assert folder.joinpath("entities.jsonl").read_bytes().endswith(b"\n")
    assert list(log[-1]) == ["closed"], log[-1]
    # An entity has a second line when it failed after its first: the last one counts.
    last: dict[tuple[int, int, int], Line] = {}
    for line in log[:-1]:
        # At layer 2 what was set aside has its claim check, and what came again says how often.
        more = {"attempts", "scope_use", "transaction_owner", "doc_id", "owner"}
        assert set(line) - more == LOG_FIELDS | ({"claim"} if line["status"] == "DEFERRED" else set()), line
        assert line.get("attempts", 2) >= 2, line
        assert line["status"] in STATUSES, line
        assert (line["status"] == "COMPLETE") == (line["reason"] is None), line
        last[line["scope"], line.get("scope_use", 0), line["entity"]] = line
    named = {line["file"]: line for line in last.values() if line["file"] is not None}
    found = {str(path.relative_to(sink)) for path in folder.rglob("*") if path.is_file()}
    assert found == named.keys() | {f"{session}/entities.jsonl"}
    for file, line in named.items():
        data = (sink / file).read_bytes()
        assert (len(data), sha256(data).hexdigest()) == (line["bytes"], line["sha256"]), line


def check_sink(sink: Path, over: set[str]) -> None:
    """No temporary file outside sessions that are still open, and nothing at all beside the sessions' folders."""
    for entry in sink.iterdir():
        # A session ID that was used before has its folder with a number.
        name = re.sub(r"\.[1-9][0-9]*$", "", entry.name)
        assert entry.name.startswith(".") or (entry.is_dir() and SESSION.fullmatch(name)), entry
        if entry.name in over:
            # All sessions of a run, after each of its tests: `rglob` would take several times as long.
            names = (name for _, folders, files in os.walk(entry) for name in (*folders, *files))
            assert not [name for name in names if name.startswith(".")], entry
