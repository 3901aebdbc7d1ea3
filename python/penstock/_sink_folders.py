"""Access to a sink's files for a verification, in a local folder or a prefix in an object store."""

import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import Protocol

from penstock._places import Place, is_uri

__all__ = ["LocalFolder", "RenamedFolder", "SinkFolder", "StoreFolder", "local_receipts", "sink_folder"]

_LOG = "entities.jsonl"
_NUMBERED = re.compile(r"([0-9a-f]{32})\.([1-9][0-9]*)")
_PIECE = 1 << 20
# The number of objects that are read at once, and the most bytes of each in memory.
_AHEAD = 16
_LARGE_PIECE = 4 << 20


@contextmanager
def local_receipts(
    receipts: str | os.PathLike[str], storage: Mapping[str, str] | None = None
) -> Iterator[Iterable[Path]]:
    """Yield the file of one receipt, or those of all receipts in a folder, in order.

    For a URI the files are temporary copies, of which only the current one exists. If the folder has no receipts, the
    result is empty.
    """
    text = os.fspath(receipts)
    if not is_uri(text):
        place = Path(text)
        found = [place]
        if place.is_dir():
            found = sorted(path for path in place.iterdir() if path.suffix == ".json" and path.name[0] != ".")
        yield found
        return
    there = Place.open(text, storage)
    objects = [there]
    if there.is_folder():
        files = (there.below(info) for info in there.files(recursive=False))
        objects = [each for each in files if each.name.endswith(".json") and each.name[0] != "."]
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        yield (_copy(each, Path(folder)) for each in objects) if objects else ()


def _copy(receipt: Place, folder: Path) -> Path:
    for earlier in folder.iterdir():
        earlier.unlink()
    copy = folder / receipt.name
    with receipt.open_file() as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target, _LARGE_PIECE)
    return copy


class SinkFolder(Protocol):
    """The files that a verification reads.

    What does not exist is empty. The methods raise ``OSError`` if a store does not answer or a folder cannot be listed,
    except ``missing``, ``digest`` and ``content``, which return that.
    """

    def missing(self) -> str | None:
        """Return the reason why there is no such sink; ``None`` if there is one."""

    def log(self, session: str) -> Path:
        """Return the path of a session's log, which may not exist."""

    def is_open(self, session: str) -> bool:
        """Return whether a session without a last line may still be open."""

    def uses(self, session: str) -> list[str]:
        """Return the folders of all sessions that had an ID: ``SESSION``, then ``SESSION.1`` and so on."""

    def names(self, folder: str) -> list[str]:
        """Return the names in ``SESSION`` or ``SESSION/SCOPE``, in order."""

    def expect(self, files: Iterable[str]) -> None:
        """Announce which payloads will be read next, in order."""

    def digest(self, file: str) -> tuple[str, int] | str:
        """Read a payload and return its SHA-256 and length, or the reason why it cannot be read."""

    def content(self, file: str, limit: int) -> bytes | None:
        """Return a payload; ``None`` if it has more than ``limit`` bytes or cannot be read."""


def sink_folder(sink: str | os.PathLike[str], storage: Mapping[str, str] | None = None) -> SinkFolder:
    """Return the files of a sink in a folder or at a URI.

    Raises ``ValueError`` for an invalid URI or option.
    """
    text = os.fspath(sink)
    return StoreFolder(Place.open(text, storage)) if is_uri(text) else LocalFolder(Path(text))


