"""The examples in the documentation give what it says.

Blocks of a page are run in their order, in a folder of their own: ``console`` blocks command by command, each with the
output below it, ``python`` blocks as one program, each with the ``text`` block behind it as its output. Digests, ports
and folders are those of the run; ``...`` stands for anything.
"""

import doctest
import importlib
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli import app
from penstock.documents import Limits
from penstock.tls import write_certificates

from ..ports import free_address

_BLOCK = re.compile(r"^```(console|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIGEST = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b")
_SHOWN_ADDRESS = "127.0.0.1:4433"
_SHOWN_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
_SERVE = ("penstock pipestream serve", "penstock quicx start", "penstock pimp serve")
_RECEIVE = "penstock lumberjack receive"

# Runs what it is told in one namespace; an exception ends it, and the traceback is what the test shows.
_CHILD = """
import contextlib, io, json, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(json.loads(line), "<documentation>", "exec"), names)
    print(json.dumps(printed.getvalue()), file=sys.__stdout__, flush=True)
"""


@dataclass
class Reader:
    """Somebody who does what a page says."""

    folder: Path
    shown: str = _SHOWN_ADDRESS
    """The address that the page has."""
    address: str = _SHOWN_ADDRESS
    fingerprint: str = ""
    places: dict[str, str] = field(default_factory=dict)
    """Other addresses of a page, and what they are in this run."""
    ran: int = 0
    _processes: list[subprocess.Popen[str]] = field(default_factory=list)
    _python: subprocess.Popen[str] | None = None

    def read(self, text: str) -> None:
        """Do what the blocks of a text say."""
        blocks = _BLOCK.findall(text)
        for at, (kind, block) in enumerate(blocks):
            if kind == "console":
                for command, output in _commands(block):
                    self._check(command, self._run(command), output)
            elif kind == "python":
                behind = blocks[at + 1] if at + 1 < len(blocks) else ("", "")
                self._check(block, self._exec(block), behind[1] if behind[0] == "text" else "")

    def _check(self, example: str, printed: str, expected: str) -> None:
        self.ran += 1
        shown = _normal(printed.replace(self.address, self.shown))
        wanted = re.escape(_normal(expected)).replace(r"\.\.\.", ".*")
        assert re.fullmatch(wanted, shown, re.DOTALL), f"{example}\nprinted:\n{shown}\nbut the page says:\n{expected}"

    def _here(self, text: str) -> str:
        """Make an example of this run out of the page's own."""
        for shown, here in [(self.shown, self.address), ("/data/", f"{self.folder}/data/"), *self.places.items()]:
            text = text.replace(shown, here)
        return _SHOWN_FINGERPRINT.sub(self.fingerprint, text) if self.fingerprint else text

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**os.environ, "PATH": path, "PENSTOCK_STATE": str(self.folder / "state")}

    def _start(self, command: list[str], stdin: int | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, cwd=self.folder, env=self._environment(), text=True, stdin=stdin, stdout=subprocess.PIPE
        )
        self._processes.append(process)
        return process

    def _run(self, command: str) -> str:
        if command.startswith(_SERVE):
            server = self._start(command.replace(self.shown, "127.0.0.1:0").split())
            assert server.stdout is not None
            line = server.stdout.readline()
            _, self.address, *fingerprint = line.split()
            self.fingerprint = "".join(fingerprint[1:])
            return line
        if command.startswith(_RECEIVE):
            return self._receive(command)
        return self._shell(self._here(command))

    def _receive(self, command: str) -> str:
        """Start a receiver with ports of its own; say of it what it says, with the ports that it was told."""
        shown = re.findall(r"0\.0\.0\.0:[0-9]+", command)
        receiver = self._start(self._here(re.sub(r"0\.0\.0\.0:[0-9]+", "127.0.0.1:0", command)).split())
        assert receiver.stdout is not None
        said = [receiver.stdout.readline().split() for _ in shown]
        # The names that a page has for this machine.
        for name, words in zip(("logstash:5044", "collector:5045"), said, strict=True):
            self.places[name] = f"localhost:{words[1].rpartition(':')[2]}"
        return "".join(f"{' '.join([words[0], told, *words[2:]])}\n" for told, words in zip(shown, said, strict=True))

    def _shell(self, command: str) -> str:
        # A variable that one command sets is there for the next ones, as in the shell of a reader.
        script = f"touch .variables; . ./.variables; {command}\ndeclare -p FINGERPRINT >.variables 2>/dev/null || true"
        run = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self._environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        return run.stdout

    def _exec(self, code: str) -> str:
        if self._python is None:
            self._python = self._start([sys.executable, "-c", _CHILD], stdin=subprocess.PIPE)
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps(self._here(code)) + "\n")
        self._python.stdin.flush()
        answer = self._python.stdout.readline()
        assert answer, f"the example failed:\n{code}"
        return str(json.loads(answer))

    def ask(self, command: str) -> str:
        """Do what no page says in a block; give what it prints."""
        return self._run(command)

    def also(self, code: str) -> str:
        """Run what no page says, in the same program; give what it prints."""
        return self._exec(code)

    def leave(self) -> None:
        """End what the examples started."""
        for process in self._processes:
            process.terminate()
            process.communicate(timeout=60)


