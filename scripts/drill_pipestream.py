"""Kills a PipeStream server and its sender at random while documents are on their way, and counts what came of it.

Both keep their sessions on disk (`--state`) and are started again at once. At the end every receipt must verify, every
part must be in the sink, and none twice. What was delivered again is compared with the window: the entities without a
terminal status when somebody was killed.

    python scripts/drill_pipestream.py [--kills 50] [--seed 1] [--pause 3] [--documents DIR] [--json]
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from penstock import Error
from penstock._demo.fetch import fetch
from penstock.documents import dehydrate, rehydrate

_PENSTOCK = [sys.executable, "-m", "penstock"]
_READY = re.compile(r"listening (\S+) fingerprint (\S+)\n")
_ACCOUNT = re.compile(r"^[0-9]+ documents?, .*; (?:session [0-9a-f]{32}|nothing left to send)", re.MULTILINE)
_TERMINAL = frozenset({"COMPLETE", "FAILED", "ABANDONED", "DEFERRED", "SKIPPED"})
_LEAVE = 600.0
"""Seconds in which a sender that nobody kills must come to its end."""
_DOCUMENTS = Path("target/drill-documents")


@dataclass
class Kill:
    """Somebody was killed."""

    whom: str
    at: float
    window: int = 0
    """Entities that had been announced, and had no terminal status."""
    again: int = 0
    """Entities whose payload was delivered before, and was delivered once more afterwards."""
    again_bytes: int = 0


@dataclass
class Account:
    """What came of it."""

    seed: int
    kills: list[Kill] = field(default_factory=list)
    runs: int = 0
    sender_gave_up: int = 0
    documents: int = 0
    parts: int = 0
    bytes: int = 0
    unverified: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    after_the_end: int = 0
    """Payloads that were delivered although their entity had a terminal status."""

    @property
    def holds(self) -> bool:
        """Whether nothing was lost, and nothing stored twice."""
        return bool(self.documents) and not (self.unverified or self.missing or self.twice or self.after_the_end)

    def table(self) -> str:
        """Give it to be read."""
        killed = Counter(kill.whom for kill in self.kills)
        windows = [kill.window for kill in self.kills] or [0]
        again = [kill.again for kill in self.kills] or [0]
        size = sum(kill.again_bytes for kill in self.kills)
        rows = {
            "killed": ", ".join(f"{count} times the {whom}" for whom, count in sorted(killed.items())) or "nobody",
            "sendings that ended": self.runs,
            "senders that gave up": self.sender_gave_up,
            "documents, parts": f"{self.documents}, {self.parts}",
            "bytes in the sink": f"{self.bytes:,}",
            "window when killed": f"{sum(windows) / len(windows):.0f} on average, {max(windows)} at most",
            "delivered again after a kill": f"{sum(again) / len(again):.1f} on average, {max(again)} at most",
            "bytes delivered again": f"{size:,}",
            "delivered after their end": self.after_the_end,
            "receipts that differ": len(self.unverified),
            "missing": len(self.missing),
            "stored twice": len(self.twice),
        }
        wrong = [*self.unverified, *self.missing, *self.twice][:10]
        return "\n".join([*(f"{name:<30}{value}" for name, value in rows.items()), *wrong])


class _Drill:
    def __init__(self, folder: Path, documents: list[Path], chance: random.Random) -> None:
        self.folder = folder
        self.documents = documents
        self.chance = chance
        self.account = Account(seed=0)
        self.events, self.sink, self.receipts = folder / "events.jsonl", folder / "sink", folder / "receipts"
        self.address, self.fingerprint = "127.0.0.1:0", ""
        self.errors: IO[str] = (folder / "stderr.txt").open("a")
        self.round = 0
        self.server = self._serve()
        self.sender = self._send()

    def _start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [*_PENSTOCK, "pipestream", *arguments]
        environment = {**os.environ, "PENSTOCK_STATE": str(self.folder / "home")}
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=self.errors
        )

    def _serve(self) -> "subprocess.Popen[str]":
        kept = ("--sink", str(self.sink), "--state", str(self.folder / "sessions"), "--events", str(self.events))
        process = self._start("serve", "--listen", self.address, *kept)
        ready = None if process.stdout is None else _READY.fullmatch(process.stdout.readline())
        if ready is None:
            sys.exit(f"drill: the server did not start: {(self.folder / 'stderr.txt').read_text()[-2000:]}")
        self.address, self.fingerprint = ready[1], ready[2]
        return process

    def _send(self) -> "subprocess.Popen[str]":
        """Send the documents of a round, which have names of their own."""
        corpus = self.folder / "corpus" / str(self.round)
        if not corpus.exists():
            below = corpus / f"round-{self.round}"
            below.mkdir(parents=True)
            for document in self.documents:
                (below / document.name).symlink_to(document)
        kept = ("--state", str(self.folder / "sending"), "--receipts", str(self.receipts))
        return self._start("send", self.address, str(corpus), "--fingerprint", self.fingerprint, *kept)

    def kill(self) -> None:
        """Kill one of both and start it again."""
        whom = self.chance.choice(("sender", "server"))
        process = self.sender if whom == "sender" else self.server
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        self.account.kills.append(Kill(whom, time.time()))
        if whom == "sender":
            self._count_round()
            self.sender = self._send()
        else:
            self.server = self._serve()

    def go_on(self) -> None:
        """Begin another round where one has ended."""
        if self.sender.poll() is not None:
            self._note_end()
            self.sender = self._send()

    def finish(self) -> None:
        """Let the last round come to its end, and the server too."""
        late = time.monotonic() + _LEAVE
        last = self.round
        while self.round == last and time.monotonic() < late:
            time.sleep(0.05)
            if self.sender.poll() is not None:
                self._note_end()
                if self.round == last:
                    self.sender = self._send()
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(timeout=60)
        self.errors.close()

    def _note_end(self) -> None:
        if not self._count_round():
            # Where nobody listened when it began to dial, for instance: the next one goes on.
            self.account.sender_gave_up += 1
            time.sleep(0.2)

    def _count_round(self) -> bool:
        """Go on to the next round if that of the sender that has ended is over."""
        over = self._is_over("" if self.sender.stdout is None else self.sender.stdout.read())
        self.round += over
        self.account.runs += over
        return over

    def _is_over(self, said: str) -> bool:
        """Tell whether the round is over, though its sender was killed before it could say so or had left.

        To send it once more would be to try its FAILED documents again, as a user may, and replace their receipts.
        """
        if _ACCOUNT.search(said):
            return True
        folder = self.folder / "sending"
        if (folder / "ending.json").exists() or any((folder / "session").glob("*.session")):
            return False
        shown = {receipt["document"] for receipt in _receipts(self.receipts)}
        return shown.issuperset(f"round-{self.round}/{document.name}" for document in self.documents)

    def end(self) -> None:
        """Leave no process behind."""
        for process in (self.sender, self.server):
            if process.poll() is None:
                process.kill()
                process.wait(timeout=60)

    def count(self) -> Account:
        """Compare what the sink has with the receipts, and with the documents."""
        account = self.account
        account.unverified = _differences(self.receipts, self.sink)
        roots = {path.name: rehydrate(dehydrate(path.name, path)).content_root for path in self.documents}
        found = {receipt["document"]: receipt for receipt in _receipts(self.receipts)}
        account.documents = len(found)
        named: Counter[str] = Counter()
        for number in range(self.round):
            for name, root in roots.items():
                receipt = found.get(f"round-{number}/{name}")
                if receipt is None:
                    account.missing.append(f"no receipt of round-{number}/{name}")
                elif receipt["content_root"] != root:
                    account.missing.append(f"other parts in round-{number}/{name}: {receipt['reason']}")
        for receipt in found.values():
            account.parts += len(receipt["parts"])
            named.update(file for file in (receipt["file"], *(part["file"] for part in receipt["parts"])) if file)
        stored = {path.relative_to(self.sink).as_posix(): path.stat().st_size for path in _payloads(self.sink)}
        account.bytes = sum(stored.values())
        account.missing += [f"not in the sink: {file}" for file in named if file not in stored]
        account.twice = [f"of no receipt: {file}" for file in stored if file not in named]
        account.twice += [f"of two receipts: {file}" for file, times in named.items() if times > 1]
        _count_again(self.events, account)
        return account


def _differences(receipts: Path, sink: Path) -> list[str]:
    command = [*_PENSTOCK, "verify", str(receipts), str(sink), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line)["text"] for line in ended.stdout.splitlines()]
    return lines or ([] if ended.returncode == 0 else [ended.stderr.strip()])


def _receipts(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def _payloads(sink: Path) -> Iterator[Path]:
    for path in sink.glob("*/*/*"):
        if path.is_file() and not path.parent.parent.name.startswith("."):
            yield path


def _count_again(events: Path, account: Account) -> None:
    """Read what the server has said of entities, beside the instants at which somebody was killed."""
    kills = iter(account.kills)
    next_kill = next(kills, None)
    last: Kill | None = None
    ended: dict[tuple[str, int, int], bool] = {}
    delivered: dict[tuple[str, int, int], int] = {}
    opened = 0
    for line in _lines(events):
        at = datetime.fromisoformat(line["time"]).astimezone(UTC).timestamp()
        while next_kill is not None and at > next_kill.at:
            next_kill.window, last = opened, next_kill
            next_kill = next(kills, None)
        if "entity" not in line or line["event"] not in ("status", "entity"):
            continue
        entity = (line["session"], line["scope"], line["entity"])
        if line["event"] == "status":
            is_terminal = line["status"] in _TERMINAL
            opened += (entity not in ended) - (is_terminal and ended.get(entity) is not True)
            ended[entity] = ended.get(entity, False) or is_terminal
            continue
        account.after_the_end += ended.get(entity, False)
        if entity in delivered and last is not None:
            last.again += 1
            last.again_bytes += line["bytes"]
        delivered[entity] = line["bytes"]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Give the whole lines: those of a server that was killed may be cut off."""
    with path.open("rb") as file:
        for line in file:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found


