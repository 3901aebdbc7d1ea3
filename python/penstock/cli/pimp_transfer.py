"""``penstock pimp send`` and ``penstock pimp fetch``: write a job from a file, and read a job into one."""

import codecs
import io
import json
import mimetypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, cast

import typer

from penstock.cli._interrupt import interruptible
from penstock.cli._trust import CaOption, CertOption, FingerprintOption, SystemCaOption
from penstock.cli.pimp import commands

if TYPE_CHECKING:
    from penstock.pimp import Consumer, Job

__all__ = ["register"]

_PART = 1 << 20

_JobUrl = Annotated[str, typer.Argument(metavar="JOB_URL", help="URL of the job: BUFFER/pimp/{jobId}.")]
_Key = Annotated[
    str | None,
    typer.Option(
        metavar="KEY", help="Key of the job; prefer --key-file or $PENSTOCK_KEY, which process lists do not show."
    ),
]
_KeyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", exists=True, dir_okay=False, help="File with the job's key; default: $PENSTOCK_KEY."),
]
_CertKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Private key for --cert (PEM)."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print a summary as a JSON line.")]
_File = Annotated[str, typer.Argument(metavar="FILE", help="Payload file; - reads standard input.")]
_ContentType = Annotated[
    str | None, typer.Option(metavar="TYPE", help="MIME type of the payload; default: guessed from the file name.")
]
_Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", dir_okay=False, help="Output file; default: standard output."),
]


def _send(
    job_url: _JobUrl,
    file: _File,
    key: _Key = None,
    key_file: _KeyFile = None,
    content_type: _ContentType = None,
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the payload.")] = False,
    as_json: _Json = False,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    cert_key: _CertKey = None,
) -> None:
    """Write a file as a job, which is created if missing."""
    key = _secret(key, key_file)
    if key is None:
        raise typer.BadParameter("missing job key: use --key KEY or --key-file FILE, or set PENSTOCK_KEY")
    job = _job(job_url, key, fingerprint, ca, system_ca, cert, cert_key)
    name, total = file, None
    if file != "-":
        path = Path(file)
        if not path.is_file():
            raise typer.BadParameter(f"{file} is not a file")
        total = path.stat().st_size
    with interruptible(), _opened(file) as source:
        job.ensure()
        kind = content_type or _kind(name)
        # A file with the name of a text file may have an encoding other than UTF-8, so its content is checked.
        encoding = "auto" if gzip or file == "-" or _is_text(Path(file)) else "base64"
        sender = job.sender(content_type=kind, encoding=encoding, gzip=gzip, content_length=None if gzip else total)
        with sender, _progress("sent", total, as_json) as bar:
            # read1 returns what a pipe has, because readers are waiting for it.
            while part := source.read1(_PART):
                sender.send(part)
                bar.show(sender.bytes_written)
            sender.finish()
            bar.show(sender.bytes_written)
    if as_json:
        typer.echo(json.dumps({"job": job.url, "bytes": sender.bytes_written, "chunks": (sender.last_index or 0) + 1}))


_PACKED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}


def _kind(name: str) -> str:
    """Return the MIME type of a file by its name; for a compressed file, the type of the compression."""
    kind, packed = mimetypes.guess_type(name)
    if packed is not None:
        return _PACKED.get(packed, "application/octet-stream")
    return kind or "application/octet-stream"


def _is_text(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        try:
            while part := file.read(_PART):
                decoder.decode(part)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _fetch(
    job_url: _JobUrl,
    output: _Output = None,
    key: _Key = None,
    key_file: _KeyFile = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep an incomplete file, and resume it on the next run.")
    ] = False,
    stall: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.001, max=86_400, help="Seconds without new data after which the transfer fails."
        ),
    ] = 30.0,
    as_json: _Json = False,
    fingerprint: FingerprintOption = None,
    ca: CaOption = None,
    system_ca: SystemCaOption = False,
    cert: CertOption = None,
    cert_key: _CertKey = None,
) -> None:
    """Read a job's payload as it arrives; an output file appears only when complete."""
    if (as_json or resume) and output is None:
        raise typer.BadParameter("--json and --resume require -o FILE: standard output is for the payload")
    job = _job(job_url, _secret(key, key_file), fingerprint, ca, system_ca, cert, cert_key)
    with interruptible():
        kept = _Kept(output, job) if output is not None and resume else None
        consumer = job.consumer(position=kept.position if kept else None, stall_timeout=stall)
        metadata = consumer.metadata
        total = metadata.content_length if metadata.compression == "none" else None
        with _progress("fetched", total, as_json or output is None) as bar:
            if output is None:
                size = 0
                for data in consumer:
                    sys.stdout.buffer.write(data)
                    sys.stdout.buffer.flush()
                    size += len(data)
            elif kept is not None:
                size = kept.save(consumer, output, bar)
            else:
                size = consumer.save(output, progress=bar.show)
    if as_json:
        line = {"job": job.url, "bytes": size, "chunks": consumer.next_index, "content_type": metadata.content_type}
        typer.echo(json.dumps(line))