def _commands(block: str) -> Iterator[tuple[str, str]]:
    for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *lines = piece.splitlines(keepends=True)
        # What a shell asks for behind its second prompt belongs to the command.
        while lines and lines[0].startswith("> "):
            command += lines.pop(0)[2:]
        yield command.strip("\n"), "".join(lines)


def _normal(text: str) -> str:
    return _DIGEST.sub("DIGEST", text).strip()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.leave()


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Read a page of the documentation."""
    docs = request.config.rootpath / "docs"
    return lambda name: (docs / name).read_text()


def test_the_first_example_of_the_readme(reader: Reader, request: pytest.FixtureRequest) -> None:
    inbox = reader.folder / "inbox"
    inbox.mkdir()
    with tarfile.open(inbox / "archive.tar.gz", "w:gz") as archive:
        archive.add(request.config.rootpath / "LICENSE", "readme.md")
    reader.read((request.config.rootpath / "README.md").read_text().partition("The same in Spark")[0])
    assert reader.ran == 1


def test_the_quick_start(reader: Reader, page: Callable[[str], str]) -> None:
    reader.read(page("quick-start.md"))
    assert reader.ran >= 14


def test_the_page_about_receipts(reader: Reader, page: Callable[[str], str]) -> None:
    # It goes on where the quick start has sent its documents.
    reader.read(page("quick-start.md").partition("The broken document is named")[0])
    before = reader.ran
    reader.read(page("receipts.md"))
    assert reader.ran - before >= 4


def test_the_page_about_documents(reader: Reader, page: Callable[[str], str]) -> None:
    reader.read(page("documents.md"))
    assert reader.ran >= 1


def test_the_page_about_references(reader: Reader, page: Callable[[str], str]) -> None:
    reader.read(page("references.md"))
    assert reader.ran >= 1


def test_the_page_about_work_that_waits(reader: Reader, page: Callable[[str], str]) -> None:
    reader.read(page("waiting.md"))
    assert reader.ran >= 12


def test_the_page_about_asyncio(reader: Reader, page: Callable[[str], str]) -> None:
    reader.read(page("asyncio.md"))
    assert reader.ran >= 1


def test_the_page_about_the_task_queue(reader: Reader, page: Callable[[str], str]) -> None:
    reader.shown = "127.0.0.1:16381"
    # Clients find the daemon at its well-known port, which is not that of this run.
    text = page("quicx.md").partition("## In Python")[0]
    reader.read(re.sub(r"^(\$ penstock quicx (?:submit|status).*)$", rf"\1 --connect {reader.shown}", text, flags=re.M))
    assert reader.ran >= 5


def test_the_page_about_results_by_polling(reader: Reader, page: Callable[[str], str]) -> None:
    reader.shown = "127.0.0.1:8480"
    reader.read(page("pimp.md").partition("## With Spark")[0])
    assert reader.ran >= 12


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("java")
def test_the_task_queue_with_spark(reader: Reader, page: Callable[[str], str]) -> None:
    reader.read(page("quicx.md").partition("## With Spark")[2].partition("## What happens to a task")[0])
    assert reader.ran >= 2


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("java")
def test_results_by_polling_with_spark(reader: Reader, page: Callable[[str], str]) -> None:
    reader.read(page("pimp.md").partition("## With Spark")[2])
    assert reader.ran >= 1


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("java")
def test_the_spark_guide(reader: Reader, page: Callable[[str], str]) -> None:
    inbox = reader.folder / "data" / "inbox"
    inbox.mkdir(parents=True)
    (inbox / "note.txt").write_text("A line of text.\n")
    (inbox / "table.csv").write_text("a,b\n1,2\n3,4\n")
    reader.read(page("spark.md"))
    assert reader.ran >= 5


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("java")
def test_the_lumberjack_guide(reader: Reader, page: Callable[[str], str]) -> None:
    write_certificates(reader.folder / "data" / "tls")
    (reader.folder / "data" / "read.key").write_text("a secret of 16 bytes or more\n")
    reader.places["127.0.0.1:5044"] = free_address()
    start, rest = page("lumberjack.md").split("Start it, then", 1)
    reader.read(start)
    log = reader.folder / "data" / "dpkg.log"
    log.write_text("2026-11-22 09:51:07 status unpacked penstock\n2026-11-22 09:51:08 status installed penstock\n")
    (send,) = re.findall(r"`(penstock lumberjack send [^`]*)`", rest)
    # The receiver is part of the query, which may not have begun yet.
    assert reader.ask(send.replace("/var/log/", "/data/")) == ""
    reader.also("query.processAllAvailable(); query.stop()")
    reader.read(rest)
    assert reader.ran >= 5
    # What the sink has shipped has come to the receiver beside it.
    count = 'spark.read.format("lumberjack").options(**spool).load().selectExpr("event").collect()'
    assert reader.also(f"print({count})") == '[Row(event=\'{"id":1,"message":"hello"}\')]\n'


def test_the_examples_in_docstrings() -> None:
    """Those of penstock.pipestream have a test of their own."""
    names = ["documents", "_opened", "_sending", "receipts", "_receipt_form", "tls"]
    names += [
        "spark",
        "spark.functions",
        "spark.session",
        "spark._peer",
        "spark.pipestream",
    ]
    names += ["spark._options", "lumberjack._spool", "spark.lumberjack", "spark.lumberjack.checkpoint"]
    tried = 0
    for name in names:
        results = doctest.testmod(importlib.import_module(f"penstock.{name}"))
        assert results.failed == 0, name
        tried += results.attempted
    assert tried >= 35


def _options(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """Every option of every command, the command's name before it."""
    for child in getattr(command, "commands", {}).values():
        yield from _options(child, f"{name} {child.name}")
    for parameter in command.params:
        # --help is everywhere, and --version of no command.
        for option in [] if parameter.param_type_name == "argument" else parameter.opts + parameter.secondary_opts:
            yield name, option


