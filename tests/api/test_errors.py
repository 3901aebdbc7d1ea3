"""Errors name what failed, and stay what they are on the way from a Spark worker."""

import pickle

import pytest

import penstock
from penstock import DocumentsError, Error, PipeStreamError, SparkError


def test_every_error_descends_from_one():
    for error in (PipeStreamError, DocumentsError, SparkError):
        assert issubclass(error, Error)
    assert not issubclass(Error, OSError)


def test_a_pipestream_error_names_its_code_and_its_place():
    error = PipeStreamError("scope 3 is ours", 9, "PIPESTREAM_SCOPE_INVALID", "violation", 3, 7)
    assert str(error) == "PIPESTREAM_SCOPE_INVALID (0x09): scope 3 is ours (scope 3, entity 7)"
    assert (error.code, error.name, error.kind) == (9, "PIPESTREAM_SCOPE_INVALID", "violation")
    assert (error.scope, error.entity) == (3, 7)


def test_an_error_of_the_whole_session_names_no_place():
    error = PipeStreamError("the peer is gone", 3, "PIPESTREAM_CONTROL_RESET", "io")
    assert str(error) == "PIPESTREAM_CONTROL_RESET (0x03): the peer is gone"
    assert (error.scope, error.entity) == (None, None)


def test_a_pickled_error_keeps_its_fields():
    error = pickle.loads(pickle.dumps(PipeStreamError("late", 2, "PIPESTREAM_IDLE_TIMEOUT", "deadline", 0, 1)))  # noqa: S301
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
