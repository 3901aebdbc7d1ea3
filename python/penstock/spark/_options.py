"""Options of the data sources: the code reads those that it knows, and all others are rejected.

This happens on the driver, before any task runs.
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

# Options that Spark adds to those of a query for its own use.
_SPARK_OWN = frozenset({"checkpointlocation", "queryname"})
_STORAGE = "storage."
STORAGE = "storage.NAME"
"""The name of an object store's options in error messages."""
_WILDCARDS = ("0.0.0.0", "[::]")  # noqa: S104 - to be refused as an address to connect to
_FLAGS = {"true": True, "false": False}


@dataclass
class Options:
    """The options of a user; their names are case-insensitive, as in Spark.

    >>> options = Options({"Address": "sink:4433", "ignoreExtra": "true", "types": "ocr, pdf"}, "sink")
    >>> options.target(), options.flag("ignoreExtra"), options.positive("inFlight", 7), options.names("types")
    ('sink:4433', True, 7, ['ocr', 'pdf'])
    >>> options.finish()
    """

    given: Mapping[str, str]
    what: str
    """The side that the options are for, in error messages: sink or source."""
    format: str = "pipestream"
    """The name of the data source in error messages."""
    _known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Convert the names to lower case."""
        self.given = {name.lower(): value for name, value in self.given.items()}

    def text(self, name: str) -> str | None:
        """Read a str; return ``None`` if the option was not given."""
        self._known.add(name)
        return self.given.get(name.lower())

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Read a bool, ``true`` or ``false``."""
        given = self.text(name)
        if given is None:
            return default
        if given.lower() not in _FLAGS:
            raise self.error(name, f"must be true or false, not {given!r}")
        return _FLAGS[given.lower()]

    def positive(self, name: str, default: int) -> int:
        """Read an int of at least 1."""
        given = self.text(name)
        if given is None:
            return default
        if not (given.isascii() and given.isdecimal() and 1 <= int(given) < 1 << 63):
            raise self.error(name, f"must be a positive number, not {given!r}")
        return int(given)

    def within(self, name: str, least: int, most: int) -> int | None:
        """Read an int from ``least`` to ``most``; return ``None`` if the option was not given."""
        given = self.text(name)
        if given is None:
            return None
        if not (given.isascii() and given.isdecimal() and least <= int(given) <= most):
            raise self.error(name, f"must be a number from {least} to {most}, not {given!r}")
        return int(given)

    def limits(self, *, server: bool) -> Limits:
        """Read the options ``max_...`` of `penstock.pipestream.Limits`; with ``server`` also those of servers."""
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
        """Read one of several words; return the first if the option was not given."""
        given = self.text(name)
        if given is None:
            return choices[0]
        if given not in choices:
            raise self.error(name, f"must be {' or '.join(choices)}, not {given!r}")
        return given

    def names(self, name: str) -> list[str] | None:
        """Read names separated by commas, with or without spaces; return ``None`` if the option was not given."""
        given = self.text(name)
        if given is None:
            return None
        names = [each.strip() for each in given.split(",") if each.strip()]
        if not names:
            raise self.error(name, f"names nothing: {given!r}")
        return names

    def file(self, name: str) -> str | None:
        """Read a local path and make it absolute, because executors do not share the driver's working directory."""
        given = self.text(name)
        return None if given is None else str(Path(from_option(given)).absolute())

    def checked(self, name: str, check: Callable[[str], _T]) -> _T | None:
        """Read a str and convert it with ``check``, which raises ``ValueError`` if the str is invalid."""
        given = self.text(name)
        try:
            return None if given is None else check(given)
        except ValueError as error:
            raise SparkError(f"the option {name} of the {self.format} {self.what}: {error}") from None

    def storage(self, *uris: str) -> dict[str, str]:
        """Read the options ``storage.NAME`` for URIs of an object store."""
        names = [name for name in self.given if name.startswith(_STORAGE)]
        self._known.update(names)
        try:
            return check_storage({name.removeprefix(_STORAGE): self.given[name] for name in names}, *uris)
        except ValueError as error:
            raise SparkError(f"the {self.format} {self.what}: {error}") from None

    def read_key(self, refusal: str) -> str:
        """Read the read key: from the driver's file ``read_key_file``, else from its environment.

        ``refusal`` begins the error message for a missing key: it names the server and what is to be read.
        """
        file = self.file("read_key_file")
        try:
            key = read_key(file)
        except ValueError as error:
            if file is None:
                raise SparkError(f"the {self.format} {self.what}: {error}") from None
            raise self.error("read_key_file", f"does not provide a read key: {error}") from None
        if key is None:
            problem = f"{refusal} requires its read key"
            raise SparkError(f"{problem}: set the option read_key_file, or PENSTOCK_KEY on the driver")
        return key

    def check_together(self, one: str, other: str) -> None:
        """Reject one of two options without the other."""
        if (self.text(one) is None) != (self.text(other) is None):
            raise SparkError(f"the options {one} and {other} of the {self.format} {self.what} must be used together")

    def check_reachable(self, listen: str, advertise: str | None) -> None:
        """Reject a wildcard address, to which executors cannot connect, unless ``advertise`` names another one."""
        if advertise is None and listen.rpartition(":")[0] in _WILDCARDS:
            raise self.error(
                "listen", f"is {listen}, which executors cannot connect to: set the option advertise to HOST:PORT"
            )

    def target(self, example: str = "HOST:PORT") -> str:
        """Read the server or the sink: the option ``address``, or the argument of ``load`` or ``save``."""
        address, path = self.text("address"), self.text("path")
        if address is not None and path is not None:
            raise self.error("address", f"and the path {path!r} are mutually exclusive")
        target = path if address is None else address
        if target is None:
            raise SparkError(f'the {self.format} {self.what} requires an address: .option("address", "{example}")')
        return target

    def error(self, name: str, problem: str) -> SparkError:
        """Return an error about an option."""
        return SparkError(f"the option {name} of the {self.format} {self.what} {problem}")

    def finish(self, *others: str) -> None:
        """Reject options that were not read; the error lists the known names.

        ``others`` are names that are read only in combination with other options.
        """
        left = sorted(set(self.given) - {name.lower() for name in self._known} - _SPARK_OWN)
        elsewhere = {name.lower() for name in others}
        for name in left:
            if name in elsewhere or (name.startswith(_STORAGE) and STORAGE in others):
                raise self.error(name, "cannot be combined with the other options")
        if left:
            known = ", ".join(sorted(self._known | set(others)))
            strange = ", ".join(map(repr, left))
            raise SparkError(f"unknown option {strange} for the {self.format} {self.what}; valid options: {known}")