class LocalFolder:
    """A sink in a local folder. Symbolic links are not followed, because a sink makes none."""

    def __init__(self, folder: Path) -> None:
        """Keep the folder; missing files are found when they are read."""
        self._folder = folder
        self._numbered: dict[str, list[int]] | None = None

    def missing(self) -> str | None:
        try:
            return None if self._folder.is_dir() else f"the sink {self._folder} is not a folder"
        except OSError as error:
            return f"the sink {self._folder} cannot be read: {error.strerror}"

    def log(self, session: str) -> Path:
        return self._folder / session / _LOG

    def is_open(self, session: str) -> bool:
        return self.log(session).exists()

    def uses(self, session: str) -> list[str]:
        if self._numbered is None:
            numbered: dict[str, list[int]] = {}
            for name in self.names("."):
                if (match := _NUMBERED.fullmatch(name)) is not None:
                    numbered.setdefault(match[1], []).append(int(match[2]))
            self._numbered = numbered
        first = [session] if (self._folder / session).is_dir() else []
        return [*first, *(f"{session}.{number}" for number in sorted(self._numbered.get(session, [])))]

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(entry.name for entry in (self._folder / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def expect(self, files: Iterable[str]) -> None:
        """Do nothing: local files are not read ahead."""

    def content(self, file: str, limit: int) -> bytes | None:
        try:
            descriptor = os.open(self._folder / file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as payload:
                data = payload.read(limit + 1)
        except OSError:
            return None
        return data if len(data) <= limit else None

    def digest(self, file: str) -> tuple[str, int] | str:
        path = self._folder / file
        try:
            if any(stat.S_ISLNK(parent.lstat().st_mode) for parent in (path.parent, path.parent.parent)):
                return "it lies behind a symbolic link"
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return _digest(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            return error.strerror or "it cannot be read"


def _digest(descriptor: int) -> tuple[str, int] | str:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return "it is not a file"
    digest, length = hashlib.sha256(), 0
    while piece := os.read(descriptor, _PIECE):
        digest.update(piece)
        length += len(piece)
    return digest.hexdigest(), length


class RenamedFolder:
    """A view of another sink folder in which the folders of some sessions have the sessions' IDs as their names."""

    def __init__(self, folder: SinkFolder, renamed: Mapping[str, str]) -> None:
        """Keep the folder; ``renamed`` maps sessions' IDs to the real names of their folders."""
        self._folder = folder
        self._renamed = renamed
        self.missing = folder.missing

    def _name(self, file: str) -> str:
        session, slash, rest = file.partition("/")
        return self._renamed.get(session, session) + slash + rest

    def log(self, session: str) -> Path:
        return self._folder.log(self._name(session))

    def is_open(self, session: str) -> bool:
        return self._folder.is_open(self._name(session))

    def uses(self, session: str) -> list[str]:
        return self._folder.uses(session)

    def names(self, folder: str) -> list[str]:
        return self._folder.names(self._name(folder))

    def expect(self, files: Iterable[str]) -> None:
        self._folder.expect(map(self._name, files))

    def digest(self, file: str) -> tuple[str, int] | str:
        return self._folder.digest(self._name(file))

    def content(self, file: str, limit: int) -> bytes | None:
        return self._folder.content(self._name(file), limit)


class StoreFolder:
    """A sink at a prefix in an object store. Payloads are read ahead, several at a time."""

    def __init__(self, place: Place) -> None:
        """Keep the prefix; missing objects are found when they are read."""
        self._place = place
        self._logs = tempfile.TemporaryDirectory(prefix="penstock-")
        self._pool = ThreadPoolExecutor(_AHEAD, thread_name_prefix="verify")
        self._expected: Iterator[str] = iter(())
        self._ahead: dict[str, Future[tuple[str, int] | str]] = {}

    def missing(self) -> str | None:
        try:
            return None if self._place.is_folder() else f"the sink {self._place.uri} is empty"
        except OSError as error:
            return f"the sink {self._place.uri} does not answer: {error}"

    def log(self, session: str) -> Path:
        path = Path(self._logs.name, session)
        if not path.exists():
            try:
                with (self._place / session / _LOG).open_file() as list_, path.open("wb") as copy:
                    shutil.copyfileobj(list_, copy, _LARGE_PIECE)
            except FileNotFoundError:
                path.unlink(missing_ok=True)
            except BaseException:
                # The next receipt must not be compared with a part of the log.
                path.unlink(missing_ok=True)
                raise
        return path

    def is_open(self, session: str) -> bool:
        # The log appears as a whole when the session ends; until then its pieces are in ``.open``.
        return not self.log(session).exists() and (self._place / ".open" / session).is_folder()

    def uses(self, session: str) -> list[str]:
        first = [session] if (self._place / session).is_folder() else []
        numbered = (f"{session}.{number}" for number in count(1))
        return [*first, *takewhile(lambda name: (self._place / name).is_folder(), numbered)]

    def names(self, folder: str) -> list[str]:
        return [info.base_name for info in (self._place / folder).files(recursive=False)]

    def expect(self, files: Iterable[str]) -> None:
        self._expected = iter(files)
        # Those of an earlier receipt are left if its verification has failed.
        self._ahead.clear()

    def digest(self, file: str) -> tuple[str, int] | str:
        reading = self._ahead.pop(file, None) or self._pool.submit(self._digest, file)
        for coming in self._expected:
            if coming != file and coming not in self._ahead:
                self._ahead[coming] = self._pool.submit(self._digest, coming)
            if len(self._ahead) >= _AHEAD:
                break
        return reading.result()

    def content(self, file: str, limit: int) -> bytes | None:
        try:
            with (self._place / file).open_file() as payload:
                data: bytes = payload.read(limit + 1)
        except OSError:
            return None
        return data if len(data) <= limit else None

    def _digest(self, file: str) -> tuple[str, int] | str:
        digest, length = hashlib.sha256(), 0
        try:
            with (self._place / file).open_file() as payload:
                while piece := payload.read(_LARGE_PIECE):
                    digest.update(piece)
                    length += len(piece)
        except FileNotFoundError:
            return os.strerror(2)
        except OSError as error:
            return str(error)
        return digest.hexdigest(), length
