"""Options of the data sources: each is read once, and an option that no code has read is refused.

All of it happens on the driver, before a task runs.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from penstock._pipestream_limits import LIMITS, SERVER_LIMITS, Limits
from penstock._places import check_storage
from penstock._read_key import read_key
from penstock.errors import SparkError
from penstock.spark._paths import from_option

__all__ = ["STORAGE", "Options"]

_T = TypeVar("_T")

# What Spark puts among the options of a query for itself.
_SPARK_OWN = frozenset({"checkpointlocation", "queryname"})
_STORAGE = "storage."
STORAGE = "storage.NAME"
"""How errors call the options of an object store."""
_WILDCARDS = ("0.0.0.0", "[::]")  # noqa: S104 - to be refused as an address to connect to
_FLAGS = {"true": True, "false": False}


@dataclass
class Options:
    """The options that a user gave; names are the same in any case, as Spark has it.

    >>> options = Options({"Address": "sink:4433", "ignoreExtra": "true"}, "sink")
    >>> options.target(), options.flag("ignoreExtra"), options.positive("inFlight", 7)
    ('sink:4433', True, 7)
    >>> options.finish()
    """

    given: Mapping[str, str]
    what: str
    """How errors call the side that the options are for: sink, source."""
    format: str = "pipestream"
    """And the data source."""
    _known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Names in lower case."""
        self.given = {name.lower(): value for name, value in self.given.items()}

    def text(self, name: str) -> str | None:
        """Read a text; ``None`` if it was not given."""
        self._known.add(name)
        return self.given.get(name.lower())

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Read ``true`` or ``false``."""
        given = self.text(name)
        if given is None:
            return default
        if given.lower() not in _FLAGS:
            raise self.error(name, f"must be true or false, not {given!r}")
        return _FLAGS[given.lower()]

    def positive(self, name: str, default: int) -> int:
        """Read a number from 1 on."""
        given = self.text(name)
        if given is None:
            return default
        if not (given.isascii() and given.isdecimal() and 1 <= int(given) < 1 << 63):
            raise self.error(name, f"must be a positive number, not {given!r}")
        return int(given)

    def within(self, name: str, least: int, most: int) -> int | None:
        """Read a number between two others; ``None`` if it was not given."""
        given = self.text(name)
        if given is None:
            return None
        if not (given.isascii() and given.isdecimal() and least <= int(given) <= most):
            raise self.error(name, f"must be a number from {least} to {most}, not {given!r}")
        return int(given)

    def limits(self, *, server: bool) -> Limits:
        """Read the options ``max_...`` of `penstock.pipestream.Limits`; ``server``: also those of servers alone."""
        names = [name for name in LIMITS if server or name not in SERVER_LIMITS]
        given: dict[str, Any] = {name: value for name in names if (value := self._limit(name)) is not None}
        return Limits(**given)

    def _limit(self, name: str) -> int | float | None:
        least, most = LIMITS[name]
        if isinstance(least, int) and isinstance(most, int):
            return self.within(name, least, most)
        given = self.text(name)
        if given is None:
            return None
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise self.error(name, f"must be a number of seconds from {least} to {most}, not {given!r}")
        return value

    def choice(self, name: str, *choices: str) -> str:
        """Read one of a few words; the first if it was not given."""
        given = self.text(name)
        if given is None:
            return choices[0]
        if given not in choices:
            raise self.error(name, f"must be {' or '.join(choices)}, not {given!r}")
        return given

    def file(self, name: str) -> str | None:
        """Read a local path: relative to the driver's folder, which executors do not have, so made absolute."""
        given = self.text(name)
        return None if given is None else str(Path(from_option(given)).absolute())

    def checked(self, name: str, check: Callable[[str], _T]) -> _T | None:
        """Read a text of which ``check`` makes a value, or which it refuses with ``ValueError``."""
        given = self.text(name)
        try:
            return None if given is None else check(given)
        except ValueError as error:
            raise self.error(name, str(error)) from None

    def storage(self, *uris: str) -> dict[str, str]:
        """Read the options ``storage.NAME`` for these URIs of an object store."""
        names = [name for name in self.given if name.startswith(_STORAGE)]
        self._known.update(names)
        try:
            return check_storage({name.removeprefix(_STORAGE): self.given[name] for name in names}, *uris)
        except ValueError as error:
            raise SparkError(f"the {self.format} {self.what}: {error}") from None

    def read_key(self, refusal: str) -> str:
        """Read the read key: from the file ``read_key_file`` of the driver, else from its environment.

        ``refusal`` says in the error who lets nobody read what.
        """
        file = self.file("read_key_file")
        try:
            key = read_key(file)
        except ValueError as error:
            if file is None:
                raise SparkError(f"the {self.format} {self.what}: {error}") from None
            raise self.error("read_key_file", f"does not give the read key: {error}") from None
        if key is None:
            problem = f"{refusal} without its read key, and PENSTOCK_KEY is not in the environment"
            raise SparkError(f"{problem}: set the option read_key_file, or PENSTOCK_KEY on the driver")
        return key

    def check_together(self, one: str, other: str) -> None:
        """Refuse one of two options without the other."""
        if (self.text(one) is None) != (self.text(other) is None):
            raise SparkError(f"the options {one} and {other} of the {self.format} {self.what} go together")

    def check_reachable(self, listen: str, advertise: str | None) -> None:
        """Refuse an address that executors cannot connect to, unless they are told of another one."""
        if advertise is None and listen.rpartition(":")[0] in _WILDCARDS:
            raise self.error(
                "listen", f"names no host that executors can reach: set advertise to HOST:PORT, not {listen}"
            )

    def target(self, example: str = "HOST:PORT") -> str:
        """Read what names the server or the sink: the option ``address``, or what ``load`` and ``save`` were given."""
        address, path = self.text("address"), self.text("path")
        if address is not None and path is not None:
            raise self.error("address", f"and the path {path!r} name the {self.what} twice: leave one out")
        target = path if address is None else address
        if target is None:
            raise SparkError(f'the {self.format} {self.what} needs an address: .option("address", "{example}")')
        return target

    def error(self, name: str, problem: str) -> SparkError:
        """Make the error about an option."""
        return SparkError(f"the option {name} of the {self.format} {self.what} {problem}")

    def finish(self, *others: str) -> None:
        """Refuse what nobody has read, with the names that there are.

        ``others`` are names that somebody reads where other options are given.
        """
        left = sorted(set(self.given) - {name.lower() for name in self._known} - _SPARK_OWN)
        elsewhere = {name.lower() for name in others}
        for name in left:
            if name in elsewhere or (name.startswith(_STORAGE) and STORAGE in others):
                raise self.error(name, "does not go with the others that were given")
        if left:
            known = ", ".join(sorted(self._known | set(others)))
            raise SparkError(f"the {self.format} {self.what} has no option {', '.join(left)}; there are {known}")
