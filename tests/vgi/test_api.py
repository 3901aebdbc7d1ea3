"""Every public name of vgi_rpc 0.10.0 is here, and takes what it takes there: ``api.json`` says what."""

import inspect
import json
from dataclasses import MISSING, fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from worker import Service, ServiceImpl

from penstock.vgi import RpcServer
from penstock.vgi.http._options import HttpOptions, core_options

_NAMES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("api.json").read_text())

# Sentry is left out on purpose.
LEFT_OUT = {"SentryConfig", "instrument_server_sentry"}
LEFT_OUT_PARAMETERS = {"sentry_config"}
# Proxies, or methods of the class, make these of what the core gives them.
MADE_BY_OTHERS = {"HttpStreamSession", "StreamSession", "ShmSegment"}


def _found(entry: dict[str, Any]) -> Any:
    """Give what is here under a name; None for what need not be."""
    module, name = entry["module"], entry["name"]
    if name in LEFT_OUT:
        return None
    try:
        return getattr(import_module(f"penstock.vgi.{module}".rstrip(".")), name)
    except (ImportError, AttributeError):
        raise AssertionError(f"{module}.{name} is missing") from None


def _equal(given: Any, wanted: dict[str, Any]) -> bool:
    if "some" in wanted:
        return given is not inspect.Parameter.empty
    if "member" in wanted:
        return isinstance(given, Enum) and given.name == wanted["member"]
    return bool(given == wanted["value"] or (isinstance(given, tuple) and list(given) == wanted["value"]))


def _options(parameter: inspect.Parameter) -> set[str]:
    """Give the names behind ``**options``."""
    given = str(parameter.annotation)
    return set(HttpOptions.__annotations__) if "HttpOptions" in given else set()


def _compare(what: str, function: Any, wanted: list[list[Any]]) -> int:
    ours = dict(inspect.signature(function).parameters)
    ours.pop("self", None)
    behind = {name for each in ours.values() if each.kind is each.VAR_KEYWORD for name in _options(each)}
    places = [name for name, each in ours.items() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.POSITIONAL_ONLY)]
    for place, (name, kind, *default) in enumerate(wanted):
        if name in LEFT_OUT_PARAMETERS or name in behind:
            continue
        assert name in ours, f"{what} has no parameter {name}"
        if kind == "p":
            assert places[place : place + 1] == [name], f"{what}: {name} is not parameter {place}"
        assert bool(default) == (ours[name].default is not inspect.Parameter.empty), f"{what}: the default of {name}"
        if default:
            assert _equal(ours[name].default, default[0]), f"{what}: {name} is {ours[name].default!r}"
    known = {name for name, *_ in wanted}
    more = [
        name
        for name, each in ours.items()
        if name not in known and each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    assert not more, f"{what} needs {more}, which callers do not give"
    return len(wanted)


def _compare_class(entry: dict[str, Any], found: Any) -> int:
    what = entry["name"]
    for name in entry["attributes"]:
        assert name in dir(found) or name in getattr(found, "__annotations__", {}), f"{what}.{name} is missing"
    for name, value in entry.get("members", {}).items():
        assert found[name].value == value
    seen = len(entry["attributes"]) + len(entry.get("members", {}))
    given = {each.name: each for each in fields(found)} if entry["kind"] == "dataclass" else {}
    public = [field for field in entry["fields"] if not field[0].startswith("_")]
    for place, (name, *default) in enumerate(public):
        assert list(given)[place] == name, f"{what}: {name} is not field {place}"
        has = given[name].default is not MISSING or given[name].default_factory is not MISSING
        assert has == bool(default), f"{what}: the default of {name}"
        if default and given[name].default is not MISSING:
            assert _equal(given[name].default, default[0]), f"{what}: {name} is {given[name].default!r}"
    for name, wanted in entry["methods"].items():
        if name == "__init__" and (what in MADE_BY_OTHERS or not wanted):
            continue
        seen += _compare(f"{what}.{name}", getattr(found, name), wanted)
    return seen + len(public)


@pytest.mark.parametrize("kind", ["again", "constant", "function", "class", "dataclass"])
def test_every_name_is_here_and_takes_what_it_takes_there(kind: str) -> None:
    entries = [entry for entry in _NAMES if entry["kind"] == kind]
    seen = 0
    for entry in entries:
        found = _found(entry)
        if found is None:
            continue
        seen += 1
        if kind == "constant" and "value" in entry:
            assert (found.decode() if isinstance(found, bytes) else found) == entry["value"], entry["name"]
        elif kind == "function" and entry["parameters"]:
            seen += _compare(entry["name"], found, entry["parameters"])
        elif kind in ("class", "dataclass"):
            seen += _compare_class(entry, found)
    assert seen >= {"again": 4, "constant": 29, "function": 120, "class": 180, "dataclass": 110}[kind], seen


@pytest.mark.parametrize("name", ["make_wsgi_app", "make_sync_client"])
def test_the_options_of_http_have_the_defaults_of_the_package(name: str) -> None:
    (entry,) = [entry for entry in _NAMES if entry["name"] == name]
    options = {name: default[0]["value"] for name, _, *default in entry["parameters"] if default}
    given: Any = {name: value for name, value in options.items() if name in HttpOptions.__annotations__}
    assert set(options) - set(given) <= LEFT_OUT_PARAMETERS | {"default_headers"}
    server = RpcServer(Service, ServiceImpl(), dialect="0.10")
    key = b"a key of 16 bytes"
    assert core_options(server, signing_key=key) == core_options(server, **{**given, "signing_key": key})


def test_what_is_left_out_is_in_the_contract() -> None:
    named = {entry["name"] for entry in _NAMES}
    assert named >= LEFT_OUT | MADE_BY_OTHERS
