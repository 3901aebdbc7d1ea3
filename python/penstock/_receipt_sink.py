"""The sink's side of a verification: its files and logs, read without trusting any recorded digest."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock._receipt_form import Difference
from penstock._sink_folders import RenamedFolder, SinkFolder

__all__ = ["SessionLog", "Sink"]

_LOG = "entities.jsonl"
_SETTLED = "settled.jsonl"
"""The file of claim checks that were settled without a session, by the worker of a task queue."""
_MAX_LINE = 16 << 20
_MESSAGE = ".reference"
_SETTLE_SECONDS = 3.0
"""The time to wait for a session's last line, which is written shortly after its client has left."""
_COMPONENT = re.compile(r"[0-9]+(\.[1-9][0-9]*)?")


class Sink:
    """A sink's folder or prefix. Logs are indexed once, for all receipts that are verified against it."""

    def __init__(self, folder: SinkFolder, renamed: Mapping[str, str] | None = None) -> None:
        """Keep the folder; missing files are found when they are read.

        ``renamed`` maps the IDs of sessions that were used more than once to the folders to read for them.
        """
        self.folder = folder
        self._renamed = renamed or {}
        self._of_uses: dict[tuple[tuple[str, str], ...], Sink] = {}
        self.expect = folder.expect
        self.digest = folder.digest
        self.names = folder.names
        self.content = folder.content
        self._logs: dict[str, SessionLog] = {}
        self._settled: dict[str, frozenset[str]] = {}
        self._strangers: dict[str, list[str]] = {}

    def of(self, receipt: Mapping[str, Any]) -> "Sink":
        """Return the sink for a receipt: if several sessions had an ID, with the one that has the receipt's parts."""
        root = dict(zip(("scope", "entity"), receipt["root"] or (None, None), strict=True))
        entries: list[dict[str, Any]] = [{**receipt, **root}]
        entries += receipt["parts"]
        renamed: dict[str, str] = {}
        for session in {entry["session"] for entry in entries}:
            uses = self.folder.uses(session)
            if uses in ([], [session]):
                continue
            own = [entry for entry in entries if entry["session"] == session and entry["entity"] is not None]
            # If several have the same number, the last one.
            renamed[session] = max(reversed(uses), key=lambda use: sum(_has(self.log(use), entry) for entry in own))
        if not renamed:
            return self
        key = tuple(sorted(renamed.items()))
        if key not in self._of_uses:
            self._of_uses[key] = Sink(RenamedFolder(self.folder, renamed), renamed)
        return self._of_uses[key]

    def log(self, session: str) -> "SessionLog":
        """Return the log of a session. If the session is not closed yet, wait up to 3 seconds for its end."""
        if session not in self._logs:
            deadline = time.monotonic() + _SETTLE_SECONDS
            name = (self._renamed.get(session, session), session)
            log = SessionLog(self.folder.log(session), name)
            while log.closed is None and self.folder.is_open(session) and time.monotonic() < deadline:
                time.sleep(0.05)
                log = SessionLog(self.folder.log(session), name)
            self._logs[session] = log
        return self._logs[session]

    def is_settled(self, session: str, claim: str) -> bool:
        """Return whether an entity that a session has deferred under a claim check has become COMPLETE since."""
        if session not in self._settled:
            self._settled[session] = _settled(self.folder.log(session).with_name(_SETTLED))
        return claim in self._settled[session]

    def strangers(self, folder: str) -> list[str]:
        """Return the names in ``SESSION/SCOPE`` that belong to no entity in the session's log."""
        if folder not in self._strangers:
            session, _, scope = folder.partition("/")
            log = self.log(session)
            self._strangers[folder] = [name for name in self.names(folder) if not _is_listed(log, folder, scope, name)]
        return self._strangers[folder]

    def others(self, folder: str) -> list[str]:
        """Return the names in ``SESSION/SCOPE``, except listed messages next to the objects that they refer to."""
        messages = {name for name in self.names(folder) if name.endswith(_MESSAGE)}
        unlisted = messages.intersection(self.strangers(folder)) if messages else messages
        return [name for name in self.names(folder) if name not in messages or name in unlisted]

    def folders(self, session: str, scope: int) -> list[str]:
        """Return the folders of all uses of a scope's ID."""
        return [
            f"{session}/{name}"
            for name in self.names(session)
            if _COMPONENT.fullmatch(name) and int(name.partition(".")[0]) == scope
        ]

    def session_strangers(self, session: str) -> Iterator[Difference]:
        """Yield a difference for each name in a session's folder that is neither a log nor a scope's folder."""
        for name in self.names(session):
            if name not in (_LOG, _SETTLED) and not _COMPONENT.fullmatch(name):
                yield Difference.of_sink(f"{session}/{name}", "nothing", "a file", "not a file that a sink writes")