class _Kept:
    """The beginning of an incomplete payload in ``.NAME.part``; its position is in ``.NAME.part.json``."""

    def __init__(self, output: Path, job: "Job") -> None:
        self._part = output.with_name(f".{output.name}.part")
        self._note = output.with_name(f".{output.name}.part.json")
        self.bytes, self.position = 0, None
        try:
            note = json.loads(self._note.read_bytes())
            size, position = int(note["bytes"]), str(note["position"])
            # The file may be of another job.
            if note["job"] == job.id and self._part.stat().st_size >= size:
                self.bytes, self.position = size, position
        except (OSError, ValueError, LookupError, TypeError):
            # There is no position, or it is incomplete: the payload is fetched from its beginning.
            return

    def save(self, consumer: "Consumer", output: Path, bar: "_Shown") -> int:
        with self._part.open("r+b" if self.bytes else "wb") as file:
            file.truncate(self.bytes)
            file.seek(self.bytes)
            try:
                for data in consumer:
                    self.bytes += file.write(data)
                    file.flush()
                    self._keep(consumer)
                    bar.show(self.bytes)
            except BaseException as error:
                if getattr(error, "code", None) in {"CORRUPT", "TOO_LARGE"}:
                    self._drop()
                raise
        self._part.replace(output)
        self._note.unlink(missing_ok=True)
        return self.bytes

    def _keep(self, consumer: "Consumer") -> None:
        note = {"job": consumer.job.id, "bytes": self.bytes, "position": consumer.position}
        new = self._note.with_name(f"{self._note.name}.new")
        new.write_text(json.dumps(note))
        new.replace(self._note)

    def _drop(self) -> None:
        for file in (self._part, self._note):
            file.unlink(missing_ok=True)


def _secret(key: str | None, file: Path | None) -> str | None:
    if key is not None and file is not None:
        raise typer.BadParameter("--key and --key-file are mutually exclusive")
    if file is None:
        return key or os.environ.get("PENSTOCK_KEY") or None
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--key-file {file}: {error}") from None
    if not found:
        raise typer.BadParameter(f"--key-file {file}: the file is empty")
    return found


def _job(
    url: str,
    key: str | None,
    fingerprint: str | None,
    ca: Path | None,
    system_ca: bool,
    cert: Path | None,
    cert_key: Path | None,
) -> "Job":
    """Check the options (exactly one trust option for ``https://``, none for ``http://``), and return the job."""
    if (cert is None) != (cert_key is None):
        raise typer.BadParameter("--cert and --cert-key must be used together")
    secure = url.lower().startswith("https://")
    given = (fingerprint is not None) + (ca is not None) + system_ca
    if given != (1 if secure else 0):
        raise typer.BadParameter(
            "https:// needs exactly one of --fingerprint HEX (the buffer prints it when it starts), --ca FILE and "
            "--system-ca; http:// accepts none of them, and only reaches this machine"
        )
    from penstock.errors import PimpError
    from penstock.pimp import Job

    job = Job(url, key=key, fingerprint=fingerprint, ca=ca, system_ca=system_ca, cert=cert, cert_key=cert_key)
    try:
        _ = job.url
    except PimpError as error:
        if error.kind != "misuse":
            raise
        raise typer.BadParameter(str(error)) from None
    return job


@contextmanager
def _opened(file: str) -> Iterator[io.BufferedReader]:
    if file == "-":
        yield cast("io.BufferedReader", sys.stdin.buffer)
        return
    with Path(file).open("rb") as source:
        yield source


class _Shown(Protocol):
    def show(self, size: int) -> None: ...


class _Nothing:
    """A progress display that shows nothing."""

    def show(self, size: int) -> None:
        """Do nothing."""


@contextmanager
def _progress(what: str, total: int | None, quiet: bool) -> Iterator[_Shown]:
    """Show a bar on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield _Nothing()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)

        class Bar:
            def show(self, size: int) -> None:
                progress.update(task, completed=size)

        yield Bar()


def register(_app: typer.Typer) -> None:
    """Add ``penstock pimp send`` and ``fetch``."""
    commands.command("send")(_send)
    commands.command("fetch")(_fetch)