def drill(folder: Path, documents: list[Path], kills: int, seed: int, pause: float) -> Account:
    """Kill so often, at most `pause` seconds after each other, and give the account."""
    work = _Drill(folder, documents, random.Random(seed))  # noqa: S311 - whom to kill is no secret
    work.account.seed = seed
    try:
        for _ in range(kills):
            late = time.monotonic() + work.chance.uniform(0.05, pause)
            while time.monotonic() < late:
                time.sleep(0.02)
                work.go_on()
            work.kill()
        work.finish()
        return work.count()
    finally:
        work.end()


def _main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50, help="how often somebody is killed")
    parser.add_argument("--seed", type=int, default=1, help="whom, and when")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two kills, at most")
    parser.add_argument("--documents", type=Path, help="a folder of documents; by default those of `penstock demo`")
    parser.add_argument("--json", action="store_true", help="print a JSON object, with every kill")
    given = parser.parse_args()
    if given.documents is None:
        fetch(_DOCUMENTS)
    documents = [path.absolute() for path in sorted((given.documents or _DOCUMENTS).iterdir()) if path.is_file()]
    if not documents:
        sys.exit(f"drill: there are no documents in {given.documents}")
    with TemporaryDirectory() as folder:
        account = drill(Path(folder), documents, given.kills, given.seed, given.pause)
    print(json.dumps({**asdict(account), "holds": account.holds}) if given.json else account.table())
    return 0 if account.holds else 1


if __name__ == "__main__":
    try:
        sys.exit(_main())
    except Error as error:
        sys.exit(f"drill: {error}")
