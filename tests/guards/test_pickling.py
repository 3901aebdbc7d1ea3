"""What crosses to a Spark worker, or back, survives a pickle.

Every public class is either pickled here, or listed with the reason why it is not: a new class fails this guard until
somebody has decided.
"""

import copy
import dataclasses
import enum
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable

import pytest

import penstock
from penstock.errors import DocumentsError, Error, PipeStreamError, SparkError

SAMPLES: dict[type, Callable[[], object]] = {
    Error: lambda: Error("it failed"),
    PipeStreamError: lambda: PipeStreamError("scope 3 is ours", 9, "PIPESTREAM_SCOPE_INVALID", "violation", 3, 7),
    DocumentsError: lambda: DocumentsError("no such document", "io"),
    SparkError: lambda: SparkError("no Java"),
}
# Classes that hold something of this process, by name, with what they hold.
LIVE: dict[str, str] = {}
# Command line and tests only.
NOT_SENT = ("penstock.cli",)


def _public_classes() -> list[type]:
    found = {}
    for info in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if info.name.startswith(NOT_SENT) or any(part.startswith("_") for part in info.name.split(".")):
            continue
        module = importlib.import_module(info.name)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return [found[name] for name in sorted(found)]


def _state(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, BaseException):
        return (value.args, vars(value), str(value))
    return value


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_values_survive_a_pickle(protocol, saw):
    values: list[object] = [make() for make in SAMPLES.values()]
    values += [member for found in _public_classes() if issubclass(found, enum.Enum) for member in found]
    for value in values:
        for again in (pickle.loads(pickle.dumps(value, protocol)), copy.copy(value)):  # noqa: S301 - made a line above
            assert type(again) is type(value)
            assert _state(again) == _state(value)
    saw(len(values), f"values pickled with protocol {protocol}", at_least=4)


def test_every_public_class_is_pickled_or_says_why_not(saw):
    classes = _public_classes()
    for found in classes:
        name = f"{found.__module__}.{found.__qualname__}"
        known = found in SAMPLES or name in LIVE or issubclass(found, enum.Enum)
        assert known, f"{name}: add it to SAMPLES, or to LIVE with what it holds"
        assert not (found in SAMPLES and name in LIVE), f"{name} is in SAMPLES and in LIVE"
    stale = set(LIVE) - {f"{found.__module__}.{found.__qualname__}" for found in classes}
    assert not stale, f"LIVE names what is not there: {stale}"
    saw(len(classes), "public classes", at_least=4)