def test_the_options_of_every_command_are_documented_and_no_others(page: Callable[[str], str]) -> None:
    sections = re.split(r"^## ", page("command-line.md"), flags=re.MULTILINE)
    known: dict[str, set[str]] = {}
    for name, option in _options(typer.main.get_command(app), "penstock"):
        section = next((each for each in sections if re.match(rf"{name}(?: [A-Z].*)?\n", each)), sections[0])
        assert re.search(rf"{option}\b", section), f"docs/command-line.md does not tell of {option} of {name}"
        known.setdefault(section, set()).add(option)
    assert sum(map(len, known.values())) >= 20
    for section, options in known.items():
        for row in re.findall(r"^\| (`--[^|]*)", section, re.MULTILINE):
            told = set(re.findall(r"--[a-z-]+", row))
            assert told <= options, f"there is no {told - options} of {section.splitlines()[0]}"


def test_every_limit_is_documented_with_its_default(page: Callable[[str], str]) -> None:
    text = page("documents.md")
    for each in fields(Limits):
        row = re.search(rf"^\| `{each.name}` \| ([0-9,]+)( MiB| GiB)? \|", text, re.MULTILINE)
        assert row, f"docs/documents.md does not tell of {each.name}"
        told = int(row[1].replace(",", "")) << {None: 0, " MiB": 20, " GiB": 30}[row[2]]
        assert told == each.default, each.name