def _is_listed(log: "SessionLog", folder: str, scope: str, name: str) -> bool:
    if not _COMPONENT.fullmatch(name.removesuffix(_MESSAGE)):
        return False
    scope_id, entity_id = int(scope.partition(".")[0]), int(name.partition(".")[0])
    return any(f"{folder}/{name}" in _files(line) for line in log.lines(scope_id, entity_id))


def _files(line: dict[str, Any]) -> tuple[object, object]:
    """Return the names of an entity's payload and, if it is an object, of the message that refers to it."""
    reference = line.get("reference")
    return line.get("file"), reference.get("message") if isinstance(reference, dict) else None


def _settled(path: Path) -> frozenset[str]:
    """Return the claim checks that were settled as COMPLETE; incomplete lines are ignored."""
    try:
        lines = [_parse(line) for line in path.read_bytes().split(b"\n")]
    except OSError:
        return frozenset()
    return frozenset(str(line.get("claim")) for line in lines if line is not None and line.get("status") == "COMPLETE")


class SessionLog:
    """The lines of a session's ``entities.jsonl``, found by scope and entity; only their offsets are kept in memory."""

    def __init__(self, path: Path, renamed: tuple[str, str] = ("", "")) -> None:
        """Read the whole log once. ``renamed`` is its folder's name and the name to show instead."""
        self._renamed = renamed
        self.problems: list[str] = []
        self._path = path
        self._places: dict[tuple[int, int], int | tuple[int, ...]] = {}
        self._counts: Counter[int] | None = None
        self._claims: dict[str, tuple[int, int]] = {}
        self.closed: Any = None
        try:
            self._index()
        except OSError as error:
            self.problems.append(f"it cannot be read: {error.strerror}")

    def _index(self) -> None:
        with self._path.open("rb") as log:
            number = 0
            while True:
                place = log.tell()
                data = log.readline(_MAX_LINE)
                if not data:
                    return
                number += 1
                line = _parse(data)
                if line is None or not data.endswith(b"\n"):
                    self.problems.append(f"line {number} is not a complete JSON object")
                    if not data.endswith(b"\n"):
                        return
                elif self.closed is not None:
                    self.problems.append(f"line {number} follows the last line")
                elif line.keys() == {"closed"}:
                    self.closed = line["closed"]
                else:
                    self._add(line, place, number)

    def _add(self, line: dict[str, Any], place: int, number: int) -> None:
        scope, entity = line.get("scope"), line.get("entity")
        if type(scope) is not int or type(entity) is not int:
            self.problems.append(f"line {number} names no entity")
            return
        if isinstance(line.get("claim"), str):
            self._claims[line["claim"]] = (scope, entity)
        earlier = self._places.get((scope, entity))
        match earlier:
            case None:
                self._places[scope, entity] = place
            case int():
                self._places[scope, entity] = (earlier, place)
            case tuple():
                self._places[scope, entity] = (*earlier, place)

    def count(self, scope: int) -> int:
        """Return the number of entities of a scope in the log."""
        if self._counts is None:
            self._counts = Counter(place[0] for place in self._places)
        return self._counts[scope]

    def set_aside(self, claim: str) -> tuple[int, int] | None:
        """Return the scope and the entity that were deferred under a claim check."""
        return self._claims.get(claim)

    def lines(self, scope: int, entity: int) -> list[dict[str, Any]]:
        """Return the lines about an entity's ID, one for each of its uses."""
        places = self._places.get((scope, entity))
        if places is None:
            return []
        found: list[dict[str, Any]] = []
        try:
            with self._path.open("rb") as log:
                for place in (places,) if isinstance(places, int) else places:
                    log.seek(place)
                    line = _parse(log.readline(_MAX_LINE))
                    if line is not None:
                        found.append(self._shown(line))
        except OSError as error:
            self.problems.append(f"it cannot be read: {error.strerror}")
        return found

    def _shown(self, line: dict[str, Any]) -> dict[str, Any]:
        folder, name = self._renamed
        if folder == name:
            return line

        def shown(file: object) -> object:
            return name + file.removeprefix(folder) if isinstance(file, str) and file.startswith(f"{folder}/") else file

        reference = line.get("reference")
        if isinstance(reference, dict):
            reference = {**reference, "message": shown(reference.get("message"))}
            line = {**line, "reference": reference}
        return {**line, "file": shown(line.get("file"))}


def _has(log: "SessionLog", entry: Mapping[str, Any]) -> bool:
    """Return whether a log has an entity of a receipt, with the same status and bytes."""
    lines = log.lines(entry["scope"], entry["entity"])
    return any((line.get("status"), line.get("sha256")) == (entry["status"], entry["sha256"]) for line in lines)


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
