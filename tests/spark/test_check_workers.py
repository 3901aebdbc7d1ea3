"""What an executor has, and what it lacks."""

import json
import re
import subprocess
from pathlib import Path

import cluster_environment
import pyspark
import pytest
from pyspark import cloudpickle

from penstock import __version__
from penstock.errors import SparkError
from penstock.spark import check_workers
from penstock.spark.workers import _probe, _problem

_LOAD = """
import json, pickle, sys
probe = pickle.loads(bytes.fromhex(sys.argv[1]))
(batch,) = probe(iter([]))
print(json.dumps(batch.to_pylist()[0]))
"""


def test_a_python_without_penstock_is_found_by_a_probe_that_needs_none(tmp_path):
    cluster_environment.make(tmp_path / "environment", ("pandas", "pyarrow"))
    python = tmp_path / "environment" / "bin" / "python"
    paths = ":".join(map(str, (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")))
    command = [python, "-c", _LOAD, cloudpickle.dumps(_probe()).hex()]
    ran = subprocess.run(command, env={"PYTHONPATH": paths}, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["executable"], found["penstock"]) == (str(python), None)
    assert (
        _problem(found["python"], found["penstock"], found["failure"], found["python"]) == "penstock is not installed"
    )


@pytest.mark.parametrize(
    ("python", "penstock", "problem"),
    [
        ("3.11.2", __version__, None),
        ("3.12.1", __version__, r"Python 3\.12\.1, but the driver has 3\.11\.9: set PYSPARK_PYTHON"),
        ("3.11.9", "0.0.1", r"penstock 0\.0\.1, but the driver has .*: install the same wheel"),
    ],
)
def test_versions_that_differ_are_problems(python, penstock, problem):
    found = _problem(python, penstock, None, "3.11.9")
    assert (found is None) == (problem is None)
    assert problem is None or re.search(problem, found)


def test_a_local_session_has_one_worker_without_a_problem(spark):
    (worker,) = check_workers(spark, tasks=2)
    assert (worker.penstock, worker.problem) == (__version__, None)
    with pytest.raises(SparkError, match="between 1 and"):
        check_workers(spark, tasks=0)
