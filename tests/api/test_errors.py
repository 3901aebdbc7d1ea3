"""Errors name what failed, and stay what they are on the way from a Spark worker."""

import asyncio
import pickle
from typing import get_args

import pytest

import penstock
from penstock import (
    DocumentsError,
    Error,
    ErrorKind,
    LumberjackError,
    PimpError,
    PipeStreamError,
    QuicxError,
    SparkError,
    VgiError,
    vgi,
)
from penstock.aio._loop import seconds_or
from penstock.quicx import TaskFailed

ERRORS = {
    DocumentsError: lambda kind: DocumentsError("no such document", kind),
    LumberjackError: lambda kind: LumberjackError("the window is over", kind),
    PimpError: lambda kind: PimpError("no such job", kind, "NOT_FOUND"),
    PipeStreamError: lambda kind: PipeStreamError("the peer is gone", kind, 3, "PIPESTREAM_CONTROL_RESET"),
    QuicxError: lambda kind: QuicxError("the queue is full", kind, code=1, accepted=[4, 0]),
    SparkError: lambda kind: SparkError("no Java", kind),
    VgiError: lambda kind: VgiError("no such segment", kind),
}


@pytest.mark.parametrize("declared", ERRORS, ids=lambda declared: declared.__name__)
def test_an_error_is_also_what_python_calls_its_kind(declared):
    """Here and after a pickle, whose class is the same."""
    others = {"misuse": ValueError, "io": OSError, "deadline": TimeoutError}
    for kind in get_args(ErrorKind):
        error = ERRORS[declared](kind)
        again = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert type(again) is type(error)
        assert (str(again), again.args, again.code) == (str(error), error.args, error.code)
        assert isinstance(error, declared)
        assert isinstance(error, Error)
        assert (error.kind, error.message) == (kind, again.message)
        expected = {other for other in others.values() if kind in others and issubclass(others[kind], other)}
        assert {other for other in others.values() if isinstance(error, other)} == expected


def test_errors_of_calls_and_tasks_are_errors_of_penstock():
    for error, kind, code in (
        (vgi.RpcError("KeyError", "KeyError: 'a'", ""), "application", "KeyError"),
        (vgi.HttpTransientError(503, "come again"), "application", "HttpTransientError"),
        (vgi.VersionError("9"), "violation", None),
        (vgi.IPCError("no batch"), "malformed", None),
        (TaskFailed("no such address"), "application", None),
    ):
        assert isinstance(error, Error)
        assert (error.kind, error.code) == (kind, code)


def test_an_error_of_spark_is_one_of_pyspark_where_pyspark_is_loaded(run_python):
    made = "from penstock import SparkError; import sys; error = SparkError('no column path')"
    assert run_python(f"{made}; print('pyspark' in sys.modules, isinstance(error, ValueError))").strip() == "False True"
    shown = "print(isinstance(error, PySparkException), isinstance(error, ValueError), error, error.getCondition())"
    found = run_python(f"from pyspark.errors import PySparkException; {made}; {shown}")
    assert found.strip() == "True True no column path None"


def test_an_error_that_a_deadline_hides_is_not_swallowed():
    """A wait with a timeout ends with the session's own deadline, not with that of the wait."""

    async def wait() -> None:
        async with seconds_or(60, LumberjackError("the wait", "deadline")):
            raise LumberjackError("the session", "deadline")

    with pytest.raises(LumberjackError, match="the session"):
        asyncio.run(wait())


def test_a_pipestream_error_names_its_code_and_its_place():
    error = PipeStreamError("scope 3 is ours", "violation", 9, "PIPESTREAM_SCOPE_INVALID", 3, 7)
    assert str(error) == "PIPESTREAM_SCOPE_INVALID (0x09): scope 3 is ours (scope 3, entity 7)"
    assert (error.code, error.name, error.kind) == (9, "PIPESTREAM_SCOPE_INVALID", "violation")
    assert (error.scope, error.entity) == (3, 7)


def test_an_error_of_the_whole_session_names_no_place():
    error = PipeStreamError("the peer is gone", "io", 3, "PIPESTREAM_CONTROL_RESET")
    assert str(error) == "PIPESTREAM_CONTROL_RESET (0x03): the peer is gone"
    assert (error.scope, error.entity) == (None, None)


def test_a_pickled_error_keeps_its_fields():
    error = pickle.loads(pickle.dumps(PipeStreamError("late", "deadline", 2, "PIPESTREAM_IDLE_TIMEOUT", 0, 1)))  # noqa: S301
    assert (error.message, error.code, error.kind, error.entity) == ("late", 2, "deadline", 1)


def test_importing_penstock_loads_neither_the_core_nor_spark(run_python):
    loaded = run_python(
        "import sys, penstock; print([m for m in ('penstock._core', 'pyspark', 'pyarrow', 'rich') if m in sys.modules])"
    )
    assert loaded.strip() == "[]"
    assert penstock.__version__


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("penstock.spark", ("penstock._core", "penstock.pipestream", "penstock.lumberjack", "rich", "pyspark")),
        ("penstock.spark.pipestream", ("penstock.lumberjack", "penstock.quicx", "penstock.documents", "rich")),
        ("penstock.spark.lumberjack", ("penstock.pipestream", "penstock.quicx", "penstock.documents", "rich")),
        ("penstock.spark.pimp", ("penstock.pipestream", "penstock.lumberjack", "penstock.documents", "rich")),
        ("penstock.spark.quicx", ("penstock.pipestream", "penstock.lumberjack", "penstock.documents", "rich")),
    ],
)
def test_a_data_source_loads_no_other_protocol(run_python, module, others):
    """Spark starts a Python process for each step of a query, and each imports the module of the source."""
    loaded = run_python(f"import sys, {module}; print([m for m in {others!r} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_every_name_of_penstock_spark_is_found_when_it_is_used(run_python):
    found = run_python(
        "import penstock.spark as s, penstock.spark._changes, inspect; "
        "print([n for n in s.__all__ if inspect.ismodule(getattr(s, n))], set(s.__all__) - set(dir(s)))"
    )
    assert found.strip() == "[] set()"
    with pytest.raises(ImportError, match="nothing_of_the_kind"):
        from penstock.spark import nothing_of_the_kind  # noqa: F401
